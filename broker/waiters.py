"""Counts the bytes that waiting requests take: their own, and those of what they want, once for all who share it.

A core: it knows neither what they wait for nor how long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from broker.consumers.subscriptions import Subscribed
from remoting.command import kept_bytes

if TYPE_CHECKING:
    from remoting.command import Command

BYTES_MAX: Final = 256 << 20
"""Bytes of all requests that wait in one place; beyond it only small ones may wait."""
SMALL_BYTES: Final = 2 << 10
"""Size of a small request; those of usual clients are smaller."""
_CODE_BYTES: Final = 250
"""About what a tag takes: its text, its code, and its place in a set of each."""


class WaitingBytes:
    """The bytes of all requests that wait in one place."""

    def __init__(self) -> None:
        self.total = 0
        self._users: dict[int, int] = {}
        """How many wait for each thing that is wanted, by its identity: whoever waits keeps it alive."""

    def take(self, request: Command, wanted: Subscribed | None) -> int | None:
        """Count a request that begins to wait. Return its own bytes; None: there is no room for it."""
        own, parts, users = kept_bytes(request), dict(_parts(wanted)), self._users
        added = own + sum(size for part, size in parts.items() if part not in users)
        if added > SMALL_BYTES and self.total + added > BYTES_MAX:
            return None
        self.total += added
        for part in parts:
            users[part] = users.get(part, 0) + 1
        return own

    def free(self, own: int, wanted: Subscribed | None) -> None:
        """A request no longer waits of which ``take`` returned ``own`` bytes. ``wanted`` is as it was."""
        self.total -= own
        for part, size in _parts(wanted):
            self._users[part] -= 1
            if not self._users[part]:
                del self._users[part]
                self.total -= size


def _parts(wanted: Subscribed | None) -> Iterator[tuple[int, int]]:
    """The identity and the bytes of each thing that several may share."""
    if wanted is not None and wanted.codes is not None:
        yield id(wanted.codes), _CODE_BYTES * len(wanted.codes)
    if wanted is not None and wanted.filter is not None:
        yield id(wanted.filter), wanted.filter.memory_bytes
