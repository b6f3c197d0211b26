"""Counts bytes that wait on connections whose other ends do not read, and chooses which connections must close.

A connection is behind from the moment that its socket does not take all until it has taken all. Those that read are
behind for moments, so the memory is for who does not read, and there is a budget for it. Knows numbers and time, in
seconds, and closes nothing itself.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

_MOMENT_S: Final = 0.1
"""A connection that stalled for less may be about to read: among those, the one with most waiting goes first."""


class Queued(Protocol):
    """A connection that counts the bytes waiting to be written to it."""

    @property
    def queued_bytes(self) -> int: ...


ConnectionT = TypeVar("ConnectionT", bound=Queued)


class Backlog(Generic[ConnectionT]):
    """Bytes that wait on all connections of a server."""

    def __init__(self, pause: int, budget: int, stall_s: float) -> None:
        """``pause``: bytes up to which one connection is read; ``budget``: bytes over all of them."""
        self.bytes = 0
        self._pause, self._budget, self._short, self._stall_s = pause, budget, budget // 2, stall_s
        self._since: dict[ConnectionT, float] = {}
        """When each that is behind last took something, the longest ago first."""

    @property
    def pause(self) -> int:
        """Limit of waiting bytes for reading from one connection; an equal share when the budget is short."""
        if self.bytes <= self._short:
            return self._pause
        return min(self._pause, self._short // len(self._since))

    @property
    def short(self) -> bool:
        return self.bytes > self._short

    @property
    def full(self) -> bool:
        """Nobody gets an answer before ``must_go`` has gone."""
        return self.bytes > self._budget

    def begins(self, connection: ConnectionT, now: float) -> None:
        """It did not take all. What waits for it, now and later, is to be added to ``bytes``."""
        self._since[connection] = now

    def took(self, connection: ConnectionT, size: int, now: float) -> None:
        """One that is behind took some of it."""
        self.bytes -= size
        del self._since[connection]
        self._since[connection] = now

    def ends(self, connection: ConnectionT, size: int) -> None:
        """It took all, or is closed and ``size`` bytes wait no more."""
        if connection in self._since:
            del self._since[connection]
            self.bytes -= size

    def must_go(self, now: float) -> ConnectionT | None:
        """Return a connection to close because the budget is short; ask again until there is none."""
        if not self.short:
            return None
        first = next(iter(self._since))
        stalled_s = now - self._since[first]
        if self.full and stalled_s < _MOMENT_S:
            return max(self._since, key=lambda connection: connection.queued_bytes)
        return first if self.full or stalled_s >= self._stall_s else None
