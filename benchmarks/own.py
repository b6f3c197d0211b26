"""What only this library is asked for: many proposals in one call, and linearizable reads on leader and follower.

One cluster per run, in which nothing else happens meanwhile. Knows the commands of ``benchmarks.node``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import trio

from benchmarks.cluster import open_cluster
from benchmarks.measure import Row


async def _measure(root: Path, seconds: float) -> list[Row]:
    async with open_cluster(root) as cluster:
        leader = await cluster.leader()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        rows = [
            Row(**await leader.ask("propose_many", callers=4, batch=1_000, size_bytes=16, seconds=seconds)),
        ]
        await cluster.caught_up()
        for node, case, level in (
            (leader, "read_leader", "index"), (follower, "read_follower", "index"), (leader, "read_lease", "lease"),
        ):
            rows.append(Row(**await node.ask("read", case=case, width=1_000, seconds=seconds, level=level)))
        return rows


def run(directory: Path, seconds: float) -> list[Row]:
    """One round."""
    root = directory / "own"
    root.mkdir(parents=True)
    try:
        return trio.run(_measure, root, seconds)
    finally:
        shutil.rmtree(root, ignore_errors=True)
