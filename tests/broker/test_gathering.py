"""What is gathered in one turn: which stand together, in which order, and up to how many."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from broker.gathering import Gathering

COUNT_MAX, BYTES_MAX = 5, 100
CAME = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2 * BYTES_MAX)), max_size=40)


def gathered(came: list[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    """What is put at the end of a turn in which these came, each a key and a size; an item is its place among them."""
    calls: list[Callable[[], object]] = []
    put: list[tuple[str, list[int]]] = []
    gathering = Gathering[str, int](calls.append, lambda key, items: put.append((key, items)),
                                    count_max=COUNT_MAX, bytes_max=BYTES_MAX)
    for place, (key, size_bytes) in enumerate(came):
        gathering.add(key, place, size_bytes)
    assert len(calls) == (1 if came else 0) and not put
    for call in calls:
        call()
    return put


@given(CAME)
def test_a_group_has_bounds(came: list[tuple[str, int]]) -> None:
    put = gathered(came)
    for key, items in put:
        assert 0 < len(items) <= COUNT_MAX
        assert {came[place][0] for place in items} == {key}
        assert len(items) == 1 or sum(came[place][1] for place in items) <= BYTES_MAX
        assert items == sorted(items)
    assert sorted(place for _, items in put for place in items) == list(range(len(came)))
    assert [items[0] for _, items in put] == sorted(items[0] for _, items in put), "the first one is first"


def test_those_of_one_key_stand_together_as_long_as_there_is_room() -> None:
    assert gathered([("a", 1), ("b", 99), ("a", 99), ("a", 1), ("b", 1)]) == [("a", [0, 2]), ("b", [1, 4]), ("a", [3])]
    assert gathered([("a", 0)] * 7) == [("a", [0, 1, 2, 3, 4]), ("a", [5, 6])]


def test_the_next_turn_begins_anew() -> None:
    calls: list[Callable[[], object]] = []
    put: list[list[int]] = []

    def take(_: str, items: list[int]) -> None:
        put.append(items)
        if items == [0]:
            gathering.add("a", 2)

    gathering = Gathering[str, int](calls.append, take, count_max=COUNT_MAX)
    gathering.add("a", 0)
    calls.pop()()
    assert put == [[0]] and len(calls) == 1, "what a put adds is of the next turn"
    gathering.add("a", 3)
    calls.pop()()
    assert put == [[0], [2, 3]] and not calls
