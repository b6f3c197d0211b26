"""A process without file descriptors for what a node reads: the node waits, says so, and goes on."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from random import Random
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.nodes import Counter
from raft.host import Host, open_host
from raft.node import Node
from raft.sim.disk import VirtualDisk, VirtualFile
from tests.raft.test_host import n, wires
from tests.raft.test_host_groups import SMALL

PEERS = {f"n{number}": f"h{number}:1" for number in range(3)}
CONFIG = attrs.evolve(SMALL, cache_bytes_max=16 << 10, snapshot_tail_entries=0, snapshot_tail_bytes=0)


@contextmanager
def no_descriptors(disk: VirtualDisk, directory: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file of this directory is opened to be read."""
    opened = disk.open

    def refuse(path: str, *, create: bool = False) -> VirtualFile:
        if create or not path.startswith(directory):
            return opened(path, create=create)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as short:
        short.setattr(disk, "open", refuse)
        yield


class Cluster:
    """Members of one group, on disks that outlive them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._hosts: dict[str, Host] = {}
        self.disks = {name: VirtualDisk() for name in PEERS}

    @asynccontextmanager
    async def open(self, *names: str) -> AsyncIterator[list[Node[bytes, Any, Any]]]:
        async with AsyncExitStack() as stack:
            nodes = []
            for name in names:
                host = await stack.enter_async_context(open_host(
                    "unused", node_id=name, listen=None, address=PEERS[name], create=True, rng=Random(name),
                    files=self.disks[name], config=CONFIG, connect=wires(self._nursery, self._hosts)))
                self._hosts[PEERS[name]] = host
                stack.callback(self._hosts.pop, PEERS[name])
                nodes.append(await host.open_group(state_machine=Counter(), peers=PEERS, bootstrap=True))
            yield nodes


async def leader_of(nodes: list[Node[bytes, Any, Any]]) -> Node[bytes, Any, Any]:
    await nodes[0].wait_leader()
    return next(node for node in nodes if node.is_leader)


@asynccontextmanager
async def grown() -> AsyncIterator[Cluster]:
    """A cluster at rest whose log fills some segments; only two members have it."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        async with cluster.open("n0", "n1") as nodes:
            leader = await leader_of(nodes)
            for _ in range(100):
                await leader.propose(b"1".rjust(1_000, b"0"))
        yield cluster
        nursery.cancel_scope.cancel()


async def test_entries_to_apply_are_read_when_there_is_a_descriptor(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    async with grown() as cluster, cluster.open("n0", "n1") as nodes:
        with no_descriptors(cluster.disks["n0"], "log/", monkeypatch):
            await trio.sleep(10)
            assert n(nodes[0]) < n(nodes[1]) == 100
            status = nodes[0].status()
            assert status.faulted is None and status.storage == "ok" and status.apply_lag
            (told,) = [record.message for record in caplog.records if "ulimit" in record.message]
            assert re.match(r"group 'default' waits until its log can be read: log/\d+\.seg: Too many open files", told)
        await trio.sleep(2)
        assert n(nodes[0]) == 100


async def test_entries_for_a_follower_are_read_when_there_is_a_descriptor(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with grown() as cluster, cluster.open("n0", "n1") as nodes:
        leader = await leader_of(nodes)
        await leader.read_barrier()
        with ExitStack() as none_left:
            none_left.enter_context(no_descriptors(cluster.disks[leader.node_id], "log/", monkeypatch))
            leader._driver.disk.storage._reader.close()  # type: ignore[attr-defined]
            async with cluster.open("n2") as (late,):
                await trio.sleep(10)
                assert n(late) == 0 and leader.is_leader
                await leader.propose(b"1")
                none_left.close()
                await trio.sleep(2)
                assert n(late) == 101


async def test_a_snapshot_is_restored_when_there_is_a_descriptor(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with grown() as cluster, cluster.open("n0", "n1") as nodes:
        leader = await leader_of(nodes)
        await leader.read_barrier()
        await leader.take_snapshot()
        async with cluster.open("n2") as (late,):
            with no_descriptors(cluster.disks["n2"], "snapshots/", monkeypatch):
                await trio.sleep(10)
                assert late.status().snapshot_index and n(late) == 0 and late.status().faulted is None
            await trio.sleep(6)
            assert n(late) == 100


async def test_a_log_is_cut_off_when_there_is_a_descriptor(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile the node says that its disk is full."""
    async with grown() as cluster:
        async with cluster.open("n0") as (deposed,):
            async with cluster.open("n1") as (other,):
                await leader_of([deposed, other])
                await deposed.read_barrier()
                await trio.sleep(1)
                if other.is_leader:
                    await other.transfer_leadership("n0")
            for _ in range(3):
                deposed.propose_nowait(b"1")
                await trio.sleep(0.01)
            assert deposed.is_leader
        async with cluster.open("n1", "n2") as nodes:
            leader = await leader_of(nodes)
            await leader.propose(b"1")
            async with cluster.open("n0") as (late,):
                with no_descriptors(cluster.disks["n0"], "log/", monkeypatch):
                    late._driver.disk.storage._reader.close()  # type: ignore[attr-defined]
                    await trio.sleep(5)
                    assert late.status().storage == "full" and late.status().faulted is None
                await trio.sleep(5)
                assert late.status().storage == "ok" and n(late) == n(leader) == 101
