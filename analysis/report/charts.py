"""Plots as inline SVG: lanes of spans, lines over time, bars. Their colours are the page's, and follow its theme.

Here is where things lie; the elements are in ``templates/charts.html``. Nothing here knows Spark or what values mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import attrs
from markupsafe import Markup

from analysis.report import markup

WIDTH: Final = 1040
LEFT: Final = 180
RIGHT: Final = 90
STEP: Final = 26
"""From row to row."""
COLOURS: Final = 8
"""Series colours that the page defines, as ``--s0`` and on; what is beyond is grey."""
_STEPS_MS: Final = (
    10.0, 50.0, 100.0, 500.0, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5,
    6048e5, 2592e6)
"""Milliseconds between the ticks of a time axis."""
DOTS_MAX: Final = 60
"""A line of more points has no dots."""
_TEMPLATE: Final = "charts.html"


@attrs.frozen
class Span:
    """Part of a lane, from ``begin`` to ``end`` ms. ``series`` gives its colour: a number, ``gap`` or ``other``."""

    begin: float
    end: float
    series: int | str
    title: str


@attrs.frozen
class Lane:
    label: str
    spans: Sequence[Span]
    value: str = ""
    """Shown at its right end."""


def series_class(series: int | str) -> str:
    return f"s{series}" if isinstance(series, int) and series < COLOURS else "gap" if series == "gap" else "other"


@attrs.frozen
class _Tick:
    """A mark on an axis."""

    at: float
    words: str


@attrs.frozen
class _Axis:
    """Axis of time along the bottom."""

    ticks: Sequence[_Tick]
    bottom: float


@attrs.frozen
class _Block:
    """A coloured stretch of a row."""

    css: str
    left: float
    width: float
    title: str


@attrs.frozen
class _Row:
    """A lane, with what is in it."""

    label: str
    short: str
    top: int
    blocks: Sequence[_Block]
    value: str


def lanes(rows: Sequence[Lane], begin: float, end: float, *, name: str) -> Markup:
    """A row per lane, time from left to right."""
    place = _scale(begin, end)

    def block(span: Span) -> _Block:
        left, right = place(max(span.begin, begin)), place(min(span.end, end))
        return _block(span.series, left, right - left - 1, span.title)

    return markup.part(
        _TEMPLATE, "lanes", name=name, height=STEP * len(rows) + 40, width=WIDTH, left=LEFT, right=WIDTH - RIGHT,
        axis=_time_axis(begin, end, STEP * len(rows) + 6),
        rows=[_Row(lane.label, _short(lane.label), number * STEP + 4, [*map(block, lane.spans)], lane.value)
              for number, lane in enumerate(rows)])


@attrs.frozen
class Line:
    label: str
    points: Sequence[tuple[float, float]]
    """(ms, value), in the order of time."""
    series: int = 0


@attrs.frozen
class _Dot:
    """A point of a line, with words."""

    x: float
    y: float
    words: str


@attrs.frozen
class _Curve:
    """A line as it is drawn. ``area``: the points of what is below it; "" if that stays empty."""

    series: int
    points: str
    area: str
    dots: Sequence[_Dot]
    end: _Dot | None


def lines(rows: Sequence[Line], begin: float, end: float, *, name: str, unit: str, area: bool = False) -> Markup:
    """Values over time from zero up."""
    top_value = max((value for line in rows for _, value in line.points), default=0.0) or 1.0
    step = _nice(top_value / 4)
    ceiling = math.ceil(top_value / step) * step
    bottom, height = 190, 232
    place = _scale(begin, end)

    def level(value: float) -> float:
        return bottom - value / ceiling * (bottom - 12)

    def curve(line: Line) -> _Curve:
        path = " ".join(f"{place(at):.1f},{level(value):.1f}" for at, value in line.points)
        below, last = "", None
        if area and line.points:
            below = f"{path} {place(line.points[-1][0]):.1f},{bottom} {place(line.points[0][0]):.1f},{bottom}"
        if line.label and line.points:
            at, value = line.points[-1]
            last = _Dot(min(place(at), WIDTH - RIGHT) + 8, level(value) + 4, line.label)
        dots = [_Dot(place(at), level(value), f"{clock(at)}: {number_words(value)} {unit}")
                for at, value in line.points]
        return _Curve(line.series, path, below, dots if len(dots) <= DOTS_MAX else [], last)

    levels, value = [], 0.0
    while value <= ceiling * 1.0001:
        levels.append(_Tick(level(value), number_words(value)))
        value += step
    return markup.part(
        _TEMPLATE, "lines", name=name, height=height, width=WIDTH, left=LEFT, right=WIDTH - RIGHT,
        axis=_time_axis(begin, end, bottom), levels=levels, unit=unit, rows=[*map(curve, rows)])


@attrs.frozen
class Bar:
    label: str
    value: float
    words: str
    series: int | str = 0


@attrs.frozen
class _Bar:
    """A bar as it is drawn; its words begin at ``end``."""

    label: str
    short: str
    top: int
    block: _Block
    end: float
    value: str


def bars(rows: Sequence[Bar], *, name: str) -> Markup:
    """A horizontal bar per row, from zero."""
    most = max((row.value for row in rows), default=0.0) or 1.0
    room = WIDTH - LEFT - RIGHT - 120

    def bar(number: int, row: Bar) -> _Bar:
        length = row.value / most * room
        return _Bar(row.label, _short(row.label), number * STEP + 4,
                    _block(row.series, LEFT, length, f"{row.label}: {row.words}"), LEFT + length + 8, row.words)

    return markup.part(_TEMPLATE, "bars", name=name, height=STEP * len(rows) + 8, width=WIDTH, left=LEFT,
                       rows=[*itertools.starmap(bar, enumerate(rows))])


def legend(names: Mapping[str, int | str]) -> Markup:
    """Says what the colours of a chart mean."""
    return markup.part(_TEMPLATE, "legend", names=[(series_class(series), name) for name, series in names.items()])


# --- scales and words ------------------------------------------------------------------------------------------


def _block(series: int | str, left: float, width: float, title: str) -> _Block:
    return _Block(series_class(series), left, max(width, 1.5), title)


def _scale(begin: float, end: float) -> Callable[[float], float]:
    room = WIDTH - LEFT - RIGHT
    return lambda at: LEFT + (at - begin) / max(end - begin, 1) * room


def _time_axis(begin: float, end: float, bottom: float) -> _Axis:
    place, ticks, step = _scale(begin, end), [], _time_step(end - begin)
    at = math.ceil(begin / step) * step
    while at <= end:
        ticks.append(_Tick(place(at), clock(at, step)))
        at += step
    return _Axis(ticks, bottom)


def _time_step(span_ms: float) -> float:
    return next((step for step in _STEPS_MS if span_ms / step <= 8), _STEPS_MS[-1])


def clock(wall_ms: float, step_ms: float = 1) -> str:
    """UTC, as fine as ``step_ms`` asks."""
    at = datetime.fromtimestamp(wall_ms / 1_000, UTC)
    if step_ms >= 86_400_000:
        return at.strftime("%Y-%m-%d")
    fraction = f".{at.microsecond // 1_000:03}" if step_ms < 1_000 else ""
    return at.strftime("%H:%M" if step_ms >= 60_000 else "%H:%M:%S") + fraction


def _nice(value: float) -> float:
    """1, 2 or 5 times a power of ten, at least ``value``."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * times for times in (1, 2, 5, 10) if power * times >= value * 0.9999)


def number_words(value: float) -> str:
    """Short: 12, 3.4, 1.2 k, 5.6 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g} {unit}"
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"


def _short(label: str, most: int = 24) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"
