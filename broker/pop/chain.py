"""Checkpoints whose storing is under way, queue by queue: where the next POP reads, and how far the group's offset is.

The next POP reads behind all that was given, stored or not. The offset of the group moves to the end of a checkpoint
when that, and each one before it, is confirmed. If one is refused, its messages are open again, and so are those given
after it. It knows numbers, and neither the log nor messages. Source: ``PopBufferMergeService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import attrs

from broker.pop.progress import Key


@attrs.define(eq=False)
class Underway:
    """One checkpoint on its way: messages from ``begin`` on, but what a filter left out, and none from ``end`` on."""

    key: Key
    begin: int
    end: int
    log_end: int | None = None
    """Behind it in the log; None: it is being put."""
    gone: bool = False
    """It was refused, or one before it, or the queue was reset; or it is settled."""
    settled: bool = False
    """The group's offset has moved to its end."""


@attrs.define(eq=False)
class _Queue:
    looked: int
    """Behind what the last POP looked at."""
    links: deque[Underway] = attrs.field(factory=deque)


class Checkpoints:
    """Of one reign. ``commit`` gets what becomes a group's offset."""

    def __init__(self, commit: Callable[[Key, int], None]) -> None:
        self._commit = commit
        self._queues: dict[Key, _Queue] = {}
        self._order: deque[Underway] = deque()
        """In the order of the log."""

    def __len__(self) -> int:
        """Checkpoints that are on their way."""
        return sum(len(queue.links) for queue in self._queues.values())

    def where(self, key: Key, committed: int) -> tuple[int, int]:
        """Where the next checkpoint begins, and where the next POP reads: behind what filters left out since.
        ``committed``: the group's offset."""
        queue = self._queues.get(key)
        return (committed, committed) if queue is None else (queue.links[-1].end, queue.looked)

    def passed(self, key: Key, offset: int) -> None:
        """Nothing in front is wanted."""
        queue = self._queues.get(key)
        if queue is None:
            self._commit(key, offset)
        else:
            queue.looked = max(queue.looked, offset)

    def add(self, key: Key, begin: int, end: int, looked: int) -> Underway:
        """A checkpoint is about to be put."""
        link = Underway(key, begin, end)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(looked)
        queue.links.append(link)
        queue.looked = looked
        self._order.append(link)
        return link

    def stored(self, link: Underway, log_end: int) -> None:
        """It stands in the log, perhaps not confirmed yet: ``settle`` says when."""
        link.log_end = log_end

    def refused(self, link: Underway) -> None:
        """It does not: the next POP begins where it began."""
        if link.gone:
            return
        queue = self._queues[link.key]
        while True:  # those behind it begin too far on
            last = queue.links.pop()
            last.gone = True
            if last is link:
                break
        queue.looked = link.begin
        if not queue.links:
            del self._queues[link.key]

    def settle(self, shown: int) -> None:
        """The log is confirmed up to there."""
        order = self._order
        while order and (order[0].gone or (order[0].log_end is not None and order[0].log_end <= shown)):
            link = order.popleft()
            if link.gone:
                continue
            assert self._queues[link.key].links[0] is link, "they are confirmed in the order in which they were put"
            self._settle(link)

    def stored_elsewhere(self, links: Iterable[Underway]) -> None:
        """In no log here: each counts as soon as those before it in its queue are stored, too."""
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
        """The queue was reset: what is on its way takes nobody anywhere."""
        queue = self._queues.pop(key, None)
        for link in queue.links if queue is not None else ():
            link.gone = True

    def forget_topic(self, topic: str) -> None:
        """All of its queues are gone."""
        for key in [key for key in self._queues if key[0] == topic]:
            self.forget(key)

    def clear(self) -> None:
        """The reign is over, and what is on its way counts no more."""
        for link in self._order:
            link.gone = True
        self._queues.clear()
        self._order.clear()
