"""Schedules are cut down to what a failure needs; here a function of the schedule stands for the run."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.torture.schedule import Schedule, Step
from harness.torture.selecting import named
from harness.torture.shrinking import Attempt, NotRepeated, Rate, shrink


def schedule(steps: int, clients: int = 8) -> Schedule:
    return Schedule(7, 2.0 * steps + 5, clients, tuple(
        Step(2_000 * number + 1_500, "kill", named([f"n{number}"]), 900) for number in range(steps)))


def nodes(of: Schedule) -> set[str]:
    return {step.nodes.words for step in of.steps}


@given(st.sets(st.integers(0, 11), max_size=4), st.integers(1, 8))
def test_what_a_failure_needs_is_left(needed: set[int], clients: int) -> None:
    """It fails whenever these faults are there, and so many clients."""
    wanted = {f"n{number}" for number in needed}

    def play(candidate: Schedule) -> Attempt:
        return Attempt(wanted <= nodes(candidate) and candidate.clients >= clients)

    found = shrink(schedule(12), play, 400)
    assert nodes(found.schedule) == wanted
    assert clients <= found.schedule.clients < 2 * clients or found.schedule.clients == 8
    assert found.after == Rate(3, 3) and found.before == Rate(2, 2)
    assert all(step.hold_ms <= 112 for step in found.schedule.steps)


def test_what_comes_behind_the_failure_goes_at_once() -> None:
    played = []

    def play(candidate: Schedule) -> Attempt:
        played.append(candidate)
        return Attempt("n2" in nodes(candidate), 6.1)

    found = shrink(schedule(12), play, 400)
    assert nodes(played[2]) == {"n0", "n1", "n2"} and played[2].seconds == 7.1
    [step] = found.schedule.steps
    assert (step.at_ms, found.schedule.clients, found.schedule.seconds) == (1_000, 1, 2.6)
    assert found.tried == len(played) < 25


@given(st.integers(0, 1 << 16))
def test_a_flaky_failure_is_said_to_be_flaky(seed: int) -> None:
    chance = Random(seed)

    def play(candidate: Schedule) -> Attempt:
        return Attempt("n3" in nodes(candidate) and chance.random() < 0.6)

    try:
        found = shrink(schedule(6), play, 300)
    except NotRepeated:
        return  # five times of five it did not fail
    assert "n3" in nodes(found.schedule), "nothing that cannot fail is accepted"
    assert ("flaky" in found.before.words()) is (found.before.failed < found.before.runs)


@given(st.integers(1, 60))
def test_the_budget_is_kept(runs_max: int) -> None:
    runs = 0

    def play(candidate: Schedule) -> Attempt:
        nonlocal runs
        runs += 1
        return Attempt({"n1", "n9"} <= nodes(candidate))

    found = shrink(schedule(12), play, runs_max)
    assert runs == found.tried <= runs_max
    assert {"n1", "n9"} <= nodes(found.schedule)


def test_few_runs_are_spent_on_the_search_and_not_on_the_rate() -> None:
    """Of six runs two found that it fails, three what is left fails, and one was a try."""
    found = shrink(schedule(12), lambda candidate: Attempt(bool(candidate.steps)), 6)
    assert len(found.schedule.steps) <= 3 and found.tried == 6
    assert found.after.runs >= 1


def test_what_does_not_fail_again_is_not_shrunk() -> None:
    with pytest.raises(NotRepeated, match="did not fail again in 5 runs"):
        shrink(schedule(3), lambda candidate: Attempt(False), 40)
