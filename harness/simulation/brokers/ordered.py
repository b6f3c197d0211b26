"""Checks ordered POPs for ``popped``: INV_B46, INV_B47 and INV_B50.

It knows from answers and requests which messages of each queue were given, until when, and for which an acknowledgement
was requested. It does not read the broker's own state.
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
    """Offset -> its last delivery."""
    asked: set[int] = attrs.field(factory=set)
    """Offsets whose acknowledgement was requested."""
    acked: set[int] = attrs.field(factory=set)
    """Offsets whose acknowledgement was answered within their time."""
    through: int = 0
    """The first offset whose acknowledgement was not requested."""


class InOrder:
    """Checks the ordered POPs of one scene. ``broken`` takes an invariant, words and facts."""

    def __init__(self, broken: Broken) -> None:
        self._broken = broken
        self._queues: defaultdict[int, _Queue] = defaultdict(_Queue)
        self._again: dict[str, int] = {}
        """Attempt that asked again -> the earliest end that it asked for: a broker may have stored it, unanswered."""

    def given(self, queue: int, offsets: Sequence[int], pop_time_ms: int, until_ms: int, attempt_id: str,
              now_ms: int, epoch: int) -> bool:
        """Check messages as they leave a broker. True: a delivery of another master blocked this queue until now."""
        known, before = self._queues[queue], False
        until_ms = min(until_ms, self._again.get(attempt_id, until_ms))
        for offset in [each for each, out in known.out.items() if out.attempt_id == attempt_id]:
            del known.out[offset]  # its answer was lost, and the same attempt asks again
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
        """Note that an acknowledgement was requested: from now on the message need not block."""
        self._queues[queue].asked.add(offset)

    def acknowledged(self, queue: int, offset: int, pop_time_ms: int, now_ms: int) -> bool:
        """Note an acknowledgement that is answered now; False: it is too late to count."""
        known = self._queues[queue]
        out = known.out.get(offset)
        if out is None or out.pop_time_ms != pop_time_ms or out.until_ms < now_ms:
            return False
        known.acked.add(offset)
        return True

    def moves(self, queue: int, offset: int, until_ms: int) -> None:
        """Note a request for another invisible time: from now on either end may be in force."""
        out = self._queues[queue].out.get(offset)
        if out is not None:
            out.until_ms = min(out.until_ms, until_ms)

    def tries_again(self, attempt_id: str, until_ms: int) -> None:
        """Note that an attempt whose answer was lost asks again: what it gets blocks until ``until_ms`` at least."""
        self._again[attempt_id] = until_ms = min(until_ms, self._again.get(attempt_id, until_ms))
        for known in self._queues.values():
            for out in known.out.values():
                if out.attempt_id == attempt_id:
                    out.until_ms = min(out.until_ms, until_ms)

    def through(self, queue: int) -> int:
        """The highest offset that the group may have."""
        return self._through(self._queues[queue])

    @staticmethod
    def _through(known: _Queue) -> int:
        while known.through in known.asked:
            known.through += 1
        return known.through
