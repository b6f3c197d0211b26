"""One revive queue: which checkpoints wait there, what of them is acknowledged, and when the rest is to come back.

A core. Records are handed to it in the order of their queue, and what is done with each message of a checkpoint is told
it. A checkpoint is ripe when two seconds have passed since its time, and every acknowledgement that was due by then has
been read: timers say when all of them stand in the queue, and ``stands_below`` says where they end. So one that comes
behind a later one counts, too. ``processed`` is Java's: the last record that nobody needs any more. It never passes a
checkpoint of which anything is left, nor an acknowledgement that a checkpoint behind it may need.
Source: ``PopReviveService`` of RocketMQ 5.5.0, which reads the same again and again, and waits for no timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

import attrs

from remoting.bodies.popping import CheckPoint, CheckpointKey

HYSTERESIS_MS: Final = 2_000
"""Between a checkpoint's time and the first look at it."""
ACKS_BEHIND_MS: Final = 1_000
"""Acknowledgements are due so long behind a checkpoint's time at most."""
BACK_OFF_S: Final = (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""By how much a checkpoint's time moves when it is put again; the last holds for all behind it."""


_Key = tuple[object, ...]
"""Of a checkpoint, and how often it was put again: acknowledgements are for those that never were."""


@attrs.define(eq=False)
class Outstanding:
    """A checkpoint that is not done with."""

    checkpoint: CheckPoint
    place: int
    """In the revive queue."""
    logged: int
    """Its messages stood in the log below this offset when they were given."""
    pin: int
    """The first record of the queue that it needs."""
    left: set[int]
    """Offsets of its messages that nothing has become of."""
    key: _Key
    begun: bool = False
    """They are on their way back: an acknowledgement comes too late."""


@attrs.define(eq=False)
class _Early:
    """Acknowledgements that no checkpoint is there for."""

    pin: int
    read_ms: int
    """When the last of them was read: it was due by then."""
    offsets: set[int] = attrs.field(factory=set)
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

    # --- what is read ----------------------------------------------------------------------------------------

    def checkpoint(self, found: CheckPoint, logged: int) -> None:
        """The next record is this checkpoint. One that is here already stands for both."""
        place, self.at = self.at, self.at + 1
        key: _Key = (found.key, found.re_puts)
        same = self._waiting.get(key)
        if same is not None:
            if set(found.offsets) <= set(same.checkpoint.offsets):
                return
            key = (*key, place)
        left = {offset for at, offset in enumerate(found.offsets) if not found.bits & 0xFFFF_FFFF & 1 << at}
        early, pin = self._early.pop(key, None), place
        if early is not None:
            early.dropped = True
            left -= early.offsets
            pin = min(pin, early.pin)
        if left:
            waiting = self._waiting[key] = Outstanding(found, place, logged, pin, left, key)
            heappush(self._by_time, (found.revive_time_ms, place, waiting))
            self._pin(waiting)

    def acked(self, key: CheckpointKey, offsets: Iterable[int], now_ms: int) -> None:
        """The next record acknowledges these, and was due by ``now_ms``."""
        place, self.at = self.at, self.at + 1
        waiting = self._waiting.get((key, None))
        if waiting is None:
            self._is_early((key, None), offsets, place, now_ms)
        elif waiting.begun:
            self.late += 1
        else:
            waiting.left.difference_update(offsets)
            if not waiting.left:
                del self._waiting[waiting.key]

    def _is_early(self, key: _Key, offsets: Iterable[int], place: int, now_ms: int) -> None:
        early = self._early.get(key)
        if early is None:
            early = self._early[key] = _Early(place, now_ms)
            self._early_order.append((key, early))
            self._pin(early)
        early.offsets.update(offsets)
        early.read_ms = now_ms

    def _pin(self, needs: Outstanding | _Early) -> None:
        self._pinned += 1
        heappush(self._pins, (needs.pin, self._pinned, needs))

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
                self.late += 1

    def done(self, waiting: Outstanding, offset: int) -> bool:
        """That message was put into the retry topic, or is gone, or is in a checkpoint of its own; True: it was the
        last one."""
        waiting.left.discard(offset)
        if not waiting.left:
            self._waiting.pop(waiting.key, None)
        return not waiting.left

    # --- how far it is ---------------------------------------------------------------------------------------

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
