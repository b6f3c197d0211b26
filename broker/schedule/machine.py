"""Decides when delayed messages are delivered: one position per level, moved only by what was stored.

A core: it is given the time and a view of the queues, and answers with what to deliver; the caller delivers, and tells
how it went. A level has one delivery under way at most, and keeps its order. A delivery that failed is made again from
the same position, one message at a time, since some of its messages may be stored: at least once, none lost.
Source: ``ScheduleMessageService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from broker.store.tables import DelayOffsets
from remoting.bodies.namesrv import DataVersion

NS_PER_MS: Final = 1_000_000
NEVER: Final = 1 << 63
FIRST_MS: Final = 100
"""Time from the begin of delivering to the first look; RocketMQ waits a second."""
PAUSE_MS: Final = 100
"""Pause between two looks, and after a delivery that failed."""
PAUSE_AFTER_FAULT_MS: Final = 10_000
"""Pause after a delivery that could not even be tried."""
TOGETHER_MAX: Final = 32
"""Messages of one delivery."""
PASSED_BY_MAX: Final = 1_000
"""Most messages of one level that are passed over; with more the level stands still."""
VERSION_STEP: Final = 200
"""Positions moved for one step of the version, unless ``delayOffsetUpdateVersionStep`` says otherwise."""


class DelayQueues(Protocol):
    """The schedule topic's queues, by level."""

    def bounds(self, level: int) -> tuple[int, int] | None:
        """Return the least and the next queue offset; None: there is no such queue yet."""
        ...

    def end(self, level: int) -> int:
        """Return the next queue offset by all of the log, also where consumers do not see all of it yet."""
        ...

    def due_times_ms(self, level: int, offset: int, count: int) -> Sequence[int]:
        """Return when each message from ``offset`` on is due, up to ``count`` of them; [] at the end. Raises
        ``OSError``."""
        ...


@attrs.frozen
class Delivery:
    """The order to deliver messages of this level from ``begin`` to ``end`` (exclusive), all or none."""

    level: int
    begin: int
    end: int
    run: int
    """Number of the ``start`` that it belongs to: a delivery of a former one counts no more."""


@attrs.define
class _Level:
    delay_ms: int
    offset: int | None = None
    """Position of the next message to deliver. None: nothing is known, which means 0."""
    look_at_ns: int = 0
    under_way: bool = False
    together: int = TOGETHER_MAX
    lacks: bool = False
    """True: a slave acts here, and its queue begins after the position: only the master has the messages between."""
    ahead: int | None = None
    """Position after the messages that were passed by; None: none was."""
    passed_by: dict[int, int] = attrs.field(factory=dict)
    """Messages that nobody takes now, and when each is tried again, ns; the first of them is at ``offset``."""


