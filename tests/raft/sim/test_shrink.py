"""Shrinking: what the failure needs stays, all else goes, within a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.sim.shrink import Shrunk, shrink
from raft.sim.tape import Deviations, Value, count

KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 30))


def tape_of(keys: set[tuple[str, int]]) -> Deviations:
    out: Deviations = {}
    for stream, number in keys:
        out.setdefault(stream, {})[number] = f"{stream}{number}"
    return out


def keys_of(deviations: dict[str, dict[int, Value]]) -> set[tuple[str, int]]:
    return {(stream, number) for stream, values in deviations.items() for number in values}


@given(st.sets(KEYS, max_size=40), st.data())
def test_exactly_what_is_needed_stays(keys: set[tuple[str, int]], data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.sampled_from(sorted(keys)), max_size=4)) if keys else set()
    small = shrink(tape_of(keys), lambda candidate: needed <= keys_of(candidate), 10_000)
    assert keys_of(small.deviations) == needed
    assert (small.before, small.after) == (len(keys), len(needed))
    assert small.deviations == tape_of(needed)


def test_either_of_two_causes_is_enough() -> None:
    small = shrink(tape_of({("a", number) for number in range(50)}),
                   lambda candidate: bool({("a", 3), ("a", 40)} & keys_of(candidate)))
    assert count(small.deviations) == 1


def test_the_budget_holds_and_the_result_still_fails() -> None:
    runs = []

    def fails(candidate: Deviations) -> bool:
        runs.append(candidate)
        return len(keys_of(candidate)) % 2 == 0 and ("a", 1) in keys_of(candidate)

    small = shrink(tape_of({("a", number) for number in range(200)}), fails, runs_max=25)
    assert len(runs) == small.runs == 25
    assert fails(small.deviations)


def test_hundreds_of_deviations_shrink_in_few_runs() -> None:
    needed = {("a", 17), ("c", 29)}
    keys = {(stream, number) for stream in "abc" for number in range(100)}
    small = shrink(tape_of(keys), lambda candidate: needed <= keys_of(candidate))
    assert keys_of(small.deviations) == needed
    assert small.runs < 80


def needing(needed: set[tuple[str, int]], keys: set[tuple[str, int]]) -> Shrunk:
    return shrink(tape_of(keys), lambda candidate: needed <= keys_of(candidate), 100_000)


@pytest.mark.parametrize(("every", "runs"), [(300, 120), (30, 800), (9, 1_900)])
def test_a_failure_that_needs_much_of_its_tape_shrinks_in_few_runs(every: int, runs: int) -> None:
    """Beginning anew behind each piece that goes, it took 200 to 45,000."""
    keys = {(stream, number) for stream in "abcdefghi" for number in range(200)}
    needed = {key for number, key in enumerate(sorted(keys)) if number % every == 0}
    small = needing(needed, keys)
    assert keys_of(small.deviations) == needed
    assert small.runs <= runs


def test_no_candidate_is_played_twice_and_the_order_is_always_the_same() -> None:
    def played() -> list[frozenset[tuple[str, int]]]:
        candidates = []

        def fails(candidate: Deviations) -> bool:
            candidates.append(frozenset(keys_of(candidate)))
            return {("a", 3), ("a", 40), ("b", 7)} <= candidates[-1] and len(candidates[-1]) % 3 == 0

        shrink(tape_of({(stream, number) for stream in "ab" for number in range(60)}), fails)
        return candidates

    once = played()
    assert len(once) == len(set(once)) > 20
    assert played() == once


def test_what_is_needed_only_beside_another_goes_when_that_has_gone() -> None:
    """Of each pair the second must be there while the first is: the tape cannot lose it first."""
    keys = {("a", number) for number in range(80)}
    pairs = [(("a", 2 * number + 1), ("a", 2 * number)) for number in range(1, 40)]

    def fails(candidate: Deviations) -> bool:
        there = keys_of(candidate)
        return ("a", 0) in there and all(second in there for first, second in pairs if first in there)

    assert keys_of(shrink(tape_of(keys), fails, 10_000).deviations) == {("a", 0)}
