"""A name without a cluster means one group, or nobody guesses."""

from __future__ import annotations

from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Cleaned, Refused
from tests.controller.metadata.fleet import Fleet, of, registered

A, B = GroupKey("A", "b"), GroupKey("B", "b")


def two() -> Fleet:
    fleet = registered(1, key=B)
    fleet.apply_id(1, key=A)
    return fleet


def test_a_cluster_that_is_given_decides() -> None:
    assert two().machine.resolve("b", "A", B) == A
    assert two().machine.resolve("b", "C") == GroupKey("C", "b")


def test_else_the_identity_of_the_connection() -> None:
    for blank in (None, "", "  "):
        assert two().machine.resolve("b", blank, B) == B


def test_an_identity_of_another_name_says_nothing() -> None:
    assert isinstance(two().machine.resolve("b", None, GroupKey("A", "c")), Refused)


def test_else_the_only_group_of_the_name() -> None:
    assert registered(1, key=B).machine.resolve("b") == B


def test_several_are_refused_with_the_list() -> None:
    outcome = two().machine.resolve("b")
    assert isinstance(outcome, Refused) and "A, B" in outcome.remark


def test_no_group_gives_a_key_that_has_none() -> None:
    machine = two().machine
    key = machine.resolve("other")
    assert isinstance(key, GroupKey) and machine.group(key) is None


def test_removed_groups_do_not_count() -> None:
    fleet = two()
    assert of(fleet.clean({1}), Cleaned).group_removed
    assert fleet.machine.resolve("b") == A
