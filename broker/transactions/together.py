"""Decisions of one turn: which share a put. Commits for one topic do, with one mark, and so do rollbacks.

A producer with many threads sends its decisions together. A mark of each costs every replica a record, an entry of a
queue and three of the key index; so decisions are gathered until the turn's write. A core.
Source: ``TransactionalMessageServiceImpl.getOpMessage`` of RocketMQ 5.5.0, whose marks name what three seconds brought.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from remoting.record import Message

COUNT_MAX: Final = 64
"""Decisions of one put."""
BYTES_MAX: Final = 64 << 10
"""Bytes of bodies and properties of one put; a larger message stands alone."""


@attrs.frozen(eq=False)
class Decided:
    """A decision that is to be stored."""

    place: int
    """Queue offset of the half."""
    first: int
    """Offset of the transaction's first half."""
    final: Message | None
    """The final record; None: it is a rollback."""
    done: Callable[..., None]
    """Called with what became of the put."""


@attrs.define(eq=False)
class SharedPut:
    """Decisions that are stored together or not at all."""

    decision: str
    all: list[Decided]
    size: int = 0

    def messages(self, mark: Callable[[Sequence[int], str, Sequence[int]], Message]) -> list[Message]:
        """The final records, and behind them the mark that names all halves."""
        finals = [each.final for each in self.all if each.final is not None]
        return [*finals, mark([each.place for each in self.all], self.decision, [each.first for each in self.all])]

    def alone(self) -> list[SharedPut]:
        """Each of them by itself."""
        return [SharedPut(self.decision, [each]) for each in self.all]


class SharedPuts:
    """What was decided since the last ``take``."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = min(bytes_max, BYTES_MAX)
        self._all: list[SharedPut] = []
        self._open: dict[tuple[str, bytes], SharedPut] = {}

    def add(self, decision: str, decided: Decided) -> bool:
        """Add one. True: it is the first."""
        final = decided.final
        topic, size = (b"", 0) if final is None else (final.topic, len(final.body) + len(final.properties))
        found = self._open.get((decision, topic))
        if found is None or len(found.all) == COUNT_MAX or found.size + size > self._bytes_max:
            found = self._open[decision, topic] = SharedPut(decision, [])
            self._all.append(found)
        found.all.append(decided)
        found.size += size
        return len(self._all) == len(found.all) == 1

    def take(self) -> list[SharedPut]:
        """All of them, the first decision first."""
        found, self._all = self._all, []
        self._open.clear()
        return found
