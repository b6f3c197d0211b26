"""Groups that come and go on one host, on simulated disks, streams in memory and a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from errno import EMFILE
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from harness.simulation.worlds.nodes import Counter
from raft.config import Config
from raft.errors import StorageError, UsageError
from raft.groups import group_number
from raft.host import Host, open_host
from raft.messages import Write
from raft.node import Node
from raft.sim.disk import VirtualDisk
from tests.raft.test_host import until_leads, wires

SMALL = Config(
    segment_bytes=32 << 10, message_bytes_max=16 << 10, append_bytes_max=4_096, frame_bytes_max=4_096,
    entry_bytes_max=2_048, snapshot_chunk_bytes=4_096)
ADDRESSES = {name: f"{name}:1" for name in ("n0", "n1", "n9")}


class Hosts:
    """Hosts that reach each other by address while they are open."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._open: dict[str, Host] = {}

    @asynccontextmanager
    async def open(self, name: str, disk: VirtualDisk | None = None) -> AsyncIterator[Host]:
        async with open_host(
            "unused", node_id=name, listen=None, address=ADDRESSES[name], create=True, rng=Random(name),
            files=disk or VirtualDisk(), config=SMALL, connect=wires(self._nursery, self._open),
        ) as host:
            self._open[ADDRESSES[name]] = host
            yield host
            del self._open[ADDRESSES[name]]


@pytest.fixture
async def hosts() -> AsyncIterator[Hosts]:
    async with trio.open_nursery() as nursery:
        yield Hosts(nursery)
        nursery.cancel_scope.cancel()


async def alone(host: Host, name: str) -> Node[bytes, Any, Any]:
    """Open a group with this member alone."""
    node = await host.open_group(
        name, state_machine=Counter(), peers={host.node_id: ADDRESSES[host.node_id]}, bootstrap=True)
    await until_leads(node)
    return node


@pytest.mark.parametrize("change", ["opens", "closes", "changes its members"])
async def test_a_node_that_joins_dials_on_while_another_group(
    change: str, hosts: Hosts, autojump_clock: MockClock,
) -> None:
    """A leader that does not know where it listens learns that from its hello."""
    async with hosts.open("n9") as host:
        other = await alone(host, "other")
        await host.open_group("joined", state_machine=Counter(), peers={"n0": ADDRESSES["n0"]}, join=True)
        if change == "opens":
            await alone(host, "third")
        elif change == "closes":
            await host.close_group("other")
        else:
            await other.reconfigure({"n9": ADDRESSES["n9"]}, priorities={"n9": 5})
        async with hosts.open("n0"):
            await trio.sleep(5)
            assert host.transport.connected("n0")


async def test_who_waits_for_a_group_to_close_is_told_that_the_host_ends(
    hosts: Hosts, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for call in ("close_group", "remove_group"):
        async with trio.open_nursery() as nursery:
            async with hosts.open("n0") as host:
                node = await alone(host, "a")
                monkeypatch.setattr(host._disk, "submit", _never)
                node.propose_nowait(b"1")
                await wait_all_tasks_blocked()
                nursery.start_soon(_told_of_the_end, getattr(host, call))
                await wait_all_tasks_blocked()
                assert host._leaving


async def test_a_group_whose_log_cannot_be_read_now_opens_later(
    hosts: Hosts, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hosts.open("n0") as host:
        node = await alone(host, "a")
        assert await node.propose(b"7") == 7
        with monkeypatch.context() as patch:
            patch.setattr(host.storage, "recovered", _no_descriptor)
            await host.close_group("a")
            with pytest.raises(StorageError, match="Too many open files"):
                await alone(host, "a")
        node = await alone(host, "a")
        assert await node.propose(b"1") == 8, "it goes on with its log"
        with monkeypatch.context() as patch:
            patch.setattr(host, "_forget", _no_descriptor)
            with pytest.raises(OSError, match="Too many open files"):
                await host.remove_group("a")
        await host.remove_group("a")
        with pytest.raises(UsageError, match="was removed"):
            await alone(host, "a")


@pytest.mark.parametrize("slow", ["disk", "origin"])
async def test_who_waits_for_a_removal_is_told_that_the_host_ends(
    slow: str, hosts: Hosts, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next opening finishes it."""
    disk = VirtualDisk()
    async with trio.open_nursery() as nursery:
        async with hosts.open("n0", disk) as host:
            await alone(host, "a")
            if slow == "disk":
                monkeypatch.setattr(host._writer, "submit", _never)
            else:
                monkeypatch.setattr(host, "_run_blocking", _then_rest)
            nursery.start_soon(_told_of_the_end, host.remove_group)
            await wait_all_tasks_blocked() if slow == "disk" else await trio.sleep(1.5)
    async with hosts.open("n0", disk) as host:
        with pytest.raises(UsageError, match="was removed"):
            await alone(host, "a")
        assert not host.storage.recovered(group_number("a")).last_index


async def _told_of_the_end(call: Callable[[str], Awaitable[None]]) -> None:
    with trio.fail_after(60), pytest.raises(UsageError, match="this host has ended"):
        await call("a")


def _no_descriptor(number: int) -> Any:
    raise OSError(EMFILE, "Too many open files")


def _never(write: Write) -> None:
    """Take a write to a disk that stands still."""


async def _then_rest(function: Callable[..., Any], *args: Any) -> Any:
    result = function(*args)
    await trio.sleep(1)
    return result