class Machine:
    """The positions of all levels: ``start`` when this broker becomes master, then ``poll``, then ``stop``."""

    def __init__(self, delays_ms: Sequence[int], kept: DelayOffsets | None = None) -> None:
        self._levels = {number: _Level(delay_ms) for number, delay_ms in enumerate(delays_ms, 1)}
        self._run = 0
        self._in_place = False
        self.knows_more = False
        """True: it delivered in place of its master, whose positions were not copied since."""
        self._last = 0
        """The level that the last poll found, so that others come before it; 0: it found none."""
        self._moved = 0
        self._others: dict[int, int] = {}
        """Positions of levels that are not configured: they are kept."""
        self._version = DataVersion()
        self.started = False
        self.moves = 0
        """Number of changes of positions. If it has changed, ``offsets`` must be written to disk."""
        self.state_version = 0
        self.version_step = VERSION_STEP
        """Positions moved for one step of the version."""
        self.replace(kept or DelayOffsets())

    # --- positions -------------------------------------------------------------------------------------------

    def offsets(self) -> DelayOffsets:
        """The content of ``delayOffset.json``, as it is now."""
        known = {number: level.offset for number, level in self._levels.items() if level.offset is not None}
        return DelayOffsets(dict(sorted({**self._others, **known}.items())), self._version)

    def replace(self, table: DelayOffsets) -> None:
        """Take over the master's positions. Nothing happens on a master."""
        if self.started:
            return
        self.knows_more = False
        if table == self.offsets():
            return
        for number, offset in table.offset_table.items():
            if number in self._levels:
                self._levels[number].offset = offset
            else:
                self._others[number] = offset
        self._version = table.data_version
        self.moves += 1

    def join(self, table: DelayOffsets, queues: DelayQueues) -> None:
        """Take positions of a member that are further on, and within their queues; nothing happens on a master.

        So messages that the member delivered are not delivered again."""
        if self.started:
            return
        for number, offset in table.offset_table.items():
            level, bounds = self._levels.get(number), queues.bounds(number)
            if level is not None and bounds is not None and (level.offset or 0) < offset <= bounds[1]:
                level.offset = offset
                self.moves += 1
        if self._version.precedes(table.data_version):
            self._version = table.data_version
            self.moves += 1

    def _move(self, level: _Level, offset: int, wall_ms: int) -> None:
        if level.offset == offset:
            return
        level.offset = offset
        self.knows_more = self._in_place
        self.moves += 1
        self._moved += 1
        if self._moved % self.version_step == 0:
            self._version = DataVersion(self.state_version, wall_ms, self._version.counter + 1)

    # --- running ---------------------------------------------------------------------------------------------

    def start(self, now_ns: int, wall_ms: int, queues: DelayQueues, *, in_place: bool = False) -> None:
        """Start, before anything new is written. ``in_place``: a slave begins to act for its master.

        A position beyond its queue, of a master that had more, goes back to the queue's end now: later it would pass
        over messages that came in between."""
        if self.started:
            return
        self.started = True
        self._run += 1
        self._in_place = in_place
        for number, level in self._levels.items():
            least, _ = queues.bounds(number) or (0, 0)
            was_lacking, level.lacks = level.lacks, self._is_lacking(level, least)
            ahead = min(level.passed_by, default=level.ahead) if was_lacking and level.lacks else None
            level.look_at_ns, level.under_way, level.together = now_ns + FIRST_MS * NS_PER_MS, False, TOGETHER_MAX
            level.ahead = ahead
            level.passed_by.clear()
        self.fit(wall_ms, queues)

    def fit(self, wall_ms: int, queues: DelayQueues) -> None:
        """Bring positions that are beyond their queue back to its end.

        A master that takes messages before it starts to deliver calls this before it takes the first."""
        for number, level in self._levels.items():
            if level.offset is not None and level.offset > (end := queues.end(number)):
                self._move(level, end, wall_ms)

    def stop(self) -> None:
        """Stop delivering. Deliveries under way may end as they like; they count no more."""
        self.started = False

    def poll(self, now_ns: int, wall_ms: int, queues: DelayQueues) -> Delivery | None:
        """Return the next delivery that is due by the wall clock, of one level after the other; None: there is none.

        Each must be answered by ``done`` or ``failed``. Raises ``OSError`` where a level cannot be read, which is then
        left alone for a while: ask again for the others."""
        if not self.started:
            return None
        for number in sorted(self._levels, key=lambda level: level <= self._last):
            level = self._levels[number]
            if not level.under_way and level.look_at_ns <= now_ns:
                level.look_at_ns = now_ns + PAUSE_MS * NS_PER_MS
                try:
                    delivery = self._again(number, level, now_ns) or self._look(number, level, wall_ms, queues)
                except OSError:
                    level.look_at_ns = now_ns + PAUSE_AFTER_FAULT_MS * NS_PER_MS
                    raise
                if delivery is not None:
                    level.under_way, self._last = True, number
                    return delivery
        self._last = 0
        return None

    def due_ns(self, now_ns: int, wall_ms: int, queues: DelayQueues) -> int:
        """Return when ``poll`` finds something, unless messages or answers come before."""
        return min((self._due_ns(number, level, now_ns, wall_ms, queues) for number, level in self._levels.items()
                    if not level.under_way), default=NEVER) if self.started else NEVER

    def _due_ns(self, number: int, level: _Level, now_ns: int, wall_ms: int, queues: DelayQueues) -> int:
        due_ns = min(level.passed_by.values(), default=NEVER)
        bounds = queues.bounds(number)
        if bounds is not None:
            try:
                due_times_ms = queues.due_times_ms(number, _begin(level, bounds[0], queues.end(number)), 1)
            except OSError:  # ``poll`` raises it, when it looks at this level again
                due_times_ms = [wall_ms]
            for due_ms in due_times_ms:
                wait_ms = 0 if is_due(due_ms, wall_ms, level.delay_ms) else due_ms - wall_ms
                due_ns = min(due_ns, now_ns + wait_ms * NS_PER_MS)
        return max(due_ns, level.look_at_ns)

    def _look(self, number: int, level: _Level, wall_ms: int, queues: DelayQueues) -> Delivery | None:
        bounds = queues.bounds(number)
        if bounds is None:
            return None
        for offset in [each for each in level.passed_by if each < bounds[0]]:
            del level.passed_by[offset]
        begin = _begin(level, bounds[0], queues.end(number))
        level.lacks |= self._is_lacking(level, bounds[0])  # an empty slave may get its first messages while it acts
        self._stands(level, begin, wall_ms)
        count = 0
        for due_ms in queues.due_times_ms(number, begin, level.together):
            if not is_due(due_ms, wall_ms, level.delay_ms):
                break
            count += 1
        return Delivery(number, begin, begin + count, self._run) if count else None

    def _is_lacking(self, level: _Level, least: int) -> bool:
        return self._in_place and (level.offset or 0) < least

    def _again(self, number: int, level: _Level, now_ns: int) -> Delivery | None:
        """Return a delivery of a message that was passed by, if its time has come."""
        for offset, at_ns in level.passed_by.items():
            if at_ns <= now_ns:
                return Delivery(number, offset, offset + 1, self._run)
        return None

    def _stands(self, level: _Level, begin: int, wall_ms: int) -> None:
        """Note that all before ``begin`` is delivered, except messages that were passed by, or are not here."""
        level.ahead = begin if level.passed_by or level.lacks else None
        if not level.lacks:
            self._move(level, min(level.passed_by, default=begin), wall_ms)

    def done(self, delivery: Delivery, now_ns: int, wall_ms: int) -> None:
        """The delivery is stored: the next one may follow at once."""
        level = self._answered(delivery)
        if level is not None:
            if level.passed_by.pop(delivery.begin, None) is not None:
                self._stands(level, delivery.end if level.ahead is None else level.ahead, wall_ms)
            else:
                self._stands(level, delivery.end, wall_ms)
            level.look_at_ns = now_ns
            level.together = TOGETHER_MAX

    def failed(self, delivery: Delivery, now_ns: int, *, fault: bool = False) -> None:
        """The delivery failed, and a part may be stored; ``fault``: it could not be tried, or would fail again."""
        level = self._answered(delivery)
        if level is not None:
            alone, level.together = level.together == 1 or delivery.end - delivery.begin == 1, 1
            level.look_at_ns = now_ns + (PAUSE_AFTER_FAULT_MS if fault and alone else PAUSE_MS) * NS_PER_MS

    def pass_by(self, delivery: Delivery, now_ns: int, wall_ms: int) -> bool:
        """Pass by a message that nobody takes now, for a reason of its own: its level goes on, and the position stays.

        False: it is not the only one of its delivery, or too many were passed by; call ``failed`` then."""
        level = self._levels[delivery.level]
        if delivery.end - delivery.begin > 1 or (
                delivery.begin not in level.passed_by and len(level.passed_by) >= PASSED_BY_MAX):
            return False
        if self._answered(delivery) is not None:
            known = delivery.begin in level.passed_by
            level.passed_by[delivery.begin] = now_ns + PAUSE_AFTER_FAULT_MS * NS_PER_MS
            if not known:
                self._stands(level, delivery.end, wall_ms)
            level.look_at_ns = now_ns
        return True

    def counts(self, delivery: Delivery) -> bool:
        """Return whether the delivery belongs to the present run."""
        return self.started and delivery.run == self._run

    def _answered(self, delivery: Delivery) -> _Level | None:
        if not self.counts(delivery):
            return None
        level = self._levels[delivery.level]
        at = level.offset if level.ahead is None else level.ahead
        assert level.under_way and (at == delivery.begin or delivery.begin in level.passed_by), (
            "one delivery of a level at a time")
        level.under_way = False
        return level


def _begin(level: _Level, least: int, end: int) -> int:
    """Return the position of the next message that may be due."""
    return min(max((level.offset if level.ahead is None else level.ahead) or 0, least), end)


def is_due(due_ms: int, wall_ms: int, delay_ms: int) -> bool:
    """Return whether a message is due. It is, too, if its time is further off than the level's delay.

    Then the clock was set back, or the level made shorter."""
    return due_ms <= wall_ms or due_ms > wall_ms + delay_ms
