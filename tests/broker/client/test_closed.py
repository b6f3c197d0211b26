"""A client that is closed while others use it, or is used afterwards: all learn it at once, in the client's types."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.client import (
    Client,
    ClientError,
    Decision,
    Message,
    MessageQueue,
    NoNameServer,
    Outcome,
    Received,
    SendFailed,
    SendUnknown,
    Start,
    Unreachable,
    connect,
)
from remoting.codes import RequestCode
from tests.broker.client.cluster import SILENCE, Cluster, FakeBroker, cluster
from tests.broker.client.halves import HalfBroker

QUEUE = MessageQueue("orders", "a", 0)


@asynccontextmanager
async def owned(kind: type[FakeBroker] = FakeBroker) -> AsyncGenerator[tuple[Cluster, Client], None]:
    """A client that is closed by hand, and has sent a message."""
    async with cluster("a", kind=kind) as made:
        client = await connect(["ns:9876"], connector=made.net.connect, host="127.0.0.1")
        await client.send(Message("orders", b"0"))
        yield made, client
        await client.aclose()


@pytest.mark.parametrize(("use", "error"), [
    (lambda client: client.send(Message("orders", b"1")), SendFailed),
    (lambda client: client.send(Message("others", b"1")), SendFailed),
    (lambda client: client.send_oneway(Message("orders", b"1")), SendFailed),
    (lambda client: client.send_batch([Message("orders", b"1")]), SendFailed),
    (lambda client: client.request(Message("orders", b"1")), SendFailed),
    (lambda client: client.queues("others"), NoNameServer),
    (lambda client: client.max_offset(QUEUE), Unreachable),
    (lambda client: client.query("orders", "k"), NoNameServer),
    (lambda client: client.consume("g", "orders").__aenter__(), NoNameServer),
    (lambda client: client.pop("g", "orders").__aenter__(), NoNameServer),
])
async def test_what_is_asked_of_a_closed_client_fails_at_once(
    autojump_clock: MockClock, use: Callable[[Client], Awaitable[object]], error: type[ClientError],
) -> None:
    async with owned() as (_, client):
        await client.aclose()
        for _ in range(2):
            began = trio.current_time()
            with pytest.raises(error, match="client was closed"):
                await use(client)
            assert trio.current_time() == began


async def test_what_is_under_way_when_a_client_is_closed_is_told_so(autojump_clock: MockClock) -> None:
    async with owned() as (made, client), trio.open_nursery() as nursery:
        made.brokers["a"].refuse = lambda command: (
            SILENCE if command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.GET_MAX_OFFSET) else None)
        told = list[str]()

        async def expect(error: type[ClientError], call: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(error):
                await call()
            told.append(error.__name__)

        async def consume() -> None:
            async with client.consume("g", "orders") as messages:
                async for _ in messages:
                    pass
                told.append("consumer")

        async def pop() -> None:
            async with client.pop("g", "orders") as popper:
                async for _ in popper:
                    pass
                told.append("popper")

        async def pull() -> None:
            async with client.pull("g", start=Start.FIRST) as puller:
                await puller.assign([QUEUE])
                await puller.poll(timeout_ms=2_000)
                assert await puller.poll(timeout_ms=5_000) == []
                told.append("puller")

        nursery.start_soon(expect, SendUnknown, lambda: client.send(Message("orders", b"1")))
        nursery.start_soon(expect, Unreachable, lambda: client.max_offset(QUEUE))
        for task in (consume, pop, pull):
            nursery.start_soon(task)
        await trio.sleep(1)
        assert not told
        await client.aclose()
        await trio.sleep(0.1)
        assert sorted(told) == ["SendUnknown", "Unreachable", "consumer", "popper"]


async def test_transactions_that_outlive_their_client_are_left_to_the_check(autojump_clock: MockClock) -> None:
    async def checker(_: Received) -> Decision:
        return Decision.UNDECIDED

    async with owned(HalfBroker) as (_, client), client.transactions(checker) as transactions:
        async with transactions.begin(Message("orders", b"1")) as transaction:
            await client.aclose()
            await trio.sleep(5)
        assert transaction.outcome is Outcome.LEFT_TO_CHECK


@pytest.mark.parametrize("raises", [False, True])
async def test_a_block_that_outlives_its_transactions_is_left_to_the_check(
    autojump_clock: MockClock, raises: bool,
) -> None:
    async def checker(_: Received) -> Decision:
        return Decision.UNDECIDED

    async with owned(HalfBroker) as (_, client):
        async with client.transactions(checker) as transactions:
            block = transactions.begin(Message("orders", b"1"))
            transaction = await block.__aenter__()
        failure = LookupError("the block's own") if raises else None
        assert not await block.__aexit__(type(failure) if failure else None, failure, None)
        assert transaction.outcome is Outcome.LEFT_TO_CHECK
        assert transaction.decision is (Decision.ROLLBACK if raises else Decision.COMMIT)
        with pytest.raises(RuntimeError, match="ended with their block"):
            await transactions.begin(Message("orders", b"2")).__aenter__()
