"""Majority arithmetic against brute force: every size that matters, every order of acknowledgements."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.quorum import has_majority, has_quorum, majority, majority_value, quorum_value

NAMES = [f"n{i}" for i in range(7)]
halves = st.lists(st.sampled_from(NAMES), min_size=1, max_size=7, unique=True)


@pytest.mark.parametrize(("size", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (8, 5), (9, 5)])
def test_e17_majority_is_more_than_half(size: int, needed: int) -> None:
    """hashicorp 163a55f: the quorum of an even number of voters was one too small."""
    assert majority(size) == needed
    assert 2 * needed > size and 2 * (needed - 1) <= size


@pytest.mark.parametrize("size", range(1, 8))
def test_two_majorities_of_one_set_always_share_a_voter(size: int) -> None:
    voters = NAMES[:size]
    majorities = [set(ids) for n in range(size + 1) for ids in itertools.combinations(voters, n)
                  if has_majority(voters, ids.__contains__)]
    assert majorities
    assert all(a & b for a, b in itertools.product(majorities, repeat=2))


def test_nobody_agrees_for_nobody() -> None:
    """No voters: nothing is ever decided, however many strangers agree."""
    assert not has_majority([], lambda _: True)
    assert not has_quorum([], [], lambda _: True)
    assert majority_value([]) == 0


def test_an_empty_half_decides_nothing_for_the_other() -> None:
    assert not has_quorum([], ["a"], lambda _: True)
    assert has_quorum(["a"], [], lambda _: True)


@given(halves, st.one_of(st.just([]), halves), st.sets(st.sampled_from(NAMES)))
def test_a_quorum_is_a_majority_of_both_halves(voters: list[str], outgoing: list[str], yes: set[str]) -> None:
    both = all(2 * sum(name in yes for name in half) > len(half) for half in (voters, outgoing) if half)
    assert has_quorum(voters, outgoing, yes.__contains__) == both


@given(halves, st.one_of(st.just([]), halves), st.permutations(NAMES), st.data())
def test_l9_the_value_of_a_quorum_equals_brute_force_after_every_acknowledgement(
    voters: list[str], outgoing: list[str], order: list[str], data: st.DataObject
) -> None:
    """openraft f076cf6f: an order of acknowledgements left the fast structure unsorted and committed too much."""
    acked = dict.fromkeys(NAMES, 0)
    for name in order:
        acked[name] = data.draw(st.integers(0, 20))
        reached = quorum_value(voters, outgoing, acked.__getitem__)
        possible = [value for value in {0, *acked.values()}
                    if has_quorum(voters, outgoing, lambda voter, least=value: acked[voter] >= least)]  # type: ignore[misc]
        assert reached == max(possible, default=0)


@given(halves, halves, st.dictionaries(st.sampled_from(NAMES), st.integers(0, 99)))
def test_l10_while_joint_no_half_commits_alone(voters: list[str], outgoing: list[str], acked: dict[str, int]) -> None:
    """openraft beb0302b: commits need a real quorum, of both halves."""
    joint = quorum_value(voters, outgoing, lambda name: acked.get(name, 0))
    assert joint <= majority_value([acked.get(name, 0) for name in voters])
    assert joint <= majority_value([acked.get(name, 0) for name in outgoing])
