"""Decides whether the event loop or the writer's thread writes and syncs a lone entry.

*The idea.* To wake a thread and be woken by it costs about as much as a good disk takes for a small sync, and a single
caller waits for both. So a lone entry is written inline, on the loop, which stands still meanwhile. That is a bet on
the disk. It is taken while writes usually take ``USUAL_S`` or less: a moving average over about ``USUAL_WRITES`` of
them. A write that takes longer than ``loop_max_s`` is a stall, and stalls come in bursts: a neighbour's backup, a
device that collects its garbage. After one, so many writes without a stall are asked for before the next bet
(``backoff``): twice as many after each stall, as in Ethernet's backoff, up to a limit; one fewer after each inline
write that goes well. So a bad disk costs the loop one stall in ever more writes, and one that has recovered is trusted
again.

*Rejected.*

- To write inline always. One stall of a second stops all elections and reads of the process for that second.
- Never to. A lone caller on a good disk then waits about twice as long.
- To measure the disk once, as it is opened. What it does later is what counts, and each write tells it for nothing.
- To trust a disk again after some time. An idle node would bet on a disk that nobody has looked at. Writes count
  instead.
- To look at the last write alone. One quick write in a burst of stalls would be the next bet.

*Why it is safe.* It changes who writes, and neither what nor in which order.

- The loop writes only while the thread rests, with nothing handed to it that is not done (``LogWriter.takes_inline``).
  So the storage has one writer at a time, and no write overtakes another.
- The write and its sync are those of the thread, and so is the word of a failure, of a full disk and of damage. An
  entry counts as durable after its sync, as always.
- Only one frame of one entry is written so. Terms, votes, truncations and snapshots take the usual way.
- The loop stands still for one write at most, and messages to the peers have left before, so their disks work
  meanwhile. A process with more groups than one never writes inline: the others would wait for nothing.

A core: it is told how long writes took, and has no clock.
"""

from __future__ import annotations

from typing import Final

from raft.messages import Write

BYTES_MAX: Final = 64 << 10
"""Largest lone write: up to here a sync hardly takes longer than that of a single byte."""
USUAL_S: Final = 0.001
USUAL_WRITES: Final = 16
BACKOFF_WRITES: Final = 128
BACKOFF_WRITES_MAX: Final = 1 << 14


class InlinePolicy:
    """The present trust in the disk. A ``loop_max_s`` of 0 allows no inline write."""

    def __init__(self, loop_max_s: float) -> None:
        self._loop_max_s = loop_max_s
        self._usual_s = 0.0
        self.backoff = 0
        """Writes without a stall that are still asked for."""
        self._next_backoff = BACKOFF_WRITES

    def allows(self, write: Write) -> bool:
        """Return whether the loop may carry out this write: one small frame of one entry, nothing else, and a trusted
        disk."""
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
