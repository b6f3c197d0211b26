"""Cleaning: what is refused, what is left, which epochs rise."""

from __future__ import annotations

import pytest

from controller.metadata.clean import parse_ids
from controller.metadata.outcomes import BrokerIdApplied, Cleaned, Elected, Refused
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import BROKER, KEY, Fleet, led, of, registered, seen

INVALID = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("ids", [None, {1}])
def test_an_unknown_group_is_refused_also_when_forced(ids: set[int] | None, force: bool) -> None:
    assert of(Fleet().clean(ids, force=force), Refused).code == INVALID


def test_a_whole_group_with_a_master_is_refused_unless_forced() -> None:
    fleet = led()
    outcome = of(fleet.clean(None), Refused)
    assert outcome.code == INVALID and "has a master" in outcome.remark
    assert of(fleet.clean(None, 1, 2, 3, force=True), Cleaned).group_removed
    assert fleet.machine.group(KEY) is None


def test_a_whole_group_without_a_master_is_refused_while_a_member_is_alive() -> None:
    fleet = registered(1, 2)
    outcome = of(fleet.clean(None, 2), Refused)
    assert outcome.code == INVALID and "broker 2" in outcome.remark
    assert of(fleet.clean(None, 9), Cleaned).group_removed


@pytest.mark.parametrize("ids", [{2}, {2, 3}, {1, 2, 3}])
def test_living_brokers_are_refused_unless_forced(ids: set[int]) -> None:
    fleet = led()
    assert "broker 2" in of(fleet.clean(ids, 2), Refused).remark
    assert of(fleet.clean(ids, 2, force=True), Cleaned).removed_ids == ids


def test_forcing_removes_only_whom_it_names() -> None:
    fleet = led()
    outcome = of(fleet.clean({3}, 1, 2, 3, force=True), Cleaned)
    assert outcome.removed_ids == {3} and not outcome.group_removed and list(fleet.group.replicas) == [1, 2]


def test_an_in_sync_one_leaves_the_set_with_an_epoch() -> None:
    fleet = led()
    outcome = of(fleet.clean({3}), Cleaned)
    assert outcome.changed and not outcome.lost_master and fleet.state() == (1, 1, {1, 2}, 3)


def test_one_that_is_not_in_sync_leaves_without() -> None:
    fleet = led(1, 2)
    assert of(fleet.clean({3}), Cleaned).changed and fleet.state() == (1, 1, {1, 2}, 2)


def test_the_master_leaves_none_with_an_epoch() -> None:
    fleet = led()
    assert of(fleet.clean({1}, 2, 3), Cleaned).lost_master
    assert fleet.state() == (None, 2, {2, 3}, 3)
    assert of(fleet.elect(BROKER, 3, seen(2, 3)), Elected).master_epoch == 3


@pytest.mark.parametrize("force", [False, True])
def test_the_last_in_sync_one_stays_while_others_do(force: bool) -> None:
    fleet = led(1, 2)
    outcome = of(fleet.clean({1, 2}, force=force), Refused)
    assert outcome.code == INVALID and "[3]" in outcome.remark and list(fleet.group.replicas) == [1, 2, 3]


def test_after_an_unclean_election_the_others_may_go() -> None:
    fleet = led(1, 2)
    assert of(fleet.lost(3, unclean=True), Elected).master == 3
    assert of(fleet.clean({1, 2}), Cleaned).removed_ids == {1, 2}
    assert fleet.state() == (3, 2, {3}, 3)


def test_all_members_by_name_are_the_whole_group() -> None:
    fleet = led()
    assert of(fleet.clean({1, 2, 3}), Cleaned).group_removed and fleet.machine.group(KEY) is None


def test_repeating_a_clean_is_no_mistake() -> None:
    fleet = led()
    assert of(fleet.clean({3}), Cleaned).changed
    again = of(fleet.clean({3}), Cleaned)
    assert not (again.changed or again.removed_ids or again.group_removed or again.lost_master)


def test_a_refusal_names_the_first_broker_that_it_is_about() -> None:
    fleet = led(1)
    assert "never had broker 7; it has [1, 2, 3]" in fleet.clean({8, 7, 1}, force=True).remark
    assert "broker 2 of" in fleet.clean({1, 3, 2}, 2, 3).remark
    assert "without [1] nobody of" in fleet.clean({1, 2}).remark


def test_who_leads_and_who_does_not_lead_any_more_is_left_as_it_was_by_the_cleaning_of_another() -> None:
    fleet = led()
    for leader in (1, None):
        fleet.clean({3} if leader else {2})
        assert fleet.group.leader == leader and fleet.group.master == 1
        fleet.register(1, "10.9.9.9:1", life=7)


@pytest.mark.parametrize("ids", [{4}, {0}, {-1, 2}, {2, 9}])
def test_an_id_that_never_was_is_a_mistake(ids: set[int]) -> None:
    fleet = led()
    assert "never had" in of(fleet.clean(ids, force=True), Refused).remark and len(fleet.group.replicas) == 3


def test_a_group_that_comes_back_goes_on_where_it_was() -> None:
    fleet = led()
    fleet.clean(None, force=True)
    assert fleet.machine.next_broker_id(KEY) == 4 and not fleet.machine.named(KEY.name)
    assert of(fleet.apply_id(4), BrokerIdApplied).next_broker_id == 5
    assert fleet.state() == (None, 2, set(), 3) and list(fleet.machine.named(KEY.name)) == [KEY]
    assert of(fleet.elect(BROKER, 4, seen(4)), Elected).master_epoch == 3
    assert fleet.state() == (4, 3, {4}, 4)


def test_a_group_that_never_had_a_master_goes_without_epochs() -> None:
    fleet = registered(1)
    assert of(fleet.clean({1}), Cleaned).group_removed
    fleet.apply_id(2)
    assert fleet.state() == (None, 0, set(), 0)


@pytest.mark.parametrize(("text", "ids"), [
    (None, None), ("", None), ("  ", None), ("1", {1}), ("1;2", {1, 2}), (" 2 ; 1;", {1, 2}), ("007", {7}),
    ("9" * 18, {10**18 - 1}),
])
def test_lists_of_ids(text: str | None, ids: set[int] | None) -> None:
    assert parse_ids(text) == ids


@pytest.mark.parametrize("text", ["a", "1,2", "1;b", "-1", "1.0", ";", "٣", "9" * 19, "+1", "1_0"])
def test_what_is_no_list_of_ids_says_so(text: str) -> None:
    with pytest.raises(ValueError, match="broker id"):
        parse_ids(text)


@pytest.mark.parametrize(("text", "shown"), [("1;" + "x" * 50, "x" * 40), (" ;" * 50, " ;" * 20)])
def test_of_a_long_text_that_is_no_list_of_ids_the_beginning_is_told(text: str, shown: str) -> None:
    with pytest.raises(ValueError, match=f"^'{shown}' "):
        parse_ids(text)
