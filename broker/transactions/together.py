"""Decisions that share a put: commits for one topic, with one mark, or rollbacks, which are a mark.

A producer with many threads sends its decisions together. A core.
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
    key: int | None
    """Offset of the transaction's first half, by which the index finds the mark; None: it finds the final record."""
    final: Message | None
    """The final record; None: it is a rollback."""
    done: Callable[..., None]
    """Called with what became of the put."""

    @property
    def topic(self) -> bytes:
        """The topic of the final record; b"": there is none."""
        return b"" if self.final is None else self.final.topic

    @property
    def size_bytes(self) -> int:
        return 0 if self.final is None else len(self.final.body) + len(self.final.properties)


@attrs.frozen(eq=False)
class SharedPut:
    """Decisions that are stored together or not at all."""

    decision: str
    all: Sequence[Decided]

    def messages(self, mark: Callable[[Sequence[int], str, Sequence[int]], Message]) -> list[Message]:
        """The final records, and behind them the mark that names all halves."""
        finals = [each.final for each in self.all if each.final is not None]
        keys = [each.key for each in self.all if each.key is not None]
        return [*finals, mark([each.place for each in self.all], self.decision, keys)]

    def alone(self) -> list[SharedPut]:
        """Each of them by itself."""
        return [SharedPut(self.decision, [each]) for each in self.all]
