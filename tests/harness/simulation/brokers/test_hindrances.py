"""The judge of accusations objects to those that are false, and to no other."""

from __future__ import annotations

import pytest

import controller.yielding
from broker.ha.insync import InSync
from broker.ha.slave import HaSlave
from broker.journal import Journal
from broker.replicas.yielding import Yielding
from broker.store.health import DiskHealth
from controller.yielding import NoSuccessor
from harness.simulation.brokers.hindrances import forsake
from harness.simulation.brokers.process import IDENTITY
from harness.simulation.brokers.scene import BrokerScene, make
from raft.config import MS
from raft.invariants import InvariantViolation
from raft.sim.tape import Tape


def playing() -> BrokerScene:
    """Three calm brokers that have found each other."""
    scene = make(Tape(1, {}), "calm")
    scene.play(2_000 * MS)
    return scene


def test_a_member_that_speaks_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = playing()
    monkeypatch.setattr(InSync, "silent", lambda self, now_ns: self.accepted - {self.self_id})
    with pytest.raises(InvariantViolation, match="INV_B32: accused of a silence that was none: b0"):
        scene.play(2_100 * MS)


def test_a_master_that_speaks_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = playing()
    monkeypatch.setattr(HaSlave, "master_silent", lambda self, now_ns: True)
    with pytest.raises(InvariantViolation, match="INV_B32"):
        scene.play(2_100 * MS)


def test_who_is_cut_off_is_silent_and_may_be_called_so() -> None:
    scene = playing()
    for other in ("b1", "b2"):
        scene.network.cut("b0", other)
        scene.network.cut(other, "b0")
    scene.play(3_000 * MS)
    assert scene.counts["member judged silent"] and scene.counts["master judged silent"] == 2
    assert scene.watch.counts["INV_B32"] == sum(
        scene.counts[f"{who} judged silent"] for who in ("member", "master"))


def test_a_machine_that_came_back_as_another_broker_does_not_speak_for_the_former_one() -> None:
    """The close of the former one's connection was lost: at the master it stays open for a while."""
    scene = playing()
    slave = scene.hosts[1]
    assert slave.process is not None
    former = slave.process.member.manager.broker_id
    scene.network.cut("b1", "b0")
    slave.crash(power=False)
    scene.network.heal()
    hook, slave.files.hook = slave.files.hook, lambda what: None
    slave.files.remove(IDENTITY)
    slave.files.hook = hook
    slave.start()
    scene.play(2_800 * MS)
    assert slave.process.member.manager.broker_id not in (None, former)
    assert scene.counts["member judged silent"] == 1 == scene.watch.counts["INV_B32"]


def test_a_disk_that_is_well_is_not_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = playing()
    scene.play(6_000 * MS)
    monkeypatch.setattr(Journal, "health", DiskHealth.STALLED)
    with pytest.raises(InvariantViolation, match="INV_B33: accuses a disk that is well"):
        scene.play(6_100 * MS)


def test_a_disk_that_was_full_may_be_doubted_for_a_while() -> None:
    scene = playing()
    scene.hosts[0].disk.fill(to_the_brim=False, told=True)
    scene.play(2_500 * MS)
    assert scene.counts["disk judged full"] == 1 == scene.watch.counts["INV_B33"]


def test_a_set_that_shrinks_below_the_minimum_was_spoken_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Yielding, "holds_back", lambda self, sight: False)
    scene = playing()
    for host in scene.hosts:
        host.demand(3)
    scene.play(3_000 * MS)
    scene.hosts[1].pause()
    scene.hosts[2].pause()
    with pytest.raises(InvariantViolation, match="INV_B34: shrinks below the minimum, and nobody was asked: b0"):
        scene.play(5_000 * MS)


def test_a_master_whose_slaves_lose_it_one_by_one_is_replaced_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_it_one_by_one() -> BrokerScene:
        scene = playing()
        for host in scene.hosts:
            host.demand(2)
        scene.play(4_000 * MS)
        forsake(scene, gap_ms=700)
        return scene

    assert lose_it_one_by_one().watch.counts["INV_B64"] == 1
    monkeypatch.setattr(controller.yielding.Yielding, "asked", lambda *_: NoSuccessor(remark="nobody follows"))
    with pytest.raises(InvariantViolation, match="INV_B64: a master that its slaves lose one after the other"):
        lose_it_one_by_one()


def test_living_masters_are_replaced_by_one_controller_after_waits_that_double() -> None:
    hindrances = playing().watch.hindrances
    replaces = hindrances._replaces
    replaces(1)
    replaces(2)  # another one counts anew
    with pytest.raises(InvariantViolation, match="INV_B35"):
        replaces(1)
