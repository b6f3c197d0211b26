"""Every row of the election's table, and what it writes."""

from __future__ import annotations

import pytest

from controller.metadata.commands import ElectMaster, LiveReplica, Observation, Trigger
from controller.metadata.elect import elect
from controller.metadata.outcomes import Elected, MasterStillExists, NotElected, Refused
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import ADMIN, BROKER, CONTROLLER, Fleet, led, of, registered, seen

NEED_TO_BE_REGISTERED = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
FAILED = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
NOT_AVAILABLE = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE


@pytest.mark.parametrize("trigger", [BROKER, CONTROLLER, ADMIN])
def test_1_an_unknown_group_is_to_be_registered(trigger: Trigger) -> None:
    fleet = Fleet()
    outcome = fleet.elect(trigger, 1, seen(1))
    assert of(outcome, Refused).code == NEED_TO_BE_REGISTERED and not fleet.machine.groups


def test_2_a_broker_that_is_no_member_is_to_be_registered() -> None:
    fleet = led()
    assert of(fleet.elect(BROKER, 7, seen(1, 2, 3, 7)), Refused).code == NEED_TO_BE_REGISTERED


def test_3_the_first_master_is_who_asks() -> None:
    fleet = registered(1, 2)
    outcome = of(fleet.elect(BROKER, 2, seen(1, 2)), Elected)
    assert (outcome.master, outcome.address, outcome.master_epoch, outcome.sync_state_set_epoch) == (
        2, "10.0.0.2:10911", 1, 1)
    assert outcome.members == {1: "10.0.0.1:10911", 2: "10.0.0.2:10911"}
    assert outcome.previous is None and outcome.clean
    assert fleet.state() == (2, 1, {2}, 1)


@pytest.mark.parametrize("designate", [False, True])
def test_3_a_person_may_name_the_first(designate: bool) -> None:
    fleet = registered(1, 2)
    assert of(fleet.elect(ADMIN, 2, seen(1, 2), designate=designate), Elected).master == 2


@pytest.mark.parametrize("observed", [
    seen(2), seen(2, b1=LiveReplica(learner=True)), Observation(),
], ids=["not alive", "learner by heartbeat", "nobody alive"])
def test_3_the_first_must_be_alive_and_no_learner(observed: Observation) -> None:
    fleet = registered(1, 2)
    outcome = of(fleet.elect(BROKER, 1, observed), NotElected)
    assert outcome.code == FAILED and not outcome.changed and fleet.state() == (None, 0, set(), 0)


def test_3_the_first_must_be_no_learner_by_registration() -> None:
    fleet = registered(1, 2)
    fleet.register(1, learner=True)
    assert of(fleet.elect(BROKER, 1, seen(1, 2)), NotElected).code == FAILED
    assert of(fleet.elect(BROKER, 2, seen(1, 2)), Elected).master == 2


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("trigger", [CONTROLLER, ADMIN])
def test_4_without_anybody_asking_there_is_no_first(trigger: Trigger, unclean: bool) -> None:
    fleet = registered(1, 2)
    outcome = of(fleet.elect(trigger, None, seen(1, 2), unclean=unclean), NotElected)
    assert outcome.code == NOT_AVAILABLE and not outcome.changed and fleet.state() == (None, 0, set(), 0)


@pytest.mark.parametrize(("trigger", "broker_id", "designate"), [
    (BROKER, 2, False), (BROKER, 1, False), (CONTROLLER, None, False), (ADMIN, None, False), (ADMIN, 1, True),
])
def test_5_a_living_master_stays(trigger: Trigger, broker_id: int | None, designate: bool) -> None:
    fleet = led()
    outcome = of(fleet.elect(trigger, broker_id, seen(1, 2, 3), designate=designate), MasterStillExists)
    assert outcome.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST and not outcome.changed
    assert (outcome.master, outcome.address, outcome.master_epoch, outcome.sync_state_set_epoch) == (
        1, "10.0.0.1:10911", 1, 2)
    assert outcome.sync_state_set == {1, 2, 3} and fleet.state() == (1, 1, {1, 2, 3}, 2)


@pytest.mark.parametrize(("trigger", "broker_id"), [(BROKER, 2), (BROKER, 3), (CONTROLLER, None), (ADMIN, None)])
def test_6_the_policy_chooses_whoever_asks(trigger: Trigger, broker_id: int | None) -> None:
    fleet = led()
    observed = seen(b2=LiveReplica(epoch=1, max_offset=5), b3=LiveReplica(epoch=1, max_offset=9))
    outcome = of(fleet.elect(trigger, broker_id, observed), Elected)
    assert outcome.master == 3 and outcome.previous == 1 and fleet.state() == (3, 2, {3}, 3)


