"""AlterSyncStateSet: each check with its code, and their order."""

from __future__ import annotations

import pytest

from controller.metadata.commands import LiveReplica
from controller.metadata.outcomes import Altered, Refused
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import Fleet, led, of, registered, seen

ALTER_FAILED = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
INVALID_MASTER = ResponseCode.CONTROLLER_INVALID_MASTER
FENCED_MASTER = ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
FENCED_SET = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
INVALID_REPLICAS = ResponseCode.CONTROLLER_INVALID_REPLICAS
NOT_ALIVE = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE


def test_1_unknown_group() -> None:
    assert of(Fleet().alter(1, {1}), Refused).code == ALTER_FAILED


@pytest.mark.parametrize("sender", [2, 9])
def test_2_only_the_master(sender: int) -> None:
    assert of(led().alter(sender, {1, 2}), Refused).code == INVALID_MASTER


def test_2_a_group_without_a_master_has_nobody_to_ask() -> None:
    fleet = led(1)
    fleet.lost(2, 3)
    assert of(fleet.alter(1, {1, 2}), Refused).code == INVALID_MASTER
    assert of(registered(1).alter(1, {1}), Refused).code == INVALID_MASTER


@pytest.mark.parametrize("epoch", [0, 2, -1])
def test_3_of_this_epoch(epoch: int) -> None:
    assert of(led().alter(1, {1, 2}, master_epoch=epoch), Refused).code == FENCED_MASTER


@pytest.mark.parametrize("epoch", [1, 3])
def test_4_that_knows_the_set(epoch: int) -> None:
    assert of(led().alter(1, {1, 2}, epoch=epoch), Refused).code == FENCED_SET


def test_5_the_same_set_is_success_and_changes_nothing() -> None:
    fleet = led()
    outcome = of(fleet.alter(1, {1, 2, 3}, observed=seen()), Altered)
    assert not outcome.changed and outcome.sync_state_set_epoch == 2 and outcome.sync_state_set == {1, 2, 3}
    assert fleet.state() == (1, 1, {1, 2, 3}, 2)


def test_6_members_only() -> None:
    outcome = of(led().alter(1, {1, 4}), Refused)
    assert outcome.code == INVALID_REPLICAS and "broker 4" in outcome.remark


def test_6_living_only_the_master_too() -> None:
    fleet = led()
    assert of(fleet.alter(1, {1, 2}, observed=seen(1)), Refused).code == NOT_ALIVE
    assert of(fleet.alter(1, {1, 2}, observed=seen(2)), Refused).code == NOT_ALIVE


def test_6_ids_in_order() -> None:
    """A dead 2 before a stranger 4, a stranger 0 before a dead 2."""
    fleet = led()
    assert of(fleet.alter(1, {1, 2, 4}, observed=seen(1)), Refused).code == NOT_ALIVE
    assert of(fleet.alter(1, {0, 1, 2}, observed=seen(1)), Refused).code == INVALID_REPLICAS


def test_6_learners_are_never_in_sync() -> None:
    fleet = led(1)
    assert of(fleet.alter(1, {1, 2}, observed=seen(1, b2=LiveReplica(learner=True))), Refused).code == INVALID_REPLICAS
    fleet.register(3, learner=True)
    assert of(fleet.alter(1, {1, 3}), Refused).code == INVALID_REPLICAS
    assert of(fleet.alter(1, {1, 2}), Altered).changed


def test_6_a_master_that_became_a_learner_may_still_report() -> None:
    fleet = led(1)
    fleet.register(1, learner=True)
    assert of(fleet.alter(1, {1, 2}, observed=seen(2, b1=LiveReplica(learner=True))), Altered).changed


@pytest.mark.parametrize("members", [set(), {2}, {2, 3}])
def test_7_with_the_master(members: set[int]) -> None:
    assert of(led().alter(1, members), Refused).code == ALTER_FAILED


def test_success_sets_the_set_and_raises_its_epoch() -> None:
    fleet = led()
    outcome = of(fleet.alter(1, {1, 3}), Altered)
    assert outcome.changed and outcome.code == ResponseCode.SUCCESS
    assert outcome.sync_state_set == {1, 3} and outcome.sync_state_set_epoch == 3
    assert fleet.state() == (1, 1, {1, 3}, 3)


@pytest.mark.parametrize(("wrong", "code"), [
    ({"broker_id": 2, "master_epoch": 9, "epoch": 9, "members": {2, 9}}, INVALID_MASTER),
    ({"broker_id": 1, "master_epoch": 9, "epoch": 9, "members": {2, 9}}, FENCED_MASTER),
    ({"broker_id": 1, "master_epoch": 1, "epoch": 9, "members": {2, 9}}, FENCED_SET),
    ({"broker_id": 1, "master_epoch": 1, "epoch": 2, "members": {2, 9}}, INVALID_REPLICAS),
    ({"broker_id": 1, "master_epoch": 1, "epoch": 2, "members": {2}}, ALTER_FAILED),
])
def test_the_first_check_that_fails_answers(wrong: dict[str, int], code: ResponseCode) -> None:
    fleet = led()
    assert of(fleet.alter(**wrong), Refused).code == code  # type: ignore[arg-type]
    assert fleet.state() == (1, 1, {1, 2, 3}, 2)
