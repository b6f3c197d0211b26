"""When the event loop writes and syncs a lone entry itself, and when the writer's thread does.

To wake a thread and be woken by it costs about as much as a good disk takes for a small sync, and a single caller waits
for both. So a lone entry is written inline, on the loop, which stands still meanwhile. That is a bet on the disk. It is
taken while writes usually take ``USUAL_S`` or less: a moving average over about ``USUAL_WRITES`` of them. A write that
takes longer than ``loop_max_s`` is a stall, and stalls come in bursts: a neighbour's backup, a device that collects its
garbage. After one, so many writes without a stall are asked for before the next bet (``backoff``): twice as many after
each stall, as in Ethernet's backoff, up to a limit; one fewer after each inline write that goes well. So a bad disk
costs the loop one stall in ever more writes, and one that has recovered is trusted again.

A core: it is told how long writes took, and has no clock.
"""

from __future__ import annotations

from typing import Final

from raft.messages import Write

BYTES_MAX: Final = 64 << 10
"""Up to here a sync hardly takes longer than that of a single byte."""
USUAL_S: Final = 0.001
USUAL_WRITES: Final = 16
BACKOFF_WRITES: Final = 128
BACKOFF_WRITES_MAX: Final = 1 << 14


class InlinePolicy:
    """What the disk is trusted with now. With a ``loop_max_s`` of 0 nothing."""

    def __init__(self, loop_max_s: float) -> None:
        self._loop_max_s = loop_max_s
        self._usual_s = 0.0
        self.backoff = 0
        """Writes without a stall that are still asked for."""
        self._next_backoff = BACKOFF_WRITES

    def allows(self, write: Write) -> bool:
        """Whether the loop may do this one: one frame of one entry and nothing else, small, on a disk to bet on."""
        frames = write.frames
        if len(frames) != 1 or frames[0].count != 1 or not self._loop_max_s:
            return False
        if self.backoff or self._usual_s > USUAL_S:
            return False
        if write.hard_state or write.install or write.truncate_from or write.purge_to:
            return False
        return len(frames[0].data) <= BYTES_MAX

    def took(self, seconds: float) -> None:
        """A write and its sync took this long, on the loop or in the thread."""
        self._usual_s += (seconds - self._usual_s) / USUAL_WRITES
        if seconds > self._loop_max_s:
            self.backoff, self._next_backoff = self._next_backoff, min(2 * self._next_backoff, BACKOFF_WRITES_MAX)
        elif self.backoff:
            self.backoff -= 1
        elif self._next_backoff > BACKOFF_WRITES:
            self._next_backoff -= 1
        assert 0 <= self.backoff <= BACKOFF_WRITES_MAX >= self._next_backoff >= BACKOFF_WRITES
