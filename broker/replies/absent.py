"""Replies that wait for a requester which a new master does not know yet.

A requester becomes known to a master by a heartbeat. After an election the reply may reach the new master before that
heartbeat. A core: it knows client ids and times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NS_PER_MS: Final = 1_000_000
YOUNG_NS: Final = 60_000 * NS_PER_MS
"""Time after which all clients have sent a heartbeat to a new master: they update routes and beat every 30 s."""
WAIT_MOST_NS: Final = 2_500 * NS_PER_MS
"""Longest wait of a reply: its sender waits 3 s by default, and then sends it to another broker."""
WAITING_MAX: Final = 10_000


class Absent:
    """Waiting replies by client id. Those of one client are told in their order."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._count = 0
        self._young_until_ns = 0

    def now_master(self, now_ns: int) -> None:
        self._young_until_ns = now_ns + YOUNG_NS

    def patience_ns(self, now_ns: int, ttl_ms: int) -> int:
        """Return how long a reply may wait for an unknown client; ``ttl_ms``: how long the client waits."""
        if now_ns >= self._young_until_ns or self._count >= WAITING_MAX:
            return 0
        return max(0, min(ttl_ms * NS_PER_MS, WAIT_MOST_NS))

    def wait(self, client_id: str, tell: Callable[[], None]) -> None:
        """Call ``tell`` when this client comes."""
        self._waiting.setdefault(client_id, []).append(tell)
        self._count += 1

    def give_up(self, client_id: str, tell: Callable[[], None]) -> None:
        """Let ``tell`` wait no longer; no effect if it was called."""
        waiting = self._waiting.get(client_id, [])
        if tell in waiting:
            waiting.remove(tell)
            self._count -= 1
            if not waiting:
                del self._waiting[client_id]

    def came(self, client_id: str) -> None:
        waiting = self._waiting.pop(client_id, [])
        self._count -= len(waiting)
        for tell in waiting:
            tell()
