"""What tests of consumers share: a group that reads, and messages to read."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from broker.client import ConsumerSettings, Messages, Received, Start
from tests.broker.client.cluster import Cluster, FakeBroker

GROUP = "billing"
GRACE_S = ConsumerSettings().member_grace_ms / 1e3
FIRST = Start.FIRST


@asynccontextmanager
async def reading(
    made: Cluster, client_id: str = "c1", wanted: str | dict[str, str] = "orders", *, ordered: bool = False,
    broadcast: bool = False, start: Start | dt.datetime = FIRST, settings: ConsumerSettings | None = None,
) -> AsyncIterator[Messages]:
    async with made.client(client_id) as client, client.consume(
        GROUP, wanted, ordered=ordered, broadcast=broadcast, start=start, settings=settings) as messages:
        yield messages


async def take(messages: Messages, count: int, *, ack: bool = True) -> list[Received]:
    """So many messages, within a virtual minute."""
    found: list[Received] = []
    with trio.fail_after(60):
        while len(found) < count:
            message = await anext(messages)
            found.append(message)
            if ack:
                message.ack()
    return found


async def nothing_more(messages: Messages, seconds: float = 20) -> None:
    with trio.move_on_after(seconds):
        message = await anext(messages)
        raise AssertionError(f"{message!r} was delivered")


def numbers(found: list[Received]) -> list[int]:
    return sorted(int(message.body) for message in found)


def fill(broker: FakeBroker, count: int, *, first: int = 0, queue_id: int | None = None, **properties: str) -> None:
    for number in range(first, first + count):
        broker.put("orders", number % 2 if queue_id is None else queue_id, b"%d" % number, **properties)
