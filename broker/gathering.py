"""Gathers what comes in one turn of the loop, to be put together before the turn writes.

Consumers acknowledge what they popped by a request for each message, producers decide their transactions one by one. A
put of each costs every replica a record, entries of queues and of the key index, and a look at the log's end; so those
of one kind share a put. A core: it knows neither what is gathered nor what a put is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import attrs

KeyT = TypeVar("KeyT", bound=Hashable)
ItemT = TypeVar("ItemT")


@attrs.define(eq=False)
class _Group(Generic[KeyT, ItemT]):
    key: KeyT
    items: list[ItemT] = attrs.field(factory=list)
    size_bytes: int = 0


class Gathering(Generic[KeyT, ItemT]):
    """What came since the last write, in groups of one key each."""

    def __init__(self, before_write: Callable[[Callable[[], object]], None],
                 put: Callable[[KeyT, list[ItemT]], None], *, count_max: int, bytes_max: int = 1 << 62) -> None:
        """``before_write`` has a call made when the turn is over; then ``put`` gets each group, in the order of their
        first items. A group has up to ``count_max`` items of ``bytes_max`` together; a larger item stands alone."""
        self._before_write, self._put = before_write, put
        self._count_max, self._bytes_max = count_max, bytes_max
        self._groups: list[_Group[KeyT, ItemT]] = []
        self._open: dict[KeyT, _Group[KeyT, ItemT]] = {}

    def add(self, key: KeyT, item: ItemT, size_bytes: int = 0) -> None:
        """Add to the group of that key."""
        group = self._open.get(key)
        if group is None or len(group.items) == self._count_max or group.size_bytes + size_bytes > self._bytes_max:
            if not self._groups:
                self._before_write(self._put_all)
            group = self._open[key] = _Group(key)
            self._groups.append(group)
        group.items.append(item)
        group.size_bytes += size_bytes

    def _put_all(self) -> None:
        groups, self._groups = self._groups, []
        self._open.clear()
        for group in groups:
            self._put(group.key, group.items)
