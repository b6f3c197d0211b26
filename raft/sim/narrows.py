"""A way that small messages pass and large ones do not, as where a router drops what exceeds its packet size.

Beats are answered, entries arrive nowhere, and nothing else fails: a leader that nobody can do better than must not be
elected again and again (INV_R37).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raft.messages import Append, SnapshotChunk

if TYPE_CHECKING:
    from raft.sim.campaign import Scene

LASTS_MS: Final = 20_000
WRITES: Final = 4


def large(message: Any) -> bool:
    """Whether it carries entries or state."""
    return isinstance(message, SnapshotChunk) or (isinstance(message, Append) and bool(message.frames))


def hold_up(scene: Scene, heal: Callable[[], None]) -> None:
    """Undo every fault but this one, then let time pass, with a write at each leader now and then."""
    cluster = scene.cluster
    heal()
    cluster.counts["narrow ways"] += 1
    cluster.checker.calm = True
    cluster.network.narrow(large)
    for _ in range(WRITES):
        if cluster.leader is not None:
            scene.put(cluster.leader)
        cluster.run_ms(LASTS_MS / WRITES)
    cluster.network.narrow(None)
