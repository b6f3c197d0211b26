"""Reading one queue: pulls, one after the other, which the broker holds while there is nothing.

A broker that fails is looked up anew; an offset that is gone is corrected. A shell around ``InFlight``: who gets the
messages, what becomes of them and who commits is the consumer's business. Source:
``DefaultMQPushConsumerImpl.pullMessage`` and ``PullAPIWrapper`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from broker.client.config import ConsumerSettings
from broker.client.errors import ClientError, Refused, Unreachable
from broker.client.inflight import InFlight
from broker.client.message import Origin, Received
from broker.client.route import MASTER, words
from broker.client.session import Session
from remoting.bodies.consumers import MessageQueue, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.errors import DamagedRecord, HeaderError, RemotingError
from remoting.headers.pulling import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND, PullMessageRequest, PullMessageResponse
from remoting.record import decode_all
from remoting.subscription import wants

logger = logging.getLogger("broker.client")

_FOUND: Final = int(ResponseCode.SUCCESS)
_NOTHING: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_RESET: Final = "OFFSET_RESET"
"""Remark of a broker whose administrator wants the group elsewhere. It is said once."""
_PAUSE_MAX_MS: Final = 1_000
_EAGER: Final = 200
"""So many times a broker that cannot be reached is tried again as soon as the route was looked at: for some 10 s."""
_BACKWARDS_S: Final = 1.0
"""A broker that says that an offset is beyond its end is asked once more after this: a new master may be behind for a
moment, and to go back means to deliver again."""


_HELD_S: Final = 0.1


class Fetcher:
    """Reads one queue. ``run`` it in a task; ``dropped`` ends it at its next turn, the scope at once."""

    def __init__(
        self, session: Session, group: str, queue: MessageQueue, subscription: SubscriptionData,
        settings: ConsumerSettings, offset: int, *, origin: Origin | None = None, ordered: bool = False,
        commits: bool = True, on_messages: Callable[[list[Received]], None],
    ) -> None:
        self.queue, self.subscription = queue, subscription
        self.in_flight: InFlight[Received] = InFlight(offset)
        self.told: int | None = None
        """The position that the broker, or the file, was last told."""
        self.committed: int | None = None
        """The last position that certainly arrived."""
        self.origin = origin
        self.ordered = ordered
        self.scope = trio.CancelScope()
        self._session, self._group, self._settings = session, group, settings
        self._commits, self._on_messages = commits, on_messages
        self._broker_id = MASTER
        self._room: trio.Event | None = None
        self._failures = 0
        self._gone_back = False

    async def run(self) -> None:
        """Read until the scope is cancelled. Raises nothing that a broker could cause."""
        with self.scope:
            while True:
                if self.in_flight.full(self._settings.flow, ordered=self.ordered):
                    self._room = trio.Event()
                    await self._room.wait()
                    continue
                try:
                    pause_ms = await self._pull()
                    self._failures = 0
                except (ClientError, RemotingError, HeaderError, DamagedRecord) as error:
                    pause_ms = await self._failed(error)
                if pause_ms:
                    await trio.sleep(pause_ms / 1e3)

    def settle(self, message: Received) -> None:
        """Forget a message that is settled."""
        self.in_flight.settle(message.queue_offset, message)
        if self._room is not None and not self.in_flight.full(self._settings.flow, ordered=self.ordered):
            self._room.set()
            self._room = None

    async def _pull(self) -> float:
        """Pull once, and return the milliseconds to wait before the next pull.

        The pull tells the position again if all that was pulled is settled: no later one can be told before its answer.
        Else a pull that a broker handles late would take a position back. The consumer's commits tell the first one.
        """
        session, queue, settings, in_flight = self._session, self.queue, self._settings, self.in_flight
        address, broker_id = await session.address(queue.topic, queue.broker_name, self._broker_id)
        if address not in session.greeted:
            await session.greet_first(address)
        offset = in_flight.next_offset
        settled = self.told is not None and not in_flight
        commit = offset if settled and self._commits and broker_id == MASTER else 0
        asked_at = trio.current_time()
        answer = await session.remoting.call(address, request(RequestCode.PULL_MESSAGE, PullMessageRequest(
            self._group, queue.topic, queue.queue_id, offset, settings.pull_batch,
            SUSPEND | SUBSCRIPTION | (COMMIT_OFFSET if commit > 0 else 0), commit, settings.suspend_ms,
            self.subscription.sub_string, self.subscription.sub_version, self.subscription.expression_type,
        )), settings.pull_timeout_ms)
        if answer.code not in (_FOUND, _MOVED, *_NOTHING):
            raise Refused(f"pull of {words(queue)}", answer.code, answer.remark, address)
        if commit > 0:
            self.told = self.committed = commit
        header = PullMessageResponse.from_ext(answer.ext)
        self._broker_id = header.suggest_which_broker_id
        if answer.code == _MOVED:
            return self._moved(header, wanted=answer.remark == _RESET)
        self._gone_back = False
        if answer.code == _FOUND:
            self._take(answer, header.offset_delta or 0)
        progress = header.next_begin_offset > in_flight.next_offset
        in_flight.next_offset = max(in_flight.next_offset, header.next_begin_offset)
        if not progress and trio.current_time() - asked_at < _HELD_S:
            return settings.retry_pause_ms  # a broker that does not hold pulls
        return 0

    def _take(self, answer: Command, delta: int) -> None:
        found, subscription, bytes_max = [], self.subscription, self._session.settings.expanded_bytes_max
        exact = bool(subscription.tags_set)
        for record in decode_all(answer.body):
            if delta:
                record.queue_offset += delta
            message = Received(record, self.queue, bytes_max, self.origin)
            if exact and not wants(subscription, message.tag):
                continue
            if self.in_flight.add(record.queue_offset, record.size, message):
                found.append(message)
        if found:
            self._on_messages(found)

    def _moved(self, header: PullMessageResponse, *, wanted: bool) -> float:
        """Go on elsewhere: that offset has no message and never will, or an operator ``wanted`` it."""
        here, there = self.in_flight.next_offset, header.next_begin_offset
        if there < here and not wanted and not self._gone_back:
            self._gone_back = True
            return _BACKWARDS_S * 1e3
        self._gone_back = False
        if there == here:
            return self._settings.retry_pause_ms
        logger.warning("%s: offset %d is %s (%d to %d); going on at %d", words(self.queue), here,
                       "not wanted" if wanted else "not there", header.min_offset, header.max_offset, there)
        if there < here:
            self.in_flight.go_back(there)  # messages from there on are delivered again
        self.in_flight.next_offset = there
        return 0

    async def _failed(self, error: Exception) -> float:
        self._failures += 1
        logger.log(logging.WARNING if self._failures in (1, 10, 100) else logging.DEBUG,
                   "pull of %s failed %d times: %s", words(self.queue), self._failures, error)
        if isinstance(error, Unreachable | RemotingError | Refused):
            self._broker_id = MASTER
            await self._session.routes.renew(self.queue.topic)
        if isinstance(error, RemotingError | Unreachable) and self._failures < _EAGER:
            return 0  # ``renew`` made a pause
        return min(self._settings.retry_pause_ms << min(self._failures - 1, 10), _PAUSE_MAX_MS)
