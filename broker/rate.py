"""Measures how fast a counter rose lately, as Java writes it. Pure: it is told the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

SAMPLE_NS: Final = 1_000_000_000
_SPANS_S: Final = (10, 60, 600)


@attrs.define
class Rate:
    """The rates of a counter that only rises, over the latest ten seconds, minute and ten minutes."""

    read: Callable[[], int]
    due_ns: int = 0
    """Time of the next ``sample``."""
    _samples: deque[tuple[int, int]] = attrs.field(factory=lambda: deque(maxlen=_SPANS_S[-1] + 1))

    def sample(self, now_ns: int) -> None:
        self._samples.append((now_ns, self.read()))
        self.due_ns = now_ns - now_ns % SAMPLE_NS + SAMPLE_NS  # all rates of a process sample at the same time

    def per_second(self, span_s: int) -> float:
        if not self._samples:
            return 0.0
        now_ns, count = self._samples[-1]
        first_ns, first = next((when, was) for when, was in self._samples if now_ns - when <= span_s * 1_000_000_000)
        return (count - first) * 1e9 / (now_ns - first_ns) if now_ns > first_ns else 0.0

    def text(self) -> str:
        """Three numbers, one for each span."""
        return " ".join(f"{self.per_second(span_s):.2f}" for span_s in _SPANS_S)
