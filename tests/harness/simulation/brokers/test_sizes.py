"""The judge of what a master keeps objects while others stand still, and not before."""

from __future__ import annotations

import pytest

from broker.ha.acks import PutQueue
from broker.ha.insync import InSync
from broker.ha.master import HaMaster
from harness.simulation.brokers.scene import BrokerScene, make
from raft.config import MS
from raft.invariants import InvariantViolation
from raft.sim.tape import Tape


def playing() -> BrokerScene:
    """Three calm brokers that have found each other."""
    scene = make(Tape(1, {}), "calm")
    scene.play(2_000 * MS)
    return scene


def without_controllers() -> BrokerScene:
    """All controllers stand still, and then a slave is lost."""
    scene = playing()
    for controller in scene.controllers:
        controller.pause()
    scene.hosts[2].crash(power=False)
    return scene


def test_a_set_that_nobody_answers_for_is_kept_once() -> None:
    scene = without_controllers()
    scene.play(9_000 * MS)
    process = scene.hosts[0].process
    assert process is not None and process.switch.in_sync is not None
    assert scene.counts["a set asked for again in vain"] > 3
    assert 0 < len({*process.switch.in_sync.asked.values()}) == len(process.switch.in_sync.asked)


def test_a_set_that_is_kept_for_each_request_is_objected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = without_controllers()

    def ask(held: InSync, request: int, members: frozenset[int], now_ns: int) -> None:
        held.asked[request] = members
        held._asked_ns[request] = now_ns

    monkeypatch.setattr(InSync, "ask", ask)
    with pytest.raises(InvariantViolation, match="INV_B54: a set is kept for each time that it was asked for: b0"):
        scene.play(9_000 * MS)


def test_a_second_connection_of_one_slave_is_objected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = playing()
    monkeypatch.setattr(HaMaster, "slave_of", lambda self, connection: (2, 0))
    with pytest.raises(InvariantViolation, match="INV_B54: two connections of one slave: b0"):
        scene.play(2_100 * MS)


def test_a_put_without_an_end_is_objected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = playing()
    for host in scene.hosts[1:]:
        host.pause()
    scene.producers[0].act()
    scene.play(3_500 * MS)
    assert scene.counts["a put waits for who stands still"]
    monkeypatch.setattr(PutQueue, "expire", lambda self, now_ns: None)
    monkeypatch.setattr(PutQueue, "advanced", lambda self, holders: None)
    scene.producers[1].act()
    with pytest.raises(InvariantViolation, match="INV_B54: a put waits for longer than it may: b0"):
        scene.play(5_000 * MS)
