"""Time without service: from kill -9 of the leader to the next commit, and around a planned transfer.

Writers on all three nodes propose without pause, so the gap is seen as a user sees it. The clock is the machine's
monotonic one, which all processes share. Default timers. Knows the commands of ``benchmarks.node``.
"""

from __future__ import annotations

import random
import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import trio

from benchmarks.cluster import NodeFailed, open_cluster
from benchmarks.measure import quantile

TRANSFERS = 10
WINDOW_NS = 1_000_000_000


def _distribution(gaps_ms: list[float]) -> dict[str, Any]:
    ordered = sorted(gaps_ms)
    return {
        "n": len(ordered), "p50_ms": round(quantile(ordered, 0.5), 1), "p99_ms": round(quantile(ordered, 0.99), 1),
        "max_ms": round(ordered[-1], 1), "all_ms": [round(gap, 1) for gap in gaps_ms],
    }


async def _kills(root: Path, kills: int) -> list[float]:
    rng = random.Random(1)
    gaps_ms = []
    async with open_cluster(root) as cluster:
        for name in cluster.nodes:
            await cluster.nodes[name].ask("write_on")
        for _ in range(kills):
            leader = await cluster.leader()
            await cluster.caught_up()
            await trio.sleep(rng.uniform(0.3, 0.6))  # no fixed phase between a kill and the heartbeats
            survivors = [name for name in cluster.nodes if name != leader.name]
            killed_ns = time.monotonic_ns()
            await leader.kill()
            first = await cluster.first_answer(survivors, "first_ack_after", at_ns=killed_ns)
            gaps_ms.append((first["at_ns"] - killed_ns) / 1e6)
            await cluster.start(leader.name)
            await cluster.nodes[leader.name].ask("wait_leader")
            await cluster.nodes[leader.name].ask("write_on")
    return gaps_ms


async def _transfers(root: Path) -> list[float]:
    gaps_ms: list[float] = []
    async with open_cluster(root) as cluster:
        for node in cluster.nodes.values():
            await node.ask("write_on")
        while len(gaps_ms) < TRANSFERS:
            leader = await cluster.leader()
            await cluster.caught_up()
            await trio.sleep(0.5)
            begun_ns = time.monotonic_ns()
            try:
                await leader.ask("transfer")
            except NodeFailed as error:
                print(f"  a transfer was refused and does not count: {error}", flush=True)
                continue
            await trio.sleep(WINDOW_NS / 1e9)
            acks: list[int] = []
            for node in cluster.nodes.values():
                window = {"first_ns": begun_ns - WINDOW_NS // 10, "last_ns": begun_ns + WINDOW_NS}
                acks += (await node.ask("acks_between", **window))["acks_ns"]
            gaps_ms.append(max(after - before for before, after in pairwise(sorted(acks))) / 1e6)
    return gaps_ms


def run(directory: Path, kills: int) -> dict[str, Any]:
    """Both distributions, in milliseconds."""
    found: dict[str, Any] = {}
    for name, measure in (("kill_to_commit", lambda root: _kills(root, kills)), ("transfer_gap", _transfers)):
        root = directory / name
        root.mkdir(parents=True)
        try:
            found[name] = _distribution(trio.run(measure, root))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        print(f"  {name}: {({key: value for key, value in found[name].items() if key != 'all_ms'})}", flush=True)
    return found
