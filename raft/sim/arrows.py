"""Records the messages between the nodes of a run, for the space-time diagram of ``chaos report``.

Only the last playing of a failure pays for it. Knows clusters and links.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from raft.messages import PeerMessage
from raft.sim.cluster import Cluster
from raft.sim.links import Link


class Arrows:
    """The messages that a cluster's links take from now on, in the order in which they were sent."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rows: list[dict[str, Any]] = []
        cluster.network.make = partial(TracedLink, self)

    def save(self, path: Path) -> None:
        """Write a file of JSON lines."""
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")


class TracedLink(Link):
    """A link whose messages are recorded. A message that is lost, or whose receiver is down, has no ``received_ns``."""

    __slots__ = ("_rows", "_sent", "_taken", "_up")

    def __init__(self, arrows: Arrows, *args: Any) -> None:
        super().__init__(*args)
        self._rows, self._up = arrows.rows, arrows.cluster.nodes[self.target]
        self._sent: dict[int, tuple[PeerMessage, list[dict[str, Any]]]] = {}
        """The rows of each message, by its identity, which it has for as long as it stands here."""
        self._taken: Callable[[PeerMessage], None] = self._receive
        self._receive = self._take

    def send(self, message: PeerMessage) -> None:
        row = {"from": self.source, "to": self.target, "sent_ns": self._world.now,
               "what": f"{type(message).__name__}, term {message.term}"}
        self._rows.append(row)
        self._sent.setdefault(id(message), (message, []))[1].append(row)
        super().send(message)

    def _take(self, message: PeerMessage) -> None:
        if self._up.life is not None:
            for row in self._sent[id(message)][1]:
                if "received_ns" not in row:
                    row["received_ns"] = self._world.now
                    break
        self._taken(message)
