"""Raft nodes without sockets and files: they elect, stall, fail, are cut off and killed, and keep what was synced."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from harness.simulation.worlds.nodes import THREE, Counter, machine_of, network, one, three
from raft.errors import Faulted, Unknown, WriteFailed


async def test_a_leader_that_is_cut_off_is_replaced_and_follows_when_links_are_whole(autojump_clock: MockClock) -> None:
    async with network() as net:
        old = await three(net)
        assert await old.propose(b"2") == 2
        net.isolate(old.node_id)
        with trio.fail_after(30):
            while old.is_leader:
                await trio.sleep(0.1)
            new = await net.leader()
        assert new is not old
        assert await new.propose(b"3") == 5
        assert machine_of(old).n == 2
        net.heal()
        with trio.fail_after(30):
            while machine_of(old).n != 5:
                await trio.sleep(0.1)


async def test_a_stalled_disk_confirms_nothing_until_it_works(autojump_clock: MockClock) -> None:
    async with network() as net:
        node = await one(net)
        disk = net.disks["n0"]
        disk.stalled = True
        with pytest.raises(Unknown):
            await node.propose(b"1", timeout_ms=500)
        assert machine_of(node).n == 0 and disk.queue
        disk.stalled = False
        disk.bell.ring()
        assert await node.propose(b"2") == 3, "the first one was in the log"


async def test_a_node_that_is_killed_comes_back_with_what_was_synced(autojump_clock: MockClock) -> None:
    async with network() as net:
        node = await one(net)
        await node.propose(b"1")
        net.disks["n0"].stalled = True
        with pytest.raises(Unknown):
            await node.propose(b"5", timeout_ms=500)
        storage = net.kill("n0")
        await wait_all_tasks_blocked()
        assert "n0" not in net.nodes
        node = await one(net, Counter(), storage=storage)
        assert await node.propose(b"2") == 3, "5 was not on the disk"


async def test_one_write_fails_and_its_node_with_it(autojump_clock: MockClock) -> None:
    async with network() as net:
        node = await one(net)
        net.disks["n0"].fault = WriteFailed("broken")
        with pytest.raises(Faulted, match="write or sync failed"):
            await node.propose(b"1")
        assert not node.is_leader


async def test_what_is_sent_is_recorded_when_it_is_wanted(autojump_clock: MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        assert net.sent == []
        net.record = True
        await leader.propose(b"1")
        others = set(THREE) - {leader.node_id}
        assert {(source, target) for source, target, _ in net.sent} >= {
            *((leader.node_id, other) for other in others)}
