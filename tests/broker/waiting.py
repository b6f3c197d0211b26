"""What waits in brokers that are real processes: timers and halves of one client, and how what comes of them is read.

Real time passes here, so nothing is asserted about how late anything is.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from broker.client import Client, ClientError, Message, Received, Start, connect
from harness.processes import ours
from harness.processes.broker import Broker
from remoting.bodies.namesrv import KVTable
from remoting.client import Client as Remoting
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import RemotingError

TOPIC = "T"
GROUP = "shop"
SMALL = {"maxHashSlotNum": "1000", "maxIndexNum": "4000", "mappedFileSizeTimerLog": str(1 << 20)}
PATIENCE_S = 90
AT_ONCE = 16


@asynccontextmanager
async def alone(here: Path, **settings: str) -> AsyncGenerator[tuple[Broker, Client], None]:
    """A single master, and a client that has its topic."""
    async with (
        ours.namesrv(here / "namesrv") as namesrv,
        ours.broker(here / "b0", "a", namesrv=[namesrv.address], extra={**SMALL, **settings}) as broker,
        connect([namesrv.address], producer_group=GROUP) as client,
    ):
        await create(client)
        yield broker, client


async def create(client: Client, topic: str = TOPIC, queues: int = 2) -> None:
    """Until name servers know it."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                await client.create_topic(topic, queues)
                if await client.queues(topic):
                    return
            except ClientError:
                pass
            await trio.sleep(0.1)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def timer(client: Client, body: bytes, due_ms: int) -> None:
    """Raises as ``Client.send``."""
    due = dt.datetime.fromtimestamp(due_ms / 1e3, dt.UTC)
    await client.send(Message(TOPIC, body, deliver_at=due))


async def timers(client: Client, count: int, ahead_ms: int, over_ms: int) -> dict[bytes, int]:
    """All of them acknowledged: when each is due, the first one so long from now, the others in so long behind it."""
    first_ms = now_ms() + ahead_ms
    due = {b"timer-%d" % number: first_ms + number * over_ms // count for number in range(count)}
    waiting = list(due.items())

    async def send() -> None:
        while waiting:
            await timer(client, *waiting.pop())

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(send)
    return due


class Reader:
    """Reads a topic from its first message on, whoever is master; each message is kept once, by its place."""

    def __init__(self, client: Client, topic: str = TOPIC) -> None:
        self._client, self._topic = client, topic
        self._found: dict[tuple[int, int], Received] = {}

    @property
    def came(self) -> list[Received]:
        return list(self._found.values())

    @property
    def bodies(self) -> set[bytes]:
        return {message.body for message in self._found.values()}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                async with self._client.pull(f"reader-of-{self._topic}", start=Start.FIRST) as puller:
                    await puller.assign(await self._client.queues(self._topic))
                    while True:
                        for message in await puller.poll(timeout_ms=500):
                            self._found[message.queue.queue_id, message.queue_offset] = message
            except ClientError:
                await trio.sleep(0.1)

    async def until(self, enough: Callable[[], object]) -> None:
        """Reads until then, or no more after a while: what is missing the caller asserts."""
        with trio.move_on_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.run)
                while not enough():
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()


async def read(client: Client, enough: Callable[[Reader], object], topic: str = TOPIC) -> list[Received]:
    """All of the topic from its first message on, once it is ``enough``."""
    reader = Reader(client, topic)
    await reader.until(lambda: enough(reader))
    return reader.came


def early(came: Sequence[Received], due_ms: dict[bytes, int]) -> list[tuple[bytes, int]]:
    """Bodies of timers that were stored before they were due, and by how many ms."""
    return [(message.body, due_ms[message.body] - message.store_time_ms) for message in came
            if message.body in due_ms and message.store_time_ms < due_ms[message.body]]


async def runtime(remoting: Remoting, broker: Broker) -> dict[str, str]:
    """What it says of itself (code 28); empty while it says nothing."""
    try:
        answer = await remoting.call(broker.address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
    except RemotingError:
        return {}
    return dict(KVTable.from_json(answer.body).table)
