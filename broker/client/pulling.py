"""Reading queues of one's own choice: no group shares them out, the user says where to begin and what was done.

A shell around fetchers. Source: ``DefaultLitePullConsumer`` of RocketMQ 5.5.0, its ``assign`` half.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import attrs
import trio

from broker.client.checking import check_expressions
from broker.client.config import ConsumerSettings
from broker.client.fetching import Fetcher
from broker.client.message import Received, check_group
from broker.client.positions import BrokerPositions, Start, first_offset
from broker.client.queries import Queries
from broker.client.route import words
from broker.client.session import Session
from remoting.background import background
from remoting.bodies.consumers import ALL, MessageQueue
from remoting.subscription import subscribe


@asynccontextmanager
async def open_puller(
    session: Session, queries: Queries, group: str, settings: ConsumerSettings, start: Start | dt.datetime,
) -> AsyncIterator[Puller]:
    """A reader whose positions are those of ``group``, for as long as the block runs."""
    check_group(group)
    async with background() as nursery:
        puller = Puller(session, queries, nursery, group, settings, start)
        session.ending.add(puller.end)
        try:
            yield puller
        finally:
            session.ending.discard(puller.end)


@attrs.define(eq=False)
class _Source:
    """One assigned queue: ``Origin`` of its messages, which need no acknowledgement: ``poll`` is one."""

    fetcher: Fetcher = attrs.field(init=False)
    dropped: bool = False

    def acknowledged(self, message: Received) -> None:
        """Nothing is left to do."""

    async def later(self, message: Received, level: int) -> None:
        raise TypeError("a message that was pulled cannot be given back: seek to its offset to read it again")


class Puller:
    """Messages by ``poll``; where it is in a queue is ``position``; ``commit`` keeps that for the group."""

    def __init__(
        self, session: Session, queries: Queries, nursery: trio.Nursery, group: str, settings: ConsumerSettings,
        start: Start | dt.datetime,
    ) -> None:
        self._session, self._queries, self._nursery = session, queries, nursery
        self._group, self._settings, self._start = group, settings, start
        self._positions = BrokerPositions(session, group)
        self._sources: dict[MessageQueue, _Source] = {}
        self._expressions: dict[MessageQueue, str] = {}
        self._ready: deque[Received] = deque()
        self._arrived = trio.Event()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic. Raises ``NoRoute``, ``NoNameServer``."""
        return await self._queries.queues(topic)

    async def assign(self, queues: Iterable[MessageQueue], expression: str = ALL) -> None:
        """Read these, and no others. A new one begins where the group is, else where this reader was told to start.

        Raises ``ClientError`` where that cannot be found out, ``Refused`` for an expression that brokers do not take,
        and ``ValueError`` for one that says nothing; then nothing was changed.
        """
        wanted = set(queues)
        await check_expressions(self._session, self._group, [
            subscribe(topic, expression, self._session.wall_ms()) for topic in sorted({each.topic for each in wanted})])
        starts = {queue: await first_offset(self._positions, self._queries, queue, self._start)
                  for queue in wanted if queue not in self._sources or self._expressions[queue] != expression}
        for queue in list(self._sources):
            if queue not in wanted or queue in starts:
                self._drop(queue)
        for queue, offset in starts.items():
            self._read(queue, expression, offset)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``. Raises ``ValueError`` for a queue that is not assigned."""
        if queue not in self._sources:
            raise ValueError(f"{words(queue)} is not assigned")
        expression = self._expressions[queue]
        self._drop(queue)
        self._read(queue, expression, offset)

    def position(self, queue: MessageQueue) -> int:
        """The offset behind the last message that ``poll`` gave. Raises ``ValueError`` as ``seek``."""
        if queue not in self._sources:
            raise ValueError(f"{words(queue)} is not assigned")
        return self._sources[queue].fetcher.in_flight.committable

    async def poll(self, timeout_ms: float = 5_000, most: int = 32) -> list[Received]:
        """Return up to ``most`` messages: those that are here, else the first that come; none after ``timeout_ms``."""
        await self.something(timeout_ms)
        return self.taken(most)  # no checkpoint follows: a cancellation there would lose them

    async def something(self, timeout_ms: float) -> None:
        """Wait until ``taken`` finds something, for so long."""
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(timeout_ms / 1e3):
            while True:
                while self._ready and self._ready[0].settled:
                    self._ready.popleft()
                if self._ready:
                    return
                if self._arrived.is_set():
                    self._arrived = trio.Event()
                await self._arrived.wait()

    def taken(self, most: int) -> list[Received]:
        """Return messages that are here, without those of before a ``seek``."""
        found: list[Received] = []
        while self._ready and len(found) < most:
            message = self._ready.popleft()
            if not message.settled:
                self._sources[message.queue].fetcher.settle(message)
                found.append(message)
        return found

    async def commit(self) -> None:
        """Keep the positions with the brokers. What cannot be told is logged."""
        await self._positions.write({queue: self.position(queue) for queue in self._sources}, confirmed=True)

    async def committed(self, queue: MessageQueue) -> int:
        """Return the group's position as the broker has it; -1: it has none."""
        return await self._positions.read(queue)

    def end(self) -> None:
        """Read no more: the client was closed."""
        for source in self._sources.values():
            source.fetcher.scope.cancel()

    def _read(self, queue: MessageQueue, expression: str, offset: int) -> None:
        source = self._sources[queue] = _Source()
        self._expressions[queue] = expression
        source.fetcher = Fetcher(
            self._session, self._group, queue, subscribe(queue.topic, expression, self._session.wall_ms()),
            self._settings, offset, origin=source, commits=False, on_messages=self._take)
        self._nursery.start_soon(source.fetcher.run, name=f"reading {words(queue)}")

    def _take(self, messages: list[Received]) -> None:
        self._ready.extend(messages)
        self._arrived.set()

    def _drop(self, queue: MessageQueue) -> None:
        source = self._sources.pop(queue)
        source.dropped = True
        source.fetcher.scope.cancel()
