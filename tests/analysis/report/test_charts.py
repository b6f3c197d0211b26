"""Where things lie in a plot, and how its scales are said."""

from __future__ import annotations

import re

import pytest

from analysis.report.charts import (
    DOTS_MAX,
    LEFT,
    RIGHT,
    STEP,
    WIDTH,
    Bar,
    Lane,
    Line,
    Span,
    bars,
    clock,
    lanes,
    legend,
    lines,
    number_words,
    series_class,
)

T0 = 1_700_000_000_000
ROOM = WIDTH - LEFT - RIGHT


def blocks(svg: str) -> list[tuple[str, float, float, float]]:
    """(class, left, top, width) of every block."""
    found = re.findall(r'<rect class="(\w+)" x="([\d.]+)" y="(\d+)" width="([\d.]+)"', svg)
    return [(css, float(left), float(top), float(width)) for css, left, top, width in found]


def test_spans_lie_where_their_time_is_and_stay_within_the_plot() -> None:
    svg = lanes([
        Lane("a", [Span(T0, T0 + 50, 0, ""), Span(T0 + 50, T0 + 900, "gap", "")]),
        Lane("b", [Span(T0 - 70, T0 + 1, 9, "")])], T0, T0 + 100, name="p")
    assert blocks(svg) == [
        ("s0", LEFT, 4, ROOM / 2 - 1), ("gap", LEFT + ROOM / 2, 4, ROOM / 2 - 1),
        ("other", LEFT, 4 + STEP, pytest.approx(ROOM / 100 - 1, abs=0.1))]


def test_what_has_hardly_a_length_is_seen_all_the_same() -> None:
    svg = lanes([Lane("a", [Span(T0, T0, 0, "")])], T0, T0 + 86_400_000, name="p")
    assert blocks(svg)[0][3] == 1.5


def test_the_longest_bar_fills_its_room_and_the_others_their_share() -> None:
    widths = [width for _, _, _, width in blocks(bars([Bar("a", 4.0, ""), Bar("b", 1.0, "")], name="p"))]
    assert widths == [ROOM - 120, (ROOM - 120) / 4]


def test_a_long_label_is_cut_and_whole_when_pointed_at() -> None:
    svg = bars([Bar("g" * 40, 1.0, "")], name="p")
    assert f">{'g' * 23}…<title>{'g' * 40}</title>" in svg


@pytest.mark.parametrize(("most", "levels"), [
    (0.0, ["0", "0.5", "1"]), (7.0, ["0", "2", "4", "6", "8"]), (90_000.0, ["0", "50 k", "100 k"]),
])
def test_levels_are_round_numbers_up_to_the_highest_value(most: float, levels: list[str]) -> None:
    svg = lines([Line("", [(T0, most)])], T0, T0 + 10, name="p", unit="u")
    assert re.findall(r'dy="4" text-anchor="end">([^<]+)<', svg) == levels


def test_a_line_of_many_points_has_no_dots() -> None:
    few, many = ([(T0 + at, 1.0) for at in range(count)] for count in (DOTS_MAX, DOTS_MAX + 1))
    assert lines([Line("", few)], T0, T0 + 99, name="p", unit="u").count("<circle") == DOTS_MAX
    assert lines([Line("", many)], T0, T0 + 99, name="p", unit="u").count("<circle") == 0


def test_plots_without_anything_are_plots() -> None:
    for svg in (lanes([], T0, T0, name="p"), lines([], T0, T0, name="p", unit="u"), bars([], name="p")):
        assert svg.startswith("<svg") and svg.endswith("</svg>")
    assert legend({}) == '<div class="legend"></div>'


@pytest.mark.parametrize(("value", "words"), [
    (0, "0"), (12, "12"), (3.44, "3.44"), (9_999, "9999"), (12_000, "12 k"), (1_250_000, "1.25 M"), (4e9, "4 G"),
])
def test_numbers_are_short(value: float, words: str) -> None:
    assert number_words(value) == words


@pytest.mark.parametrize(("step_ms", "words"), [
    (1, "22:13:20.123"), (1_000, "22:13:20"), (60_000, "22:13"), (86_400_000, "2023-11-14"),
])
def test_a_clock_is_as_fine_as_its_axis(step_ms: float, words: str) -> None:
    assert clock(T0 + 123, step_ms) == words


def test_colours_beyond_those_of_the_page_are_grey() -> None:
    assert [series_class(each) for each in (0, 7, 8, "gap", "other")] == ["s0", "s7", "other", "gap", "other"]
