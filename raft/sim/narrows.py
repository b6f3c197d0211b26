"""Links that pass small messages and drop large ones, as a router with a small packet size does.

Heartbeats are answered, entries never arrive, and nothing else fails. No other leader could do better, so elections
must end (INV_R37).
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
    """Return whether the message carries entries or state."""
    return isinstance(message, SnapshotChunk) or (isinstance(message, Append) and bool(message.frames))


def hold_up(scene: Scene, heal: Callable[[], None]) -> None:
    """Undo all other faults, then let time pass, with some writes at the leader."""
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
