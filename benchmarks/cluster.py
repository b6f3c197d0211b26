"""Three processes of ``benchmarks.node`` under one roof: start, ask, kill -9, restart.

Knows processes and JSON lines. It imports nothing of raft: what is measured happens in the nodes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

NAMES = ("n0", "n1", "n2")
START_S = 30.0


class NodeFailed(Exception):
    """A node ended by itself, or answered with an error; says what it wrote last."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody uses at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class NodeProcess:
    """One process; ``ask`` may be called by several tasks at once."""

    def __init__(self, name: str, process: trio.Process) -> None:
        self.name, self._process = name, process
        self._sequence = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._waiting: dict[int, trio.Event] = {}

    async def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Raises ``NodeFailed`` when the node answers with an error, or ends first."""
        self._sequence += 1
        number = self._sequence
        event = self._waiting[number] = trio.Event()
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps({"id": number, "do": do, "with": arguments}).encode() + b"\n")
        await event.wait()
        answer = self._answers.pop(number, {"error": "the process ended"})
        if "error" in answer:
            raise NodeFailed(f"{self.name}, asked to {do}: {answer['error']}")
        return answer

    async def listen(self) -> None:
        """Take answers until the process ends."""
        assert self._process.stdout is not None
        buffer = b""
        async for data in self._process.stdout:
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                number = answer.pop("id")
                self._answers[number] = answer
                self._waiting.pop(number).set()
        for event in self._waiting.values():
            event.set()

    async def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()


class Cluster:
    """Three nodes with data directories under one root."""

    def __init__(self, root: Path, nursery: trio.Nursery) -> None:
        self._root, self._nursery = root, nursery
        self.peers = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True)}
        self.nodes: dict[str, NodeProcess] = {}

    async def start(self, name: str) -> None:
        """Start, or start again, one node."""
        command = [sys.executable, "-m", "benchmarks.node", name, "--peers", json.dumps(self.peers),
                   "--dir", str(self._root / name)]
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.nodes[name] = NodeProcess(name, process)
        self._nursery.start_soon(self.nodes[name].listen)

    async def leader(self) -> NodeProcess:
        """The node that leads, once every node agrees on it."""
        with trio.fail_after(START_S):
            while True:
                seen = [await node.ask("status") for node in self.nodes.values()]
                leaders = {answer["leader"] for answer in seen}
                if len(leaders) == 1 and None not in leaders and sum(answer["leads"] for answer in seen) == 1:
                    return self.nodes[leaders.pop()]
                await trio.sleep(0.02)

    async def caught_up(self) -> None:
        """Wait until all nodes have applied nearly the same."""
        with trio.fail_after(START_S):
            while True:
                applied = [(await node.ask("status"))["applied"] for node in self.nodes.values()]
                if max(applied) - min(applied) < 500:
                    return
                await trio.sleep(0.02)

    async def first_answer(self, names: list[str], do: str, **arguments: Any) -> dict[str, Any]:
        """Ask several nodes the same; the answer that comes first."""
        answers: list[dict[str, Any]] = []
        async with trio.open_nursery() as nursery:
            async def one(node: NodeProcess) -> None:
                answers.append(await node.ask(do, **arguments))
                nursery.cancel_scope.cancel()

            for name in names:
                nursery.start_soon(one, self.nodes[name])
        return answers[0]


@asynccontextmanager
async def open_cluster(root: Path) -> AsyncIterator[Cluster]:
    """Start three nodes on empty directories, and kill them all at the end."""
    async with trio.open_nursery() as nursery:
        cluster = Cluster(root, nursery)
        try:
            for name in NAMES:
                await cluster.start(name)
            yield cluster
        finally:
            with trio.CancelScope(shield=True):
                for node in cluster.nodes.values():
                    await node.kill()
            nursery.cancel_scope.cancel()
