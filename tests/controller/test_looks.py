"""One look for each group: whatever is asked for, compared with a table of the earliest times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.looks import SWEPT_FROM, Looks
from controller.metadata.groups import GroupKey

KEYS = [GroupKey("c", name) for name in "abc"]
PUTS = st.tuples(st.sampled_from(KEYS), st.integers(0, 50))
STEPS = st.lists(PUTS | st.integers(0, 20), max_size=200)


@given(STEPS)
def test_each_group_is_looked_at_once_by_its_earliest_time(steps: list[tuple[GroupKey, int] | int]) -> None:
    looks, model, now = Looks(), dict[GroupKey, int](), 0
    for step in steps:
        if isinstance(step, int):
            now += step
            due = looks.due(now)
            assert len(due) == len({*due}) and {*due} == {key for key, at in model.items() if at <= now}
            assert [model[key] for key in due] == sorted(model.pop(key) for key in due)
        else:
            key, wait = step
            looks.put(now + wait, key)
            model[key] = min(model.get(key, now + wait), now + wait)
        next_one = looks.next_deadline()
        assert next_one is None if not model and not looks else next_one is not None
        assert not model or (next_one or 0) <= min(model.values()), "never too late"
        assert len(looks) <= 2 * len(model) + SWEPT_FROM


def test_a_group_that_waits_takes_one_place_however_often_it_is_put() -> None:
    looks = Looks()
    for at in range(1, 1_001):
        looks.put(at, KEYS[0])
    assert len(looks) == 1
    assert looks.due(1_000) == [KEYS[0]]


def test_a_thousand_earlier_times_of_one_group_take_no_thousand_places() -> None:
    looks = Looks()
    for at in range(1_000, 0, -1):
        looks.put(at, KEYS[0])
    assert len(looks) <= 2 + SWEPT_FROM
    assert looks.due(1) == [KEYS[0]] and looks.due(1_000) == []


def test_what_is_cleared_is_looked_at_no_more() -> None:
    looks = Looks()
    looks.put(1, KEYS[0])
    looks.clear()
    assert looks.next_deadline() is None and not looks and looks.due(9) == []
    looks.put(5, KEYS[0])
    assert looks.due(9) == [KEYS[0]]
