"""Shares of queues: RocketMQ's averages, the same whatever order a member sees things in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.allocation import Allocate, averagely, averagely_by_circle, shared
from remoting.bodies.consumers import MessageQueue


def queues(count: int, *brokers: str) -> list[MessageQueue]:
    return [MessageQueue("t", broker, number) for broker in brokers or ("a",) for number in range(count)]


def sizes(allocate: Allocate, count: int, members: int) -> list[int]:
    ids = [f"c{number}" for number in range(members)]
    return [len(allocate(one, queues(count), ids)) for one in ids]


@pytest.mark.parametrize(("count", "members", "expected"), [
    (4, 1, [4]), (4, 2, [2, 2]), (4, 3, [2, 1, 1]), (10, 4, [3, 3, 2, 2]), (8, 3, [3, 3, 2]), (3, 4, [1, 1, 1, 0]),
    (1, 2, [1, 0]), (0, 2, [0, 0]),
])
def test_the_first_members_get_what_is_left_over(count: int, members: int, expected: list[int]) -> None:
    assert sizes(averagely, count, members) == sizes(averagely_by_circle, count, members) == expected


def test_neighbours_stay_together_and_the_circle_deals_them_out() -> None:
    ids = ["c2", "c0", "c1"]
    assert [each.queue_id for each in averagely("c1", queues(8), ids)] == [3, 4, 5]
    assert [each.queue_id for each in averagely_by_circle("c1", queues(8), ids)] == [1, 4, 7]


def test_queues_sort_by_topic_broker_and_number() -> None:
    shuffled = [*queues(2, "b"), *queues(11, "a")][::-1]
    mine = averagely("me", shuffled, ["me", "zz"])
    assert [(each.broker_name, each.queue_id) for each in mine] == [("a", number) for number in range(7)]


def test_members_sort_as_in_java_by_utf16_units() -> None:
    # U+10000 is a surrogate pair in Java, which sorts before U+FFFD.
    assert averagely("\U00010000", queues(1), ["�", "\U00010000"]) == queues(1)


@pytest.mark.parametrize("allocate", [averagely, averagely_by_circle])
def test_a_stranger_gets_nothing(allocate: Allocate) -> None:
    assert allocate("me", queues(4), ["you"]) == []
    assert allocate("me", queues(4), []) == []


@given(st.sampled_from([averagely, averagely_by_circle]), st.integers(0, 40), st.sets(st.text(max_size=5), min_size=1),
       st.randoms(use_true_random=False))
def test_every_queue_has_one_member_and_loads_differ_by_one(allocate, count, members, random) -> None:  # type: ignore[no-untyped-def]
    shares = []
    for one in members:
        seen, ids = queues(count), list(members)
        random.shuffle(seen)
        random.shuffle(ids)
        shares.append(allocate(one, seen, ids))
    assert sorted(each.queue_id for share in shares for each in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(("count", "members", "neighbours", "expected"), [
    (4, 3, 0, [[-1] * 4] * 3),  # all of them pop everything
    (4, 3, -1, [[-1] * 4] * 3),
    (4, 3, 2, [[-1] * 4] * 3),  # everybody is a neighbour
    (4, 1, 1, [[-1] * 4]),
    (4, 4, 1, [[0, 1], [1, 2], [2, 3], [3, 0]]),
    (8, 4, 2, [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1], [6, 7, 0, 1, 2, 3]]),
    (2, 5, 1, [[0], [1], [0], [1], [0]]),  # more members than queues
    (0, 5, 1, [[]] * 5),
])
def test_who_pops_shares_its_neighbours_queues(
        count: int, members: int, neighbours: int, expected: list[list[int]]) -> None:
    ids = [f"c{number}" for number in range(members)]
    found = [shared(averagely, one, queues(count)[::-1], ids[::-1], neighbours) for one in ids]
    assert [[queue.queue_id for queue in one] for one in found] == expected


def test_a_stranger_pops_nothing_where_queues_are_shared_out() -> None:
    assert shared(averagely, "c9", queues(8), ["c0", "c1", "c2", "c3"], 1) == []


@given(st.integers(1, 12), st.integers(1, 12), st.integers(-1, 12))
def test_every_queue_is_popped_by_somebody(count: int, members: int, neighbours: int) -> None:
    ids = [f"c{number}" for number in range(members)]
    found = {queue.queue_id for one in ids for queue in shared(averagely, one, queues(count), ids, neighbours)}
    assert found in ({-1}, set(range(count)))
