"""When the active controller looks at groups again though nothing happens: one time for each group, the earliest.

A look decides from the group as it is, and says itself when the next one is due. So a later time beside an earlier one
is of no use. Each heartbeat may ask for a look, and a place for each would fill memory until the first one is due.

Sans-IO: time is a number (ns).
"""

from __future__ import annotations

import heapq
from typing import Final

from controller.metadata.groups import GroupKey

SWEPT_FROM: Final = 8
"""Fewer places than twice the groups and so many are not swept."""


class Looks:
    """Times by group. ``len`` counts places in the queue, those that an earlier time replaced among them."""

    def __init__(self) -> None:
        self._at: dict[GroupKey, int] = {}
        self._queue: list[tuple[int, GroupKey]] = []

    def put(self, at: int, key: GroupKey) -> None:
        """Look at this group at that time at the latest."""
        known = self._at.get(key)
        if known is not None and known <= at:
            return
        self._at[key] = at
        heapq.heappush(self._queue, (at, key))
        self._sweep()

    def due(self, now: int) -> list[GroupKey]:
        """Take out the groups to look at now, in the order of their times."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            at, key = heapq.heappop(self._queue)
            if self._at.get(key) == at:
                del self._at[key]
                found.append(key)
        self._sweep()
        return found

    def next_deadline(self) -> int | None:
        """When to call ``due``: perhaps too early, never too late."""
        return self._queue[0][0] if self._queue else None

    def clear(self) -> None:
        self._at.clear()
        self._queue.clear()

    def __len__(self) -> int:
        return len(self._queue)

    def _sweep(self) -> None:
        """Drop the places that earlier times replaced, before they outnumber the others."""
        if len(self._queue) > 2 * len(self._at) + SWEPT_FROM:
            self._queue = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._queue)
