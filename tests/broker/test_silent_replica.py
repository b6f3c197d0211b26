"""What one silent replica costs those who send, by whole brokers on virtual time."""

from __future__ import annotations

import pytest
import trio

from broker.roles import ControlledRole
from harness.simulation.worlds.brokers import Cluster, Node, cluster, in_sync, three
from remoting.codes import ResponseCode
from tests.broker.test_server import send_all

ALL_ACK = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "totalReplicas": "3", "slaveTimeout": "30000"}
QUICK = {"detectionProfile": "quick"}
AS_BEFORE = {"haBeatIntervalMs": "0"}


def says_master_silent(node: Node) -> bool:
    """What its replicas manager is told at each tick."""
    roles = node.broker.roles
    assert isinstance(roles, ControlledRole)
    return roles.member.manager.log.master_silent


def cut_copying(made: Cluster, slave: Node, master: Node) -> None:
    """Nothing passes between them, whose connection stands; everybody else hears both."""
    made.network.cuts.add(frozenset((slave.address, f"{master.host}:10912")))


async def stop_of_writes(made: Cluster, master: Node, body: bytes = b"waits") -> float:
    """Seconds from now until a send is answered."""
    began = trio.current_time()
    assert (await made.send(master.address, body)).code == ResponseCode.SUCCESS
    return trio.current_time() - began


@pytest.mark.parametrize(("settings", "least_s", "most_s"), [
    ({}, 1, 3), (QUICK, 0.5, 2), (AS_BEFORE, 9, 16)], ids=["default", "quick", "java-like"])
async def test_a_slave_that_hangs_stops_writes_for_no_longer_than_its_silence(
    autojump_clock: trio.abc.Clock, settings: dict[str, str], least_s: float, most_s: float,
) -> None:
    async with cluster(controllers=3) as made:
        master, first, second = await three(made, **ALL_ACK, **settings)
        await send_all(made, master.address, b"held by three")
        await trio.sleep(5)
        cut_copying(made, first, master)
        assert least_s <= await stop_of_writes(made, master) <= most_s
        assert await stop_of_writes(made, master) < 0.1, "the others hold it"
        assert not says_master_silent(second)
        made.network.cuts.clear()
        await in_sync(master, 2)


async def test_slaves_tell_their_managers_of_a_silent_master(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **ALL_ACK | {"minInSyncReplicas": "1"})
        await trio.sleep(5)
        assert not any(says_master_silent(node) for node in others)
        for node in others:  # the controllers hear it: nobody elects another
            cut_copying(made, node, master)
        await trio.sleep(2.5)
        assert all(says_master_silent(node) for node in others)
        made.network.cuts.clear()
        await trio.sleep(2.5)
        assert not any(says_master_silent(node) for node in others)
