"""When a broker that ended is started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.relay.lives import HANDED_OVER, ORDERLY, Lives

YOUNG, OLD = 10.0, 30_000.0


@pytest.mark.parametrize("code", sorted(ORDERLY))
def test_who_ended_in_order_or_cannot_be_configured_stays_down(code: int) -> None:
    assert code in (0, 2, HANDED_OVER)
    assert Lives(tries=True).ended(code, OLD, served=True) is None


def test_one_that_never_served_is_for_whoever_started_it_unless_told_otherwise() -> None:
    assert Lives().ended(1, YOUNG, served=False) is None
    assert Lives(tries=True).ended(1, YOUNG, served=False) == 1_000


def test_pauses_double_while_it_dies_young_and_begin_anew_after_a_long_life() -> None:
    lives = Lives()
    assert [lives.ended(-9, YOUNG, served=True) for _ in range(8)] == [
        1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert lives.ended(None, OLD, served=True) == 500, "nobody could see how it ended"
    assert lives.ended(1, YOUNG, served=True) == 1_000


@given(st.lists(st.tuples(st.sampled_from([None, 1, -9, 139]), st.floats(0, 1e6)), max_size=50))
def test_a_pause_is_never_out_of_bounds(ends: list[tuple[int | None, float]]) -> None:
    lives = Lives()
    for code, lived_ms in ends:
        pause_ms = lives.ended(code, lived_ms, served=True)
        assert pause_ms is not None and lives.restart_ms <= pause_ms <= lives.restart_ms_max