def test_6_only_who_is_in_sync() -> None:
    fleet = led(1, 2)
    assert of(fleet.lost(2, 3), Elected).master == 2


def test_6_a_designated_one_replaces_a_living_master() -> None:
    fleet = led()
    outcome = of(fleet.elect(ADMIN, 3, seen(1, 2, 3), designate=True), Elected)
    assert outcome.master == 3 and outcome.previous == 1


def test_6_learners_never_win_not_even_uncleanly() -> None:
    fleet = led(1, 2)
    fleet.register(3, learner=True)
    observed = seen(3, b2=LiveReplica(learner=True))
    for more in ({}, {"unclean": True}, {"unclean": True, "policy": "priority"}):
        assert not of(fleet.elect(BROKER, 3, observed, **more), NotElected).changed
    assert not of(fleet.elect(ADMIN, 3, observed, designate=True, unclean=True), NotElected).changed


def test_6_unclean_takes_anybody_but_those_in_sync_first() -> None:
    fleet = led(1, 2)
    ahead = seen(2, b3=LiveReplica(epoch=9, max_offset=9))
    assert of(fleet.elect(CONTROLLER, None, ahead, unclean=True), Elected).master == 2
    fleet = led(1, 2)
    outcome = of(fleet.lost(3, unclean=True), Elected)
    assert outcome.master == 3 and not outcome.clean and fleet.state() == (3, 2, {3}, 3)


def test_6_unclean_lets_a_person_designate_who_is_not_in_sync() -> None:
    fleet = led(1, 2)
    assert of(fleet.elect(ADMIN, 3, seen(1, 2, 3), designate=True), NotElected).code == FAILED
    assert of(fleet.elect(ADMIN, 3, seen(1, 2, 3), designate=True, unclean=True), Elected).master == 3


def test_6_the_former_master_may_win_when_it_is_back() -> None:
    fleet = led(1)
    fleet.lost(2, 3)
    assert of(fleet.elect(BROKER, 1, seen(1, 2, 3)), Elected).master_epoch == 3
    assert fleet.state() == (1, 3, {1}, 2)


def test_7_a_lost_master_is_recorded_as_none_once() -> None:
    fleet = led(1)
    outcome = of(fleet.lost(2, 3), NotElected)
    assert outcome.code == NOT_AVAILABLE and outcome.changed and outcome.previous == 1 and outcome.master_epoch == 2
    assert fleet.state() == (None, 2, {1}, 1)
    for _ in range(3):
        assert not of(fleet.lost(2, 3), NotElected).changed
    assert fleet.state() == (None, 2, {1}, 1)


@pytest.mark.parametrize(("trigger", "broker_id", "designate", "code"), [
    (BROKER, 2, False, FAILED), (ADMIN, 2, True, FAILED), (ADMIN, 2, False, FAILED),
    (ADMIN, None, False, NOT_AVAILABLE), (BROKER, None, False, NOT_AVAILABLE),
])
def test_8_9_nobody_but_the_controller_writes_a_failure(
    trigger: Trigger, broker_id: int | None, designate: bool, code: ResponseCode,
) -> None:
    fleet = led(1)
    outcome = of(fleet.elect(trigger, broker_id, seen(2, 3), designate=designate), NotElected)
    assert outcome.code == code and not outcome.changed and fleet.state() == (1, 1, {1}, 1)


def test_a_failure_says_why() -> None:
    fleet = registered(1, 2)
    assert "never had a master" in fleet.lost(1, 2).remark
    assert "broker 2 is no member" in fleet.elect(BROKER, 2, seen(1)).remark
    fleet = led(1)
    assert "[1] none" in fleet.elect(BROKER, 2, seen(2, 3)).remark
    assert "[1] none" in fleet.elect(ADMIN, 2, seen(3), designate=True).remark
    assert "broker 2 may not be elected; [1] may" in fleet.elect(ADMIN, 2, seen(1, 2), designate=True).remark


@pytest.mark.parametrize("more", [{"designate": True}, {"policy": "tallest"}])
def test_a_request_that_makes_no_sense_is_invalid(more: dict[str, object]) -> None:
    fleet = led()
    assert of(fleet.elect(ADMIN, None, seen(2, 3), **more), Refused).code == ResponseCode.CONTROLLER_INVALID_REQUEST


def test_what_changes_nothing_gives_the_same_group_back() -> None:
    fleet = led()
    command = ElectMaster(term=1, key=fleet.key, trigger=CONTROLLER, broker_id=None, observation=seen(1))
    assert elect(fleet.group, command)[1] is fleet.group
