"""Shows consumers the log: enters confirmed messages into the queues first, and into the key index after them.

It gives the queues the time, and the index what they leave of it. It knows neither files nor who confirms.
Source: ``ReputMessageService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Final

from broker.store.dispatch import Dispatcher
from broker.store.indexfile import KeyIndex
from broker.store.log import Log
from broker.store.queues import Queues

_COPIED_BYTES: Final = 4 << 20
"""Bytes of a copied log that one turn enters into the queues: several times what one read brings."""


class Visible:
    """Says how much of the log consumers see. It begins at offset 0, until ``start_at``."""

    def __init__(self, log: Log, queues: Queues, index: KeyIndex | None) -> None:
        self._log, self._queues, self._index = log, queues, index
        self.start_at(0)

    def start_at(self, offset: int, time_ms: int = 0) -> None:
        """Begin at ``offset``: everything below it is entered already, or is gone. The last message of it was stored at
        ``time_ms``."""
        self._to_queues = Dispatcher(self._log, offset, self._queues.take)
        self._to_queues.time_ms = time_ms
        self._to_index = None
        if self._index is not None:
            self._to_index = Dispatcher(self._log, offset, self._index.take, cached=False)

    @property
    def offset(self) -> int:
        """Consumers see what is below."""
        return self._to_queues.offset

    @property
    def time_ms(self) -> int:
        """Store time of the last message that consumers see."""
        return self._to_queues.time_ms

    @property
    def indexed_offset(self) -> int:
        """Messages below this offset are found by their keys."""
        return (self._to_index or self._to_queues).offset

    @property
    def indexed_ms(self) -> int:
        """Store time of the last message that is found by its keys."""
        return (self._to_index or self._to_queues).time_ms

    def advance(self, confirm_offset: int | None = None) -> int:
        """Let consumers see what is confirmed (all, by default), and find it by its keys.

        Returns how many more messages they see. Raises ``OSError`` when queues cannot be written; call it again then.
        """
        count = self._to_queues.dispatch(self._log.max_offset if confirm_offset is None else confirm_offset, 1 << 62)
        if self._to_index is not None:
            self._to_index.dispatch(self._to_queues.offset, 1 << 62)
        assert self.indexed_offset <= self.offset, "what is found by its key can be read from its queue"
        return count

    def advance_some(self, confirm_offset: int, most: int, *, aside: int = 0) -> bool:
        """Advance as ``advance``, by at most ``most`` messages. Returns whether there is more to do.

        A few messages are read once for both queues and index. When there are many, the index may fall behind: it gets
        the time that the queues leave. ``aside``: a log is copied, and the queues follow it while it is in memory; the
        index waits until ``aside`` messages wait for it, and then goes at the same pace.
        """
        queues, index, count = self._to_queues, self._to_index, 0
        assert index is None or index.offset <= queues.offset, "what is found by its key can be read from its queue"
        if aside:
            upto = min(confirm_offset, queues.offset + _COPIED_BYTES)
            count = queues.dispatch(upto, 1 << 62) or queues.dispatch(confirm_offset, 1)  # after a long blank
            if index is not None and index.behind(queues.offset) >= aside:
                index.dispatch(queues.offset, count)
            return count > 0 and upto < confirm_offset
        if index is not None and index.offset == queues.offset:
            both = max(1, most // 2)
            count = queues.dispatch(confirm_offset, both, index)
            if count < both:
                return False
        count += queues.dispatch(confirm_offset, most - count)
        if index is None or count == most:
            return count == most
        wanted = max(1, (most - count) // 8)
        return index.dispatch(queues.offset, wanted) == wanted

    def truncate(self, offset: int) -> None:
        """Follow a cut of the log, of queues and of index."""
        for told in (self._to_queues, self._to_index):
            if told is not None:
                told.offset = min(told.offset, offset)
        assert self.indexed_offset <= self.offset <= self._log.max_offset
