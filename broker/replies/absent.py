"""Requesters that a new master has yet to hear of, and the answers that wait for them here.

A requester makes itself known to each master by a heartbeat. After an election its heartbeat to the new one may come
behind the answer that it waits for. A core: it knows names of clients and times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NS_PER_MS: Final = 1_000_000
YOUNG_NS: Final = 60_000 * NS_PER_MS
"""A client looks for its topics' new masters each 30 s, and beats each 30 s."""
WAIT_MOST_NS: Final = 2_500 * NS_PER_MS
"""Who answers waits 3 s by default, and then gives its answer to another broker."""
WAITING_MAX: Final = 10_000


class Absent:
    """``wait``, and then ``came`` or ``give_up``. What waits for one client is told in its order."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._count = 0
        self._young_until_ns = 0

    def now_master(self, now_ns: int) -> None:
        self._young_until_ns = now_ns + YOUNG_NS

    def patience_ns(self, now_ns: int, ttl_ms: int) -> int:
        """How long it is worth to wait for a client that is not known; ``ttl_ms`` is its own patience."""
        if now_ns >= self._young_until_ns or self._count >= WAITING_MAX:
            return 0
        return max(0, min(ttl_ms * NS_PER_MS, WAIT_MOST_NS))

    def wait(self, client_id: str, tell: Callable[[], None]) -> None:
        """``tell`` is called when it comes."""
        self._waiting.setdefault(client_id, []).append(tell)
        self._count += 1

    def give_up(self, client_id: str, tell: Callable[[], None]) -> None:
        """It waits no longer. Nothing if it was told."""
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
