"""Three real processes, one of which loses what it had acknowledged while it is down, in three ways.

Then the other follower dies: the two that live must commit, which they can only when the loser was fed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import raft
from tests.raft.rules.test_processes import free_ports

NODE = '''
import sys, trio, raft

class Count:
    n = 0
    def apply(self, command): self.n += 1; return self.n
    def snapshot(self): return str(self.n).encode()
    def restore(self, data): self.n = int(data)

async def main(name, folder, how, *ports):
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}
    async with raft.open_node(name, peers=peers, data_dir=folder, state_machine=Count(), bootstrap=how == "boot",
                              join=how == "join"):
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
'''


class Processes:
    """Three nodes in processes of their own, and a client."""

    def __init__(self, folder: Path, ports: list[str]) -> None:
        self.folder, self.ports = folder, ports
        self.running: dict[str, trio.Process] = {}

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[int(name[1:])]}"

    async def start(self, name: str, how: str = "again") -> None:
        self.running[name] = await trio.lowlevel.open_process(
            [sys.executable, "-c", NODE, name, str(self.folder / name), how, *self.ports], stdout=subprocess.DEVNULL)

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        await process.wait()


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[tuple[Processes, raft.Client]]:
    group = Processes(folder, free_ports(3))
    try:
        for name in ("n0", "n1", "n2"):
            await group.start(name, "boot")
        async with raft.connect([group.address(name) for name in group.running]) as client:
            yield group, client
    finally:
        with trio.CancelScope(shield=True):
            for name in list(group.running):
                await group.kill(name)


async def write(client: raft.Client, count: int = 1) -> int:
    """The last result: how many commands there were."""
    done = 0
    for _ in range(count):
        done = int(str(await client.propose(b"x", timeout_ms=30_000)))
    return done


def rot_last_block(folder: Path) -> None:
    """Flip bits near the end of what was written."""
    newest = max((folder / "log").glob("*.seg"))
    data = newest.read_bytes()
    end = len(data.rstrip(b"\0"))
    with newest.open("r+b") as file:
        file.seek(end - 20)
        file.write(bytes(byte ^ 0x40 for byte in data[end - 20 : end - 12]))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["its last block rots", "an older copy is put back", "it is wiped"])
async def test_a_follower_that_lost_what_it_acknowledged_carries_the_group_again(loss: str, tmp_path: Path) -> None:
    with trio.fail_after(120):
        async with three(tmp_path) as (group, client):
            await write(client, 5)
            leader = str((await leaders_status(client, group))["node_id"])
            loser, other = sorted({"n0", "n1", "n2"} - {leader})
            folder = tmp_path / loser
            if loss == "an older copy is put back":
                await group.kill(loser)
                await trio.to_thread.run_sync(shutil.copytree, folder, tmp_path / "copy")
                await group.start(loser)
                await write(client, 5)
                await caught_up(client, group, loser)
            written = await write(client, 30)
            await caught_up(client, group, loser)
            await group.kill(loser)
            if loss == "its last block rots":
                rot_last_block(folder)
            else:
                await trio.to_thread.run_sync(shutil.rmtree, folder)
            if loss == "an older copy is put back":
                await trio.to_thread.run_sync((tmp_path / "copy").rename, folder)
            await group.start(loser, "join" if loss == "it is wiped" else "again")
            if loss == "it is wiped":
                await readmit(client, group, loser)
            await caught_up(client, group, loser)
            await group.kill(other)
            assert await write(client, 5) == written + 5


async def leaders_status(client: raft.Client, group: Processes) -> dict[str, Any]:
    while True:
        for name in group.running:
            with suppress(raft.RaftError):
                status = await client.status(group.address(name), timeout_ms=1_000)
                if status["role"] == "leader":
                    return status
        await trio.sleep(0.05)


async def caught_up(client: raft.Client, group: Processes, name: str) -> None:
    """Wait until this node holds all there is, by its own word and the leader's, and counts.

    The leader's alone may be about its earlier life; and a leader that is left before it has given back what was lost
    resigns, and is elected by nobody.
    """
    while True:
        with suppress(raft.RaftError):
            own = await client.status(group.address(name), timeout_ms=1_000)
            status = await leaders_status(client, group)
            there = own["durable_index"] == status["last_index"] and not own["lapse_index"]
            if there and own["leader"] == status["node_id"] and counts(status, name):
                return
        await trio.sleep(0.05)


def counts(status: dict[str, Any], name: str) -> bool:
    """Whether the leader's status says so."""
    return any(peer["node_id"] == name and peer["match"] == status["last_index"] and peer["voter"] and not (
        peer["owed"] or peer["lapsed"] or name in status["strangers"]) for peer in status["peers"])


async def readmit(client: raft.Client, group: Processes, name: str) -> None:
    """Ask for the membership that is there, until it is taken: what the manual advises."""
    while name not in (await leaders_status(client, group))["strangers"]:
        await trio.sleep(0.05)
    while True:
        with suppress(raft.RaftError):
            await client.reconfigure({voter: group.address(voter) for voter in ("n0", "n1", "n2")}, {})
            return
        await trio.sleep(0.2)
