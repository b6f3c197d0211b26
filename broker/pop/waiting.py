"""POPs and NOTIFICATIONs that wait for a message, by topic, group and queue id (-1: any queue).

For each group, one message wakes one request that named its queue and one that named any. A message in a retry topic
wakes requests for the original topic. A woken request is carried out again from its beginning, and may wait again.
While no request waits, this module does not listen to messages.
Source: ``PopLongPollingService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker.again import Again, Try
from broker.consumers.subscriptions import Subscribed
from broker.moments import Listener
from broker.rules import Refusal
from broker.topics.names import pop_retry_topic
from broker.waiters import WaitingBytes
from remoting.deadlines import Deadlines
from remoting.headers.popping import ALL_QUEUES
from remoting.record import Outline

if TYPE_CHECKING:
    from remoting.command import Command
    from remoting.connection import Connection

EARLY_MS: Final = 50
"""A request is answered this long before its polling time ends."""
PASSED_MAX: Final = 800
"""After so many unwanted messages a waiter is woken, so that its group's offset moves past them."""


@attrs.frozen
class WaitingConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    pop_polling_size: int = 1_024
    """Requests that may wait for one queue id of one topic and group."""
    max_pop_polling_size: int = 100_000


class Parking(enum.Enum):
    """Says whether a request waits now."""

    PARKED = enum.auto()
    FULL = enum.auto()
    """Too many requests wait already."""
    OVER = enum.auto()
    """Its polling time is over, or the broker stops."""


@attrs.define(eq=False)
class _Waiter:
    """One waiting request (a ``deadlines.Timed``)."""

    connection: Connection
    request: Command
    attempt: Try
    wanted: Subscribed | None
    line: _Line
    size: int
    place: tuple[float, int]
    """Its place in the line: when its polling time ends, and its serial number."""
    waiting: bool = True
    _room: WaitingRoom = attrs.field(kw_only=True)

    def expire(self, _: float) -> None:
        self._room.wake(self)


@attrs.define(eq=False)
class _Line:
    """Requests of one group that wait for one queue id, the one with the least time left first."""

    group: _Group
    queue_id: int
    latest: bool
    """Whether the request with the most time left is woken first."""
    waiters: list[tuple[float, int, _Waiter]] = attrs.field(factory=list)
    passed: int = 0

    def next(self) -> _Waiter | None:
        for _, _, waiter in reversed(self.waiters) if self.latest else self.waiters:
            if not waiter.connection.closed:
                return waiter
        return None


@attrs.define(eq=False)
class _Group:
    """One group's lines for one topic. ``names``: the topic and the group's retry topics."""

    topic: str
    name: str
    names: tuple[bytes, ...]
    lines: dict[tuple[int, bool], _Line] = attrs.field(factory=dict)

    def of(self, queue_id: int) -> list[_Line]:
        """The lines to which a message of that queue matters."""
        return [line for key in ((ALL_QUEUES, False), (queue_id, False), (ALL_QUEUES, True), (queue_id, True))
                if (line := self.lines.get(key)) is not None]


