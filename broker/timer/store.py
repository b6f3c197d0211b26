"""The timers' storage: units and slots on disk, in RocketMQ's files, so that each broker can take over the other's.

All of it can be built again from the timers' queue. It never keeps a unit whose message is after the end of the commit
log. A flush syncs timer log, wheel and checkpoint in this order, so the checkpoint never claims more than is on disk.
Files that are half-written, damaged, foreign or of another precision are deleted with a reason; the caller then
enqueues the queue again. It knows no message, no role and no clock: the caller gives times.
Source: ``TimerMessageStore`` of RocketMQ 5.5.0; its own recovery does not restore the counts of messages, and keeps
units of a log that was cut.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import attrs

from broker.store.errors import StoreError
from broker.store.files import Files, read_whole
from broker.sure import Sure
from broker.timer import units
from broker.timer.checkpoint import PATH, OwnFacts, TimerCheckpoint
from broker.timer.flush import TimerFlush
from broker.timer.log import FILE_BYTES, FOLDER, TimerLog
from broker.timer.units import MOVED, NONE, Unit
from broker.timer.wheel import PATH as WHEEL_PATH
from broker.timer.wheel import SLOTS, Wheel

PlaceOf = Callable[[int], int | None]
"""Place in the timers' queue of the message at an offset of the commit log; None: it cannot be read."""
_AHEAD_MAX_MS: Final = 86_400_000
"""A checkpoint may be this far ahead of the clock, which may have been set back."""
_CHECKED: Final = 64
"""Slots and units that are compared at the start, to see whether wheel and timer log belong together."""
_AGAIN_MAX: Final = 1 << 16
"""Units that may follow one of a later message: a RocketMQ broker enqueues some messages twice when it starts."""
_CLOSE: Final = 32
"""Units of one slot that are at most this many apart are read together."""
_WALK: Final = 1_024
"""Units of a slot that are walked back in one step."""


class TimersDamaged(StoreError):
    """The files contradict each other. The remedy is ``TimerStore.anew``."""


class _Done(NamedTuple):
    """What is done, of which the deliveries stand in the commit log; see ``done``, ``done_below`` and ``_oldest``.

    ``log_end`` and ``queue_offset`` are of that moment: a unit that came later may stand in a later slot than its
    message, if by ``read_time_ms`` that slot is not done."""

    read_time_ms: int
    below: int
    done_below: int
    done_ms: int
    oldest: int
    log_end: int
    queue_offset: int


