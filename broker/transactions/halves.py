"""The table of open transactions, which every replica computes from the confirmed log.

It hears of halves, decisions and given-up halves. The result depends neither on their order, as long as a half comes
before its decision, nor on how often each is heard. So replicas agree, and reading the log again does no harm. A
transaction keeps the offset of its first half as its name, however often its half is put back. A core.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import attrs

from broker.transactions.records import Half

ENDED_MAX: Final = 100_000
"""Ended transactions that are remembered, to tell a repeated decision from a contradicting one."""
_SPARE: Final = 1_000
_NAMESAKES_MAX: Final = 16


@attrs.define(eq=False)
class OpenTransaction:
    """An open transaction. ``half`` is its present one, which was put last."""

    first: int
    """Offset of its first half in the log: its name."""
    half: Half
    former: list[tuple[int, int]]
    """Offset and queue offset of its earlier halves."""
    given_up: bool = False
    """No producer is asked any more; one may still decide."""

    @property
    def places(self) -> list[tuple[int, int]]:
        """Offset and queue offset of all its halves."""
        return [*self.former, (self.half.offset, self.half.queue_offset)]


class Ended(NamedTuple):
    """A transaction that ended, as it is remembered."""

    decision: str
    half: Half
    places: Sequence[tuple[int, int]]


class Halves:
    """The table. ``since``: the log below this offset was not heard."""

    def __init__(self, since: int = 0, *, ended_max: int = ENDED_MAX) -> None:
        self.since = since
        self.highest = -1
        """Largest offset of a record that was heard: if the log is cut at or below it, the table is void."""
        self.counts: Counter[str] = Counter()
        """Open transactions by topic, given-up ones included."""
        self.unmarked: dict[int, None] = {}
        """Places in the half queue of halves that ended and have no mark yet; an ordered set."""
        self._ended_max = ended_max
        self._open: dict[int, OpenTransaction] = {}
        self._ended: OrderedDict[int, Ended] = OrderedDict()
        self._by_offset: dict[int, int] = {}
        """First half's offset, by the offset of each half of open and ended transactions."""
        self._by_queue_offset: dict[int, int] = {}
        self._by_unique: dict[str, list[int]] = {}
        self._order: list[int] = []
        """Heap of queue offsets of halves; some are not open any more."""

    # --- looking ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenTransaction]:
        return iter(self._open.values())

    def of(self, offset: int) -> OpenTransaction | None:
        """The open transaction that has a half at this offset; None: there is none."""
        return self._open.get(self._by_offset.get(offset, -1))

    def at(self, offset: int) -> Half | None:
        """The half that stands there, if it is the one that counts of an open transaction."""
        found = self.of(offset)
        return found.half if found is not None and found.half.offset == offset else None

    def is_open(self, unique: str) -> bool:
        """Return whether some transaction of that id is open, or may be: many of one id are not all looked at."""
        firsts = self._by_unique.get(unique, ())
        return len(firsts) > _NAMESAKES_MAX or not self._open.keys().isdisjoint(firsts)

    def ended(self, offset: int) -> Ended | None:
        """The remembered ended transaction that has a half at this offset; None: there is none."""
        return self._ended.get(self._by_offset.get(offset, -1))

    def waiting(self) -> list[OpenTransaction]:
        """Open transactions that were not given up, in the order of the half queue."""
        return sorted((each for each in self._open.values() if not each.given_up),
                      key=lambda each: each.half.queue_offset)

    def least_queue_offset(self) -> int | None:
        """Least queue offset of the present halves that are not given up; None: there is none."""
        order = self._order
        while order:
            found = self._open.get(self._by_queue_offset.get(order[0], -1))
            if found is not None and found.half.queue_offset == order[0] and not found.given_up:
                return order[0]
            heappop(order)
        return None

    def least_offset(self) -> int | None:
        """Least log offset of the present halves that are not given up; None: there is none."""
        return min((each.half.offset for each in self._open.values() if not each.given_up), default=None)

    # --- hearing ---------------------------------------------------------------------------------------------

    def half(self, half: Half) -> OpenTransaction | None:
        """Hear of a half. Returns the open transaction that it belongs to; None: that one has ended."""
        known = self._by_offset.get(half.offset)
        if known is not None:
            return self._open.get(known)
        self.highest = max(self.highest, half.offset)
        first = half.offset if half.first is None and not half.checks else self._first(half)
        ended = self._ended.get(first)
        if ended is not None:
            self._by_offset[half.offset] = self._by_queue_offset[half.queue_offset] = first
            self._ended[first] = ended._replace(places=[*ended.places, (half.offset, half.queue_offset)])
        if ended is not None or (self.since <= first < half.offset and first not in self._open):
            self._unmark(half.queue_offset)
            return None
        transaction = self._open.get(first)
        if transaction is None:
            transaction = self._open[first] = OpenTransaction(first, half, [])
            self._by_offset.setdefault(first, first)
            self._by_unique.setdefault(half.unique, []).append(first)
            self.counts[half.topic] += 1
        elif half.offset > transaction.half.offset:
            transaction.former.append((transaction.half.offset, transaction.half.queue_offset))
            transaction.half, transaction.given_up = half, False
        else:
            transaction.former.append((half.offset, half.queue_offset))
        self._by_offset[half.offset] = self._by_queue_offset[half.queue_offset] = first
        self._put_in_order(transaction.half.queue_offset)
        return transaction

    def restore(self, first: int, half: Half, former: Sequence[tuple[int, int]], *, given_up: bool) -> None:
        """Add an open transaction from the checkpoint."""
        if half.offset in self._by_offset:
            return
        self._open[first] = OpenTransaction(first, half, list(former), given_up)
        self._by_offset[first] = first
        for offset, queue_offset in self._open[first].places:
            self._by_offset[offset] = self._by_queue_offset[queue_offset] = first
        self._by_unique.setdefault(half.unique, []).append(first)
        self.counts[half.topic] += 1
        self._put_in_order(half.queue_offset)

    def _put_in_order(self, queue_offset: int) -> None:
        heappush(self._order, queue_offset)
        if len(self._order) > 2 * len(self._open) + _SPARE:
            self._order = sorted(each.half.queue_offset for each in self._open.values())

    def _first(self, half: Half) -> int:
        """First half's offset of the half's transaction. RocketMQ does not store it in a half that it puts back; such a
        half has the same id, group and birth time as its predecessor, and one more check."""
        if half.first is not None and half.first < half.offset:
            named = self._open.get(half.first) or self._ended.get(half.first)
            if named is None or named.half.unique == half.unique:
                return half.first
        if half.checks:
            for first in self._by_unique.get(half.unique, ()):
                known = self._open.get(first) or self._ended.get(first)
                if known is not None and (known.half.group, known.half.born_ms, known.half.checks + 1) == (
                        half.group, half.born_ms, half.checks):
                    return first
        return half.offset

    def decided(self, offset: int, decision: str, at: int) -> bool:
        """Hear of a decision about the half at that offset, by the record at ``at``."""
        return self._end(self._by_offset.get(offset), decision, at)

    def mark(self, queue_offset: int, decision: str, at: int) -> bool:
        """Hear of a mark at ``at`` that names this place of the half queue."""
        ended = self._end(self._by_queue_offset.get(queue_offset), decision, at)
        self.unmarked.pop(queue_offset, None)
        return ended

    def _end(self, first: int | None, decision: str, at: int) -> bool:
        self.highest = max(self.highest, at)
        transaction = self._open.pop(first, None) if first is not None else None
        if first is None or transaction is None:
            return False
        self.counts[transaction.half.topic] -= 1
        if not self.counts[transaction.half.topic]:
            del self.counts[transaction.half.topic]
        self._ended[first] = Ended(decision, transaction.half, transaction.places)
        if not transaction.given_up:
            self._unmark(transaction.half.queue_offset)
        while len(self._ended) > self._ended_max:
            self._forget(*self._ended.popitem(last=False))
        return True

    def _unmark(self, queue_offset: int) -> None:
        self.unmarked[queue_offset] = None

    def gave_up(self, first: int | None, unique: str, checks: int, born_ms: int, at: int) -> bool:
        """Hear of a given-up half, whose copy is at ``at``. ``first`` None: a RocketMQ broker gave it up."""
        self.highest = max(self.highest, at)
        candidates = self._by_unique.get(unique, ()) if first is None else (first,)
        for each in candidates:
            transaction = self._open.get(each)
            if transaction is not None and not transaction.given_up and transaction.half.offset < at and (
                    first is not None or (transaction.half.born_ms == born_ms
                                          and checks - transaction.half.checks in (0, 1))):
                transaction.given_up = True
                return True
        return False

    def drop_before(self, log_min: int) -> int:
        """The log below ``log_min`` is deleted. Returns how many open transactions are lost."""
        self.since = max(self.since, log_min)
        gone = [first for first, each in self._open.items() if each.half.offset < log_min]
        for first in gone:
            transaction = self._open.pop(first)
            self.counts[transaction.half.topic] -= 1
            if not self.counts[transaction.half.topic]:
                del self.counts[transaction.half.topic]
            self._forget(first, Ended("", transaction.half, transaction.places))
        return len(gone)

    def _forget(self, first: int, ended: Ended) -> None:
        self._by_offset.pop(first, None)
        for offset, queue_offset in ended.places:
            self._by_offset.pop(offset, None)
            self._by_queue_offset.pop(queue_offset, None)
        firsts = self._by_unique.get(ended.half.unique, [])
        if first in firsts:
            firsts.remove(first)
        if not firsts:
            self._by_unique.pop(ended.half.unique, None)
