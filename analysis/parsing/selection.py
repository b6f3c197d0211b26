"""Which rows are wanted: bounds on group, node, index, term, time and kind, as far as they were asked for.

Used to pass over whole segments by their footers, and frames by their headers. Both only leave out rows that the
bounds exclude; Spark checks again what it has asked for. Pure.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np

BEYOND: Final = (1 << 63) - 1


@attrs.define
class Interval:
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int = -BEYOND - 1
    high: int = BEYOND

    def narrow(self, low: int | None = None, high: int | None = None) -> None:
        if low is not None:
            self.low = max(self.low, low)
        if high is not None:
            self.high = min(self.high, high)

    @property
    def open(self) -> bool:
        """The interval excludes no number at all."""
        return self.low == -BEYOND - 1 and self.high == BEYOND

    def meets(self, low: int, high: int) -> bool:
        """Return whether any number of ``low``..``high`` is within."""
        return self.low <= high and low <= self.high


@attrs.define
class Selection:
    """Sets of names are None where everything is wanted. ``index`` bounds entries: a frame counts if it holds one."""

    nodes: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    group_ids: frozenset[int] | None = None
    kinds: frozenset[str] | None = None
    index: Interval = attrs.field(factory=Interval)
    term: Interval = attrs.field(factory=Interval)
    wall_ms: Interval = attrs.field(factory=Interval)

    @property
    def by_frame(self) -> bool:
        """Frames of one group and kind are selected one by one; rows without index, term or time are not wanted."""
        return not (self.index.open and self.term.open and self.wall_ms.open)

    def wants_node(self, node: str | None) -> bool:
        return self.nodes is None or node in self.nodes

    def wants_group(self, name: str, number: int | None) -> bool:
        return (self.groups is None or name in self.groups) and (self.group_ids is None or number in self.group_ids)

    def wants_kind(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds

    def of_names(self, column: str, names: frozenset[Any]) -> None:
        """Only rows with one of these values in a column of names."""
        have: frozenset[Any] | None = getattr(self, column)
        setattr(self, column, names if have is None else have & names)


def frame_mask(
    wanted: Selection, first: np.ndarray, last: np.ndarray, term: np.ndarray, wall_ms: np.ndarray | None,
) -> np.ndarray | None:
    """Which frames hold an entry within the bounds; None: all of them. Without times, no bound on time is met."""
    mask: np.ndarray | None = None
    for bounds, low, high in (
            (wanted.index, first, last), (wanted.term, term, term), (wanted.wall_ms, wall_ms, wall_ms)):
        if bounds.open:
            continue
        if low is None or high is None:
            return np.zeros(len(first), bool)
        part = (high >= bounds.low) & (low <= bounds.high)
        mask = part if mask is None else mask & part
    return mask
