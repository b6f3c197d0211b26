"""Keeps a group's position in each queue: at the broker, or, for a broadcast, in a file of this machine.

Shells of a few lines each. The file is Java's, at its place. Source: ``RemoteBrokerOffsetStore``,
``LocalFileOffsetStore`` and ``RebalancePushImpl.computePullFromWhere`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import datetime as dt
import logging
from enum import Enum
from pathlib import Path
from typing import Protocol

import trio

from broker.client.errors import ClientError, Refused
from broker.client.message import RETRY_PREFIX
from broker.client.queries import Queries
from broker.client.session import Session
from remoting.bodies.consumers import MessageQueue, ResetOffsetBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import BodyError, RemotingError
from remoting.headers.pulling import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest

logger = logging.getLogger("broker.client")


class Start(Enum):
    """Says where a group without a position begins in a queue. A point in time (``datetime``) is the third way."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    """Begin with what comes from now on. In a queue that nothing was deleted from yet brokers say: from its
    beginning."""
    FIRST = "CONSUME_FROM_FIRST_OFFSET"


class Positions(Protocol):
    """The positions of a group; -1 for a queue without one. ``write`` returns the queues whose position it could tell;
    with ``confirmed`` it waits for the answers."""

    async def read(self, queue: MessageQueue) -> int: ...
    async def write(self, offsets: dict[MessageQueue, int], *, confirmed: bool) -> set[MessageQueue]: ...


class BrokerPositions:
    """Keeps the group's positions at the brokers."""

    def __init__(self, session: Session, group: str) -> None:
        self._session, self._group = session, group

    async def read(self, queue: MessageQueue) -> int:
        """The broker's position of the group. Raises ``Refused``, ``Unreachable``, ``NoRoute``."""
        command = request(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest(
            self._group, queue.topic, queue.queue_id))
        try:
            return (await self._session.ask_master(OffsetResponse, "position", queue, command)).offset
        except Refused as refused:
            if refused.code == ResponseCode.QUERY_NOT_FOUND:
                return -1
            raise

    async def write(self, offsets: dict[MessageQueue, int], *, confirmed: bool) -> set[MessageQueue]:
        """Write positions, and return the queues that were told; failures are logged. No broker waits for the answer of
        another.

        The first of a broker's queues of a topic is told alone, and its answer awaited: of a group's first two
        positions in a topic that come at once, a Java broker says yes to both and may keep one
        (``ConsumerOffsetManager.commitOffset``).
        """
        told = set[MessageQueue]()

        async def tell(queue: MessageQueue, wait: bool) -> bool:
            """Tell one position. Returns whether the queue's broker could be reached."""
            try:
                await self._tell(queue, offsets[queue], wait)
            except (ClientError, RemotingError) as error:
                logger.warning("position %d of %s in %s is not committed: %s",
                               offsets[queue], self._group, queue, error)
                return isinstance(error, Refused)
            told.add(queue)
            return True

        async def tell_all(queues: list[MessageQueue]) -> None:
            if await tell(queues[0], True):
                async with trio.open_nursery() as others:
                    for queue in queues[1:]:
                        others.start_soon(tell, queue, confirmed)

        places: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in offsets:
            places.setdefault((queue.topic, queue.broker_name), []).append(queue)
        async with trio.open_nursery() as nursery:
            for queues in places.values():
                nursery.start_soon(tell_all, queues)
        return told

    async def _tell(self, queue: MessageQueue, offset: int, wait: bool) -> None:
        address, _ = await self._session.address(queue.topic, queue.broker_name)
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
            self._group, queue.topic, queue.queue_id, offset))
        if wait:
            await self._session.ask("commit", address, command)
        else:
            await self._session.remoting.send_oneway(address, command)


class FilePositions:
    """Positions in ``dir/host@DEFAULT/group/offsets.json``: a new process of this machine goes on where the last was.

    A small file, written at once: a thread would cost more."""

    def __init__(self, folder: Path, host: str, group: str) -> None:
        self._path = folder / f"{host}@DEFAULT" / group / "offsets.json"
        self._offsets: dict[MessageQueue, int] | None = None

    async def read(self, queue: MessageQueue) -> int:
        await trio.lowlevel.checkpoint()
        if self._offsets is None:
            self._offsets = self._load()
        return self._offsets.get(queue, -1)

    async def write(self, offsets: dict[MessageQueue, int], *, confirmed: bool) -> set[MessageQueue]:
        await trio.lowlevel.checkpoint()
        if self._offsets is None:
            self._offsets = self._load()
        self._offsets |= offsets
        try:
            self._save(ResetOffsetBody(dict(self._offsets)).to_json())
        except OSError as error:
            logger.warning("%s is not written: %s", self._path, error)
            return set()
        return set(offsets)

    def _load(self) -> dict[MessageQueue, int]:
        for path in (self._path, self._path.with_name("offsets.json.bak")):
            try:
                return dict(ResetOffsetBody.from_json(path.read_bytes()).offset_table)
            except FileNotFoundError:
                pass
            except (OSError, BodyError) as error:
                logger.warning("%s cannot be read: %s", path, error)
        return {}

    def _save(self, raw: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name("offsets.json.tmp")
        new.write_bytes(raw)
        if self._path.exists():
            self._path.replace(self._path.with_name("offsets.json.bak"))
        new.replace(self._path)


async def first_offset(
    positions: Positions, queries: Queries, queue: MessageQueue, start: Start | dt.datetime,
) -> int:
    """Return the offset where reading ``queue`` begins. Raises ``ClientError``."""
    offset = await positions.read(queue)
    if offset >= 0:
        return offset
    if isinstance(start, dt.datetime):
        if queue.topic.startswith(RETRY_PREFIX):
            return await queries.max_offset(queue)
        return await queries.search_offset(queue, int(start.timestamp() * 1e3))
    if start is Start.FIRST or queue.topic.startswith(RETRY_PREFIX):
        return 0  # a broker that deleted messages corrects the offset
    return await queries.max_offset(queue)
