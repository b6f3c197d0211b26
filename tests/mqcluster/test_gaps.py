"""Gaps as somebody sees them who looks now and then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mqcluster.gaps import BARS, HIGHEST_MS, Gaps


def test_a_gap_counts_from_the_last_answer_to_the_next() -> None:
    gaps = Gaps()
    for now_s, master, open_ms, latest_ms in (
            (1.0, "a", 0, None), (1.5, "a", 0, None), (2.0, None, 500, None), (3.5, None, 2_000, None),
            (4.0, "a", 0, 2_500), (4.5, "a", 0, 2_500)):
        gaps.note(now_s, master)
        assert (gaps.open_ms, gaps.latest_ms) == (open_ms, latest_ms)
    assert gaps.plot() == "▁▁▄▆▆▁"


def test_another_master_had_a_gap_before_it_that_nobody_looked_into() -> None:
    gaps = Gaps()
    for now_s, master in ((1.0, "a"), (1.5, "b"), (2.0, "b")):
        gaps.note(now_s, master)
    assert (gaps.open_ms, gaps.latest_ms, gaps.plot()) == (0, 500, "▁▄▁")


def test_a_group_that_never_answered_has_a_gap_since_the_first_look() -> None:
    gaps = Gaps(width=2)
    for now_s in (1.0, 2.0, 50.0):
        gaps.note(now_s, None)
    assert gaps.open_ms == 49_000
    assert gaps.plot() == "▅█", "so many looks are shown"


@given(st.lists(st.tuples(st.floats(0.001, 30), st.booleans()), max_size=60))
def test_only_looks_without_an_answer_have_a_bar(looks: list[tuple[float, bool]]) -> None:
    gaps, now_s, before = Gaps(), 0.0, True
    for step_s, answers in looks:
        now_s += step_s
        gaps.note(now_s, "a" if answers else None)
        assert (gaps.plot()[-1] == BARS[0]) == (answers and before)
        assert gaps.open_ms == 0 or not answers
        before = answers
    assert len(gaps.plot()) == min(len(looks), 40)


def test_the_highest_bar_is_for_the_longest_gaps() -> None:
    gaps = Gaps()
    gaps.note(0.0, "a")
    gaps.note(HIGHEST_MS / 1e3, None)
    assert gaps.plot()[-1] == BARS[-1]
