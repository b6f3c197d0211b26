"""What must hold of messages that are popped in order: INV_B46, INV_B47 and INV_B50, for ``popped``.

Of each queue it knows what was given, until when, and what somebody tried to acknowledge: from answers as they leave a
broker, and requests. Nothing is known of what a broker keeps of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import attrs

FIFO: Final = "fifo"
"""The group that pops in order."""
Broken = Callable[..., None]


@attrs.define(eq=False)
class _Out:
    """A message that a consumer has."""

    pop_time_ms: int
    until_ms: int
    attempt_id: str
    epoch: int


@attrs.define(eq=False)
class _Queue:
    out: dict[int, _Out] = attrs.field(factory=dict)
    """By offset, the last time that it was given."""
    asked: set[int] = attrs.field(factory=set)
    """Offsets that somebody has tried to acknowledge."""
    acked: set[int] = attrs.field(factory=set)
    """And was told so, within their time."""
    through: int = 0
    """Up to there somebody has tried to acknowledge all."""


class InOrder:
    """Of one scene. ``broken`` takes an invariant, words and facts."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self._queues: defaultdict[int, _Queue] = defaultdict(_Queue)

    def given(self, queue: int, offsets: Sequence[int], pop_time_ms: int, until_ms: int, attempt_id: str,
              now_ms: int, epoch: int) -> bool:
        """They leave a broker; True: another master had given something that blocked this queue until now."""
        known, before = self._queues[queue], False
        for offset in [each for each, out in known.out.items() if out.attempt_id == attempt_id]:
            del known.out[offset]  # who asks again as who it was did not get that
        first = self._through(known)
        if offsets[0] > first:
            self._broken("INV_B47", "given in front of what nobody acknowledged", queue, offsets, first,
                         known.out.get(first))
        for offset, out in known.out.items():
            if offset in known.asked:
                continue
            if out.until_ms > now_ms:
                self._broken("INV_B47", "given while a consumer has an earlier one", queue, offsets, offset, out,
                             now_ms)
            before |= out.epoch != epoch
        for offset in offsets:
            if offset in known.acked:
                self._broken("INV_B46", "given again, and it was acknowledged", queue, offsets, offset)
            known.out[offset] = _Out(pop_time_ms, until_ms, attempt_id, epoch)
        return before

    def asks(self, queue: int, offset: int) -> None:
        """Somebody tries to acknowledge it: whoever blocks on its account need not any more."""
        self._queues[queue].asked.add(offset)

    def acknowledged(self, queue: int, offset: int, pop_time_ms: int, now_ms: int) -> bool:
        """The answer says so, and leaves now; False: it is late, and says nothing."""
        known = self._queues[queue]
        out = known.out.get(offset)
        if out is None or out.pop_time_ms != pop_time_ms or out.until_ms < now_ms:
            return False
        known.acked.add(offset)
        return True

    def moves(self, queue: int, offset: int, until_ms: int) -> None:
        """Somebody asks for another time: from now on either may count."""
        out = self._queues[queue].out.get(offset)
        if out is not None:
            out.until_ms = min(out.until_ms, until_ms)

    def through(self, queue: int) -> int:
        """How far the group may be."""
        return self._through(self._queues[queue])

    @staticmethod
    def _through(known: _Queue) -> int:
        while known.through in known.asked:
            known.through += 1
        return known.through
