"""Whatever happens to a group, each caller's answer is true: acknowledged is there once, refused is nowhere.

Seeded runs of three nodes on a virtual clock: partitions, crashes with restart, stalled disks, hand-overs, snapshots,
cancelled and impatient callers, single proposals and calls of many.
"""

from __future__ import annotations

from random import Random

import attrs
import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import Nodes
from raft.config import Config
from raft.errors import NotLeader, RaftError, Rejected, Unknown
from raft.node import Node
from raft.storage.memory import MemoryStorage
from tests.campaigns import campaign

VOTERS = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}
CALLERS = 6
STEPS = 25


class Journal:
    """Keeps every command; the result is its position."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, command: bytes) -> int:
        self.commands.append(command)
        return len(self.commands) - 1

    def snapshot(self) -> bytes:
        return b"\n".join(self.commands)

    def restore(self, data: bytes) -> None:
        self.commands = data.split(b"\n") if data else []


@attrs.define
class Ledger:
    """What the callers were told."""

    acknowledged: dict[bytes, object] = attrs.Factory(dict)
    refused: set[bytes] = attrs.Factory(set)
    unknown: set[bytes] = attrs.Factory(set)

    def check(self, commands: list[bytes]) -> None:
        assert len(set(commands)) == len(commands), "a command took effect twice"
        for command, position in self.acknowledged.items():
            assert isinstance(position, int)
            assert commands[position] == command, f"{command!r} was acknowledged at {position}"
        assert not self.refused.intersection(commands), "a refused command took effect"


async def call(net: Nodes, rng: Random, name: int, ledger: Ledger, stop: trio.Event) -> None:
    """Proposes one thing after another, mostly to whoever leads."""
    number = 0
    while not stop.is_set():
        await trio.sleep(rng.uniform(0.001, 0.02))
        nodes = list(net.nodes.values())
        if not nodes:
            continue
        leaders = [node for node in nodes if node.is_leader]
        node = rng.choice(leaders or nodes) if rng.random() < 0.9 else rng.choice(nodes)
        count = rng.choice([1, 1, 1, 2, 30])
        commands = [b"%d.%d" % (name, number + offset) for offset in range(count)]
        number += count
        timeout_ms = rng.choice([None, None, 20, 200])
        with trio.CancelScope(deadline=trio.current_time() + rng.choice([0.01, 5.0, 5.0, 5.0])) as scope:
            try:
                if count == 1:
                    results = [await node.propose(commands[0], timeout_ms)]
                else:
                    results = await node.propose_many(commands, timeout_ms)
                ledger.acknowledged.update(zip(commands, results, strict=True))
            except (NotLeader, Rejected):
                ledger.refused.update(commands)
            except Unknown:
                ledger.unknown.update(commands)
        if scope.cancelled_caught:
            ledger.unknown.update(commands)


class Trouble:
    """Draws what goes wrong."""

    def __init__(self, net: Nodes, rng: Random) -> None:
        self.net, self.rng = net, rng
        self.down: dict[str, MemoryStorage] = {}
        self.happened: set[str] = set()

    async def step(self) -> None:
        net, rng = self.net, self.rng
        kind = rng.choice(("isolate", "heal", "heal", "crash", "restart", "stall", "go", "transfer", "snapshot", ""))
        alive = list(net.nodes)
        if kind == "isolate":
            net.heal()
            net.isolate(rng.choice(list(VOTERS)))
        elif kind == "heal":
            net.heal()
        elif kind == "crash" and len(alive) == 3:
            name = rng.choice(alive)
            self.down[name] = net.kill(name)
            while name in net.nodes:
                await trio.sleep(0.001)
        elif kind == "restart":
            await self.restart()
        elif kind == "stall" and alive:
            net.disks[rng.choice(alive)].stalled = True
        elif kind == "go":
            self.go()
        elif kind == "transfer" and alive:
            await self.tolerate(net.nodes[rng.choice(alive)], "transfer_leadership")
        elif kind == "snapshot" and alive:
            await self.tolerate(net.nodes[rng.choice(alive)], "take_snapshot")
        else:
            kind = "rest"
        self.happened.add(kind)
        await trio.sleep(rng.uniform(0.02, 0.6))

    async def tolerate(self, node: Node, name: str) -> None:
        with trio.move_on_after(0.5):
            try:
                await getattr(node, name)()
            except RaftError:
                return

    async def restart(self) -> None:
        for name, storage in list(self.down.items()):
            del self.down[name]
            await self.net.start(name, VOTERS, Journal(), storage)

    def go(self) -> None:
        for name in self.net.nodes:
            self.net.disks[name].stalled = False
            self.net.disks[name].bell.ring()


@pytest.mark.parametrize("seed", [*range(4), *campaign(*range(4, 8))])
async def test_every_answer_is_true(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    rng, ledger, stop = Random(seed), Ledger(), trio.Event()
    config = Config(
        propose_timeout_ms=2_000, uncommitted_frames_target=rng.choice([1, 2, 8]), snapshot_tail_entries=0,
        frame_entries_max=rng.choice([4, 4_096]), proposals_pending_max=rng.choice([40, 100_000]),
        cache_bytes_max=rng.choice([2_000, 1 << 20]))
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery, config)
        for name in VOTERS:
            await net.start(name, VOTERS, Journal())
        trouble = Trouble(net, rng)
        async with trio.open_nursery() as callers:
            for caller in range(CALLERS):
                callers.start_soon(call, net, Random(f"{seed}.{caller}"), caller, ledger, stop)
            for _ in range(STEPS):
                await trouble.step()
            net.heal()
            trouble.go()
            await trouble.restart()
            await trio.sleep(3)
            stop.set()
        with trio.fail_after(60):
            leader = await net.leader()
            await leader.propose(b"the end")
            for node in net.nodes.values():
                await node.read_barrier()
        journals = [node.state_machine.commands for node in net.nodes.values()
                    if isinstance(node.state_machine, Journal)]
        assert journals[0] == journals[1] == journals[2]
        ledger.check(journals[0])
        assert len(ledger.acknowledged) > 100 and ledger.refused and ledger.unknown
        assert all(node.status().pending_proposals == 0 for node in net.nodes.values())
        nursery.cancel_scope.cancel()
