"""How long things took, counted by bucket as they happen. Plain numbers; who shows them is others' business."""

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
    """Counts by bucket, in microseconds."""

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(BUCKETS_US) + 1))
    total_us: float = 0.0

    def add(self, seconds: float) -> None:
        microseconds = seconds * 1e6
        self.counts[bisect_left(BUCKETS_US, microseconds)] += 1
        self.total_us += microseconds

    def buckets(self) -> list[tuple[str, float]]:
        bounds = (*map(str, BUCKETS_US), "+Inf")
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))
