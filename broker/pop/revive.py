"""One revive queue: which checkpoints wait, which of their messages are acknowledged, and when the others come back.

A core. It is given the records in the order of the queue, and told what became of each message of a checkpoint.

A checkpoint is *ripe* two seconds after its time, when every acknowledgement that was due by then is read. Time alone
would not do: records come from timers, a late timer puts an acknowledgement after younger records, and its message
would come back although it is acknowledged. So the caller reports with ``stands_below`` that the timers have stored all
records due before some time below some place of the queue; once this core has read up to that place, it has seen them.

``processed`` is RocketMQ's offset of the revive group: the last record that is done with. It stays before each
checkpoint with an open message, and before each acknowledgement whose checkpoint may still come. Where a checkpoint is
done with and has acknowledgements in front of it, it stays before the first of these, or has passed the checkpoint: it
never stands in between. So a new master that reads on from a copy of it, however old, finds every checkpoint that it
reads together with its acknowledgements.

On an acting slave records are ``Loose``: its log takes none, so they stand in no queue, and wait in their timers until
``let_go`` returns them.
Source: ``PopReviveService`` of RocketMQ 5.5.0, which reads the queue again each time, and does not wait for timers.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

import attrs

from remoting.bodies.popping import CheckPoint, CheckpointKey

HYSTERESIS_MS: Final = 2_000
"""Least time between a checkpoint's time and its being ripe."""
AHEAD_MS: Final = 1_000
"""The caller begins to ask for ripe checkpoints this long before one can be ripe."""
ACKS_BEHIND_MS: Final = 1_000
"""An acknowledgement is due at most this long after its checkpoint's time."""
BACK_OFF_S: Final = (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""Delays of a checkpoint that is put again, by how often it was; the last one repeats."""


@attrs.frozen(eq=False)
class Loose:
    """A record that stands in no revive queue."""

    place: int
    """A unique number below 0, which never changes."""
    done: Callable[[], None]
    """Called when the record is done with: its timer may end."""


_Key = tuple[object, ...]
"""Key of a checkpoint, and how often it was put again. Acknowledgements belong to those never put again."""


@attrs.define(eq=False)
class Outstanding:
    """A checkpoint with open messages."""

    checkpoint: CheckPoint
    place: int
    """Its place in the revive queue; below 0 if it is loose."""
    logged: int
    """An offset of the log: the messages stood below it when they were given."""
    pin: int | None
    """The first record of the queue that it needs."""
    left: set[int]
    """Offsets of its open messages: neither acknowledged nor brought back."""
    key: _Key
    loose: list[Loose] = attrs.field(factory=list)
    """Loose records that it needs."""
    begun: bool = False
    """Whether its messages are being brought back: an acknowledgement comes too late."""


@attrs.define(eq=False)
class _Early:
    """Acknowledgements that were read before their checkpoint."""

    pin: int | None
    """The first of their records in the queue."""
    read_ms: int
    """Time when the last of them was read, so it was due by then."""
    offsets: set[int] = attrs.field(factory=set)
    loose: list[Loose] = attrs.field(factory=list)
    dropped: bool = False


class ReviveQueue:
    """State of one revive queue. ``at`` is the place of the next record to hand over."""

    def __init__(self, processed: int) -> None:
        """``processed``: the group's offset, the last record that is done with; -1: none is."""
        self.at = processed + 1
        self.late = 0
        """Acknowledgements that came too late, or without a checkpoint."""
        self._waiting: dict[_Key, Outstanding] = {}
        self._twins: dict[_Key, list[Outstanding]] = {}
        """Key -> checkpoints of that key behind the one in ``_waiting``, with other messages. A POP behind a reset and
        the change of an invisible time in the same millisecond may make such; their acknowledgements name no one."""
        self._by_time: list[tuple[int, int, Outstanding]] = []
        """Heap of checkpoints that are not begun, by time and place."""
        self._early: dict[_Key, _Early] = {}
        self._early_order: deque[tuple[_Key, _Early]] = deque()
        self._pins: list[tuple[int, int, Outstanding | _Early]] = []
        """Heap: a place that ``processed`` must stay below, a unique number, and the object that needs it."""
        self._pinned = 0
        self._spans: list[tuple[int, int]] = []
        """Places of a first acknowledgement and of its checkpoint behind it, which is done with; sorted."""
        self._marks: deque[tuple[int, int]] = deque()
        """Pairs of ``stands_below``, at most two: the first is being read up to, the last is the newest."""
        self._sure_ms = 0
        """All records due before this time are read."""
        self._passing: list[tuple[int, int, list[Loose]]] = []
        """Heap: place of a checkpoint that is done with, and loose records that must stay until ``processed`` is there.
        """
        self._over: list[Loose] = []
        self.held = 0
        """Loose records that were not let go."""

    # --- reading records -------------------------------------------------------------------------------------

    def checkpoint(self, found: CheckPoint, logged: int, loose: Loose | None = None) -> None:
        """Take a checkpoint: the next record of the queue, or ``loose``. A duplicate of a known one changes nothing."""
        place, pin, kept = self._take(loose)
        key: _Key = (found.key, found.re_puts)
        same = self._waiting.get(key)
        if same is not None:
            twins = [same, *self._twins.get(key, ())]
            known = next((each for each in twins if set(found.offsets) <= set(each.checkpoint.offsets)), None)
            if known is not None:
                known.loose += kept
                return
        left = {offset for at, offset in enumerate(found.offsets) if not found.bits & 0xFFFF_FFFF & 1 << at}
        early = self._early.pop(key, None) if same is None else None
        if early is not None:
            early.dropped = True
            left -= early.offsets
            kept += early.loose
            pin = min((each for each in (pin, early.pin) if each is not None), default=None)
        waiting = Outstanding(found, place, logged, pin, left, key, kept)
        if same is None:
            self._waiting[key] = waiting
        else:
            self._twins.setdefault(key, []).append(waiting)
        if left:
            heappush(self._by_time, (found.revive_time_ms, place, waiting))
            self._pin(waiting)
        else:
            self._is_done_with(waiting)

    def _take(self, loose: Loose | None) -> tuple[int, int | None, list[Loose]]:
        """Place of a record, its pin, and the loose record if it is one."""
        if loose is not None:
            self.held += 1
            return loose.place, None, [loose]
        place, self.at = self.at, self.at + 1
        return place, place, []

    def acked(self, key: CheckpointKey, offsets: Iterable[int], now_ms: int, loose: Loose | None = None) -> None:
        """Take an acknowledgement, due by ``now_ms``: the next record of the queue, or ``loose``."""
        _, pin, kept = self._take(loose)
        waiting = self._waiting.get((key, None))
        if waiting is None:
            self._is_early((key, None), offsets, pin, now_ms, kept)
            return
        waiting.loose += kept
        if not self._acked((key, None), waiting, offsets):
            self.late += 1

    def acked_elsewhere(self, key: CheckpointKey, offsets: Iterable[int]) -> None:
        """Acknowledge messages of a known checkpoint without a record, as the ledger says."""
        waiting = self._waiting.get((key, None))
        if waiting is not None:
            self._acked((key, None), waiting, offsets)

    def _acked(self, key: _Key, waiting: Outstanding, offsets: Iterable[int]) -> bool:
        """Return whether a checkpoint of that key is not begun: the acknowledgement counts."""
        counts = False
        for each in (waiting, *self._twins[key]) if key in self._twins else (waiting,):
            if not each.begun:
                counts = True
                each.left.difference_update(offsets)
                if not each.left:
                    self._is_done_with(each)
        return counts

    def _is_early(self, key: _Key, offsets: Iterable[int], pin: int | None, now_ms: int, loose: list[Loose]) -> None:
        early = self._early.get(key)
        if early is None:
            early = self._early[key] = _Early(None, now_ms)
            self._early_order.append((key, early))
        if early.pin is None and pin is not None:
            early.pin = pin
            self._pin(early)
        early.offsets.update(offsets)
        early.loose += loose
        early.read_ms = now_ms

    def _pin(self, needs: Outstanding | _Early) -> None:
        if needs.pin is not None:
            self._pinned += 1
            heappush(self._pins, (needs.pin, self._pinned, needs))

    def _is_done_with(self, waiting: Outstanding) -> None:
        """Release the loose records of a checkpoint. If it stands in the queue, a later master may read it again, and
        needs them until ``processed`` has passed it."""
        if waiting.key in self._twins:
            self._one_of_twins_is_done_with(waiting)
        else:
            self._waiting.pop(waiting.key, None)
        if waiting.pin is not None and waiting.pin < waiting.place:
            insort(self._spans, (waiting.pin, waiting.place))
        loose, waiting.loose = waiting.loose, []
        if waiting.place < 0:
            self._over += loose
        elif loose:
            self._pinned += 1
            heappush(self._passing, (waiting.place, self._pinned, loose))

    def _one_of_twins_is_done_with(self, waiting: Outstanding) -> None:
        twins = [self._waiting[waiting.key], *self._twins.pop(waiting.key)]
        twins.remove(waiting)
        self._waiting[waiting.key] = twins[0]
        if twins[1:]:
            self._twins[waiting.key] = twins[1:]

    def let_go(self, processed: int) -> list[Loose]:
        """Loose records that are done with, each once. ``processed`` is an offset that later masters know."""
        while self._passing and self._passing[0][0] <= processed:
            self._over += heappop(self._passing)[2]
        over, self._over = self._over, []
        self.held -= len(over)
        return over

    def nothing(self, count: int = 1) -> None:
        """Skip the next records: they are deleted, or cannot be decoded."""
        self.at += count

    def stands_below(self, due_ms: int, end: int) -> None:
        """The timers have stored all records that were due before ``due_ms`` below place ``end`` of the queue."""
        if self._marks and due_ms <= self._marks[-1][0]:
            return
        if len(self._marks) > 1:
            self._marks.pop()
        self._marks.append((due_ms, end))

    # --- bringing back ---------------------------------------------------------------------------------------

    def ripe(self, now_ms: int, most: int = 1 << 30) -> list[Outstanding]:
        """Checkpoints whose open messages must come back now, each once, the oldest first."""
        self._look()
        by_time, found = self._by_time, list[Outstanding]()
        upto_ms = min(self._sure_ms - ACKS_BEHIND_MS, now_ms - HYSTERESIS_MS)
        while len(found) < most and by_time and by_time[0][0] < upto_ms:
            waiting = heappop(by_time)[2]
            if waiting.left:
                waiting.begun = True
                found.append(waiting)
        return found

    def _look(self) -> None:
        while self._marks and self._marks[0][1] <= self.at:
            self._sure_ms = max(self._sure_ms, self._marks.popleft()[0])
        order = self._early_order
        while order and (order[0][1].dropped or order[0][1].read_ms + ACKS_BEHIND_MS < self._sure_ms):
            key, early = order.popleft()
            if not early.dropped:
                early.dropped = True
                del self._early[key]
                self._over += early.loose
                self.late += 1

    def done(self, waiting: Outstanding, offset: int) -> bool:
        """A message is done with: stored in the retry topic or in a checkpoint of its own, or deleted. True: it was the
        checkpoint's last one."""
        waiting.left.discard(offset)
        if not waiting.left:
            self._is_done_with(waiting)
        return not waiting.left

    # --- progress --------------------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """From when on the caller must call ``stands_below`` and ``ripe`` regularly, though no more is read; 0: now.
        It begins some time before a checkpoint is ripe, since that waits for ``stands_below``. None: never."""
        if self._early or self._over:
            return 0
        oldest_ms = self.oldest_ms
        return None if oldest_ms is None else oldest_ms + HYSTERESIS_MS - AHEAD_MS

    @property
    def processed(self) -> int:
        """The last record such that it and all before it are done with, and no record behind it needs one of these."""
        pins = self._pins
        while pins and self._is_over(pins[0][2]):
            heappop(pins)
        last = (pins[0][0] if pins else self.at) - 1
        if self._spans:
            for first, place in reversed(self._spans):
                if first <= last < place:
                    last = first - 1
            self._spans = [span for span in self._spans if span[1] > last]
        return last

    @staticmethod
    def _is_over(needs: Outstanding | _Early) -> bool:
        return needs.dropped if isinstance(needs, _Early) else not needs.left

    @property
    def waiting(self) -> int:
        """Number of checkpoints with open messages."""
        return len(self._waiting) + sum(map(len, self._twins.values()))

    @property
    def oldest_ms(self) -> int | None:
        """Time of the oldest checkpoint that is not begun; None: there is none."""
        by_time = self._by_time
        while by_time and not by_time[0][2].left:
            heappop(by_time)
        return by_time[0][0] if by_time else None


def put_again(found: CheckPoint, offset: int, now_ms: int) -> CheckPoint:
    """A new checkpoint for one message that cannot be read now, due after a delay. The delay counts from the later of
    now and the old time; RocketMQ counts from the old time alone."""
    before = int(found.re_puts) if found.re_puts and found.re_puts.isdigit() and len(found.re_puts) < 9 else 0
    pause_s = BACK_OFF_S[min(before, len(BACK_OFF_S) - 1)]
    return attrs.evolve(found, start_offset=offset, count=1, diffs=[0], bits=0, revive_offset=0,
                        invisible_ms=max(found.invisible_ms, now_ms - found.pop_time_ms) + 1_000 * pause_s,
                        re_puts=str(before + 1))
