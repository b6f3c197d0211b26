"""Who stays electable beside a lone new master, and what ends it."""

from __future__ import annotations

import pytest

from controller.metadata.alter import alter
from controller.metadata.codec import encode
from controller.metadata.commands import AlterSyncStateSet, LiveReplica
from controller.metadata.eligible import announces_gate
from controller.metadata.events import EligibleChanged
from controller.metadata.outcomes import Altered, Elected, EligibleDropped, NotElected, Refused, Registered
from tests.controller.metadata.fleet import ADMIN, GATED, KEY, Fleet, led, of, raised, seen


def failed_over() -> Fleet:
    """Broker 1 is lost and 2 elected, which announces that it acknowledges nothing alone."""
    fleet = led()
    assert of(fleet.elect(ADMIN, 2, seen(3, b2=GATED), designate=True), Elected).master == 2
    assert fleet.group.eligible == {1, 3} and fleet.state() == (2, 2, {2}, 3)
    return fleet


@pytest.mark.parametrize(
    ("announced", "gated"), [(None, False), (-1, False), (0, False), (1, False), (2, True), (3, True)])
def test_a_gate_is_two_or_more(announced: int | None, gated: bool) -> None:
    assert announces_gate(LiveReplica(min_in_sync_replicas=announced), 1) == gated


@pytest.mark.parametrize(("in_sync", "gated"), [(1, True), (2, True), (3, False), (4, False)])
def test_a_gate_is_closed_while_fewer_are_in_sync_than_it_says(in_sync: int, gated: bool) -> None:
    assert announces_gate(LiveReplica(min_in_sync_replicas=3), in_sync) == gated


# --- a master that acknowledges what its whole set holds, and says of how many ------------------------------------


def test_who_left_a_set_that_is_too_small_by_then_stays_eligible() -> None:
    fleet = led()
    assert of(fleet.alter(1, {1}, least=2), Altered).changed and fleet.group.eligible == {2, 3}
    assert of(fleet.lost(3), Elected).clean and fleet.state() == (3, 2, {3}, 4)


def test_who_left_while_there_were_enough_does_not_come_back() -> None:
    fleet = led()
    fleet.alter(1, {1, 2}, least=2)
    fleet.alter(1, {1}, least=2)
    assert fleet.group.eligible == {2}, "3 may lack what 1 and 2 acknowledged"
    assert of(fleet.lost(3), NotElected).changed


def test_all_of_the_last_set_that_was_large_enough_stay_eligible_however_it_shrinks_and_changes() -> None:
    fleet = led()
    fleet.alter(1, {1, 2}, least=3)
    assert fleet.group.eligible == {3}
    fleet.alter(1, {1}, least=3)
    assert fleet.group.eligible == {2, 3}
    fleet.alter(1, {1, 3}, least=3)
    assert fleet.group.eligible == {2}
    fleet.alter(1, {1, 2, 3}, least=3)
    assert fleet.group.eligible == set()


def test_a_lowered_minimum_that_the_present_set_meets_opens_the_gate() -> None:
    fleet = led()
    fleet.alter(1, {1, 2}, least=3)
    fleet.alter(1, {1}, least=2)
    assert fleet.group.eligible == {2, 3}, "2 and 3 hold all: nothing was acknowledged since the three of them did"
    fleet.alter(1, {1, 2}, least=2)
    assert fleet.group.eligible == set()


def test_without_all_ack_the_first_alter_ends_it_as_ever() -> None:
    fleet = led()
    fleet.alter(1, {1})
    assert fleet.group.eligible == set()


def test_the_first_alter_of_a_new_master_to_a_set_that_is_too_small_ends_nothing() -> None:
    fleet = failed_over()
    fleet.alter(2, {2, 3}, least=3)
    assert fleet.group.eligible == {1}
    fleet.alter(2, {1, 2, 3}, least=3)
    assert fleet.group.eligible == set()


def test_in_format_1_a_shrinking_set_leaves_nobody_eligible() -> None:
    fleet = led(in_format=1)
    fleet.alter(1, {1}, least=2)
    assert fleet.group.eligible == set()


def test_what_format_1_cannot_carry_counts_for_nothing_in_a_preview() -> None:
    fleet = led(in_format=1)
    wish = AlterSyncStateSet(
        term=1, key=KEY, broker_id=1, master_epoch=1, sync_state_set=frozenset({1}), sync_state_set_epoch=2,
        observation=seen(1), least=2)
    assert alter(fleet.group, wish, 1)[1].eligible == set() and alter(fleet.group, wish, 2)[1].eligible == {2, 3}
    raised(fleet.machine)
    data = encode(wish, 1)
    assert fleet.machine.apply_at(data, 1).changed and fleet.group.eligible == set(), "written before the raise"


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