class TimerStore:
    """Units and slots of all timers. Call ``recover`` first, then ``done_before`` if ``read_time_ms`` is 0. All calls
    come from one thread; only the steps of a flush may run in another.

    Slots are given as times in ms and rounded down to the precision. The caller moves ``queue_offset`` (the next
    message of the queue to enqueue) and ``master_queue_offset`` (the master's).
    """

    def __init__(self, files: Files, *, precision_ms: int = 1_000, slots: int = SLOTS,
                 log_file_bytes: int = FILE_BYTES) -> None:
        self._files, self.precision_ms = files, precision_ms
        self._log = TimerLog(files, file_bytes=log_file_bytes)
        self._wheel = Wheel(files, slots=slots)
        self.queue_offset = self.master_queue_offset = 0
        self.state_version = self.timestamp = self.counter = 0
        """The version in the answer to code 60."""
        self.done_below = self.done_ms = 0
        """Messages below this place of the queue, in slots before this time, are done."""
        self._last_offset = -1
        """Log offset of the last unit's message: earlier messages are here already."""
        self._oldest = self._oldest_flushed = 0
        """Units before this place of the timer log are done; the second value is on disk."""
        self._late: dict[int, tuple[int, int]] = {}
        """By slot, least log offset of units inserted while it was the first slot, and the place in the queue there:
        some of them may be late."""
        self.settled = self._settles = (0, 0)
        """A time and a log offset: messages below the offset, due before the time, are done, and the disk says so. The
        second pair becomes true with the flush in flight."""
        self.commit_log: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Returns where the commit log ends, and up to where the disk has it."""
        self._sure: Sure[_Done] | None = None
        self._late_at = -1
        """Place in the timer log of the last unit that may be late."""
        self._flushed: TimerCheckpoint | None = None
        """The checkpoint that is on disk."""
        self._is_quiet = True
        """Whether all slots passed since the last flush were empty."""
        self._flush: TimerFlush | None = None
        self.in_doubt = False
        """Whether a sync failed. Nothing is flushed then, and the next process enqueues again from the last flush."""

    # --- opening ---------------------------------------------------------------------------------------------

    def recover(self, log_end: int, *, queue_end: int = 1 << 62, place_of: PlaceOf = lambda offset: None,
                now_ms: int = 1 << 62) -> str:
        """Take over the files of the last process, as far as they agree with the end of the commit log, the end of the
        timers' queue and the clock. Returns why all must be enqueued again, or "". Raises ``OSError``."""
        for folder in ("", FOLDER):  # no crash may bring back a file that the last process deleted
            self._files.sync_dir(folder)
        wrong = self._read_checkpoint(now_ms) or self._log.open(self._claimed) or self._find_units()
        if wrong:
            self.anew(wrong)
        else:
            if self._last_offset >= 0:  # any of the units may have been late
                self._late[now_ms // self.precision_ms] = 0, 0
            if self._flushed is not None and self._flushed.own is None:  # RocketMQ's checkpoint may claim too much
                place = place_of(self._last_offset) if self._last_offset >= 0 else None
                self.queue_offset = self.queue_offset if place is None else min(self.queue_offset, place + 1)
            self._cut_to_claim(self._first_from(log_end), place_of)
        self.queue_ends(queue_end)
        return wrong

    def _read_checkpoint(self, now_ms: int) -> str:
        raw = read_whole(self._files, PATH)
        if raw is None:
            return f"{PATH} is not there" if self._is_anything_there() else ""
        found = TimerCheckpoint.decode(raw)
        if found is None:
            return f"{PATH} is damaged"
        if found.read_time_ms > now_ms + _AHEAD_MAX_MS:
            return f"{PATH} is damaged: it says that all is done up to {found.read_time_ms} ms, but now is {now_ms} ms"
        self._sync_checkpoint()
        self.queue_offset, self.master_queue_offset = found.queue_offset, found.master_queue_offset
        self.state_version, self.timestamp, self.counter = found.state_version, found.timestamp, found.counter
        self._flushed = found
        self._wheel.begin = found.read_time_ms // self.precision_ms
        self.done_below, self.done_ms = found.queue_offset, found.read_time_ms
        if found.own is not None:
            self.done_below, self.done_ms = found.own.done_below, found.own.done_ms
            self._oldest = self._oldest_flushed = found.own.oldest
            if found.own.precision_ms != self.precision_ms:
                return f"the files have slots of {found.own.precision_ms} ms, but timerPrecisionMs is now " \
                       f"{self.precision_ms}"
        return ""

    def _sync_checkpoint(self) -> None:
        """Sync the checkpoint file, since later writes depend on it."""
        file = self._files.open(PATH)
        try:
            file.sync()
        finally:
            file.close()

    def _is_anything_there(self) -> bool:
        return self._files.exists(WHEEL_PATH) or bool(self._files.list(FOLDER))

    @property
    def _claimed(self) -> int:
        """End of the timer log that is flushed, by the checkpoint."""
        return 0 if self._flushed is None else self._flushed.log_end

    def _find_units(self) -> str:
        """Find the end of the timer log, and compare it with checkpoint and wheel. Returns what is wrong, or ""."""
        log, wheel = self._log, self._wheel
        claimed = self._claimed
        if self._flushed is not None and self._flushed.own is not None and log.begin > self._oldest:
            return f"{FOLDER} begins at {log.begin}, but {PATH} says that only units below {self._oldest} are done"
        if log.begin < claimed < log.end and not log.is_place(claimed):
            return f"{PATH} says that {FOLDER} is flushed up to {claimed}, but no unit ends there"
        log.find_end(claimed)
        if log.end < claimed:
            return f"{FOLDER} ends at {log.end}, but {PATH} says that it is flushed up to {claimed}"
        last = log.last()
        self._last_offset = log.read(last)[5] if last >= 0 else -1
        self._oldest = max(self._oldest, log.begin)
        if claimed <= log.begin:
            wheel.clear()
            return ""
        wrong = wheel.open(wheel.begin, log.begin, log.end)
        if not wrong and not wheel.exists:
            wrong = f"{WHEEL_PATH} is not there"
        return wrong or self._check_slots(claimed)

    def _cut_to_claim(self, at: int, place_of: PlaceOf) -> None:
        """Remove units from ``at`` on, and those that the checkpoint does not know: their messages are enqueued again.

        They were inserted when later slots were done. A marker that was late then stands behind its timer's slot, which
        is not done by the checkpoint: the timer would be delivered first."""
        claimed = self._claimed
        if claimed <= self._log.begin < self._log.end:
            self.anew("")
        else:
            self._cut(min(at, claimed), place_of)

    def _check_slots(self, claimed: int) -> str:
        """Compare a sample of slots and units; returns what is wrong, or ""."""
        log, wheel = self._log, self._wheel
        step = max(1, wheel.pending_slots // _CHECKED)
        for slot in islice(wheel.all_pending(), 0, None, step):
            at = wheel.last(slot)
            if not log.holds(at) or not self._is_of(log.read(at), at, slot):
                return self._mismatch(slot, at)
        for at in log.some(_CHECKED, claimed):
            fields = log.read(at)
            if not units.is_whole(fields, at):
                return f"{FOLDER} is damaged at {at}"
            slot = (fields[3] + fields[4]) // self.precision_ms
            if slot >= wheel.begin and wheel.last(slot) < at:
                return self._mismatch(slot, at)
        return ""

    def _mismatch(self, slot: int, at: int) -> str:
        return (f"{WHEEL_PATH} and {FOLDER} do not belong together, or are of another precision than "
                f"{self.precision_ms} ms: see slot {slot} and the unit at {at}")

    def _is_of(self, fields: units.Fields, at: int, slot: int) -> bool:
        return units.is_whole(fields, at) and (fields[3] + fields[4]) // self.precision_ms == slot

    def anew(self, why: str) -> None:
        """Delete all files, so that the caller enqueues the whole queue again. ``why`` is for the caller's log. Raises
        ``OSError``, after which it may be called again."""
        self._give_up_flush()
        self.queue_offset, self._last_offset, self._oldest, self._oldest_flushed = 0, -1, 0, 0
        self.settled = 0, 0
        self._flushed = self._to_write(0)
        self._run(TimerFlush(self._files, self._flushed))  # first, in case of a crash before the files are gone
        self._wheel.clear()
        self._log.clear()
        self._sure_below(0)
        self.in_doubt = False

    def close(self) -> None:
        """Close the files without a flush."""
        self._log.close()
        self._wheel.close()

    # --- waiting timers --------------------------------------------------------------------------------------

    @property
    def read_time_ms(self) -> int:
        """Every slot before this time is done; 0: not known yet."""
        return self._wheel.begin * self.precision_ms

    @property
    def done(self) -> tuple[int, int]:
        """A time and a log offset: messages below the offset, due before the time, are done."""
        return self.read_time_ms, self._first_late[0]

    @property
    def done_place(self) -> int:
        """Messages below this place of the queue, due before ``read_time_ms``, are done."""
        return self._first_late[1]

    @property
    def _first_late(self) -> tuple[int, int]:
        """Log offset and place in the queue of the first message that may be late and not done, or not here yet."""
        late = (found for slot, found in self._late.items() if slot >= self._wheel.begin)
        return min(late, default=(self._last_offset + 1, self.queue_offset))

    def done_before(self, time_ms: int) -> None:
        """Slots before ``time_ms`` are done: their timers are delivered, and durable as demanded. An earlier time
        changes nothing. The first call flushes, and may raise ``OSError``."""
        begin, now = self._wheel.begin, time_ms // self.precision_ms
        if now <= begin:
            return
        pending = self._wheel.pending_slots
        self._wheel.pass_to(now)
        self._is_quiet &= self._wheel.pending_slots == pending
        if self.queue_offset >= self.done_below:  # else not all of the queue is enqueued again yet
            self.done_below, self.done_ms = self.queue_offset, self.read_time_ms
        if not begin:
            self._sure = None  # it begins here: nothing was delivered
            self.flush()

    @property
    def log_end(self) -> int:
        """Place of the next unit in the timer log."""
        return self._log.end

    @property
    def end_ms(self) -> int:
        """The first slot beyond the wheel: timers due then or later roll."""
        return (self._wheel.begin + self._wheel.slots) * self.precision_ms

    @property
    def pending(self) -> int:
        """Waiting messages minus waiting markers."""
        return self._wheel.count

    def count(self, slot_ms: int) -> int:
        """Waiting messages minus markers of one slot."""
        slot = slot_ms // self.precision_ms
        return self._wheel.get(slot).count if slot >= self._wheel.begin else 0

    def count_between(self, from_ms: int, to_ms: int) -> int:
        """Waiting messages minus markers of the slots in ``from_ms`` to ``to_ms`` (exclusive)."""
        return self._wheel.count_between(from_ms // self.precision_ms, to_ms // self.precision_ms)

    def next_slot(self, from_ms: int = 0) -> int | None:
        """The first slot from ``from_ms`` on that has units, in ms; None: there is none."""
        slot = self._wheel.next(from_ms // self.precision_ms)
        return None if slot is None else slot * self.precision_ms

    def is_done(self, place: int, slot_ms: int) -> bool:
        """Return whether the message at ``place``, due in ``slot_ms``, was done before the queue was enqueued again.

        A message that was late for its slot and waits in a later one was not."""
        return place < self.done_below and slot_ms < self.done_ms

    def insert(self, slot_ms: int, unit: Unit, write_time_ms: int) -> bool:
        """Append a message to a slot; a late one goes into the first slot that is not done. Messages come in the order
        of the log. False: it is here already.

        Raises:
            ValueError: the slot is beyond the wheel, or too far from ``write_time_ms``.
            OSError: the disk is full; nothing was kept.
        """
        if unit.offset <= self._last_offset:
            return False
        wheel, slot = self._wheel, slot_ms // self.precision_ms
        if slot < wheel.begin:
            slot = wheel.begin
            slot_ms = slot * self.precision_ms
        elif slot >= wheel.begin + wheel.slots:
            raise ValueError(f"slot {slot_ms} is beyond the wheel, which ends at {self.end_ms}")
        if slot == wheel.begin:
            here = unit.offset, self.queue_offset
            self._late[slot] = min(here, self._late.get(slot, here))
        raw = units.pack(wheel.last(slot), unit, slot_ms, write_time_ms)
        at = self._log.make_room()
        self._log.append(raw, at)
        wheel.add(slot, at, units.counted(unit.kind))
        self._late_at = at if slot == wheel.begin else self._late_at
        self._last_offset = unit.offset
        return True

    def slot(self, slot_ms: int, after: int = NONE) -> Iterator[Unit]:
        """Units of a slot, the oldest first; with ``after``, only those after that place of the timer log. Raises
        ``TimersDamaged``."""
        for batch in self.batches(slot_ms, after):
            yield from batch

    def batches(self, slot_ms: int, after: int = NONE, most: int = 500) -> Iterator[list[Unit]]:
        """Units of a slot in batches of up to ``most``, the oldest first. The first batches are empty, while it walks
        back to the oldest unit; so each takes a few milliseconds. It must not be continued after ``cut`` or ``anew``.
        Raises ``TimersDamaged``."""
        places = array("q")
        slot = slot_ms // self.precision_ms
        for found in self._walk(slot, after):
            places.extend(found)
            yield []
        places.reverse()
        for begin in range(0, len(places), most):
            batch = [units.unit_of(fields, at) for at, fields in self._units(places[begin : begin + most])]
            yield [unit for unit in batch if not unit.kind & MOVED]

    def _walk(self, slot: int, after: int) -> Iterator[list[int]]:
        """Places of a slot's units, the last one first, in lists."""
        log, at, many = self._log, self._wheel.last(slot), 16
        found: list[int] = []
        while at > after and at >= log.begin:
            if not log.holds(at):
                raise TimersDamaged(f"slot {slot} leads to {at}, where no unit can stand")
            data, begin = log.before(at, many)
            here = len(found)
            while at >= begin and at > after:
                fields = units.UNIT.unpack_from(data, at - begin)
                if not self._is_of(fields, at, slot):
                    raise TimersDamaged(f"slot {slot} leads to {at}, where no unit of it stands")
                found.append(at)
                at = fields[1]
                if at >= begin and (at - begin) % units.UNIT_BYTES:
                    raise TimersDamaged(f"slot {slot} leads to {at}, where no unit can stand")
            many = min(_WALK, 4 * many) if len(found) - here > 1 else 16
            if len(found) >= _WALK:
                yield found
                found = []
        if found:
            yield found

    def _units(self, places: array[int]) -> Iterator[tuple[int, units.Fields]]:
        """The units at these rising places; those that lie close are read at once."""
        log, data, begin = self._log, b"", 0
        for at, following in zip(places, [*places[1:], 1 << 62], strict=True):
            if at >= begin + len(data):
                is_close = following - at <= _CLOSE * units.UNIT_BYTES
                data, begin = log.run(at, 16 * _CLOSE if is_close else 1), at
            yield at, units.UNIT.unpack_from(data, at - begin)

    # --- cuts and deletions of the commit log ----------------------------------------------------------------

    def cut(self, log_end: int, place_of: PlaceOf = lambda offset: None) -> None:
        """The commit log is about to be cut at ``log_end``: remove units of messages from there on, in memory and on
        disk. ``queue_offset`` goes back to the first of them. No step of a flush may be running in another thread.

        Raises:
            OSError: the disk may still hold them; call it again.
        """
        if self._sure is not None:
            self._sure.cut(log_end)
        self._cut(self._first_from(log_end), place_of)

    def queue_ends(self, place: int) -> None:
        """The timers' queue was cut at ``place``: new messages from there on are neither enqueued nor done. ``cut``
        cannot know that alone, since messages that were done or unreadable have no unit."""
        self.queue_offset = min(self.queue_offset, place)
        self.done_below = min(self.done_below, place)

    def _first_from(self, log_end: int) -> int:
        """Place of the first unit whose message is at or after ``log_end``."""
        log, passed = self._log, 0
        for at, fields in log.scan(log.begin, log.begin + units.UNIT_BYTES):
            if fields[5] >= log_end:
                return at
        first = log.end
        for at, fields in log.backward():
            if fields[5] >= log_end:
                first, passed = at, 0
            else:
                passed += 1
                if passed == _AGAIN_MAX:
                    break
        return first

    def _cut(self, at: int, place_of: PlaceOf) -> None:
        """Remove units from ``at`` on: first from what the checkpoint claims, then from the wheel, then from the timer
        log. A crash in between leaves units that the next process adds to its wheel again."""
        log = self._log
        if at >= log.end:
            return
        self._give_up_flush()
        if at <= log.begin or self.in_doubt:
            self.done_below = 0 if at <= log.begin else self.done_below
            self.anew("")
            return
        least = self._take_back(at)
        self._last_offset = log.read(log.last(at))[5]
        place = place_of(least)
        if place is None:
            place = place_of(self._last_offset)
            place = 0 if place is None else place + 1
        self.queue_offset = min(self.queue_offset, place)
        self.done_below = min(self.done_below, self.queue_offset)
        self._oldest = min(self._oldest, at)
        self._oldest_flushed = min(self._oldest_flushed, at)
        try:
            if self._flushed is not None and self._claimed > at:
                self._flushed = attrs.evolve(
                    self._flushed, log_end=at, queue_offset=self.queue_offset, own=self._to_write(at).own)
                self._run(TimerFlush(self._files, self._flushed))
            self._run(self._begin_flush(at))
            log.cut(at)
            self._sure_below(at)
        except OSError:
            self._give_up_flush()
            self.in_doubt = True
            raise

    def _take_back(self, end: int) -> int:
        """Restore slots to the time when the timer log ended at ``end``. Returns the least log offset of later units.
        """
        wheel, least = self._wheel, 1 << 62
        for at, fields in self._log.backward(end):
            least = min(least, fields[5])
            slot = (fields[3] + fields[4]) // self.precision_ms
            if wheel.last(slot) == at:
                wheel.lower(slot, fields[1], units.counted(fields[2]))
        return least

    def oldest_offset(self, most: int = 4_096) -> int | None:
        """Log offset of the oldest waiting message, or a smaller one: a call skips at most ``most`` done units. None:
        no message waits."""
        for number, (at, fields) in enumerate(self._log.scan(self._oldest)):
            self._oldest = at
            if number == most or self._waits(fields):
                return fields[5]
        self._oldest = self._log.end
        return None

    def _waits(self, fields: units.Fields) -> bool:
        return not fields[2] & MOVED and (fields[3] + fields[4]) // self.precision_ms >= self._wheel.begin

    def pending_below(self, log_offset: int, begin: int, most: int) -> tuple[list[Unit], int | None]:
        """Waiting units of messages below that offset of the commit log, in its order: those among ``most`` units from
        position ``begin`` of the timer log on. And the position of the next unit; None: there are no more."""
        found: list[Unit] = []
        for number, (at, fields) in enumerate(self._log.scan(max(begin, self._oldest))):
            if fields[5] >= log_offset:
                break
            if number == most:
                return found, at
            if self._waits(fields):
                found.append(units.unit_of(fields, at))
        return found, None

    def find(self, offset: int) -> Unit | None:
        """The unit of the message at that offset of the commit log; None: there is none."""
        found = self._log.find(offset)
        return None if found is None else units.unit_of(self._log.read(found), found)

    def moved(self, unit: Unit) -> None:
        """The unit's message was put again at the end of the log: mark the unit as moved. Raises ``OSError``."""
        self._log.set_kind(unit.at, unit.kind | MOVED)
        self._wheel.uncount(unit.slot_ms // self.precision_ms, units.counted(unit.kind))

    def drop_before(self, log_min: int) -> None:
        """Delete files of the timer log whose units are done and of messages below ``log_min``. Raises ``OSError``."""
        log = self._log
        while log.begin + log.file_bytes <= self._oldest_flushed and (last := log.last_of_first()) is not None:
            if last[5] >= log_min:
                return
            log.drop_first()

    # --- flushing --------------------------------------------------------------------------------------------

    def checkpoint(self) -> TimerCheckpoint:
        """The checkpoint of the present state, flushed or not."""
        return TimerCheckpoint(self.read_time_ms, self._log.end, self.queue_offset, self.master_queue_offset,
                               self.state_version, self.timestamp, self.counter,
                               OwnFacts(self.precision_ms, self.done_below, self.done_ms, self._oldest))

    def _sure_done(self) -> _Done:
        """What is done whatever the power does: its deliveries are on disk."""
        if self._sure is None:
            self._sure = Sure(self._now_done())
        return self._sure.latest(*self.commit_log(), self._now_done)

    def _now_done(self) -> _Done:
        return _Done(*self.done, self.done_below, self.done_ms, self._oldest, self._log.end, self.queue_offset)

    def _sure_below(self, at: int) -> None:
        """Units from that place of the timer log on were removed."""
        self._late_at = min(self._late_at, at - 1)
        if self._sure is not None:
            self._sure.cut(-1)
            sure = self._sure.value
            self._sure.value = sure._replace(
                log_end=min(sure.log_end, at), queue_offset=min(sure.queue_offset, self.queue_offset))

    def _to_write(self, log_end: int) -> TimerCheckpoint:
        """The checkpoint for the disk. Of what is done it says no more than the disk has deliveries of, and of what is
        enqueued no more than was then, if some of it since may be late by what is done since."""
        now, sure, queue_offset = self.checkpoint(), self._sure_done(), self.queue_offset
        if self._late_at >= sure.log_end:
            log_end, queue_offset = min(log_end, sure.log_end), min(queue_offset, sure.queue_offset)
        own = OwnFacts(
            self.precision_ms, min(self.done_below, sure.done_below), sure.done_ms, min(self._oldest, sure.oldest))
        return attrs.evolve(
            now, read_time_ms=sure.read_time_ms, log_end=log_end, queue_offset=queue_offset, own=own)

    @property
    def is_unflushed(self) -> bool:
        return not self.in_doubt and (
            self._log.is_unsynced or self._wheel.is_unflushed or self._to_write(self._log.end) != self._flushed)

    @property
    def only_time_passed(self) -> bool:
        """Return whether a flush would only note that empty slots are over, which the next process finds out itself."""
        flushed = self._flushed
        if not self._is_quiet or flushed is None or self._log.is_unsynced or self._wheel.is_unflushed:
            return False
        now, own = self._to_write(self._log.end), flushed.own
        return own is not None and now.own is not None and attrs.evolve(
            flushed, read_time_ms=now.read_time_ms, own=attrs.evolve(own, done_ms=now.own.done_ms)) == now

    def begin_flush(self) -> TimerFlush:
        """Begin a flush of the present state: run its ``steps``, perhaps in another thread, then call ``end_flush``.
        One flush at a time. Raises ``OSError`` when the disk is full."""
        assert self._flush is None, "one flush at a time"
        return self._begin_flush(self._log.end)

    def _begin_flush(self, log_end: int) -> TimerFlush:
        if self.in_doubt:
            self._flush = TimerFlush(self._files, None)
            return self._flush
        checkpoint, sure = self._to_write(log_end), self._sure_done()
        self._is_quiet |= self._sure is None or not self._sure.waits
        begin = self._wheel.begin
        self._late = {slot: offset for slot, offset in self._late.items() if slot >= begin}
        self._settles = sure.read_time_ms, min(sure.below, self.done[1])
        files, folders = self._log.to_sync()
        is_needed = self._wheel.is_unflushed or (log_end > 0 and not self._wheel.exists)
        wheel = self._wheel.ready() if is_needed else None
        self._flush = TimerFlush(
            self._files, checkpoint, files, folders, wheel, self._wheel.begin_flush(),
            wheel_is_new=self._wheel.new_name)
        return self._flush

    def end_flush(self, flush: TimerFlush) -> None:
        """A flush has finished, raised or stopped. One that a cut has given up is ignored."""
        if flush is self._flush:
            self._end_flush(flush)

    def _end_flush(self, flush: TimerFlush) -> None:
        self._flush = None
        if flush.finished:
            self._wheel.flushed()
            if flush.checkpoint is not None:
                self._flushed, self.settled = flush.checkpoint, self._settles
                if flush.checkpoint.own is not None:
                    self._oldest_flushed = flush.checkpoint.own.oldest
        else:
            self.in_doubt |= flush.sync_failed
            self._is_quiet = False
            self._wheel.flush_failed()
            self._log.not_synced(set(flush.files), names=bool(flush.folders))

    def _give_up_flush(self) -> None:
        """Give up the flush in flight; no thread may be running its steps."""
        if self._flush is not None:
            self._flush.cancelled = True
            self._end_flush(self._flush)

    def flush(self) -> None:
        """Flush in this thread. Raises ``OSError``, after which it may be called again."""
        self._run(self.begin_flush())

    def _run(self, flush: TimerFlush) -> None:
        try:
            for _ in flush.steps():
                pass
        finally:
            self.end_flush(flush)
