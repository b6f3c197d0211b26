"""Feeds the table of open transactions from the confirmed log, on every replica, and keeps a checkpoint of it.

Halves, marks and given-up halves are read from their queues; final records come by ``broker.noted``. After a start the
log is read from the checkpoint on, or without one, from the former master's place of the check loop. If the log is cut,
the table is built again from what is left. It reads, and decides nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from broker.noted import Confirmed, Noted
from broker.store.consumequeue import ENTRY, NOWHERE_SIZE, ConsumeQueue
from broker.store.errors import OffsetGone
from broker.store.log import NOTHING, Read
from broker.store.messages import StoredMessages
from broker.sure import Sure
from broker.topics.names import HALF, OP_HALF
from broker.transactions import records
from broker.transactions.halves import Halves
from broker.transactions.records import Half, is_first, outlined_half, read_half
from remoting.body import Body, body
from remoting.errors import DamagedRecord
from remoting.fields import Int64
from remoting.record import (
    COMMIT,
    ROLLBACK,
    UNIQ_KEY,
    Outline,
    Record,
    decode_properties,
    stored_body,
    stored_born_ms,
    value_behind,
)

logger = logging.getLogger("broker")

PATH: Final = "config/openTransactions.json"
SLICE: Final = 500
"""Records that one ``feed`` reads; some ten milliseconds' worth."""
KEPT_BYTES: Final = 1 << 20
"""Bytes of records that are kept in memory: of halves for their decisions, and of what was heard and not taken yet."""
NEAR_BYTES: Final = 64 << 10
"""Bytes of the log that are read at once for records that stand near each other."""
_GROUPS_MAX: Final = 2_048
_PREPARED_ID: Final = f"{records.TRANSACTION_ID}\x01".encode()


@body
class KeptTransactions(Body):
    """The file ``config/openTransactions.json`` (ours): open transactions, and how far each source was read."""

    end: Int64 = 0
    """End of the confirmed log at that time; below 0: all is read, since the log was cut and the check loop's place may
    say more than is left of it."""
    since: Int64 = 0
    log_offset: Int64 = 0
    half_offset: Int64 = 0
    mark_offset: Int64 = 0
    given_up_offset: Int64 = 0
    open: list[list[Int64]] = attrs.field(factory=list)
    """First half, present half, its size, 1 if it was given up; then offset and queue offset of each former half."""
    unmarked: list[Int64] = attrs.field(factory=list)
    marks: list[list[Int64]] = attrs.field(factory=list)
    """The groups of ``Marks``."""


class Marks:
    """Finds the first mark to read when the half queue is read from some place on: the first that names a later half.
    """

    def __init__(self, kept: Iterable[Sequence[int]] = ()) -> None:
        self.groups: list[list[int]] = [list(each) for each in kept if len(each) == 2]
        """For runs of marks: queue offset of the first one, and the largest place that any of the run names."""

    def add(self, queue_offset: int, place: int) -> None:
        self.groups.append([queue_offset, place])
        if len(self.groups) > _GROUPS_MAX:
            self.groups = [[one[0], max(one[1], other[1])] for one, other in
                           zip(self.groups[::2], self.groups[1::2], strict=False)] + self.groups[len(self.groups) & ~1:]

    def needed_from(self, place: int, end: int) -> int:
        """Queue offset of the first mark that names a half from ``place`` on; ``end`` if there is none."""
        done = 0
        while done < len(self.groups) and self.groups[done][1] < place:
            done += 1
        del self.groups[:done]
        return self.groups[0][0] if self.groups else end


