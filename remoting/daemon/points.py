"""Makes points to send of a page of metrics. Text and numbers; other modules send them.

A counter or distribution counts since its start, or since the last report that arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.samples import Sample

KINDS: Final = frozenset({"counter", "gauge", "histogram"})
KEPT_MAX: Final = 100_000
"""Points of earlier reports that are remembered, for those that come back, as a part's do with its role."""

Labels = tuple[tuple[str, str], ...]


@attrs.frozen
class Distribution:
    """``counts[n]`` values lie above ``bounds[n - 1]`` and not above ``bounds[n]``; the last has no bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def __sub__(self, other: Distribution) -> Distribution:
        return Distribution(self.bounds, tuple(a - b for a, b in zip(self.counts, other.counts, strict=True)),
                            self.total - other.total)


@attrs.frozen
class Point:
    labels: Labels
    value: float | Distribution
    since_ns: int
    """Start of the count, by the wall clock; it has no meaning for a gauge."""


@attrs.frozen
class Series:
    """A metric with its points. ``kind`` is one of ``KINDS``."""

    name: str
    about: str
    kind: str
    points: tuple[Point, ...]


def values(family: Metric) -> Iterator[tuple[Labels, float | Distribution]]:
    """The points of a family of prometheus_client, of one of ``KINDS``."""
    if family.type != "histogram":
        suffix = "_total" if family.type == "counter" else ""
        for sample in family.samples:
            if sample.name == f"{family.name}{suffix}":
                yield tuple(sample.labels.items()), sample.value
        return
    found: dict[Labels, dict[str, list[Sample]]] = {}
    for sample in family.samples:
        own = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        found.setdefault(own, {}).setdefault(sample.name.removeprefix(family.name), []).append(sample)
    for labels, samples in found.items():
        upto = sorted((float(sample.labels["le"]), int(sample.value)) for sample in samples["_bucket"])
        counts = tuple(upper - lower for lower, upper in pairwise([0, *(count for _, count in upto)]))
        yield labels, Distribution(tuple(bound for bound, _ in upto[:-1]), counts, samples["_sum"][0].value)


def name_of(family: Metric) -> str:
    """As Java's exporters call it: with ``_total`` where it is a counter."""
    return f"{family.name}_total" if family.type == "counter" else family.name


class Reports:
    """Makes reports in order. With ``delta`` each has what happened since the last that ``arrived``.

    A report that did not arrive is part of the next. Times are of the wall clock, in nanoseconds.
    """

    def __init__(self, started_ns: int, *, delta: bool) -> None:
        self._delta = delta
        self._started_ns = self._last_ns = started_ns
        self._before: dict[tuple[str, Labels], tuple[int, float | Distribution]] = {}
        """Start of the count and last value of each point."""
        self._offered: dict[tuple[str, Labels], tuple[int, float | Distribution]] = {}

    def report(self, families: Iterable[Metric], now_ns: int) -> list[Series]:
        self._offered = {}
        made = []
        for family in families:
            if family.type in KINDS:
                name = name_of(family)
                made.append(Series(name, family.documentation, family.type, tuple(
                    self._point(name, family.type, labels, value, now_ns) for labels, value in values(family))))
        self._last_ns = now_ns
        if not self._delta:
            self._remember()
        return made

    def arrived(self) -> None:
        """Say that the last report did: what comes next is counted from it."""
        if self._delta:
            self._remember()

    def _point(self, name: str, kind: str, labels: Labels, value: float | Distribution, now_ns: int) -> Point:
        if kind == "gauge":
            return Point(labels, value, now_ns)
        since_ns, before = self._before.get((name, labels), (self._started_ns, None))
        if before is not None and _fell(before, value):  # the counter started again
            since_ns, before = self._last_ns, None
        self._offered[name, labels] = (now_ns if self._delta else since_ns, value)
        if not self._delta or before is None:
            return Point(labels, value, since_ns)
        if isinstance(value, Distribution):
            assert isinstance(before, Distribution)
            return Point(labels, value - before, since_ns)
        assert not isinstance(before, Distribution)
        return Point(labels, value - before, since_ns)

    def _remember(self) -> None:
        self._before = {**self._before, **self._offered}
        if len(self._before) > KEPT_MAX:
            self._before = self._offered


def _fell(before: float | Distribution, value: float | Distribution) -> bool:
    if isinstance(before, Distribution) and isinstance(value, Distribution):
        return before.bounds != value.bounds or any(a > b for a, b in zip(before.counts, value.counts, strict=True))
    assert not isinstance(before, Distribution) and not isinstance(value, Distribution)
    return value < before


def portions(series: Iterable[Series], most: int) -> Iterator[list[Series]]:
    """The same with at most ``most`` points each."""
    portion: list[Series] = []
    room = most
    for each in series:
        rest = each.points
        while rest:
            taken, rest = rest[:room], rest[room:]
            portion.append(attrs.evolve(each, points=taken))
            room -= len(taken)
            if not room:
                yield portion
                portion, room = [], most
    if portion:
        yield portion


def line(point: Point) -> str:
    """``{topic=t} 3``, for a log."""
    labels: Mapping[str, str] = dict(point.labels)
    said = ",".join(f"{name}={value}" for name, value in labels.items())
    if isinstance(point.value, Distribution):
        return f"{{{said}}} count {sum(point.value.counts)} sum {point.value.total:g}"
    return f"{{{said}}} {point.value:g}"
