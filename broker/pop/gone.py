"""Topics and groups that are gone, as every replica hears it in the log: which records it has followed already.

A slave copies positions seconds later. One that becomes master in between would begin a topic that was made again where
groups were in the old one. A record stands in the log before the first message of the new topic, so no replica shows
that message and keeps old positions. A core: it forgets nothing itself.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import attrs

from remoting.body import Body, body
from remoting.fields import Int64

PATH: Final = "config/goneHeard.json"
Name = tuple[str, str]
"""Topic and group, one of them ""; or what else names a record."""


@body
class KeptGone(Body):
    """The file ``config/goneHeard.json``: records of the log below this offset were followed. Below 0: no file."""

    log_offset: Int64 = -1


@attrs.define
class Gone:
    """Says which records to follow: each once, since positions that were committed after it must stay."""

    below: int
    """All records below this offset of the log were followed, and that is on disk."""
    _own: Counter[Name] = attrs.field(factory=Counter)
    """Names that this master put records of, and has not heard yet."""
    _unsaved: deque[int] = attrs.field(factory=deque)
    """Records whose positions are gone in memory alone."""

    def say(self, name: Name) -> None:
        """This master has forgotten it, and puts a record."""
        self._own[name] += 1

    def hear(self, at: int, name: Name) -> bool:
        """The record at that offset of the log says so. True: forget it now. Call ``saved`` when it is gone on disk."""
        if at < self.below or (self._unsaved and at <= self._unsaved[-1]):
            return False
        self._unsaved.append(at)
        is_own = self._own[name] > 0
        self._own[name] -= is_own
        return not is_own

    def saved(self, at: int) -> None:
        """Positions that the record at that offset ended are gone on disk."""
        while self._unsaved and self._unsaved[0] <= at:
            self.below = max(self.below, self._unsaved.popleft() + 1)

    def needs_from(self, offset: int) -> int:
        """Return from where on the next process must hear the log, if it has heard it up to ``offset``."""
        return min(offset, self._unsaved[0]) if self._unsaved else offset

    def follows(self) -> None:
        """This broker is no master any more: what it said may be cut off."""
        self._own.clear()

    def cut(self, end: int) -> None:
        """The log was cut there: other records may come in place of those behind."""
        self.below = min(self.below, end)
        while self._unsaved and self._unsaved[-1] >= end:
            self._unsaved.pop()

    def kept(self) -> KeptGone:
        return KeptGone(self.below)
