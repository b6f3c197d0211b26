"""One revive queue: which checkpoints wait there, what of them is acknowledged, and when the rest is to come back.

A core. Records are handed to it in the order of their queue, and what is done with each message of a checkpoint is told
it. A checkpoint is ripe when two seconds have passed since its time, and every acknowledgement that was due by then has
been read: timers say when all of them stand in the queue, and ``stands_below`` says where they end. So one that comes
behind a later one counts, too. ``processed`` is Java's: the last record that nobody needs any more. It never passes a
checkpoint of which anything is left, nor an acknowledgement that a checkpoint behind it may need.

To a broker that acts for its master records are ``Loose``: its log takes none, so they stand in no queue, and wait in
their timers until nobody needs them. ``let_go`` says which those are.
Source: ``PopReviveService`` of RocketMQ 5.5.0, which reads the same again and again, and waits for no timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

import attrs

from remoting.bodies.popping import CheckPoint, CheckpointKey

HYSTERESIS_MS: Final = 2_000
"""Between a checkpoint's time and the first look at it."""
AHEAD_MS: Final = 1_000
"""Before it is ripe, a checkpoint is looked at."""
ACKS_BEHIND_MS: Final = 1_000
"""Acknowledgements are due so long behind a checkpoint's time at most."""
BACK_OFF_S: Final = (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""By how much a checkpoint's time moves when it is put again; the last holds for all behind it."""


@attrs.frozen(eq=False)
class Loose:
    """A record that stands in no revive queue."""

    place: int
    """Below 0, and its own for ever."""
    done: Callable[[], None]
    """To be called once nobody needs it."""


_Key = tuple[object, ...]
"""Of a checkpoint, and how often it was put again: acknowledgements are for those that never were."""


@attrs.define(eq=False)
class Outstanding:
    """A checkpoint that is not done with."""

    checkpoint: CheckPoint
    place: int
    """In the revive queue; below 0: of a loose one."""
    logged: int
    """Its messages stood in the log below this offset when they were given."""
    pin: int | None
    """The first record of the queue that it needs."""
    left: set[int]
    """Offsets of its messages that nothing has become of."""
    key: _Key
    loose: list[Loose] = attrs.field(factory=list)
    """Records that are needed as long as it is."""
    begun: bool = False
    """They are on their way back: an acknowledgement comes too late."""


@attrs.define(eq=False)
class _Early:
    """Acknowledgements that no checkpoint is there for."""

    pin: int | None
    """The first record of the queue that is one of them."""
    read_ms: int
    """When the last of them was read: it was due by then."""
    offsets: set[int] = attrs.field(factory=set)
    loose: list[Loose] = attrs.field(factory=list)
    dropped: bool = False


class ReviveQueue:
    """``at`` is the next record to hand over."""

    def __init__(self, processed: int) -> None:
        """``processed``: the last record that nobody needed any more, as the group's offset says; -1: none."""
        self.at = processed + 1
        self.late = 0
        """Acknowledgements that came for nothing that is left."""
        self._waiting: dict[_Key, Outstanding] = {}
        self._by_time: list[tuple[int, int, Outstanding]] = []
        """Heap: by time and place, those that are not begun."""
        self._early: dict[_Key, _Early] = {}
        self._early_order: deque[tuple[_Key, _Early]] = deque()
        self._pins: list[tuple[int, int, Outstanding | _Early]] = []
        """Heap: what ``processed`` must not reach, a number that tells equal ones apart, and who needs it."""
        self._pinned = 0
        self._marks: deque[tuple[int, int]] = deque()
        """What was due before that time stands below that place; the first is being read up to, the last is newer."""
        self._sure_ms = 0
        """What was due before that time was read."""
        self._passing: list[tuple[int, int, list[Loose]]] = []
        """Heap: of checkpoints of the queue that are done with, what is needed until ``processed`` is there."""
        self._over: list[Loose] = []
        self.held = 0
        """Loose records that were not let go."""

    # --- what is read ----------------------------------------------------------------------------------------

    def checkpoint(self, found: CheckPoint, logged: int, loose: Loose | None = None) -> None:
        """The next record, or that one, is this checkpoint. One that is here already stands for both."""
        place, pin, kept = self._take(loose)
        key: _Key = (found.key, found.re_puts)
        same = self._waiting.get(key)
        if same is not None:
            if set(found.offsets) <= set(same.checkpoint.offsets):
                same.loose += kept
                return
            key = (*key, place)
        left = {offset for at, offset in enumerate(found.offsets) if not found.bits & 0xFFFF_FFFF & 1 << at}
        early = self._early.pop(key, None)
        if early is not None:
            early.dropped = True
            left -= early.offsets
            kept += early.loose
            pin = min((each for each in (pin, early.pin) if each is not None), default=None)
        waiting = Outstanding(found, place, logged, pin, left, key, kept)
        if left:
            self._waiting[key] = waiting
            heappush(self._by_time, (found.revive_time_ms, place, waiting))
            self._pin(waiting)
        else:
            self._is_done_with(waiting)

    def _take(self, loose: Loose | None) -> tuple[int, int | None, list[Loose]]:
        """Its place, what of the queue it needs at least, and itself."""
        if loose is not None:
            self.held += 1
            return loose.place, None, [loose]
        place, self.at = self.at, self.at + 1
        return place, place, []

    def acked(self, key: CheckpointKey, offsets: Iterable[int], now_ms: int, loose: Loose | None = None) -> None:
        """The next record, or that one, acknowledges these, and was due by ``now_ms``."""
        _, pin, kept = self._take(loose)
        waiting = self._waiting.get((key, None))
        if waiting is None:
            self._is_early((key, None), offsets, pin, now_ms, kept)
            return
        waiting.loose += kept
        if waiting.begun:
            self.late += 1
        else:
            waiting.left.difference_update(offsets)
            if not waiting.left:
                self._is_done_with(waiting)

    def acked_elsewhere(self, key: CheckpointKey, offsets: Iterable[int]) -> None:
        """Of a checkpoint that was read, in no record; one that comes later is handed over without them."""
        waiting = self._waiting.get((key, None))
        if waiting is not None and not waiting.begun:
            waiting.left -= set(offsets)
            if not waiting.left:
                self._is_done_with(waiting)

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
        """What it needed is needed by nobody; where it stands in the queue, once ``processed`` says so, too."""
        self._waiting.pop(waiting.key, None)
        loose, waiting.loose = waiting.loose, []
        if waiting.place < 0:
            self._over += loose
        elif loose:
            self._pinned += 1
            heappush(self._passing, (waiting.place, self._pinned, loose))

    def let_go(self, processed: int) -> list[Loose]:
        """Loose records that nobody needs any more, each once; that ``processed`` is known to whoever reads the queue
        after this broker."""
        while self._passing and self._passing[0][0] <= processed:
            self._over += heappop(self._passing)[2]
        over, self._over = self._over, []
        self.held -= len(over)
        return over

    def nothing(self, count: int = 1) -> None:
        """The next records are gone, or say nothing that can be understood."""
        self.at += count

    def stands_below(self, due_ms: int, end: int) -> None:
        """All that was due before ``due_ms`` stands below ``end`` of the queue."""
        if self._marks and due_ms <= self._marks[-1][0]:
            return
        if len(self._marks) > 1:
            self._marks.pop()
        self._marks.append((due_ms, end))

    # --- what becomes of it ----------------------------------------------------------------------------------

    def ripe(self, now_ms: int, most: int = 1 << 30) -> list[Outstanding]:
        """Checkpoints whose messages are to come back now, each once, the oldest first."""
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
        """That message was put into the retry topic, or is gone, or is in a checkpoint of its own; True: it was the
        last one."""
        waiting.left.discard(offset)
        if not waiting.left:
            self._is_done_with(waiting)
        return not waiting.left

    # --- how far it is ---------------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """From when on ``stands_below`` and ``ripe`` are to be called again and again, if no more is read; 0: now. A
        while before a checkpoint is ripe, which waits for what the former brings about. None: there is no such time."""
        if self._early or self._over:
            return 0
        oldest_ms = self.oldest_ms
        return None if oldest_ms is None else oldest_ms + HYSTERESIS_MS - AHEAD_MS

    @property
    def processed(self) -> int:
        """The last record that nobody needs any more."""
        pins = self._pins
        while pins and self._is_over(pins[0][2]):
            heappop(pins)
        return (pins[0][0] if pins else self.at) - 1

    @staticmethod
    def _is_over(needs: Outstanding | _Early) -> bool:
        return needs.dropped if isinstance(needs, _Early) else not needs.left

    @property
    def waiting(self) -> int:
        """Checkpoints that are not done with."""
        return len(self._waiting)

    @property
    def oldest_ms(self) -> int | None:
        """The time of the first one that is not begun; None: there is none."""
        by_time = self._by_time
        while by_time and not by_time[0][2].left:
            heappop(by_time)
        return by_time[0][0] if by_time else None


def put_again(found: CheckPoint, offset: int, now_ms: int) -> CheckPoint:
    """A checkpoint of one message that cannot come back now: a while later than its own time, and than now. Java counts
    from its own time alone, and from a checkpoint that takes too long makes one with a time in the place of the offset.
    """
    before = int(found.re_puts) if found.re_puts and found.re_puts.isdigit() and len(found.re_puts) < 9 else 0
    pause_s = BACK_OFF_S[min(before, len(BACK_OFF_S) - 1)]
    return attrs.evolve(found, start_offset=offset, count=1, diffs=[0], bits=0, revive_offset=0,
                        invisible_ms=max(found.invisible_ms, now_ms - found.pop_time_ms) + 1_000 * pause_s,
                        re_puts=str(before + 1))
