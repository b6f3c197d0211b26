"""What ``make demo-raft`` runs: three real processes of the key-value store; a leader killed with -9, again and again.

Writers keep writing through ``raft.connect``. For each kill the demo shows the new leader and for how long nothing was
acknowledged. Then it kills all three at once, starts them again and reads everything back: what was acknowledged must
be there, on every node. Exit code 0 if it is, 1 if anything is lost.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import trio
from kv import count, everything, put

import raft

WRITERS = 8
PAUSE_S = 0.002
"""Between two writes of one writer: enough load to be at work at every moment, and little enough to read back."""
PATIENCE_S = 20.0
"""Without any service for this long, something is wrong with more than one node."""


class NoService(Exception):
    """Nothing was acknowledged for ``PATIENCE_S``."""


@attrs.define
class Tally:
    """What became of every write, by key."""

    acknowledged: dict[str, str] = attrs.Factory(dict)
    unknown: dict[str, str] = attrs.Factory(dict)
    refused: dict[str, str] = attrs.Factory(dict)
    latest_s: float = 0.0
    """When the latest acknowledgement came, and from where."""
    latest_from: str | None = None
    news: trio.Event = attrs.Factory(trio.Event)
    """Set, and replaced, at every acknowledgement."""

    def acknowledge(self, key: str, value: str, address: str | None) -> None:
        self.acknowledged[key] = value
        self.latest_s, self.latest_from = trio.current_time(), address
        self.news.set()
        self.news = trio.Event()


class Display:
    """Plain lines anywhere; in a terminal with ``rich``, a live table below them."""

    _live: Any = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with suppress(ModuleNotFoundError):
            if sys.stdout.isatty():
                from rich.live import Live

                with Live(refresh_per_second=8) as self._live:
                    yield
                self._live = None
                return
        yield

    def say(self, line: str) -> None:
        if self._live is None:
            print(line, flush=True)
        else:
            self._live.console.print(line, markup=False, highlight=False)

    def show(self, nodes: list[tuple[str, str, str, str]], tally: Tally) -> None:
        """A row per node: id, role, term, committed."""
        if self._live is None:
            return
        from rich.console import Group
        from rich.table import Table

        table = Table("node", "role", "term", "committed", title="three nodes on this machine")
        for row in nodes:
            style = {"leader": "bold green", "down": "red"}.get(row[1])
            table.add_row(*row, style=style)
        counts = f"{len(tally.acknowledged)} acknowledged, {len(tally.unknown)} unknown, {len(tally.refused)} refused"
        self._live.update(Group(table, counts))


class Cluster:
    """Three processes and their directories."""

    def __init__(self, data: Path, rules: str) -> None:
        self.data, self.rules = data, rules
        self.addresses = {f"n{number}": f"127.0.0.1:{port}" for number, port in enumerate(_free_ports(3))}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, node: str) -> None:
        peers = ",".join(f"{name}={address}" for name, address in self.addresses.items())
        with (self.data / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("kv.py")), "--id", node, "--peers", peers,
                 "--data", str(self.data / node), "--rules", self.rules],
                stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})

    def kill(self, node: str) -> None:
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def node_at(self, address: str | None) -> str | None:
        return next((node for node, own in self.addresses.items() if own == address), None)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


async def write(client: raft.Client, writer: int, tally: Tally) -> None:
    """One key after the other; never the same key twice, so that every write can be told apart."""
    number = 0
    while True:
        number += 1
        key, value = f"{writer}/{number}", str(number * number)
        tally.unknown[key] = value  # also if this task ends here
        try:
            await client.propose(put(key, value))
        except raft.Unknown:
            pass
        except (raft.Rejected, raft.NotLeader):
            tally.refused[key] = tally.unknown.pop(key)
        else:
            tally.acknowledge(key, tally.unknown.pop(key), client.leader_address)
        await trio.sleep(PAUSE_S)


async def watch(client: raft.Client, cluster: Cluster, display: Display, tally: Tally) -> None:
    """Keep the table fresh."""
    while True:
        rows = []
        for node, address in cluster.addresses.items():
            try:
                found = await client.status(address, timeout_ms=300)
                rows.append((node, found["role"], str(found["term"]), str(found["commit_index"])))
            except raft.RaftError:
                rows.append((node, "down", "", ""))
        display.show(rows, tally)
        await trio.sleep(0.2)


async def caught_up(client: raft.Client, address: str) -> None:
    """Until the node at ``address`` has applied what the leader had committed when this was called."""
    goal = (await client.status(client.leader_address))["commit_index"]
    while True:
        with suppress(raft.RaftError):
            if (await client.status(address, timeout_ms=500))["applied_index"] >= goal:
                return
        await trio.sleep(0.05)


async def served(client: raft.Client, display: Display, tally: Tally, holds: Callable[[], bool]) -> None:
    """Until an acknowledgement makes it true; if none comes for long, say what the nodes say, and give up."""
    while not holds():
        with trio.move_on_after(PATIENCE_S) as patience:
            await tally.news.wait()
        if patience.cancelled_caught:
            for address in client.addresses:
                try:
                    found = await client.explain(address, timeout_ms=1_000)
                except raft.RaftError as error:
                    found = [str(error)]
                display.say(f"{address}: {' '.join(found)}")
            raise NoService


async def kill_leader(
    number: int, client: raft.Client, cluster: Cluster, display: Display, tally: Tally
) -> float:
    """Kill it, wait for service, start it again; seconds without service."""
    await served(client, display, tally, lambda: cluster.node_at(tally.latest_from) in cluster.processes)
    before = tally.latest_from
    leader = cluster.node_at(before)
    assert leader is not None
    address = cluster.addresses[leader]
    killed = trio.current_time()
    cluster.kill(leader)
    await served(client, display, tally, lambda: tally.latest_from != before and tally.latest_s >= killed)
    outage = tally.latest_s - killed
    status = await client.status(tally.latest_from)
    display.say(f"kill {number}: {leader} (leader) killed with -9; {cluster.node_at(tally.latest_from)} leads in term "
                f"{status['term']}; {outage * 1e3:.0f} ms without service")
    cluster.start(leader)
    await caught_up(client, address)
    await trio.sleep(0.3)
    return outage


async def read_back(client: raft.Client, address: str | None) -> dict[str, str]:
    """Everything the store holds, by a linearizable read."""
    found: dict[str, str] = {}
    for writer in range(WRITERS):
        found.update(await client.query(everything(f"{writer}/"), address=address, timeout_ms=20_000))
    return found


async def run(arguments: argparse.Namespace, data: Path) -> int:
    """The whole story; the exit code."""
    display, tally, cluster = Display(), Tally(), Cluster(data, arguments.rules)
    display.say(f"data and logs: {data}")
    try:
        for node in cluster.addresses:
            cluster.start(node)
        with display.running():
            async with raft.connect(list(cluster.addresses.values())) as client:
                await client.query(count(), timeout_ms=30_000)
                leader = (await client.status(client.leader_address))["leader"]  # who answered a read knows it
                display.say(f"{leader} leads the first term; {WRITERS} writers begin")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch, client, cluster, display, tally)
                    async with trio.open_nursery() as writers:
                        for writer in range(WRITERS):
                            writers.start_soon(write, client, writer, tally)
                        outages = [await kill_leader(number, client, cluster, display, tally)
                                   for number in range(1, arguments.kills + 1)]
                        writers.cancel_scope.cancel()
                    for node in list(cluster.processes):
                        cluster.kill(node)
                    display.say("all three killed with -9 at once, and started again")
                    for node in cluster.addresses:
                        cluster.start(node)
                    bad = await verify(client, cluster, display, tally)
                    nursery.cancel_scope.cancel()
    finally:
        for node in list(cluster.processes):
            cluster.kill(node)
    report(outages, tally, bad, data)
    return 1 if bad else 0


async def verify(client: raft.Client, cluster: Cluster, display: Display, tally: Tally) -> int:
    """How many writes are not as they were answered, over all nodes."""
    bad = 0
    for node, address in cluster.addresses.items():
        found = await read_back(client, address)
        lost = [key for key, value in tally.acknowledged.items() if found.get(key) != value]
        undead = [key for key in tally.refused if key in found]
        effect = sum(key in found for key in tally.unknown)
        display.say(f"{node} holds {len(found)} keys: {len(lost)} acknowledged writes lost, {effect} of "
                    f"{len(tally.unknown)} unknown ones took effect, {len(undead)} refused ones did")
        bad += len(lost) + len(undead)
    return bad


def report(outages: list[float], tally: Tally, bad: int, data: Path) -> None:
    """The last lines, in either kind of display."""
    if outages:
        ordered = sorted(outages)
        print(f"without service after a kill: least {ordered[0] * 1e3:.0f} ms, median "
              f"{ordered[len(ordered) // 2] * 1e3:.0f} ms, most {ordered[-1] * 1e3:.0f} ms")
    print(f"writes: {len(tally.acknowledged)} acknowledged, {len(tally.unknown)} unknown, {len(tally.refused)} refused")
    print("NOTHING ACKNOWLEDGED WAS LOST" if not bad else f"{bad} WRITES ARE NOT AS THEY WERE ANSWERED: this is a bug")
    print(f"look at the logs with `raftlog cat {data}/n0`; the directory can be removed")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description="Kill leaders, lose nothing.")
    parser.add_argument("--kills", type=int, default=5, help="how many leaders to kill (default: %(default)s)")
    parser.add_argument("--rules", choices=[rules.value for rules in raft.Rules], default="strict")
    parser.add_argument("--data", type=Path, help="directory to use (default: a new temporary one)")
    arguments = parser.parse_args()
    data = arguments.data or Path(tempfile.mkdtemp(prefix="quorate-demo-"))
    data.mkdir(parents=True, exist_ok=True)
    code = 1
    try:
        code = trio.run(run, arguments, data)
    except* NoService:
        print(f"no write was acknowledged for {PATIENCE_S:.0f} s: this is a bug; the logs are in {data}")
    sys.exit(code)


if __name__ == "__main__":
    main()
