"""Decides which slot a timer goes into, which slots are due, and which timers of them are still open.

A core: it is given times and a wheel, and told which timers are done. Timers of a slot may end in any order, and later
slots are opened meanwhile; ``read_time_ms`` passes a slot only when all its timers are done. A timer that comes too
late for its slot goes into the first slot that is not done. So a new master that reads from ``read_time_ms`` on finds
each open timer. Source: ``TimerMessageStore`` of RocketMQ 5.5.0.
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
"""Largest distance in a unit between its slot and the time of writing."""
_READING: Final = -1
"""Stands for the units of a slot that are not read yet."""
KEPT_MAX: Final = 10_000
"""Units of a slot that are kept from the search for markers; a larger slot is read twice."""


@attrs.frozen
class Due:
    """A timer that is handed out; the caller reports it to ``done``."""

    slot_ms: int
    unit: Unit
    run: int
    """Number of the ``start`` that it belongs to; timers of earlier runs are ignored."""


class TimerMachine:
    """Call ``enqueue`` at any time; ``start`` and ``stop`` when this broker begins and stops delivering; ``open``
    between the two."""

    def __init__(self, store: TimerStore, *, window_slots: int) -> None:
        """``store`` must have recovered before. ``window_slots``: a timer that waits for longer rolls."""
        self.store = store
        self.started = False
        self._precision_ms, self._window_ms = store.precision_ms, window_slots * store.precision_ms
        self._run = 0
        self._open_ms = 0
        """Slots from here on were not opened in this run."""
        self._left: dict[int, int] = {}
        """By opened slot, the number of its open timers, plus one while it is being read."""
        self._begun: list[int] = []
        """Heap of the opened slots; some may be done."""
        self._late: deque[Due] = deque()
        self._unseen: dict[int, set[int]] = {}
        """By opened slot, log offsets of timers that were not reported to ``seen``, and ``_READING`` while it is read.
        """
        self.unfinished = 0
        """Timers that were handed out and are not done."""

    def floor(self, time_ms: int) -> int:
        return time_ms // self._precision_ms * self._precision_ms

    # --- into the wheel --------------------------------------------------------------------------------------

    def enqueue(self, offset: int, size: int, topic_hash: int, *, out_ms: int, stored_ms: int, deletes: bool) -> None:
        """Put the next message of the queue into the wheel. ``offset`` and ``size`` say where it is in the log. Raises
        ``OSError``."""
        store = self.store
        slot_ms, kind = self.place(out_ms, stored_ms)
        if not store.is_done(store.queue_offset, slot_ms):
            slot_ms = max(slot_ms, store.read_time_ms)
            if slot_ms >= store.end_ms:  # the group had no master for more than a week
                slot_ms, kind = store.end_ms - self._precision_ms, MESSAGE | ROLL
            unit = Unit(offset, size, topic_hash, kind | (DELETE if deletes else 0))
            written_ms = min(max(self.floor(stored_ms), slot_ms - _APART_MAX_MS), slot_ms + _APART_MAX_MS)
            if store.insert(slot_ms, unit, written_ms) and self.started and slot_ms < self._open_ms:
                self._begin(slot_ms)
                self._late.append(Due(slot_ms, unit, self._run))
                self._unseen.setdefault(slot_ms, set()).add(unit.offset)
        store.queue_offset += 1

    def place(self, out_ms: int, stored_ms: int) -> tuple[int, int]:
        """The slot and kind of a message's unit. All replicas compute the same, since they depend on the message only.
        """
        out_ms, begin_ms = self.floor(out_ms), self.floor(stored_ms)
        over_ms = out_ms - begin_ms - self._window_ms
        if over_ms < 0:
            return out_ms, MESSAGE
        step_ms = self._window_ms // 2 if over_ms < self._window_ms // 3 else self._window_ms
        return self.floor(begin_ms + step_ms), MESSAGE | ROLL

    # --- out of it -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with the first slot that is not done. Messages not enqueued yet may still come into it."""
        if not self.started:
            self.started = True
            self._run += 1
            self._open_ms = self.store.read_time_ms

    def stop(self) -> None:
        """Stop handing out timers; results of those handed out are ignored."""
        self.started = False
        self._left, self._begun, self.unfinished = {}, [], 0
        self._late.clear()
        self._unseen.clear()

    def late(self) -> Due | None:
        """A timer that came after its slot was opened; None: there is none."""
        if not self._late:
            return None
        self.unfinished += 1
        return self._late.popleft()

    def open(self, wall_ms: int) -> Iterator[Due | None] | None:
        """Timers of the next slot that is over: first markers, then the others, each oldest first. The iterator yields
        None after some work without a timer. Returns None if no slot with timers is over."""
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

    def due_ms(self) -> int | None:
        """Return when the next slot with timers is over, by the wall clock; None: there is none."""
        slot_ms = self.store.next_slot(self._open_ms)
        return None if slot_ms is None else slot_ms + self._precision_ms

    def _waiting(self, slot_ms: int, log_end: int, run: int) -> Iterator[Due | None]:
        """Timers of a slot whose units stand below ``log_end`` of the timer log; later ones come by ``late``."""
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
        """A timer is done: delivered, stored again, recalled or dropped."""
        if self.counts(due):
            self.seen(due)
            self.unfinished -= 1
            self._finish(due.slot_ms)

    def seen(self, due: Due) -> None:
        """A timer was tried once: its put began, or ``takes`` took it."""
        self._is_seen(due.slot_ms, due.unit.offset)

    def _is_seen(self, slot_ms: int, what: int) -> None:
        unseen = self._unseen.get(slot_ms)
        if unseen is not None:
            unseen.discard(what)
            if not unseen:
                del self._unseen[slot_ms]

    @property
    def seen_before_ms(self) -> int:
        """Every timer in slots before this time was done or seen, in this run or an earlier one."""
        return min(self._unseen, default=self._open_ms) if self.started else self.store.read_time_ms

    def counts(self, due: Due) -> bool:
        """Return whether the timer belongs to the present run."""
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
        """Move ``read_time_ms`` to the first slot that has open timers or was not opened."""
        begun = self._begun
        while begun and begun[0] not in self._left:
            heappop(begun)
        self.store.done_before(begun[0] if begun else self._open_ms)
