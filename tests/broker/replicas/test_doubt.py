"""A member whose machine went down: when it says so, and which elections it accepts."""

from __future__ import annotations

from typing import Any, Final

import attrs

from broker.ha.taking import BecomeMaster, BecomeSlave
from broker.replicas.config import ManagerConfig
from broker.replicas.manager import LogState
from remoting.codes import RequestCode
from tests.broker.replicas.test_manager import CONFIG, Broker, booted

ALL_ACK: Final = attrs.evolve(CONFIG, all_ack_in_sync_state_set=True)


def doubting(config: ManagerConfig = ALL_ACK, **controller: Any) -> Broker:
    """A registered member whose machine went down; the group's master is another one, in epoch 3."""
    broker = booted(**controller)
    broker.config = config
    broker.controller.master, broker.controller.epoch = 2, 3
    broker.controller.addresses[2] = "m2:1"
    broker.controller.members = frozenset({1, 2})
    broker.start()
    broker.manager.log = LogState(3, 80, 80, in_doubt=True)
    return broker


def elect(broker: Broker, epoch: int) -> None:
    """The controllers choose broker 1, whatever they know."""
    broker.controller.master, broker.controller.epoch = 1, epoch
    broker.notify(1, "10.0.0.1:10911", epoch)


def test_a_log_in_doubt_is_told_until_it_is_not() -> None:
    broker = doubting()
    broker.run(2_000)
    assert {beat.log_in_doubt for beat in broker.controller.heartbeats[-2:]} == {True}
    broker.manager.log = LogState(3, 90, 90)
    broker.run(2_000)
    assert {beat.log_in_doubt for beat in broker.controller.heartbeats[-2:]} == {None}


def test_that_a_log_is_in_doubt_no_longer_is_told_at_once() -> None:
    """A master that is lost before the next heartbeat would be replaced only by what that says."""
    broker = doubting()
    broker.run(2_000)
    told = len(broker.controller.heartbeats)
    broker.manager.log = LogState(3, 90, 90)
    broker.run(1)
    assert [beat.log_in_doubt for beat in broker.controller.heartbeats[told:]] == [None] * len(ALL_ACK.controllers)
    broker.run(1)
    assert len(broker.controller.heartbeats) == told + len(ALL_ACK.controllers), "once"


def test_a_doubt_is_told_with_the_epoch_that_is_known_at_once() -> None:
    """Those in doubt choose among themselves only when all know that they have no master."""
    broker = doubting()
    broker.run(2_000)
    assert broker.controller.heartbeats[-1].doubt_epoch == 3
    broker.controller.master, broker.controller.epoch = None, 4
    told = len(broker.controller.heartbeats)
    broker.run(CONFIG.retry_ms + 10)
    epochs = [beat.doubt_epoch or 0 for beat in broker.controller.heartbeats[told:]]
    assert epochs[-1] == 4 and epochs == sorted(epochs)
    broker.manager.log = LogState(3, 90, 90)
    broker.run(2_000)
    assert broker.controller.heartbeats[-1].doubt_epoch is None


def test_where_a_master_acknowledges_alone_no_doubt_is_told() -> None:
    broker = doubting(CONFIG)
    broker.run(2_000)
    assert {beat.log_in_doubt for beat in broker.controller.heartbeats} == {None}
    elect(broker, 4)
    broker.run(100)
    assert isinstance(broker.roles[-1], BecomeMaster) and broker.roles[-1].epoch == 4


def test_an_election_that_could_not_know_of_the_doubt_is_refused() -> None:
    """The controllers had not noticed that its machine was down."""
    broker = doubting()
    broker.controller.master, broker.controller.epoch = 1, 4
    broker.run(1)
    assert broker.roles == [] and "asks for another election" in broker.reports[0]
    assert [each.lost_epoch for each in broker.controller.elections[-1:]] == [4]


def test_an_election_that_knew_of_the_doubt_is_accepted() -> None:
    broker = doubting()
    broker.run(3_000)
    assert broker.roles == [BecomeSlave(3, 2, "m2:1")]
    elect(broker, 4)
    broker.run(100)
    assert [role.epoch for role in broker.roles] == [3, 4]


def test_what_was_decided_before_the_controllers_knew_is_refused_though_it_is_told_later() -> None:
    broker = doubting()
    broker.lose = {RequestCode.CONTROLLER_GET_REPLICA_INFO}
    broker.run(500)
    elect(broker, 4)
    broker.run(100)
    assert BecomeMaster not in map(type, broker.roles) and broker.reports


def test_java_controllers_are_asked_once_for_somebody_better() -> None:
    broker = doubting(java=True)
    broker.run(2_000)
    broker.controller.addresses.pop(2)
    elect(broker, 4)
    broker.run(10)
    assert BecomeMaster not in map(type, broker.roles) and len(broker.reports) == 1
    assert [each.broker_id for each in broker.controller.elections[-2:]] == [1, 2], "itself no longer, the other one"
    broker.controller.master, broker.controller.epoch = None, 5
    broker.run(3_000)
    assert [role.epoch for role in broker.roles] == [3, 6] and len(broker.reports) == 1, "there is nobody"


def test_controllers_of_an_earlier_release_are_asked_once_for_somebody_better() -> None:
    broker = doubting(knows_doubt=False)
    broker.run(2_000)
    elect(broker, 4)
    broker.run(10)
    assert [each.lost_epoch for each in broker.controller.elections[-2:]] == [4, None]
    assert [role.epoch for role in broker.roles] == [3, 6] and len(broker.reports) == 1, "there is nobody"
