"""Checkpoints that are being stored, per queue: they say where the next POP reads and when the group's offset moves.

The next POP reads after every checkpoint of the queue, stored or not, so no message is given twice. The group's offset
moves to the end of a checkpoint once that and all before it in the queue are confirmed, so none is lost. A refused
checkpoint frees its messages, and those of all checkpoints after it: they begin too far on for the offset to follow.
A core: it knows numbers, neither log nor messages. Source: ``PopBufferMergeService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import attrs

from broker.pop.progress import Key


@attrs.define(eq=False)
class Underway:
    """One checkpoint that is being stored: its messages lie in ``begin`` to ``end`` (exclusive); filters left gaps."""

    key: Key
    begin: int
    end: int
    log_end: int | None = None
    """Its end in the log; None: the put is in flight."""
    gone: bool = False
    """It counts no more: it or one before it was refused, the queue was reset, or it is settled."""
    settled: bool = False
    """The group's offset has moved to its end."""


@attrs.define(eq=False)
class _Queue:
    looked: int
    """End of what the last POP looked at."""
    links: deque[Underway] = attrs.field(factory=deque)


class Checkpoints:
    """All checkpoints in flight of one reign. ``commit`` is called with a group's new offset."""

    def __init__(self, commit: Callable[[Key, int], None]) -> None:
        self._commit = commit
        self._queues: dict[Key, _Queue] = {}
        self._order: deque[Underway] = deque()
        """All checkpoints in the order of their puts."""

    def __len__(self) -> int:
        """Number of checkpoints in flight."""
        return sum(len(queue.links) for queue in self._queues.values())

    def where(self, key: Key, committed: int) -> tuple[int, int]:
        """Return where the next checkpoint begins, and where the next POP reads: the latter skips what filters left
        out. ``committed``: the group's offset."""
        queue = self._queues.get(key)
        return (committed, committed) if queue is None else (queue.links[-1].end, queue.looked)

    def passed(self, key: Key, offset: int) -> None:
        """The filter wants nothing before ``offset``: the next POP reads from there."""
        queue = self._queues.get(key)
        if queue is None:
            self._commit(key, offset)
        else:
            queue.looked = max(queue.looked, offset)

    def add(self, key: Key, begin: int, end: int, looked: int) -> Underway:
        """Add a checkpoint whose put begins now."""
        link = Underway(key, begin, end)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(looked)
        queue.links.append(link)
        queue.looked = looked
        self._order.append(link)
        return link

    def stored(self, link: Underway, log_end: int) -> None:
        """The checkpoint is in the log; it counts when ``settle`` is told that it is confirmed."""
        link.log_end = log_end

    def refused(self, link: Underway) -> None:
        """The checkpoint was not stored: the next POP begins where it began."""
        if link.gone:
            return
        queue = self._queues[link.key]
        while True:  # checkpoints after it begin too far on
            last = queue.links.pop()
            last.gone = True
            if last is link:
                break
        queue.looked = link.begin
        if not queue.links:
            del self._queues[link.key]

    def settle(self, confirmed: int) -> None:
        """Move offsets over the checkpoints that end below ``confirmed`` in the log."""
        order = self._order
        while order and (order[0].gone or (order[0].log_end is not None and order[0].log_end <= confirmed)):
            link = order.popleft()
            if link.gone:
                continue
            assert self._queues[link.key].links[0] is link, "they are confirmed in the order in which they were put"
            self._settle(link)

    def stored_elsewhere(self, links: Iterable[Underway]) -> None:
        """Another group's log holds these: each counts once those before it in its queue are stored."""
        for link in links:
            link.log_end = 0
            while (queue := self._queues.get(link.key)) is not None and queue.links[0].log_end is not None:
                self._settle(queue.links[0])
        while self._order and self._order[0].gone:
            self._order.popleft()

    def _settle(self, link: Underway) -> None:
        queue = self._queues[link.key]
        queue.links.popleft()
        link.gone = link.settled = True
        self._commit(link.key, link.end if queue.links else max(link.end, queue.looked))
        if not queue.links:
            del self._queues[link.key]

    def forget(self, key: Key) -> None:
        """The queue was reset: its checkpoints in flight no longer move the offset."""
        queue = self._queues.pop(key, None)
        for link in queue.links if queue is not None else ():
            link.gone = True

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: forget each of its queues."""
        for key in [key for key in self._queues if key[0] == topic]:
            self.forget(key)

    def clear(self) -> None:
        """The reign is over: no checkpoint in flight counts any more."""
        for link in self._order:
            link.gone = True
        self._queues.clear()
        self._order.clear()
