"""Queues of one's own choice against a broker in memory: where reading goes on, what a poll gives, what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from broker.client import MessageQueue, Puller, Start
from broker.client.errors import Unreachable
from broker.client.session import Session
from remoting.command import Command
from tests.broker.client.cluster import FakeBroker, ThreadedBroker, cluster

QUEUE = MessageQueue("orders", "a", 0)


@asynccontextmanager
async def pulling(messages: int) -> AsyncIterator[tuple[Puller, FakeBroker]]:
    """Queue 0 is assigned, and so many messages of it are there already."""
    async with cluster("a") as made, made.client() as client, client.pull("readers", start=Start.FIRST) as puller:
        for number in range(messages):
            made.brokers["a"].put("orders", 0, b"%d" % number)
        await puller.assign([QUEUE])
        await trio.sleep(1)
        yield puller, made.brokers["a"]


async def polled(puller: Puller, timeout_ms: float = 5_000, most: int = 32) -> list[int]:
    return [int(message.body) for message in await puller.poll(timeout_ms, most)]


async def test_polls_give_what_is_there_and_positions_follow(autojump_clock: MockClock) -> None:
    async with pulling(3) as (puller, broker):
        assert await polled(puller, most=2) == [0, 1] and puller.position(QUEUE) == 2
        await puller.commit()
        assert broker.offsets["readers", "orders", 0] == 2 == await puller.committed(QUEUE)
        assert await polled(puller) == [2]
        began = trio.current_time()
        assert await polled(puller, 700) == [] and trio.current_time() == began + 0.7
        await puller.assign([])
        with pytest.raises(ValueError, match="not assigned"):
            puller.seek(QUEUE, 0)


async def test_a_new_group_begins_though_an_attempt_before_got_no_answer(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refusal says that it has no position, and a question changes nothing that may be unknown."""
    lost: list[str] = []
    ask = Session.ask

    async def asks(session: Session, what: str, *arguments: Any, **named: Any) -> Command:
        if what == "position" and not lost:
            lost.append(what)
            raise Unreachable("position: the connection is gone")
        return await ask(session, what, *arguments, **named)

    monkeypatch.setattr(Session, "ask", asks)
    async with pulling(2) as (puller, _):
        assert lost and await polled(puller) == [0, 1]


async def test_a_commit_keeps_the_first_positions_of_all_queues(autojump_clock: MockClock) -> None:
    """Also at a broker that would forget one of two that come at once."""
    async with cluster("a", kind=ThreadedBroker) as made, made.client() as client, client.pull("readers") as puller:
        queues = await puller.queues("orders")
        await puller.assign(queues)
        await puller.commit()
        assert [await puller.committed(queue) for queue in queues] == [0, 0]


async def test_what_was_fetched_before_a_seek_does_not_end_a_poll(autojump_clock: MockClock) -> None:
    async with pulling(3) as (puller, _):
        puller.seek(QUEUE, 1)
        assert await polled(puller) == [1, 2]


async def test_a_cancelled_poll_takes_nothing(autojump_clock: MockClock) -> None:
    async with pulling(3) as (puller, _):
        with trio.CancelScope() as scope:
            scope.cancel()
            await puller.poll()
        assert scope.cancelled_caught and puller.position(QUEUE) == 0
        assert await polled(puller) == [0, 1, 2]
