"""How every system here is loaded and what is kept of it: callers that await one request after another, and rows.

Knows trio and numbers; knows no system under measurement. A row is one figure of one run; a summary is the median
and the spread of the same figure over alternated runs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable

import attrs
import trio


@attrs.frozen
class Row:
    """One measurement. ``case`` with ``width`` and ``size_bytes`` says what was done how often."""

    case: str
    width: int
    size_bytes: int
    per_second: float
    p50_ms: float
    p99_ms: float

    def line(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def read(cls, line: str) -> Row:
        return cls(**json.loads(line))


def quantile(ordered: list[float], share: float) -> float:
    """The value below which ``share`` of an ordered, non-empty list lies."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def row(case: str, width: int, size_bytes: int, latencies_s: list[float], elapsed_s: float, per_call: int = 1) -> Row:
    """Turn the latencies of one run into its row; ``per_call`` entries went with each call."""
    ordered = sorted(latencies_s)
    return Row(
        case, width, size_bytes, round(per_call * len(ordered) / elapsed_s),
        round(quantile(ordered, 0.5) * 1e3, 3), round(quantile(ordered, 0.99) * 1e3, 3),
    )


async def load(
    case: str, request: Callable[[bytes], Awaitable[object]], *, width: int, size_bytes: int, seconds: float
) -> Row:
    """``width`` tasks, each awaiting ``request`` again and again for ``seconds``, after a short warm-up."""
    data = bytes(size_bytes)
    clock = time.perf_counter
    latencies: list[float] = []

    async def caller(stop: float) -> None:
        while (start := clock()) < stop:
            await request(data)
            latencies.append(clock() - start)

    async def run(duration: float) -> float:
        latencies.clear()
        start = clock()
        async with trio.open_nursery() as nursery:
            for _ in range(width):
                nursery.start_soon(caller, start + duration)
        return clock() - start

    await run(min(0.3, seconds / 4))
    return row(case, width, size_bytes, latencies, await run(seconds))


@attrs.frozen
class Summary:
    """The same figure over several runs: median, least, greatest."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Summary:
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1], len(ordered))