class Feed:
    """The table and its sources. Call ``feed`` on ticks. ``on_change`` is called when ``checkpoint`` changes."""

    def __init__(self, journal: Confirmed, messages: StoredMessages, kept: KeptTransactions | None,
                 progress: Callable[[str], int | None] = lambda topic: None) -> None:
        """``progress`` returns the check loop's place in the queue of a topic, from the consumers' offsets."""
        self.on_change: Callable[[], None] = lambda: None
        self.illegal = 0
        """Halves without a topic and queue to deliver to."""
        self.lost = 0
        """Open transactions whose half was deleted."""
        self._near: Read = NOTHING
        """What was read of the log last."""
        self._kept: dict[int, bytes] = {}
        """Halves that were heard last, as they are in the log, by their offset: most are decided soon after."""
        self._kept_bytes = 0
        self._log, self._visible, self._messages, self._progress = journal.log, journal.visible, messages, progress
        if kept is None or not kept.end:
            kept = self._from_the_check_loop()
        elif not 0 < kept.end <= self._log.max_offset:
            kept = self._from_the_begin()
        self._saved = Sure(kept)
        self._begin(kept)
        self._noted = Noted(journal, kept.log_offset, self._heard, self._cut, flags=COMMIT)

    def _begin(self, kept: KeptTransactions) -> None:
        self.halves = Halves(kept.since)
        self.halves.unmarked.update(dict.fromkeys(kept.unmarked))
        self._half_at, self._mark_at, self._given_up_at = kept.half_offset, kept.mark_offset, kept.given_up_offset
        self._to_load = deque(kept.open)
        self._marks = Marks(kept.marks)
        self._finals: deque[Outline] = deque()
        self._level_at = -1
        """End of the confirmed log when the table had all of it; -1: it is behind."""
        self._hears = False
        """The table had all that was in the queues, and all that was shown since was heard."""
        self._halves_heard: deque[tuple[Outline, bytes]] = deque()
        """Halves that follow the last one in the table, and their records."""
        self._marks_heard: deque[tuple[Outline, bytes]] = deque()
        self._heard_bytes = 0

    def _from_the_check_loop(self) -> KeptTransactions:
        """Return where to read from if there never was a checkpoint: the check loop's place.

        All halves before it ended or were put back, and no decision stands before its half. If the log was cut before
        that place, all marks are read."""
        queue = self._half_queue()
        known = self._progress(HALF) or 0
        if queue is None or not known:
            return attrs.evolve(self._from_the_begin(), end=0)
        log_min = self._log.min_offset
        at = min(max(known, queue.min_offset), queue.max_offset)
        offset, size, _ = queue.entry(at - 1) if at > queue.min_offset else (log_min, 0, 0)
        begin = max(log_min, offset + size) if size != NOWHERE_SIZE else log_min
        return KeptTransactions(0, begin, begin, at, (self._progress(OP_HALF) or 0) if at >= known else 0)

    def _from_the_begin(self) -> KeptTransactions:
        """Return where to read from if nothing is known that is true of what is left of the log: its begin."""
        log_min, queue = self._log.min_offset, self._half_queue()
        if queue is None:
            return KeptTransactions(-1, log_min, self._visible.offset)
        return KeptTransactions(-1, log_min, log_min, queue.min_offset)

    def _half_queue(self) -> ConsumeQueue | None:
        """The queue of halves; None: it is empty."""
        queue = self._messages.queue(records.HALF_TOPIC, records.QUEUE)
        return None if queue is None or queue.min_offset == queue.max_offset else queue

    # --- progress --------------------------------------------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Return whether some of the confirmed log is not in the table yet."""
        return bool(self._to_load or self._finals or self._noted.behind or any(
            at < self._messages.max_offset(topic, records.QUEUE) for topic, at in (
                (records.HALF_TOPIC, self._half_at), (records.OP_TOPIC, self._mark_at),
                (records.GIVEN_UP_TOPIC, self._given_up_at))))

    @property
    def half_begin(self) -> int:
        """Place of the first half that is here."""
        return self._messages.min_offset(records.HALF_TOPIC, records.QUEUE)

    @property
    def half_end(self) -> int:
        """Place after the last half that was read."""
        return self._half_at

    def progress(self) -> tuple[int, int]:
        """Return where a check loop must begin in the half queue and in the op queue."""
        least = self.halves.least_queue_offset()
        place = self._half_at if least is None else least
        return place, self._marks.needed_from(place, self._mark_at)

    def checkpoint(self) -> KeptTransactions:
        """The content of the file of open transactions: how the table was when the log ended where the disk has it."""
        if not self._to_load:
            return self._saved.latest(self._visible.offset, self._log.flushed_offset, self._as_it_is)
        self._saved.flushed(self._log.flushed_offset)
        return self._saved.value

    def _as_it_is(self) -> KeptTransactions:
        halves = self.halves
        return KeptTransactions(
            self._visible.offset, halves.since, self._finals[0][0] if self._finals else self._noted.offset,
            self._half_at, self._mark_at, self._given_up_at, [
                [each.first, each.half.offset, each.half.size, int(each.given_up),
                 *(number for place in each.former for number in place)]
                for each in halves],
            list(halves.unmarked), [list(each) for each in self._marks.groups])

    # --- reading ---------------------------------------------------------------------------------------------

    def feed(self, most: int = SLICE) -> bool:
        """Read up to ``most`` records; True: there are more. Raises ``OSError``, ``OffsetGone`` or ``DamagedRecord``,
        after which it may be called again."""
        if self._saved.flushed(self._log.flushed_offset):
            self.on_change()
        while self._to_load and most > 0:
            self._load(self._to_load[0])
            self._to_load.popleft()
            most -= 1
        if self._to_load:
            return True
        self._take_heard()
        most = self._read(records.HALF_TOPIC, self._half_at, most, self._half)
        if most > 0:
            most = self._read(records.OP_TOPIC, self._mark_at, most, self._mark)
        if most > 0:
            most = self._read(records.GIVEN_UP_TOPIC, self._given_up_at, most, self._gave_up)
        while most > 0 and self._noted.behind:
            self._noted.catch_up()
            most -= SLICE // 10
        if self._finals:
            self.on_change()
        while most > 0 and self._finals:
            most -= self._final(self._finals[0])
            self._finals.popleft()
        self._look_at_deleted()
        self._hears = not (behind := self.behind)
        self._level_at = -1 if behind else self._visible.offset
        return behind

    @property
    def _is_level(self) -> bool:
        """Return whether the table has all of the confirmed log."""
        return self._level_at == self._visible.offset and not self._finals

    def feed_all(self) -> None:
        """Read until the table has all of the confirmed log, or no more can be read. Raises as ``feed``."""
        if self._is_level:
            return
        before: tuple[int, ...] = ()
        while self.feed():
            now = (self._half_at, self._mark_at, self._given_up_at, self._noted.offset, len(self._finals),
                   len(self._to_load))
            if now == before:
                return
            before = now

    def _look_at_deleted(self) -> None:
        log_min = self._log.min_offset
        if log_min > self.halves.since:
            lost = self.halves.drop_before(log_min)
            if lost:
                self.lost += lost
                logger.warning("%d open transactions are lost: their halves were deleted with the log below %d", lost,
                               log_min)
                self.on_change()

    def _read(self, topic: bytes, at: int, most: int, take: Callable[[Record], None]) -> int:
        """Pass up to ``most`` records of that queue to ``take``; returns how many of ``most`` are left."""
        queue = self._messages.queue(topic, records.QUEUE)
        if queue is None or at >= queue.max_offset:
            return most
        at = max(at, queue.min_offset)
        while most > 0 and (entries := list(ENTRY.iter_unpack(queue.read(at, most)))):
            for number, (offset, size, _) in enumerate(entries):
                if size == NOWHERE_SIZE:
                    continue
                begin, data = self._near
                if not begin <= offset <= offset + size <= begin + len(data) and size <= NEAR_BYTES:
                    self._read_near(offset, size, entries[number + 1:])
                if (record := self._record(offset, size)) is not None:
                    take(record)
            at += len(entries)
            most -= len(entries)
        self._passed(topic, at)
        self.on_change()
        return most

    def _passed(self, topic: bytes, at: int) -> None:
        if topic == records.HALF_TOPIC:
            self._half_at = at
        elif topic == records.OP_TOPIC:
            self._mark_at = at
        else:
            self._given_up_at = at

    def _read_near(self, offset: int, size: int, following: Iterable[tuple[int, int, int]]) -> None:
        """Read, with the record at ``offset``, those of its queue that follow: at the end of the log all that is
        confirmed, and so what other queues have there."""
        upto, reach = max(self._visible.offset, offset + size), offset + NEAR_BYTES
        if upto > reach:
            upto = offset + size
            for other, other_size, _ in following:
                if not offset <= other <= other + other_size <= reach:
                    break
                upto = other + other_size
        try:
            self._near = offset, self._log.read(offset, upto - offset)
        except OffsetGone:
            self._near = NOTHING

    def _record(self, offset: int, size: int) -> Record | None:
        try:
            return self._log.record(offset, size, self._near)
        except (OffsetGone, DamagedRecord) as error:
            logger.warning("a record of a transaction, at %d of the log, cannot be read: %s", offset, error)
            return None

    def _load(self, row: list[int]) -> None:
        first, offset, size, given_up, *numbers = [*row, *[0] * (4 - len(row))]
        record = self._record(offset, size) if offset >= self._log.min_offset else None
        half = read_half(record) if record is not None else ""
        if isinstance(half, Half):
            self.halves.restore(first, half, list(zip(numbers[::2], numbers[1::2], strict=False)),
                                given_up=bool(given_up))

    # --- records ---------------------------------------------------------------------------------------------

    def hear_half(self, found: Outline, near: Read) -> None:
        """Hear of a half that is shown: ``feed`` need not read it then."""
        self._hear(self._halves_heard, self._half_at, found, near)

    def hear_mark(self, found: Outline, near: Read) -> None:
        """Hear of a mark that is shown, as of a half."""
        self._hear(self._marks_heard, self._mark_at, found, near)

    def _hear(self, heard: deque[tuple[Outline, bytes]], at: int, found: Outline, near: Read) -> None:
        due = at + len(heard)
        if not self._hears or found[3] < due:
            return  # the latter was told again
        if found[3] > due or self._heard_bytes > KEPT_BYTES:
            self._hears = False  # the rest is read
            return
        begin = found[0] - near[0]
        raw = near[1][begin : begin + found[1]]
        self._heard_bytes += len(raw)
        heard.append((found, raw))

    def _take_heard(self) -> None:
        """Take what was heard, all at once: that is quicker than one by one, as it comes.

        On a slave most transactions begin and end between two ticks. The table need not know of them, where the index
        finds their marks."""
        if not self._heard_bytes:
            return
        halves, marks = self._halves_heard, self._marks_heard
        over = self._over() if halves and marks and self._messages.finds_keys else ()
        while halves:
            found, raw = halves[0]
            if found[3] not in over or not is_first(found[7]):
                self._take_half(outlined_half(found, stored_born_ms(raw)), found[0])
                self._keep(found[0], raw)
            self._half_at += 1
            halves.popleft()
        while marks:
            found, raw = marks[0]
            self._take_mark(found[0], found[3], found[7], stored_body(raw))
            self._mark_at += 1
            marks.popleft()
        self._heard_bytes = 0
        self.on_change()

    def _over(self) -> set[int]:
        """Places that are named by decisions of ours among the marks that were heard: such marks have keys."""
        places = set[int]()
        for found, raw in self._marks_heard:
            if records.reason(found[7]) in (records.COMMITTED, records.ROLLED_BACK):
                places.update(records.marked(stored_body(raw)))
        return places

    def _keep(self, offset: int, raw: bytes) -> None:
        self._kept[offset] = raw
        self._kept_bytes += len(raw)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.pop(next(iter(self._kept))))

    def near(self, offset: int) -> Read:
        """What was read of the log since it was cut last, and may hold the half at that offset."""
        kept = self._kept.get(offset)
        return self._near if kept is None else (offset, kept)

    def _half(self, record: Record) -> None:
        self._take_half(read_half(record), record.offset)

    def _take_half(self, half: Half | str, offset: int) -> None:
        if isinstance(half, str):
            self.illegal += 1
            logger.error("the half at %d of the log is skipped: %s", offset, half)
        else:
            self.halves.half(self.verified(half))

    def verified(self, half: Half) -> Half:
        """The half, without its claim to be put back if the first half that it names has another id."""
        if half.first is None or half.first < self._log.min_offset:
            return half
        first = self._half_at_offset(half.first)
        return half if first is not None and first.unique == half.unique else half._replace(first=None)

    def _half_at_offset(self, offset: int) -> Half | None:
        try:
            half = read_half(self._log.record(offset))
        except (OffsetGone, DamagedRecord):
            return None
        return half if isinstance(half, Half) else None

    def _mark(self, record: Record) -> None:
        self._take_mark(record.offset, record.queue_offset, record.message.properties, record.message.body)

    def _take_mark(self, offset: int, queue_offset: int, properties: bytes, body: bytes) -> None:
        why, last, unknown = records.reason(properties), -1, False
        for place in records.marked(body):
            last = max(last, place)
            if why in (records.PUT_BACK, records.GIVEN_UP, records.ENDED_BEFORE):
                self.halves.unmarked.pop(place, None)
            else:
                unknown |= not self.halves.mark(place, why, offset)
        if unknown and why != records.UNKNOWN:  # a half that was put back meanwhile may be known by the first one alone
            for first in records.firsts(properties):
                self.halves.decided(first, why, offset)
        self.halves.highest = max(self.halves.highest, offset)
        self._marks.add(queue_offset, last)

    def _gave_up(self, record: Record) -> None:
        values = decode_properties(record.message.properties)
        said = read_half(attrs.evolve(record, message=attrs.evolve(record.message, topic=records.HALF_TOPIC)))
        if isinstance(said, Half):
            self.halves.gave_up(said.first, said.unique, said.checks, said.born_ms, record.offset)
        else:
            logger.warning("the given-up message at %d of the log was no half: %s, %s", record.offset, said, values)

    def _heard(self, found: Outline) -> None:
        if found[4] & ROLLBACK == COMMIT and value_behind(found[7], _PREPARED_ID) is not None:
            self._finals.append(found)

    def _final(self, found: Outline) -> bool:
        """Take a final record: it commits the half at its prepared offset. A copy of one has prepared offset 0, and
        commits nothing: at 0 another half may stand. Mostly a mark has ended the transaction before, and False says
        that the record was not looked at."""
        unique = (value_behind(found[7], UNIQ_KEY) or b"").decode(errors="replace")
        if not self.halves.is_open(unique):
            return False
        record = self._record(found[0], found[1])
        if record is None:
            return True
        offset = record.message.prepared_offset
        known = self.halves.of(offset)
        if known is None and self.halves.ended(offset) is None:
            half = self._half_at_offset(offset) if offset >= self._log.min_offset else None
            if half is None or half.first is None:
                return True
            offset = half.first
            known = self.halves.of(offset)
        if known is not None and known.half.unique == unique:
            self.halves.decided(offset, records.COMMITTED, record.offset)
        return True

    # --- the log is cut --------------------------------------------------------------------------------------

    def _cut(self, end: int) -> None:
        self._level_at, self._near = -1, NOTHING
        self._kept.clear()
        self._halves_heard.clear()
        self._marks_heard.clear()
        self._hears, self._kept_bytes, self._heard_bytes = False, 0, 0
        self._saved.cut(end)
        if end <= self._saved.value.end:
            self._saved = Sure(self._from_the_begin())
        while self._finals and self._finals[-1][0] >= end:
            self._finals.pop()
        if end > self.halves.highest:
            return  # the table has heard nothing of what is gone
        if self._saved.value.end <= 0:
            self._saved = Sure(self._from_the_begin())
        kept = self._saved.value
        logger.info("the log was cut at %d: open transactions are read again from %d on", end, kept.log_offset)
        self._begin(kept)
        self._noted.go_back(kept.log_offset)
        self.on_change()