class WaitingRoom:
    """All waiting requests. ``run`` must be running. ``config`` may be replaced at any time. ``arrived`` calls one
    listener for each message that becomes visible; the room puts itself in front of it and calls it on."""

    def __init__(self, config: WaitingConfig, arrived: Listener[[bytes, int, int, int, Outline]],
                 wall_ms: Callable[[], int]) -> None:
        self.config = config
        self._arrived, self._wall_ms = arrived, wall_ms
        self._others = arrived.call
        """The listener behind this room. A run of messages goes to the listener of its beginning, so this room may
        still be called when no request waits any more."""
        self._groups: dict[tuple[str, str], _Group] = {}
        self._heard: dict[bytes, dict[_Group, None]] = {}
        """Groups that wait, by each of their topics' names."""
        self._deadlines, self._again = Deadlines(), Again()
        self._count = self._serial = 0
        self._bytes = WaitingBytes()
        self._finishing = False

    def __len__(self) -> int:
        """Number of waiting requests of all groups."""
        return self._count

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Number of POPs that wait for exactly this queue id; -1 is one of its own."""
        found = self._groups.get((topic, group))
        line = found.lines.get((queue_id, False)) if found is not None else None
        return len(line.waiters) if line is not None else 0

    def park(self, connection: Connection, request: Command, attempt: Try, *, topic: str, group: str, queue_id: int,
             born_ms: int, poll_ms: int, wanted: Subscribed | None = None, latest: bool = False) -> Parking:
        """Let a request wait: ``attempt`` is called again when a ``wanted`` message comes, at the latest ``poll_ms``
        after ``born_ms`` (wall clock).

        ``latest``: a NOTIFICATION. If the client's clock is ahead, ``poll_ms`` count from now, and ``bornTime`` of the
        ``request`` is set to now.
        """
        now_ms = self._wall_ms()
        if not 0 < born_ms <= now_ms:
            born_ms = now_ms
            request.ext["bornTime"] = str(now_ms)
        left_ms = born_ms + poll_ms - EARLY_MS - now_ms
        if poll_ms <= 0 or left_ms <= 0 or self._finishing:
            return Parking.OVER
        found = self._groups.get((topic, group))
        line = found.lines.get((queue_id, latest)) if found is not None else None
        if self._count >= self.config.max_pop_polling_size or (
                line is not None and len(line.waiters) >= self.config.pop_polling_size) or (
                (size := self._bytes.take(request, wanted)) is None):
            return Parking.FULL
        if line is None:
            line = self._new_line(topic, group, queue_id, latest)
        self._serial += 1
        ends_at = trio.current_time() + left_ms / 1e3
        place = ends_at, self._serial
        waiter = _Waiter(connection, request, attempt, wanted, line, size, place, room=self)
        insort(line.waiters, (*place, waiter))
        self._count += 1
        self._deadlines.set(ends_at, waiter)
        return Parking.PARKED

    def _new_line(self, topic: str, name: str, queue_id: int, latest: bool) -> _Line:
        group = self._groups.get((topic, name))
        if group is None:
            names = topic, pop_retry_topic(topic, name), pop_retry_topic(topic, name, v2=True)
            group = self._groups[topic, name] = _Group(topic, name, tuple(each.encode() for each in names))
            for each in group.names:
                self._heard.setdefault(each, {})[group] = None
            if len(self._groups) == 1:
                self._others, self._arrived.call = self._arrived.call, self._hear
        line = group.lines[queue_id, latest] = _Line(group, queue_id, latest)
        return line

    # --- waking ----------------------------------------------------------------------------------------------

    def _hear(self, topic: bytes, queue_id: int, queue_offset: int, tags_code: int, found: Outline) -> None:
        self._others(topic, queue_id, queue_offset, tags_code, found)
        for group in tuple(self._heard.get(topic, ())):
            if topic == group.names[0]:
                for line in group.of(queue_id):
                    self._offer(line, tags_code, found[7])
            else:  # a retry topic: no filter, since the message was wanted when it was given first
                for line in tuple(group.lines.values()):
                    self._wake_next(line)

    def _offer(self, line: _Line, tags_code: int, properties: bytes) -> None:
        waiter = line.next()
        if waiter is None:
            return
        if waiter.wanted is None or waiter.wanted.wants(tags_code, properties):
            self.wake(waiter)
        else:
            line.passed += 1
            if line.passed >= PASSED_MAX:
                line.passed = 0
                self.wake(waiter)

    def more(self, topic: str, group: str, queue_id: int) -> None:
        """A POP for this queue id left messages: wake the next request of its line."""
        found = self._groups.get((topic, group))
        line = found.lines.get((queue_id, False)) if found is not None else None
        if line is not None:
            self._wake_next(line)

    def unlocked(self, topic: str, group: str, queue_id: int) -> None:
        """The queue can be read again (its batch is acknowledged, or the group was reset): wake one of each line."""
        found = self._groups.get((topic, group))
        for line in found.of(queue_id) if found is not None else ():
            self._wake_next(line)

    def wake_all(self) -> None:
        """Wake all requests, as after a change of the role."""
        self._wake_those(lambda group: True)

    def wake_topics(self, names: Collection[str]) -> None:
        """Wake all requests for messages of these topics."""
        self._wake_those(lambda group: group.topic in names)

    def wake_groups(self, names: Collection[str]) -> None:
        """Wake all requests of these groups."""
        self._wake_those(lambda group: group.name in names)

    def refuse(self, name: str, refusal: Refusal) -> None:
        """Answer all requests of a group with ``refusal``, instead of another try."""
        self._wake_those(lambda group: group.name == name, lambda connection, request: connection.reply(
            request, refusal.answer(request)))

    def _wake_those(self, chosen: Callable[[_Group], bool], attempt: Try | None = None) -> None:
        for group in [group for group in self._groups.values() if chosen(group)]:
            for line in tuple(group.lines.values()):
                for _, _, waiter in tuple(line.waiters):
                    self.wake(waiter, attempt)

    def finish(self) -> None:
        """The broker stops: wake all requests, and let none wait any more."""
        self._finishing = True
        self.wake_all()

    def _wake_next(self, line: _Line) -> None:
        waiter = line.next()
        if waiter is not None:
            self.wake(waiter)

    def wake(self, waiter: _Waiter, attempt: Try | None = None) -> None:
        """Wake this request: it is carried out again soon, or ``attempt`` is called."""
        waiter.waiting = False
        line, group = waiter.line, waiter.line.group
        del line.waiters[bisect_left(line.waiters, waiter.place)]
        self._count -= 1
        self._bytes.free(waiter.size, waiter.wanted)
        if not line.waiters:
            del group.lines[line.queue_id, line.latest]
        if not group.lines:
            self._forget(group)
        self._again.soon(partial(self._try, attempt or waiter.attempt, line), waiter.connection, waiter.request)
        del waiter.request, waiter.wanted, waiter.attempt  # its deadline holds the waiter for a while: free these now

    def _forget(self, group: _Group) -> None:
        del self._groups[group.topic, group.name]
        for each in group.names:
            del self._heard[each][group]
            if not self._heard[each]:
                del self._heard[each]
        if not self._groups:
            self._arrived.call = self._others

    def _try(self, attempt: Try, line: _Line, connection: Connection, request: Command) -> None:
        if not connection.closed:
            attempt(connection, request)
            return
        # Its client is gone: the next request of the line gets the message.
        found = self._groups.get((line.group.topic, line.group.name))
        following = found.lines.get((line.queue_id, line.latest)) if found is not None else None
        if following is not None:
            self._wake_next(following)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wake requests that are due, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            nursery.start_soon(self._again.run)
            task_status.started()
