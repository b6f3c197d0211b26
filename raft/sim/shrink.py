"""Makes a failing tape small: takes away deviations, as long as the same failure comes out.

*The idea: halves of halves.* First whole streams are tried, then the deviations of those that are left. A piece that
cannot be taken away is cut in two, and each half is tried for itself, down to a single one. For k needed deviations out
of n that takes about 2k log2(n/k) runs. The rest is tried one by one; when one goes, halving begins again, as others
may be needless now. It ends when no single deviation can be taken away, or the budget is used up.

*Rejected.*

- Zeller's ddmin, which begins anew with all pieces after each that went: the needed ones are tried again and again, k²
  runs. With 200 needed of 1800 that was 45,000 runs, and is 1,400.
- To take any failure for the one that is made small. Shrinking would find another bug: the failure must keep its name.

*Why it is right.*

- *What is left fails.* A deviation goes only after a run without it, and without all that went before, failed the same
  way; the last such run is the result.
- *None of it is needless, if the budget lasted.* It ends after a pass over single deviations of which none could go.
- *It ends.* Each pass but the last one takes something away, and no candidate that did not fail is played twice.

Knows tapes and a function that plays one; knows nothing of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from raft.sim.tape import Deviations, Value

Key = tuple[str, int]
"""A decision on the tape: (stream, its number in the stream)."""
RUNS_MAX: Final = 600


@attrs.define
class Shrunk:
    """The fewest deviations that were found, and the number of runs that this took."""

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
        self._passed: set[frozenset[Key]] = set()
        """Candidates that did not fail. So a failure needs at least one of the keys that a candidate lacks."""

    def shrink(self) -> Shrunk:
        streams: dict[str, list[Key]] = {}
        for key in self._values:
            streams.setdefault(key[0], []).append(key)
        needed = self._minimise(list(streams.values()))
        keys = [key for (key,) in self._minimise([[key] for stream in needed for key in stream])]
        return Shrunk(self._tape(keys), len(self._values), len(keys), self._runs)

    def _minimise(self, groups: list[list[Key]]) -> list[list[Key]]:
        """Return the groups that the failure needs. A group of keys goes or stays whole."""
        kept = dict(enumerate(groups))
        before = -1
        while before != len(kept):
            self._halve(kept, list(kept))
            before = len(kept)
            for number in list(kept):
                self._drop(kept, [number])
        return list(kept.values())

    def _halve(self, kept: dict[int, list[Key]], piece: list[int]) -> None:
        """Take these groups away, or each half of them, and so on."""
        if not self._drop(kept, piece) and len(piece) > 1:
            middle = len(piece) // 2
            self._halve(kept, piece[:middle])
            self._halve(kept, piece[middle:])

    def _drop(self, kept: dict[int, list[Key]], piece: list[int]) -> bool:
        """Take these groups away if the tape fails without them, and return whether it does. Drops nothing once the
        budget is used up."""
        gone = set(piece)
        keys = [key for number, group in kept.items() if number not in gone for key in group]
        candidate = frozenset(keys)
        if not piece or not self._left or candidate in self._passed:
            return False
        self._left -= 1
        self._runs += 1
        if not self._fails(self._tape(keys)):
            self._passed.add(candidate)
            return False
        for number in piece:
            del kept[number]
        return True

    def _tape(self, keys: Iterable[Key]) -> Deviations:
        out: Deviations = {}
        for stream, number in keys:
            out.setdefault(stream, {})[number] = self._values[stream, number]
        return out
