"""Counts durations by bucket as they happen. Plain numbers; other modules show them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

import attrs

_MILLI, _SECOND = 1_000, 1_000_000
BUCKETS_US: Final = (
    1, 3, 5, 10, 30, 50, 100, 300, 500,
    *(each * _MILLI for each in (1, 3, 5, 10, 30, 50, 100, 300, 500)), *(each * _SECOND for each in (1, 3, 5, 10)))


@attrs.define
class Latency:
    """Counts by bucket. ``bounds`` are in units of which a second has ``per_second``: microseconds, as they are."""

    bounds: tuple[float, ...] = BUCKETS_US
    per_second: int = _SECOND
    counts: list[int] = attrs.field(init=False)
    total: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float) -> None:
        took = seconds * self.per_second
        self.counts[bisect_left(self.bounds, took)] += 1
        self.total += took

    def buckets(self) -> list[tuple[str, float]]:
        bounds = (*map(str, self.bounds), "+Inf")
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))
