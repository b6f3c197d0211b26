"""Which timer goes into which slot of the wheel, which slots are due, and what of them is still to be done.

A core: it is given times and a wheel, and who delivers tells it what is done. ``read_time_ms`` passes a slot when all
of it is done, in whatever order that comes; later slots are opened meanwhile. A timer that comes too late for its slot
belongs to the first one that is not done, so whoever reads from ``read_time_ms`` on finds it.
Source: ``TimerMessageStore`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

import attrs

from broker.timer.store import TimerStore
from broker.timer.units import DELETE, MESSAGE, ROLL, Unit

_APART_MAX_MS: Final = 2**31 - 1
"""More between a slot and the time of writing has no room in a unit."""
_TOLD_MS: Final = 1_000
_READING: Final = -1
"""In the place of a unit: a slot is not read to its end."""
KEPT_MAX: Final = 10_000
"""Units of a slot that are remembered from the search for markers; of larger slots they are read twice."""


@attrs.frozen
class Due:
    """A timer that is to be dealt with now, and told ``done`` then."""

    slot_ms: int
    unit: Unit
    run: int
    """Of ``start``: what a former one ordered counts no more."""
    topic: str = attrs.field(default="", eq=False)
    """Where it goes; "" before its record is read."""


class TimerMachine:
    """``enqueue`` always; ``start`` when this broker delivers, ``stop`` when it does no longer, in between ``open``."""

    def __init__(self, store: TimerStore, *, window_slots: int) -> None:
        """``store`` has said what it found."""
        self.store = store
        self.started = False
        self._precision_ms, self._window_ms = store.precision_ms, window_slots * store.precision_ms
        self._run = 0
        self._open_ms = 0
        """Slots from here on were not opened in this run."""
        self._left: dict[int, int] = {}
        """Of each slot that is not done: how many timers are to be dealt with, and one more while it is being read."""
        self._begun: list[int] = []
        """Heap of these slots; some may be done."""
        self._late: deque[Due] = deque()
        self._unseen: dict[int, set[int]] = {}
        """Of each slot that was opened, log offsets of messages that ``seen`` was not told of, and ``_READING``
        while there may be more."""
        self.unfinished = 0
        """Timers that were handed out and are not done."""

    def floor(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms

    # --- into the wheel --------------------------------------------------------------------------------------

    def enqueue(self, offset: int, size: int, topic_hash: int, *, out_ms: int, stored_ms: int, deletes: bool) -> None:
        """The next message of the queue: where it is in the log, when it is due, when it was stored. Raises
        ``OSError``."""
        store = self.store
        slot_ms, kind = self.place(out_ms, stored_ms)
        if not store.is_done(store.queue_offset, slot_ms):
            slot_ms = max(slot_ms, store.read_time_ms)
            if slot_ms >= store.end_ms:  # nobody was master for more than a week
                slot_ms, kind = store.end_ms - self._precision_ms, MESSAGE | ROLL
            unit = Unit(offset, size, topic_hash, kind | (DELETE if deletes else 0))
            written_ms = min(max(self.floor(stored_ms), slot_ms - _APART_MAX_MS), slot_ms + _APART_MAX_MS)
            if store.insert(slot_ms, unit, written_ms) and self.started and slot_ms < self._open_ms:
                self._begin(slot_ms)
                self._late.append(Due(slot_ms, unit, self._run))
                self._unseen.setdefault(slot_ms, set()).add(unit.offset)
        store.queue_offset += 1

    def place(self, out_ms: int, stored_ms: int) -> tuple[int, int]:
        """The slot, and the kind of its unit. Every replica finds the same, since it knows the same of the message."""
        out_ms, begin_ms = self.floor(out_ms), self.floor(stored_ms)
        over_ms = out_ms - begin_ms - self._window_ms
        if over_ms < 0:
            return out_ms, MESSAGE
        step_ms = self._window_ms // 2 if over_ms < self._window_ms // 3 else self._window_ms
        return self.floor(begin_ms + step_ms), MESSAGE | ROLL

    # --- out of it -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """From the first slot on that is not done. What is to be enqueued yet may belong there."""
        if not self.started:
            self.started = True
            self._run += 1
            self._open_ms = self.store.read_time_ms

    def stop(self) -> None:
        """What is under way may end as it likes: it counts no more."""
        self.started = False
        self._left, self._begun, self.unfinished = {}, [], 0
        self._late.clear()
        self._unseen.clear()

    def late(self) -> Due | None:
        """One whose slot was opened before it came."""
        if not self._late:
            return None
        self.unfinished += 1
        return self._late.popleft()

    def open(self, wall_ms: int) -> Iterator[Due | None] | None:
        """What waits in the next slot whose time is over: those that take others back, then the others, oldest first;
        None among them after some work. None instead: there is no such slot now."""
        if not self.started:
            return None
        now_ms = self.floor(wall_ms)
        slot_ms = self.store.next_slot(self._open_ms)
        if slot_ms is None or slot_ms >= now_ms:
            self._open_ms = max(self._open_ms, now_ms)
            self._advance()
            return None
        self._open_ms = slot_ms + self._precision_ms
        self._unseen.setdefault(slot_ms, set()).add(_READING)
        self._begin(slot_ms)
        self._advance()
        return self._waiting(slot_ms, self.store.log_end, self._run)

    def due_ms(self, wall_ms: int) -> int:
        """When ``open`` is to be called next: where a slot is over that holds something. And every second, as others
        ask how far this broker is; slots that are longer are over less often."""
        second_ms = max(self._precision_ms, _TOLD_MS)
        due_ms = wall_ms // second_ms * second_ms + second_ms
        if self._precision_ms < _TOLD_MS and (slot_ms := self.store.next_slot(self._open_ms)) is not None:
            due_ms = min(due_ms, slot_ms + self._precision_ms)
        return due_ms

    def _waiting(self, slot_ms: int, log_end: int, run: int) -> Iterator[Due | None]:
        """Of units below ``log_end`` of the timer log: what comes later is late."""
        kept: list[Unit] = []
        whole = True
        for batch in self.store.batches(slot_ms):
            for unit in batch:
                if unit.at >= log_end:
                    continue
                if unit.deletes:
                    yield self._handed_out(slot_ms, unit)
                elif len(kept) < KEPT_MAX:
                    kept.append(unit)
                else:
                    whole = False
            yield None
            if run != self._run or not self.started:
                return
        for batch in [kept] if whole else self.store.batches(slot_ms):
            for unit in batch:
                if unit.at < log_end and not unit.deletes:
                    yield self._handed_out(slot_ms, unit)
                    if run != self._run or not self.started:
                        return
            yield None
        self._is_seen(slot_ms, _READING)
        self._finish(slot_ms)

    def _handed_out(self, slot_ms: int, unit: Unit) -> Due:
        self._begin(slot_ms)
        self._unseen.setdefault(slot_ms, set()).add(unit.offset)
        self.unfinished += 1
        return Due(slot_ms, unit, self._run)

    def done(self, due: Due) -> None:
        """Stored elsewhere, taken back, or gone."""
        if self.counts(due):
            self.seen(due)
            self.unfinished -= 1
            self._finish(due.slot_ms)

    def seen(self, due: Due) -> None:
        """It is on its way to where it is meant for, whether it gets there soon or not."""
        self._is_seen(due.slot_ms, due.unit.offset)

    def _is_seen(self, slot_ms: int, what: int) -> None:
        unseen = self._unseen.get(slot_ms)
        if unseen is not None:
            unseen.discard(what)
            if not unseen:
                del self._unseen[slot_ms]

    @property
    def seen_before_ms(self) -> int:
        """Every timer of slots before was done or seen; in this run, or before it."""
        return min(self._unseen, default=self._open_ms) if self.started else self.store.read_time_ms

    def counts(self, due: Due) -> bool:
        """Whether it is still this run's business."""
        return self.started and due.run == self._run

    def _begin(self, slot_ms: int) -> None:
        if slot_ms not in self._left:
            self._left[slot_ms] = 0
            heappush(self._begun, slot_ms)
        self._left[slot_ms] += 1

    def _finish(self, slot_ms: int) -> None:
        left = self._left[slot_ms] - 1
        assert left >= 0, "each is done once"
        if left:
            self._left[slot_ms] = left
        else:
            del self._left[slot_ms]
            self._advance()

    def _advance(self) -> None:
        """As far as all is done."""
        begun = self._begun
        while begun and begun[0] not in self._left:
            heappop(begun)
        self.store.done_before(begun[0] if begun else self._open_ms)
