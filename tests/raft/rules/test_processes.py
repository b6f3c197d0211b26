"""Three real processes on real disks under each rule set: they elect, lose their leader to kill -9, and elect again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from raft.config import Rules

NODE = '''
import sys, trio, raft

class Count:
    n = 0
    def apply(self, command): self.n += 1; return self.n
    def snapshot(self): return str(self.n).encode()
    def restore(self, data): self.n = int(data)

async def main(name, folder, rules, boot, *ports):
    timers = raft.DLedgerTimers(heart_beat_time_interval_ms=200, min_vote_interval_ms=30, max_vote_interval_ms=100,
                                vote_wait_ms=300)
    config = raft.Config(rules=raft.Rules(rules), dledger=timers)
    peers = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(ports)}
    async with raft.open_node(name, peers=peers, data_dir=folder, state_machine=Count(), bootstrap=boot == "boot",
                              config=config) as node:
        async for event in node.events():
            if isinstance(event, raft.RoleChanged) and event.role is raft.Role.LEADER:
                try:
                    print(event.term, await node.propose(b"x"), flush=True)
                except raft.RaftError:
                    pass

trio.run(main, *sys.argv[1:])
'''


@attrs.define(eq=False)
class Group:
    """Processes and what they say: (term, count) of every leadership that committed."""

    folder: Path
    rules: Rules
    ports: list[str]
    processes: dict[str, trio.Process]
    said: trio.MemorySendChannel[tuple[str, int, int]]
    heard: trio.MemoryReceiveChannel[tuple[str, int, int]]
    nursery: trio.Nursery

    async def start(self, name: str, boot: str = "again") -> None:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", NODE, name, str(self.folder / name), self.rules.value, boot, *self.ports],
            stdout=subprocess.PIPE)
        self.processes[name] = process
        self.nursery.start_soon(self._listen, name, process)

    async def _listen(self, name: str, process: trio.Process) -> None:
        assert process.stdout is not None
        text = b""
        async for chunk in process.stdout:
            *lines, text = (text + chunk).split(b"\n")
            for line in lines:
                term, count = line.split()
                await self.said.send((name, int(term), int(count)))

    async def next_leader(self) -> tuple[str, int, int]:
        with trio.fail_after(60):
            return await self.heard.receive()

    async def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        await process.wait()


def free_ports(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@asynccontextmanager
async def three(folder: Path, rules: Rules) -> AsyncIterator[Group]:
    said, heard = trio.open_memory_channel[tuple[str, int, int]](100)
    async with trio.open_nursery() as nursery:
        group = Group(folder, rules, free_ports(3), {}, said, heard, nursery)
        try:
            for name in ("n0", "n1", "n2"):
                await group.start(name, "boot")
            yield group
        finally:
            with trio.CancelScope(shield=True):
                for name in list(group.processes):
                    await group.kill(name)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("rules", list(Rules), ids=lambda rules: rules.value)
async def test_processes_elect_and_fail_over_and_lead_each_term_once(rules: Rules, tmp_path: Path) -> None:
    async with three(tmp_path, rules) as group:
        leader, term, count = await group.next_leader()
        terms, counts = [term], [count]
        for _ in range(3):
            await group.kill(leader)
            old = leader
            leader, term, count = await group.next_leader()
            assert leader != old
            terms.append(term)
            counts.append(count)
            await group.start(old)
    assert terms == sorted(set(terms)), "each leadership has a term of its own"
    assert counts == sorted(set(counts)), "nothing acknowledged was lost"
