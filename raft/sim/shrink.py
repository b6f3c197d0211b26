"""Make a failing tape small: delta debugging over its deviations, as long as the same failure comes out.

First whole streams go, then ever smaller pieces of what is left, until no single deviation can be taken away or the
budget is used up. The failure must keep its name: otherwise shrinking finds another bug. Knows tapes and a
function that plays one; knows nothing of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from raft.sim.tape import Deviations, Value

Key = tuple[str, int]
"""(stream, number of the decision in it)."""
RUNS_MAX: Final = 600


@attrs.define
class Shrunk:
    """The smallest deviations found, and how many runs that took."""

    deviations: Deviations
    before: int
    after: int
    runs: int


def shrink(
    deviations: Mapping[str, Mapping[int, Value]], fails: Callable[[Deviations], bool], runs_max: int = RUNS_MAX
) -> Shrunk:
    """Drop deviations that the failure does not need. ``fails(candidate)`` says whether a replay still fails so."""
    return _Shrinker(deviations, fails, runs_max).shrink()


class _Shrinker:
    """The search for the least deviations that still fail."""

    def __init__(
        self, deviations: Mapping[str, Mapping[int, Value]], fails: Callable[[Deviations], bool], runs_max: int,
    ) -> None:
        self._values = {(stream, number): value for stream, values in sorted(deviations.items())
                        for number, value in sorted(values.items())}
        self._fails, self._left, self._runs = fails, runs_max, 0

    def shrink(self) -> Shrunk:
        streams: dict[str, list[Key]] = {}
        for key in self._values:
            streams.setdefault(key[0], []).append(key)
        needed = self._minimise(list(streams.values()))
        keys = self._minimise([[key] for stream in needed for key in stream])
        return Shrunk(self._tape(keys), len(self._values), len(keys), self._runs)

    def _minimise(self, groups: list[list[Key]]) -> list[list[Key]]:
        """Zeller's ddmin, on complements only: take away ever smaller pieces; a group of keys goes or stays whole."""
        if groups and self._try([]):
            return []
        pieces = 2
        while len(groups) >= 2 and self._left:
            size = -(-len(groups) // pieces)
            for start in range(0, len(groups), size):
                without = groups[:start] + groups[start + size :]
                if self._try(without):
                    groups, pieces = without, max(pieces - 1, 2)
                    break
            else:
                if size == 1:
                    break
                pieces = min(pieces * 2, len(groups))
        return groups

    def _try(self, groups: Sequence[Sequence[Key]]) -> bool:
        if not self._left:
            return False
        self._left -= 1
        self._runs += 1
        return self._fails(self._tape(groups))

    def _tape(self, groups: Sequence[Sequence[Key]]) -> Deviations:
        out: Deviations = {}
        for group in groups:
            for stream, number in group:
                out.setdefault(stream, {})[number] = self._values[stream, number]
        return out
