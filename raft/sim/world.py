"""Virtual time: a heap of future actions, one skewed clock for each node, and a rolling hash of all events.

Time is integer nanoseconds. Entries are plain tuples, since this is the innermost loop of every simulation. This
module knows no replica, network or disk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any, Final

from raft.errors import UsageError

MILLION: Final = 1_000_000
Action = Callable[[Any], None]
_FIELDS: Final = "QHHQQQQ"
_FOLDED_AT_ONCE: Final = 256
_TRAIL_LENGTH: Final = _FOLDED_AT_ONCE * len(_FIELDS)
_FOLDS: Final = struct.Struct(f"<{_FIELDS * _FOLDED_AT_ONCE}")


class World:
    """Virtual time and its heap of actions. Two worlds fed the same way have the same ``fingerprint``."""

    __slots__ = ("_digest", "_folded", "_heap", "_order", "_trail", "now")

    def __init__(self) -> None:
        self.now = 0
        """World time, ns. No node sees it: nodes read their ``Clock``."""
        self._heap: list[tuple[int, int, int, Action, Any]] = []
        self._order = 0
        self._digest = blake2b(digest_size=16)
        self._folded = 0
        self._trail: list[int] = []
        """The latest events, which are not in the hash yet: hashing many at once costs a third."""

    def at(self, when: int, action: Action, argument: Any = None, tie: int = 0) -> None:
        """Call ``action(argument)`` at ``when``, never before now. At equal times the lower ``tie`` is first, then the
        first call."""
        self._order = order = self._order + 1
        if when < self.now:
            when = self.now
        heappush(self._heap, (when, tie, order, action, argument))

    def fold(self, node: int, kind: int, a: int, b: int, c: int, d: int) -> None:
        """Count an event and mix it into the hash. All numbers must be below 2**64."""
        trail = self._trail
        trail += (self.now, node, kind, a, b, c, d)
        if len(trail) == _TRAIL_LENGTH:
            self._digest.update(_FOLDS.pack(*trail))
            self._folded += _FOLDED_AT_ONCE
            trail.clear()

    @property
    def events(self) -> int:
        """Number of events that ``fold`` counted."""
        return self._folded + len(self._trail) // len(_FIELDS)

    @property
    def fingerprint(self) -> str:
        """Hash of every event so far."""
        digest = self._digest.copy()
        digest.update(struct.pack(f"<{_FIELDS * (len(self._trail) // len(_FIELDS))}", *self._trail))
        return digest.hexdigest()

    def run(self, until: int) -> None:
        """Run all actions that are due up to ``until``, which is ``now`` afterwards."""
        heap = self._heap
        while heap:
            entry = heappop(heap)
            when = entry[0]
            if when > until:
                heappush(heap, entry)
                break
            self.now = when
            entry[3](entry[4])
        if until > self.now:
            self.now = until

    def run_while(self, wanted: Callable[[], bool], until: int) -> bool:
        """Run actions while ``wanted()`` and time is left. Return True if ``wanted()`` ended."""
        heap = self._heap
        while wanted():
            if not heap or heap[0][0] > until:
                self.now = max(self.now, until)
                return not wanted()
            self.now, _, _, action, argument = heappop(heap)
            action(argument)
        return True


class Clock:
    """One node's monotonic clock: an offset and a rate over world time. It may jump ahead, but never runs back."""

    __slots__ = ("_local", "_world", "rate_ppm")

    def __init__(self, start_ns: int = 0) -> None:
        self._world = 0
        self._local = start_ns
        self.rate_ppm = MILLION
        """Local nanoseconds in a million nanoseconds of world time."""

    def local(self, world_ns: int) -> int:
        """Return the node's time at this world time."""
        if self.rate_ppm == MILLION:
            return self._local + world_ns - self._world
        return self._local + (world_ns - self._world) * self.rate_ppm // MILLION

    def world(self, local_ns: int) -> int:
        """Return the first world time at which the node's time is at least ``local_ns``."""
        if self.rate_ppm == MILLION:
            return self._world + local_ns - self._local
        return self._world - (-(local_ns - self._local) * MILLION) // self.rate_ppm

    def set_rate(self, world_ns: int, rate_ppm: int) -> None:
        """Run at this rate from now on."""
        if rate_ppm <= 0:
            raise UsageError(f"a clock's rate must be above 0 ppm, not {rate_ppm}")
        self._local, self._world = self.local(world_ns), world_ns
        self.rate_ppm = rate_ppm

    def step(self, world_ns: int, step_ns: int) -> None:
        """Let this clock jump ahead by ``step_ns``."""
        if step_ns < 0:
            raise UsageError("a monotonic clock does not run back")
        self._local, self._world = self.local(world_ns) + step_ns, world_ns
