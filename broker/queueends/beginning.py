"""Decides whether an empty log may begin where its master's log does.

It may once the ends of all queues that have no message from there on are on disk. So each replica with a log knows
these ends, and no replica enters a SyncStateSet without a log. A master that does not offer the answer, such as Java's,
is not asked. Pure: it knows one master and offsets, and sends nothing.
"""

from __future__ import annotations

import attrs


@attrs.define
class Beginning:
    """Holds what one process knows about the place where its log may begin, while that log is empty."""

    _master: str = attrs.field(default="", init=False)
    _offers: bool | None = attrs.field(default=None, init=False)
    """True: the master may be asked; None: it has not said so yet."""
    _wanted: int | None = attrs.field(default=None, init=False)
    """Offset where the log is to begin, and must not yet."""
    _told: int | None = attrs.field(default=None, init=False)
    """Offset where the log may begin once the queue ends that the master told are on disk."""
    _known: int | None = attrs.field(default=None, init=False)
    """Offset where the log may begin."""

    def follow(self, master: str) -> None:
        """Follow that master: what another one said does not count any more."""
        if master != self._master:
            self._master, self._offers, self._wanted = master, None, None
            self.forget()

    def offered(self, offers: bool) -> bool:
        """Note whether the master may be asked. Returns whether this is news."""
        before, self._offers = self._offers, offers
        return before is not offers

    def is_known(self, offset: int) -> bool:
        """Return whether the ends of queues that have no message at or after ``offset`` are on disk."""
        return not offset or offset == self._known

    def may(self, offset: int) -> bool:
        """Return whether the log may begin there now. If not, ask again soon: until then its master is asked."""
        if self._offers is False or self.is_known(offset):
            return True
        self._wanted = offset
        return False

    @property
    def to_ask(self) -> int | None:
        """Offset for which the master is to be asked about queue ends now; None: there is nothing to ask."""
        return self._wanted if self._offers and self._told is None else None

    def told(self, offset: int) -> None:
        """The master told the queue ends for a log from ``offset`` on; they are not on disk yet."""
        assert offset, "a log from 0 on lacks nothing"
        self._told = offset

    @property
    def waits_for_disk(self) -> bool:
        return self._told is not None

    def on_disk(self) -> None:
        """The queue ends that the master told are on disk."""
        assert self._told is not None, "something was told"
        self._known, self._told, self._wanted = self._told, None, None

    def forget(self) -> None:
        """Forget what is known: the queues are gone, or may have to be others."""
        self._told = self._known = None
