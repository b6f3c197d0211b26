"""Plots as inline SVG: lanes of spans, lines over time, bars. Their colours are the page's, and follow its theme.

Plain values in, text out; nothing here knows Spark or what the values mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

import attrs

WIDTH: Final = 1040
LEFT: Final = 180
RIGHT: Final = 90
COLOURS: Final = 8
"""Series colours that the page defines, as ``--s0`` and on; what is beyond is grey."""
_STEPS_MS: Final = (
    10.0, 50.0, 100.0, 500.0, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5,
    6048e5, 2592e6)
"""Between the ticks of a time axis."""


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


def lanes(rows: Sequence[Lane], begin: float, end: float, *, name: str) -> str:
    """A row per lane, time from left to right."""
    height, step = 26 * len(rows) + 40, 26
    place = _scale(begin, end)
    parts = [_time_axis(begin, end, 26 * len(rows) + 6)]
    for number, lane in enumerate(rows):
        top = number * step + 4
        parts.append(_label(lane.label, top))
        for span in lane.spans:
            left, right = place(max(span.begin, begin)), place(min(span.end, end))
            parts.append(_block(span.series, left, top, right - left - 1, span.title))
        parts.append(f'<text class="value" x="{WIDTH - RIGHT + 8}" y="{top + 13}">{escape(lane.value)}</text>')
    return _svg(name, height, parts)


@attrs.frozen
class Line:
    label: str
    points: Sequence[tuple[float, float]]
    """(ms, value), in the order of time."""
    series: int = 0


def lines(rows: Sequence[Line], begin: float, end: float, *, name: str, unit: str, area: bool = False) -> str:
    """Values over time from zero up."""
    top_value = max((value for line in rows for _, value in line.points), default=0.0) or 1.0
    step = _nice(top_value / 4)
    ceiling = math.ceil(top_value / step) * step
    bottom, height = 190, 232
    place = _scale(begin, end)

    def level(value: float) -> float:
        return bottom - value / ceiling * (bottom - 12)

    parts = [_time_axis(begin, end, bottom)]
    value = 0.0
    while value <= ceiling * 1.0001:
        y = f"{level(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
                     f'<text class="tick" x="{LEFT - 10}" y="{y}" dy="4" text-anchor="end">'
                     f'{escape(number_words(value))}</text>')
        value += step
    parts.append(f'<text class="tick" x="{LEFT - 10}" y="{bottom + 36}" text-anchor="end">{escape(unit)}</text>')
    for line in rows:
        path = " ".join(f"{place(at):.1f},{level(value):.1f}" for at, value in line.points)
        if area and line.points:
            down = f"{place(line.points[-1][0]):.1f},{bottom} {place(line.points[0][0]):.1f},{bottom}"
            parts.append(f'<polygon class="area s{line.series}" points="{path} {down}"/>')
        parts.append(f'<polyline class="line l{line.series}" points="{path}"/>')
        if len(line.points) <= 60:
            parts += [f'<circle class="s{line.series}" cx="{place(at):.1f}" cy="{level(value):.1f}" r="3"><title>'
                      f'{escape(f"{clock(at)}: {number_words(value)} {unit}")}</title></circle>'
                      for at, value in line.points]
        if line.label and line.points:
            last, value = line.points[-1]
            at = min(place(last), WIDTH - RIGHT) + 8
            parts.append(f'<text class="value" x="{at:.1f}" y="{level(value) + 4:.1f}">{escape(line.label)}</text>')
    return _svg(name, height, parts)


@attrs.frozen
class Bar:
    label: str
    value: float
    words: str
    series: int | str = 0


def bars(rows: Sequence[Bar], *, name: str) -> str:
    """A horizontal bar per row, from zero."""
    most = max((row.value for row in rows), default=0.0) or 1.0
    room, parts = WIDTH - LEFT - RIGHT - 120, []
    for number, row in enumerate(rows):
        top = number * 26 + 4
        length = row.value / most * room
        parts.append(
            _label(row.label, top) + _block(row.series, LEFT, top, length, f"{row.label}: {row.words}") +
            f'<text class="value" x="{LEFT + length + 8:.1f}" y="{top + 13}">{escape(row.words)}</text>')
    return _svg(name, 26 * len(rows) + 8, parts)


def legend(names: Mapping[str, int | str]) -> str:
    """What the colours mean."""
    items = "".join(
        f'<span><i class="{series_class(series)}"></i>{escape(name)}</span>' for name, series in names.items())
    return f'<div class="legend">{items}</div>'


# --- scales and words ------------------------------------------------------------------------------------------


def _svg(name: str, height: int, parts: Sequence[str]) -> str:
    return (f'<svg id="{escape(name)}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(name)}">'
            f'{"".join(parts)}</svg>')


def _label(words: str, top: float) -> str:
    """Left of a row; cut where there is no room, whole when pointed at."""
    return (f'<text class="label" x="{LEFT - 10}" y="{top + 13}" text-anchor="end">{escape(_short(words))}'
            f"<title>{escape(words)}</title></text>")


def _block(series: int | str, left: float, top: float, width: float, title: str) -> str:
    return (f'<rect class="{series_class(series)}" x="{left:.1f}" y="{top}" width="{max(width, 1.5):.1f}" height="18" '
            f'rx="3"><title>{escape(title)}</title></rect>')


def _scale(begin: float, end: float) -> Callable[[float], float]:
    room = WIDTH - LEFT - RIGHT
    return lambda at: LEFT + (at - begin) / max(end - begin, 1) * room


def _time_axis(begin: float, end: float, bottom: float) -> str:
    place, parts, step = _scale(begin, end), [], _time_step(end - begin)
    at = math.ceil(begin / step) * step
    while at <= end:
        parts.append(f'<line class="grid" x1="{place(at):.1f}" x2="{place(at):.1f}" y1="0" y2="{bottom}"/>'
                     f'<text class="tick" x="{place(at):.1f}" y="{bottom + 18}" text-anchor="middle">'
                     f'{clock(at, step)}</text>')
        at += step
    return "".join(parts)


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
