"""One queue of a member's share: what is read from it, in which order it is delivered, and what became of it.

Two kinds: free, where every message is on its own, and ordered, where the next comes when the one before is done with.
A shell around a ``Fetcher``; it knows one queue. Source: ``ConsumeMessageConcurrentlyService`` and
``ConsumeMessageOrderlyService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import attrs
import trio

from broker.client.config import ConsumerSettings
from broker.client.fetching import Fetcher
from broker.client.message import Received
from broker.client.messages import Messages
from broker.client.returns import Returns
from broker.client.session import Session
from remoting.bodies.consumers import MessageQueue, SubscriptionData

_AGAIN_MS: Final = 5_000
"""Milliseconds until this client delivers again what it could not give back."""
_TIMED_OUT_LEVEL: Final = 3


@attrs.frozen
class Consumption:
    """State that the shares of one consumer have in common."""

    session: Session
    group: str
    settings: ConsumerSettings
    messages: Messages
    returns: Returns
    nursery: trio.Nursery
    broadcast: bool


class Share:
    """A queue whose messages are on their own."""

    ordered = False

    def __init__(self, delivery: Consumption, queue: MessageQueue, subscription: SubscriptionData, offset: int) -> None:
        self.queue = queue
        self.dropped = False
        self.fetcher = Fetcher(
            delivery.session, delivery.group, queue, subscription, delivery.settings, offset, origin=self,
            ordered=self.ordered, commits=not delivery.broadcast, on_messages=self._deliver)
        self._delivery = delivery

    @property
    def may_leave(self) -> bool:
        """Return whether no task works on a message that another member must not get meanwhile."""
        return True

    def drop(self) -> None:
        """Give the queue up: messages on their way to the user are void."""
        self.dropped = True
        self.fetcher.scope.cancel()

    def give_back_overdue(self, now: float) -> None:
        """Give back the oldest message, if its user has had it for too long: it holds the position back."""
        message = self.fetcher.in_flight.oldest
        if message is not None and not message.settled and message.taken_at is not None and (
                now - message.taken_at >= self._delivery.settings.consume_timeout_ms / 1e3):
            self._delivery.nursery.start_soon(message.retry_later, _TIMED_OUT_LEVEL)

    # --- what became of a message (``Origin``) ---------------------------------------------------------------

    def acknowledged(self, message: Received) -> None:
        self.fetcher.settle(message)

    async def later(self, message: Received, level: int) -> None:
        delivery, given = self._delivery, False
        if delivery.broadcast:
            self._again_soon(message, delivery.settings.ordered_pause_ms)
            return
        try:
            given = await delivery.returns.give_back(message, level)
        finally:  # also if its user was cancelled, or it would stay in flight
            if given:
                self.fetcher.settle(message)
            else:
                self._again_soon(message, _AGAIN_MS)

    # --- delivering ------------------------------------------------------------------------------------------

    def _deliver(self, messages: Iterable[Received]) -> None:
        self._delivery.messages.put(messages)

    def _again_soon(self, message: Received, pause_ms: float) -> None:
        if not self.dropped:  # else another member delivers it, and the consumer may be gone
            self._delivery.nursery.start_soon(self._again, message, pause_ms, name=f"{message!r} again")

    async def _again(self, message: Received, pause_ms: float) -> None:
        await trio.sleep(pause_ms / 1e3)
        copy = message.again()
        if self.dropped:
            return
        if self.fetcher.in_flight.replace(message.queue_offset, message, copy):
            self._redeliver(copy)
        else:  # the queue goes on elsewhere
            self._done(message)

    def _redeliver(self, message: Received) -> None:
        self._deliver((message,))

    def _done(self, message: Received) -> None:
        """Hear that a message is not delivered again from here."""


class OrderedShare(Share):
    """A queue whose messages are delivered one by one, while this client holds its lock."""

    ordered = True

    def __init__(self, delivery: Consumption, queue: MessageQueue, subscription: SubscriptionData, offset: int) -> None:
        super().__init__(delivery, queue, subscription, offset)
        self._waiting: deque[Received] = deque()
        self._current: Received | None = None
        self._locked_until = 0.0

    @property
    def may_leave(self) -> bool:
        return self._current is None or self._current.taken_at is None

    def locked(self, until: float) -> None:
        """The broker says that the queue is this client's."""
        self._locked_until = until
        self._offer()

    def unlocked(self) -> None:
        """The broker says that it is not."""
        self._locked_until = 0.0

    def acknowledged(self, message: Received) -> None:
        super().acknowledged(message)
        self._done(message)

    async def later(self, message: Received, level: int) -> None:
        delivery, given = self._delivery, False
        try:
            if not delivery.broadcast and (level < 0 or message.reconsume_times >= delivery.returns.times_max):
                given = await delivery.returns.send_again(message)
        finally:
            if given:
                self.acknowledged(message)
            else:
                self._again_soon(message, delivery.settings.ordered_pause_ms)

    def _deliver(self, messages: Iterable[Received]) -> None:
        self._waiting.extend(messages)
        self._offer()

    def _redeliver(self, message: Received) -> None:
        self._waiting.appendleft(message)
        self._current = None
        self._offer()

    def _done(self, message: Received) -> None:
        if message is self._current:
            self._current = None
            self._offer()

    def _offer(self) -> None:
        while self._current is None and self._waiting and trio.current_time() < self._locked_until:
            message = self._waiting.popleft()
            if self.fetcher.in_flight.holds(message.queue_offset, message):  # else it comes again, after others
                self._current = message
                self._delivery.messages.put((message,))
