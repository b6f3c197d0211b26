"""Pulls that wait for a message: by topic and queue, until one comes that they want, or their time is over.

Each is tried again once. A pull that a message wakes is tried in the next turn, so it finds all messages of this turn.
A sweep wakes pulls that had only unwanted messages. It knows when to try, not how.
Source: ``PullRequestHoldService`` and ``NotifyMessageArrivingListener`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker.again import Again, Try
from broker.consumers.subscriptions import Subscribed
from broker.waiters import WaitingBytes
from remoting.deadlines import Deadlines
from remoting.record import Outline

if TYPE_CHECKING:
    from remoting.command import Command
    from remoting.connection import Connection

HELD_MAX: Final = 200_000
"""Pulls that wait; beyond it no other does."""
Key = tuple[str, int]
"""Topic and queue id."""


@attrs.define(eq=False)
class Held:
    """A pull that waits (a ``deadlines.Timed``) for the message at ``offset`` and later ones."""

    connection: Connection
    request: Command
    key: Key
    group: str
    offset: int
    wanted: Subscribed
    size: int
    _holding: Holding
    waiting: bool = True
    passed: bool = False
    """True: a message came that it does not want."""

    def expire(self, _: float) -> None:
        self._holding.wake(self)


class Holding:
    """Pulls that are held. ``again`` is called once for each of them. ``run`` must be running."""

    def __init__(self, again: Try, *, sweep_interval_ms: int = 5_000) -> None:
        self._attempt, self._sweep_interval_ms = again, sweep_interval_ms
        self._held: dict[Key, dict[Held, None]] = {}
        self._names: dict[tuple[bytes, int], Key] = {}
        """Keys of queues that a pull waits for, by the store's names."""
        self._deadlines, self._again = Deadlines(), Again()
        self._count = 0
        self._bytes = WaitingBytes()

    def __len__(self) -> int:
        """Number of pulls that are held."""
        return self._count

    def hold(self, connection: Connection, request: Command, key: Key, group: str, offset: int, wanted: Subscribed,
             timeout_ms: float) -> bool:
        """Hold a pull until a message comes, at the latest for ``timeout_ms``. False: too many wait already."""
        if self._count >= HELD_MAX or (size := self._bytes.take(request, wanted)) is None:
            return False
        held = Held(connection, request, key, group, offset, wanted, size, self)
        waiting = self._held.get(key)
        if waiting is None:
            waiting = self._held[key] = {}
            self._names[key[0].encode(), key[1]] = key
        waiting[held] = None
        self._count += 1
        self._deadlines.set(trio.current_time() + timeout_ms / 1e3, held)
        return True

    def arrived(self, topic: bytes, queue_id: int, queue_offset: int, tags_code: int, found: Outline) -> None:
        """A message became visible (of ``Journal.arrived``)."""
        key = self._names.get((topic, queue_id))
        if key is None:
            return
        for held in list(self._held[key]):
            if queue_offset >= held.offset:
                if held.wanted.wants(tags_code, found[7]):
                    self.wake(held)
                else:
                    held.passed = True

    def wake_queue(self, topic: str, queue_id: int) -> None:
        """Try all pulls again that wait for this queue."""
        for held in list(self._held.get((topic, queue_id), ())):
            self.wake(held)

    def wake_topics(self, names: Collection[str]) -> None:
        """Try all again that wait for these topics."""
        for key in [key for key in self._held if key[0] in names]:
            self.wake_queue(*key)

    def wake_groups(self, names: Collection[str], attempt: Try | None = None) -> None:
        """Try all again of these groups, or call ``attempt`` for each."""
        for waiting in list(self._held.values()):
            for held in [held for held in waiting if held.group in names]:
                self.wake(held, attempt)

    def wake_all(self) -> None:
        """Try everything again, as after a change of the role."""
        for waiting in list(self._held.values()):
            for held in list(waiting):
                self.wake(held)

    def wake(self, held: Held, attempt: Try | None = None) -> None:
        """Try this one again, soon, or call ``attempt``."""
        held.waiting = False
        waiting = self._held[held.key]
        del waiting[held]
        self._count -= 1
        self._bytes.free(held.size, held.wanted)
        if not waiting:
            del self._held[held.key]
            del self._names[held.key[0].encode(), held.key[1]]
        self._again.soon(partial(self._try, attempt or self._attempt), held.connection, held.request)
        del held.request, held.wanted  # its deadline holds the object for a while: free these now

    def _try(self, attempt: Try, connection: Connection, request: Command) -> None:
        if not connection.closed:
            attempt(connection, request)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let held pulls go at their time, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            nursery.start_soon(self._sweep)
            nursery.start_soon(self._again.run)
            task_status.started()

    async def _sweep(self) -> None:
        """Answer pulls that wait in front of messages which they do not want, so that they go on behind them."""
        while True:
            await trio.sleep(self._sweep_interval_ms / 1e3)
            for waiting in list(self._held.values()):
                for held in list(waiting):
                    if held.connection.closed or held.passed:
                        self.wake(held)
