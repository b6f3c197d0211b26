"""Virtual time: order, clocks, and a hash that tells runs apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.errors import UsageError
from raft.sim.world import MILLION, Clock, World


def test_things_happen_in_order_of_time_tie_and_arrival() -> None:
    world, seen = World(), list[Any]()
    for when, tie, what in ((5, 0, "c"), (5, -1, "b"), (3, 9, "a"), (5, 0, "d")):
        world.at(when, seen.append, what, tie)
    world.run(10)
    assert seen == ["a", "b", "c", "d"]
    assert world.now == 10


def test_nothing_beyond_the_end_happens() -> None:
    world, seen = World(), list[Any]()
    world.at(11, seen.append, "late")
    world.run(10)
    assert seen == []
    world.run(11)
    assert seen == ["late"]


def test_the_past_is_now() -> None:
    world, seen = World(), list[Any]()
    world.run(100)
    world.at(7, lambda _: seen.append(world.now))
    world.run(100)
    assert seen == [100]


def test_run_while_stops_as_soon_as_it_is_not_wanted() -> None:
    world, seen = World(), list[Any]()
    for when in range(1, 9):
        world.at(when, seen.append, when)
    assert world.run_while(lambda: len(seen) < 3, 100)
    assert (seen, world.now) == ([1, 2, 3], 3)
    assert not world.run_while(lambda: True, 5)
    assert world.now == 5


def test_the_fingerprint_is_of_time_node_kind_and_state() -> None:
    def run(*events: tuple[int, ...]) -> str:
        world = World()
        for when, *rest in events:
            world.run(when)
            world.fold(*rest)
        return world.fingerprint

    base = run((1, 0, 1, 2, 3, 4, 5))
    assert base == run((1, 0, 1, 2, 3, 4, 5))
    others = [run(tuple(value + (position == at) for position, value in enumerate((1, 0, 1, 2, 3, 4, 5))))
              for at in range(7)]
    assert len({base, *others}) == 8


def test_the_fingerprint_is_the_same_however_often_it_is_asked_for() -> None:
    asked, silent = World(), World()
    for number in range(1_000):
        for world in (asked, silent):
            world.fold(number % 3, 1, number, number, number, 2**64 - 1)
        assert asked.events == number + 1
        assert number % 100 or asked.fingerprint
    assert (asked.fingerprint, asked.events) == (silent.fingerprint, silent.events)
    silent.fold(0, 0, 0, 0, 0, 0)
    assert asked.fingerprint != silent.fingerprint


CHANGES = st.tuples(st.sampled_from(["rate", "step"]), st.integers(1, 3 * MILLION), st.integers(1, 10**10))


@given(st.lists(CHANGES, max_size=8))
def test_a_clock_never_runs_back_and_finds_the_time_it_reads(changes: list[tuple[str, int, int]]) -> None:
    clock, now = Clock(5), 0
    before = clock.local(0)
    for kind, value, wait in changes:
        now += wait
        assert clock.local(now) >= before
        if kind == "rate":
            before = clock.local(now)
            clock.set_rate(now, value)
            assert clock.local(now) == before
        else:
            before = clock.local(now) + value
            clock.step(now, value)
            assert clock.local(now) == before
        due = clock.local(now) + 12_345
        when = clock.world(due)
        assert clock.local(when) >= due > clock.local(when - 1)


def test_a_clock_that_runs_twice_as_fast() -> None:
    clock = Clock()
    clock.set_rate(1_000, 2 * MILLION)
    assert (clock.local(1_500), clock.world(2_000)) == (2_000, 1_500)


def test_clocks_neither_stop_nor_step_back() -> None:
    with pytest.raises(UsageError, match="above 0"):
        Clock().set_rate(0, 0)
    with pytest.raises(UsageError, match="run back"):
        Clock().step(0, -1)
