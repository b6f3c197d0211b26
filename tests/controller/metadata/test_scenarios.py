"""The stories that RocketMQ's own tests of its controller tell, ``ReplicasInfoManagerTest`` and the metadata's part of
``DLedgerControllerTest``, played on this machine."""

from __future__ import annotations

import pytest

from controller.metadata.commands import LiveReplica
from controller.metadata.outcomes import (
    BrokerIdApplied,
    Cleaned,
    Elected,
    MasterStillExists,
    NotElected,
    Refused,
    Registered,
)
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import (
    ADMIN,
    BROKER,
    CONTROLLER,
    KEY,
    Fleet,
    led,
    of,
    registered,
    restored,
    seen,
    snapshot_of,
)


def started() -> Fleet:
    """Three brokers get ids one after another; 1 elects itself, 2 and 3 come too late; the set grows to all."""
    fleet = Fleet()
    for broker_id in (1, 2, 3):
        assert fleet.machine.next_broker_id(KEY) == broker_id
        assert of(fleet.apply_id(broker_id), BrokerIdApplied).changed
        assert of(fleet.register(broker_id), Registered).master is None
        assert broker_id not in fleet.group.sync_state_set
    assert of(fleet.elect(BROKER, 1, seen(1, 2, 3)), Elected).master_epoch == 1
    for late in (2, 3):
        assert of(fleet.elect(BROKER, late, seen(1, 2, 3)), MasterStillExists).master == 1
    fleet.alter(1, {1, 2, 3})
    return fleet


def test_registering_three_brokers() -> None:
    assert started().state() == (1, 1, {1, 2, 3}, 2)


def test_registering_when_there_is_a_master() -> None:
    fleet = registered(1, 2)
    fleet.elect(BROKER, 1, seen(1, 2))
    fleet.apply_id(3)
    outcome = of(fleet.register(3, observed=seen(1, 2, 3)), Registered)
    assert (outcome.master, outcome.master_epoch, outcome.sync_state_set_epoch) == (1, 1, 1)
    assert 3 not in outcome.sync_state_set and fleet.state() == (1, 1, {1}, 1)


def test_registering_when_the_master_is_gone() -> None:
    fleet = started()
    assert of(fleet.register(3, observed=seen(3)), Registered).master is None
    assert of(fleet.elect(BROKER, 3, seen(3)), Elected).master == 3
    assert fleet.state() == (3, 2, {3}, 3)


def test_electing_while_the_master_lives() -> None:
    assert of(started().lost(1, 2, 3), MasterStillExists).master == 1


@pytest.mark.parametrize(("two", "three", "winner"), [
    (LiveReplica(epoch=1, max_offset=2), LiveReplica(epoch=0, max_offset=3), 2),
    (LiveReplica(epoch=1, max_offset=2), LiveReplica(epoch=1, max_offset=3), 3),
    (LiveReplica(epoch=1, max_offset=3, priority=2), LiveReplica(epoch=1, max_offset=3, priority=1), 3),
], ids=["higher epoch", "higher offset", "smaller priority"])
def test_who_is_preferred(two: LiveReplica, three: LiveReplica, winner: int) -> None:
    fleet = started()
    assert of(fleet.elect(CONTROLLER, None, seen(b2=two, b3=three)), Elected).master == winner


def test_electing_again_and_designating() -> None:
    fleet = started()
    first = of(fleet.lost(2, 3), Elected)
    assert first.master == 2 and first.master_epoch == 2
    fleet.alter(2, {1, 2, 3})
    assert of(fleet.elect(ADMIN, 1, seen(2, 3), designate=True), NotElected).code == (
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert of(fleet.elect(ADMIN, 2, seen(1, 2, 3), designate=True), MasterStillExists).master == 2
    second = of(fleet.elect(ADMIN, 1, seen(1, 3), designate=True), Elected)
    assert second.master == 1 and second.master_epoch == 3


def test_all_replicas_go_and_the_one_in_sync_returns() -> None:
    fleet = started()
    fleet.alter(1, {1})
    lost = of(fleet.lost(2, 3), NotElected)
    assert lost.changed and lost.master_epoch == 2 and fleet.state() == (None, 2, {1}, 3)
    for _ in range(2):
        assert not fleet.lost(2, 3).changed
    assert of(fleet.elect(BROKER, 1, seen(1, 2, 3)), Elected).master_epoch == 3
    assert fleet.state() == (1, 3, {1}, 4)


def test_all_replicas_go_and_uncleanly_another_takes_over() -> None:
    fleet = started()
    fleet.alter(1, {1})
    assert of(fleet.lost(2, 3, unclean=True), Elected).master in {2, 3}
    assert fleet.group.master_epoch == 2 and fleet.group.sync_state_set == {fleet.group.master}


def test_cleaning() -> None:
    fleet = started()
    assert isinstance(fleet.clean({1}, 1, 2, 3), Refused)
    assert "has a master" in of(fleet.clean(None), Refused).remark
    assert of(fleet.clean({2}, 1, 3), Cleaned).removed_ids == {2}
    assert of(fleet.clean({1, 3}), Cleaned).group_removed
    assert isinstance(fleet.clean(None, force=True), Refused)


def test_keeping_everything() -> None:
    fleet = started()
    again = restored(snapshot_of(fleet.machine))
    assert again.groups == fleet.machine.groups and again.named(KEY.name) == fleet.machine.named(KEY.name)


def test_a_new_active_controller_goes_on_with_the_same() -> None:
    """Another leadership, another term: nothing of the group changes by itself, and commands of the old are void."""
    fleet = led()
    before = fleet.state()
    fleet.term = 2
    assert of(fleet.lost(1, 2, 3), MasterStillExists).master_epoch == before[1] and fleet.state() == before
    assert of(fleet.lost(2, 3), Elected).master_epoch == 2
