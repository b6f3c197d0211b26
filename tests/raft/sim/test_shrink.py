"""Shrinking: what the failure needs stays, all else goes, within a budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.sim.shrink import shrink
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
