"""A model broker's log: entries with epochs, where two logs agree, what is confirmed, what may be acknowledged.

After ``AutoSwitchHAService``: an epoch has one master, so entries of one epoch that begin at one offset agree as far as
both go. An entry is confirmed when every member of the SyncStateSet holds it, counting the sets that the master has
asked for and may have got without knowing. No messages, no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

Entry = tuple[int, int]
"""(epoch, serial)."""


@attrs.define(eq=False)
class Disk:
    """What outlives a broker's process. ``token`` is another after a wipe."""

    token: int
    broker_id: int | None = None
    applying: tuple[int, str] | None = None
    """Id and check code of an application that is not through."""
    epoch: int = 0
    """The highest in which it took part. A broker that forgot it might follow an older master."""
    log: list[Entry] = attrs.field(factory=list)
    _starts: tuple[tuple[int, Entry | None], tuple[tuple[int, int], ...]] | None = None

    def starts(self) -> tuple[tuple[int, int], ...]:
        """(epoch, offset of its first entry)."""
        end = len(self.log), self.log[-1] if self.log else None  # serials are unique: this names a log
        if self._starts is None or self._starts[0] != end:
            out: list[tuple[int, int]] = []
            for offset, (epoch, _) in enumerate(self.log):
                if not out or out[-1][0] != epoch:
                    out.append((epoch, offset))
            self._starts = end, tuple(out)
        return self._starts[1]


def agreement(mine: Sequence[tuple[int, int]], my_end: int, other: Sequence[tuple[int, int]], other_end: int) -> int:
    """Up to which offset two logs agree, by their epochs alone."""
    others = {epoch: (start, end) for epoch, start, end in _spans(other, other_end)}
    for epoch, start, end in reversed(list(_spans(mine, my_end))):
        span = others.get(epoch)
        if span is not None and span[0] == start:
            return min(end, span[1])
    return 0


def _spans(starts: Sequence[tuple[int, int]], end: int) -> Iterable[tuple[int, int, int]]:
    for number, (epoch, start) in enumerate(starts):
        yield epoch, start, starts[number + 1][1] if number + 1 < len(starts) else end


@attrs.define(eq=False)
class Mastership:
    """What a master keeps of its own epoch."""

    me: int
    epoch: int
    accepted: frozenset[int]
    """The SyncStateSet that the controller is known to have accepted."""
    set_epoch: int
    sure: bool
    """False: an earlier process of this master may have asked for a set, and nobody knows which."""
    wanted: dict[int, frozenset[int]] = attrs.field(factory=dict)
    """Asked for and not known to be void, by the SyncStateSet epoch that they would replace: their union."""
    held: dict[int, int] = attrs.field(factory=dict)
    """Up to where each slave holds this log."""
    heard_ns: dict[int, int] = attrs.field(factory=dict)
    acknowledged: int = 0
    """Entries below this offset were acknowledged, or stem from earlier epochs."""

    def adopt(self, accepted: frozenset[int], set_epoch: int, *, mine: bool = False) -> bool:
        """The controller's set, unless an older one. ``mine``: the answer to a change that this process asked for."""
        if set_epoch <= self.set_epoch:
            return False
        self.accepted, self.set_epoch = accepted, set_epoch
        self.wanted = {epoch: ids for epoch, ids in self.wanted.items() if epoch >= set_epoch}
        self.sure = self.sure or mine
        return True

    def want(self, ids: frozenset[int]) -> None:
        """This set is about to be asked for."""
        self.wanted[self.set_epoch] = self.wanted.get(self.set_epoch, frozenset()) | ids

    @property
    def counted(self) -> frozenset[int]:
        """Who must hold an entry before it is confirmed."""
        return self.accepted.union(*self.wanted.values())

    def confirmed(self, end: int) -> int:
        """Entries below this offset are held by all that count."""
        return min((self.held.get(each, 0) for each in self.counted if each != self.me), default=end)
