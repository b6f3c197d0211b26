"""One of our three nodes as a process that a benchmark steers: JSON commands on stdin, one JSON answer each on stdout.

    python -m benchmarks.node n0 --peers '{"n0": "127.0.0.1:7000", ...}' --dir DIR

Everything is measured through the public API (``raft.open_node``), in the process that leads, as a user would. Ends
when stdin does, so no node outlives its benchmark. ``COMMANDS`` lists what can be asked; ``cluster`` asks it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

import raft
from benchmarks.measure import load, row

Answer = dict[str, Any]
RETRY_S = 0.002
"""How soon a writer asks again after a refusal: the resolution of the failover figures."""


class Counter:
    """The cheapest state machine: counts."""

    def __init__(self) -> None:
        self.n = 0

    def apply(self, command: bytes) -> int:
        self.n += 1
        return self.n

    def snapshot(self) -> bytes:
        return self.n.to_bytes(8, "little")

    def restore(self, data: bytes) -> None:
        self.n = int.from_bytes(data, "little")


class Writer:
    """Proposes one entry after another for as long as this node may; remembers when each was acknowledged."""

    def __init__(self, node: raft.Node) -> None:
        self._node = node
        self._acked: list[int] = []
        self._news = trio.Event()

    async def run(self) -> None:
        while True:
            try:
                await self._node.propose(bytes(128))
            except raft.Outcome:
                await trio.sleep(RETRY_S)
            else:
                self._acked.append(time.monotonic_ns())
                self._news.set()

    async def first_after(self, at_ns: int) -> int:
        while not self._acked or self._acked[-1] <= at_ns:
            self._news = trio.Event()
            await self._news.wait()
        return self._acked[bisect_right(self._acked, at_ns)]

    def between(self, first_ns: int, last_ns: int) -> list[int]:
        return [at for at in self._acked if first_ns <= at <= last_ns]


@attrs.define(eq=False)
class Bench:
    """The node under measurement and what can be asked of it. Every method is a command; arguments are JSON values."""

    node: raft.Node
    counter: Counter
    nursery: trio.Nursery
    writer: Writer | None = None

    async def status(self) -> Answer:
        await trio.lowlevel.checkpoint()
        return {"leads": self.node.is_leader, "leader": self.node.leader, "applied": self.counter.n}

    async def wait_leader(self) -> Answer:
        return {"leader": await self.node.wait_leader()}

    async def propose(self, width: int, size_bytes: int, seconds: float) -> Answer:
        return attrs.asdict(
            await load("propose", self.node.propose, width=width, size_bytes=size_bytes, seconds=seconds)
        )

    async def propose_many(self, callers: int, batch: int, size_bytes: int, seconds: float) -> Answer:
        """Entries per second of ``callers`` tasks that each await batches."""
        commands = [bytes(size_bytes)] * batch
        latencies: list[float] = []

        async def caller(stop: float) -> None:
            while (start := time.perf_counter()) < stop:
                await self.node.propose_many(commands)
                latencies.append(time.perf_counter() - start)

        start = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(callers):
                nursery.start_soon(caller, start + seconds)
        elapsed = time.perf_counter() - start
        return attrs.asdict(row("propose_many", callers * batch, size_bytes, latencies, elapsed, batch))

    async def read(self, case: str, width: int, seconds: float, level: str = "index") -> Answer:
        wanted = raft.Read(level)
        return attrs.asdict(
            await load(case, lambda _: self.node.read_barrier(wanted), width=width, size_bytes=0, seconds=seconds)
        )

    async def fill(self, entries: int, size_bytes: int, singly: bool) -> Answer:
        """Write this many entries: by 1,000 callers one by one, or in batches of 1,000 by four callers."""
        left = entries
        data = bytes(size_bytes)
        commands = [data] * 1_000

        async def single() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self.node.propose(data)

        async def many() -> None:
            nonlocal left
            while left > 0:
                left -= len(commands)
                await self.node.propose_many(commands)

        start = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(1_000 if singly else 4):
                nursery.start_soon(single if singly else many)
        return {"seconds": time.perf_counter() - start}

    async def memory(self) -> Answer:
        """Resident bytes of this process."""
        await trio.lowlevel.checkpoint()
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: ASYNC230 - not a disk
            return {"bytes": int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")}

    async def write_on(self) -> Answer:
        await trio.lowlevel.checkpoint()
        if self.writer is None:
            self.writer = Writer(self.node)
            self.nursery.start_soon(self.writer.run)
        return {}

    async def first_ack_after(self, at_ns: int) -> Answer:
        assert self.writer is not None
        return {"at_ns": await self.writer.first_after(at_ns)}

    async def acks_between(self, first_ns: int, last_ns: int) -> Answer:
        await trio.lowlevel.checkpoint()
        assert self.writer is not None
        return {"acks_ns": self.writer.between(first_ns, last_ns)}

    async def transfer(self) -> Answer:
        await self.node.transfer_leadership()
        return {}


COMMANDS: dict[str, Callable[..., Awaitable[Answer]]] = {
    name: method for name, method in vars(Bench).items() if callable(method) and not name.startswith("_")
}


async def serve(bench: Bench) -> None:
    """Answer commands, each in a task of its own, until stdin ends."""
    buffer = b""

    async def answer(request: dict[str, Any]) -> None:
        command = COMMANDS[request["do"]]
        try:
            reply = await command(bench, **request.get("with", {}))
        except raft.RaftError as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"id": request["id"], **reply}), flush=True)

    async with trio.open_nursery() as nursery, trio.lowlevel.FdStream(os.dup(0)) as stdin:
        async for data in stdin:
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                nursery.start_soon(answer, json.loads(line))
        nursery.cancel_scope.cancel()


async def run(name: str, peers: dict[str, str], directory: str) -> None:
    counter = Counter()
    async with (
        raft.open_node(name, peers=peers, data_dir=directory, state_machine=counter, bootstrap=True) as node,
        trio.open_nursery() as nursery,
    ):
        await serve(Bench(node, counter, nursery))
        nursery.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--peers", type=json.loads, required=True)
    parser.add_argument("--dir", required=True)
    args = parser.parse_args()
    trio.run(run, args.name, args.peers, args.dir)


if __name__ == "__main__":
    main()
