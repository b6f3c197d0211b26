"""Who stays electable beside a lone new master, and what ends it."""

from __future__ import annotations

import pytest

from controller.metadata.commands import LiveReplica
from controller.metadata.eligible import announces_gate
from controller.metadata.events import EligibleChanged
from controller.metadata.outcomes import Altered, Elected, EligibleDropped, NotElected, Refused, Registered
from tests.controller.metadata.fleet import ADMIN, GATED, Fleet, led, of, seen


def failed_over() -> Fleet:
    """Broker 1 is lost and 2 elected, which announces that it acknowledges nothing alone."""
    fleet = led()
    assert of(fleet.elect(ADMIN, 2, seen(3, b2=GATED), designate=True), Elected).master == 2
    assert fleet.group.eligible == {1, 3} and fleet.state() == (2, 2, {2}, 3)
    return fleet


@pytest.mark.parametrize(
    ("announced", "gated"), [(None, False), (-1, False), (0, False), (1, False), (2, True), (3, True)])
def test_a_gate_is_two_or_more(announced: int | None, gated: bool) -> None:
    assert announces_gate(LiveReplica(min_in_sync_replicas=announced)) == gated


def test_without_the_announcement_nobody_is_eligible() -> None:
    fleet = led()
    fleet.lost(2, 3)
    assert fleet.group.master == 2 and fleet.group.eligible == set()
    assert of(fleet.lost(3), NotElected).previous == 2


def test_an_eligible_one_is_elected_when_the_new_master_dies_alone() -> None:
    fleet = failed_over()
    outcome = of(fleet.elect(ADMIN, 3, seen(b3=GATED)), Elected)
    assert outcome.master == 3 and outcome.clean and fleet.state() == (3, 3, {3}, 4)
    assert fleet.group.eligible == {1, 2}


def test_only_the_winner_announcement_counts() -> None:
    fleet = failed_over()
    assert of(fleet.lost(1), Elected).master == 1
    assert fleet.group.eligible == set()


def test_the_first_alter_that_changes_the_set_ends_it() -> None:
    fleet = failed_over()
    assert not of(fleet.alter(2, {2}), Altered).changed and fleet.group.eligible == {1, 3}
    assert of(fleet.alter(2, {2, 9}, observed=seen(2, 9)), Refused).remark and fleet.group.eligible == {1, 3}
    assert of(fleet.alter(2, {2, 3}), Altered).changed and fleet.group.eligible == set()
    assert of(fleet.alter(2, {2}), Altered).changed and fleet.group.eligible == set()
    assert of(fleet.lost(1, 3), NotElected).previous == 2


def test_an_announcement_that_is_taken_back_ends_it() -> None:
    fleet = failed_over()
    assert of(fleet.drop_eligible(2, 2), EligibleDropped).changed and fleet.group.eligible == set()
    assert not of(fleet.drop_eligible(2, 2), EligibleDropped).changed
    assert isinstance(fleet.events[-1], EligibleChanged)


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_one_of_another_mastership_says_nothing(broker_id: int, epoch: int) -> None:
    fleet = failed_over()
    assert not of(fleet.drop_eligible(broker_id, epoch), EligibleDropped).changed
    assert fleet.group.eligible == {1, 3}


def test_a_master_that_registers_again_ends_it() -> None:
    """Its process is new, its configuration may be, and it learns of its mastership from this answer."""
    fleet = failed_over()
    assert not of(fleet.register(3), Registered).changed and fleet.group.eligible == {1, 3}
    assert of(fleet.register(2), Registered).changed and fleet.group.eligible == set()


def test_a_failed_election_keeps_it() -> None:
    fleet = failed_over()
    assert of(fleet.lost(), NotElected).changed
    assert fleet.state() == (None, 3, {2}, 3) and fleet.group.eligible == {1, 3}
    assert of(fleet.lost(3), Elected).clean


def test_an_unclean_election_keeps_those_who_hold_more() -> None:
    fleet = led(1, 2)
    assert not of(fleet.elect(ADMIN, 3, seen(b3=GATED), designate=True, unclean=True), Elected).clean
    assert fleet.group.eligible == {1, 2}


def test_a_cleaned_broker_is_not_eligible() -> None:
    fleet = failed_over()
    fleet.clean({1})
    assert fleet.group.eligible == {3}


def test_learners_are_not_elected_although_eligible() -> None:
    fleet = failed_over()
    fleet.register(3, learner=True)
    assert of(fleet.lost(3), NotElected).changed


def test_those_in_sync_and_eligible_are_one_pool() -> None:
    """The one that died alone is back with a shorter log than an eligible one: the longer log wins."""
    fleet = failed_over()
    fleet.lost()
    observed = seen(b2=LiveReplica(epoch=1, max_offset=5), b3=LiveReplica(epoch=1, max_offset=6))
    assert of(fleet.elect(ADMIN, None, observed), Elected).master == 3
