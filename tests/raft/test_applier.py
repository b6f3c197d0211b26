"""Applying on a node, on a virtual clock: in slices, in a thread, with entries and indexes, again after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

import raft
from harness.simulation.worlds.nodes import ONE, THREE, Counter, machine_of, network, one
from raft.config import Config
from raft.errors import Faulted, WriteFailed
from raft.frame import Kind
from raft.host import open_node
from raft.node import Node
from raft.sim.disk import VirtualDisk
from raft.storage.faulty import FaultyStorage
from tests.raft.bugs.test_snapshots import slowly
from tests.raft.test_host import ALONE, _no_network, until_leads


class Slow(Counter):
    """Each command takes a while, on the virtual clock of the test."""

    def __init__(self, clock: trio.testing.MockClock, seconds: float) -> None:
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def apply(self, command: bytes) -> int:
        self.clock.jump(self.seconds)
        return super().apply(command)


async def test_long_applying_leaves_room_for_other_tasks(autojump_clock: trio.testing.MockClock) -> None:
    """3 ms a command, slices of 4 ms: between two runs of another task at most a few commands are applied."""
    async with network(Config(apply_slice_ms=4, election_timeout_ms=1_000)) as net:
        machine = Slow(autojump_clock, 0.003)
        leader = await one(net, machine)
        seen: list[int] = []

        async def watch() -> None:
            while True:
                seen.append(len(machine.log))
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            assert await leader.propose_many([b"1"] * 300, timeout_ms=60_000) == list(range(1, 301))
            nursery.cancel_scope.cancel()
        steps = [after - before for before, after in pairwise(seen)]
        assert max(steps[len(steps) // 2:]) <= 4  # the first slices learn what a command costs
        assert leader.is_leader


class Threaded(Counter):
    threaded = True


async def test_a_threaded_machine_applies_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net, Threaded())
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(leader.propose, b"1")
        assert await leader.propose_many([b"1", b"2"]) == [21, 23]
        await leader.read_barrier()
        assert machine_of(leader).n == 23
        assert (await leader.take_snapshot()).index == leader.status().applied_index


async def test_a_threaded_machine_is_asked_between_two_of_its_calls(autojump_clock: trio.testing.MockClock) -> None:
    """And commands wait for one question at most, however many there are."""
    async with network(Config(propose_timeout_ms=60_000)) as net:
        leader = await one(net, Threaded())
        applier, seen = leader._driver.applier, list[tuple[float, int]]()
        applier._run_blocking = slowly(applier._run_blocking, 5.0, only=applier.machine.apply_many)
        started = trio.current_time()

        def look(data: bytes) -> int:
            seen.append((trio.current_time() - started, machine_of(leader).n))
            return machine_of(leader).n

        async def in_a_thread(function: Callable[..., Any], *args: Any) -> Any:
            await trio.sleep(1)
            return function(*args)

        async def ask() -> None:
            await leader._driver.ask_machine(look, b"", run_blocking=in_a_thread)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leader.propose, b"1")
            await trio.sleep(0.5)
            for _ in range(10):
                nursery.start_soon(ask)
            nursery.start_soon(leader.propose, b"1")
        assert [(round(when), n) for when, n in seen[:2]] == [(6, 1), (12, 2)]  # the second command came between
        assert len(seen) == 10
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leader.propose, b"1")
            await trio.sleep(0.5)
            with pytest.raises(raft.Rejected, match="busy"):
                await leader._driver.ask_machine(look, b"", run_blocking=in_a_thread, timeout_ms=1_000)
        leader._driver.close()
        with pytest.raises(raft.Rejected):
            await leader._driver.ask_machine(look, b"", run_blocking=in_a_thread)


class Chronicle:
    """Keeps every command with the entry that it is: [term, index, leader's clock, command]."""

    threaded = False

    def __init__(self) -> None:
        self.kept: list[list[object]] = []

    def apply_entries(self, entries: raft.Entries) -> list[object]:
        for index, command in enumerate(entries.commands, entries.first):
            self.kept.append([entries.term, index, entries.time_ms, command.decode()])
        return [index for index, _ in enumerate(entries.commands, entries.first)]

    def snapshot(self) -> bytes:
        return json.dumps(self.kept).encode()

    def restore(self, data: bytes) -> None:
        self.kept = json.loads(data)


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_machine_may_know_which_entry_each_command_is(
    threaded: bool, autojump_clock: trio.testing.MockClock,
) -> None:
    def chronicle(node: Node) -> list[list[object]]:
        assert isinstance(node.state_machine, Chronicle)
        return node.state_machine.kept

    def made() -> Chronicle:
        machine = Chronicle()
        machine.threaded = threaded
        return machine

    async with network(Config(frame_entries_max=500, snapshot_tail_entries=0)) as net:
        for name in THREE:
            await net.start(name, THREE, made())
        leader = await net.leader()
        firsts = await leader.propose_many([b"%d" % n for n in range(700)])  # two frames, more than two slices
        term, storage = leader.status().term, net.disks[leader.node_id].storage
        entries = [[frame.term, frame.first + i, frame.wall_ms, payload.decode()]
                   for frame in storage.read(1, 1, 1 << 30) if frame.kind == Kind.COMMANDS
                   for i, payload in enumerate(frame.payloads())]
        assert chronicle(leader) == entries and firsts == [index for _, index, _, _ in entries]
        assert len(entries) == 700 and {entry[0] for entry in entries} == {term} and all(e[2] for e in entries)
        gone = leader.node_id
        storage = net.kill(gone)
        await trio.testing.wait_all_tasks_blocked()
        leader = await net.leader()
        last = await leader.propose(b"under another")
        assert chronicle(leader)[-1][:2] == [leader.status().term, last]
        assert leader.status().term > term and last == leader.status().last_index
        assert (await leader.take_snapshot()).index == last
        await net.start(gone, THREE, made(), storage)
        await leader.propose(b"behind the snapshot")
        while net.nodes[gone].status().applied_index < leader.status().last_index:  # it is given the snapshot first
            await trio.sleep(0.01)
        for node in net.nodes.values():
            await node.read_barrier()
            assert chronicle(node) == chronicle(leader) and chronicle(node)[:700] == entries
        storage = net.kill(gone)
        await trio.testing.wait_all_tasks_blocked()
        again = await net.start(gone, THREE, made(), storage)
        await again.wait_leader()
        await again.read_barrier()
        assert chronicle(again) == chronicle(leader) and len(chronicle(again)) == 702


async def test_a_restarted_node_applies_its_log_again_from_storage(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(cache_bytes_max=1_000)
    async with network(config) as net:
        leader = await one(net)
        for _ in range(50):
            await leader.propose_many([b"1"] * 10)
        storage = net.kill("n0")
        await trio.testing.wait_all_tasks_blocked()
        again = await one(net, Counter(), storage=storage)
        await again.read_barrier()
        assert machine_of(again).n == 500


@pytest.mark.parametrize("steps", range(8))
async def test_a_node_that_stops_within_a_frame_leaves_no_snapshot_of_half_of_it(
    steps: int, autojump_clock: trio.testing.MockClock,
) -> None:
    """Its index would be that of the frame before: after a restart the half that it holds would be applied again."""
    disk, slow = VirtualDisk(), Slow(autojump_clock, 0.003)
    config = Config(apply_slice_ms=4, election_timeout_ms=1_000, snapshot_tail_entries=0)
    async with open_node("n0", ALONE, "unused", slow, bootstrap=True, config=config, rng=Random(7), files=disk,
                         connect=_no_network) as node:
        await until_leads(node)
        await node.propose(b"1")
        for _ in range(300):
            node.propose_nowait(b"1")
        while node._driver.applier._begun is None:
            await trio.lowlevel.checkpoint()
        node._driver.snapshots._wanted.set()  # as ``consider`` does when the log has grown
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
    again = Counter()
    async with open_node("n0", ALONE, "unused", again, config=config, files=disk, connect=_no_network) as node:
        await until_leads(node)
        await node.read_barrier()
        assert again.n == 301


@pytest.mark.parametrize("machine", [Counter, Threaded])
async def test_damage_found_while_applying_faults_the_node_and_no_other(
    machine: type[Counter], autojump_clock: trio.testing.MockClock,
) -> None:
    async with network(Config(cache_bytes_max=1_000)) as net:
        leader = await one(net)
        for _ in range(50):
            await leader.propose_many([b"1"] * 10)
        storage = net.kill("n0")
        await trio.testing.wait_all_tasks_blocked()
        faulty = FaultyStorage(storage)
        again = await net.start("n0", ONE, machine(), storage=faulty)  # type: ignore[arg-type]
        faulty.flip = True
        await trio.sleep(5)
        assert again.status().storage == "damaged" and "a bit flipped" in (again.status().faulted or "")


async def test_a_snapshot_under_way_when_the_disk_fails_within_a_frame_is_told_of_the_fault(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = Config(apply_slice_ms=4, election_timeout_ms=1_000)
    async with open_node("n0", ALONE, "unused", Slow(autojump_clock, 0.003), bootstrap=True, config=config,
                         rng=Random(7), files=VirtualDisk(), connect=_no_network) as node:
        await until_leads(node)
        for _ in range(300):
            node.propose_nowait(b"1")
        while node._driver.applier._begun is None:
            await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused_a_snapshot, node)
            await trio.lowlevel.checkpoint()
            node._driver.write_failed(WriteFailed("no such device"))


async def _refused_a_snapshot(node: Node) -> None:
    with pytest.raises(Faulted):
        await node.take_snapshot()
