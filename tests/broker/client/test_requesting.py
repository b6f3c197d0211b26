"""Requests and replies between clients of ours: over whole brokers, across a change of masters, and what fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.client import Client, Message, MessageIllegal, NoReply, Received, Reply, SendFailed, SendUnknown, Start
from broker.client.requesting import CORRELATION
from harness.simulation.worlds.brokers import Cluster, cluster, controlled, in_sync, new_master, until
from remoting.compression import Compression, compress, flag_of
from remoting.headers.sending import ReplyMessageRequest
from tests.broker.client.cluster import SILENCE
from tests.broker.client.cluster import cluster as fakes
from tests.broker.client.test_ours import created


@asynccontextmanager
async def pair(made: Cluster) -> AsyncGenerator[tuple[Client, Client], None]:
    """One that asks and one that answers; topic ``asked`` is there."""
    async with made.connect("asker") as asker, made.connect("answerer") as answerer:
        await created(asker, "asked")
        yield asker, answerer


async def answer(client: Client, seen: list[Received], *, task_status: trio.TaskStatus[None]) -> None:
    """With the same body in capitals."""
    async with client.consume("answers", "asked", start=Start.FIRST) as messages:
        task_status.started()
        async for message in messages:
            seen.append(message)
            message.ack()
            await client.reply(message, message.body.upper(), properties={"who": client.id})


async def test_whoever_asks_gets_the_reply_to_its_own_question(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with pair(made) as (asker, answerer), trio.open_nursery() as nursery:
            seen: list[Received] = []
            await nursery.start(answer, answerer, seen)
            replies: dict[int, Reply] = {}

            async def ask(number: int) -> None:
                replies[number] = await asker.request(Message("asked", b"q%d" % number), timeout_ms=30_000)

            async with trio.open_nursery() as asking:
                for number in range(20):
                    asking.start_soon(ask, number)
            assert {number: reply.body for number, reply in replies.items()} == {n: b"Q%d" % n for n in range(20)}
            assert replies[0].properties["who"] == answerer.id and replies[0].store_time_ms > 0
            assert len({each.properties[CORRELATION] for each in seen}) == 20
            nursery.cancel_scope.cancel()


async def test_nobody_answers(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with pair(made) as (asker, answerer):
            with pytest.raises(NoReply, match="asked: no reply within 2000 ms") as error:
                await asker.request(Message("asked", b"?"), timeout_ms=2_000)
            assert error.value.sent is not None and error.value.sent.queue.topic == "asked"
            await asker.send(Message("asked", b"plain"))
            seen: list[Received] = []
            async with answerer.consume("answers", "asked", start=Start.FIRST) as messages:
                with trio.fail_after(60):
                    while len(seen) < 2:
                        seen.append(await anext(messages))
            plain, late = sorted(seen, key=lambda each: CORRELATION in each.properties)
            with pytest.raises(MessageIllegal, match="asks for no reply: it has no CORRELATION_ID"):
                await answerer.reply(plain, b"!")
            await answerer.reply(late, b"!")  # it is thrown away: who asked has gone on


async def test_a_broker_that_says_nothing_keeps_no_request_from_another(autojump_clock: MockClock) -> None:
    async with fakes("a", "b") as made, made.client() as client:
        await client.queues("orders")
        made.name_server.set("asked", {"a": {0: "a:1"}})
        made.brokers["b"].refuse = lambda command: SILENCE
        for number, most_s in enumerate((1.5, 0.5)):
            began = trio.current_time()
            with pytest.raises(NoReply) as error:
                await client.request(Message("asked", b"?"), timeout_ms=3_000)
            assert error.value.sent is not None
            assert made.brokers["a"].log[number].store_time_ms <= (began + most_s) * 1e3
        made.brokers["b"].refuse = lambda command: None
        await trio.sleep(60)
        assert made.brokers["b"].heartbeats, "it is greeted when it speaks again"


async def test_where_no_broker_is_nothing_is_asked(autojump_clock: MockClock) -> None:
    async with cluster() as made, made.connect("asker") as asker:
        with pytest.raises(SendFailed):
            await asker.request(Message("asked", b"?"), timeout_ms=2_000)


async def test_a_reply_to_a_client_that_is_gone_ends_in_words(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect("answerer") as answerer:
            async with made.connect("asker") as asker:
                await created(asker, "asked")
                with pytest.raises(NoReply):
                    await asker.request(Message("asked", b"?"), timeout_ms=100)
            await trio.sleep(90)  # no young master any more, which would wait for it
            async with answerer.consume("answers", "asked", start=Start.FIRST) as messages:
                asked = await anext(messages)
            with pytest.raises(SendUnknown, match="channel of <asker> not found"):
                await answerer.reply(asked, b"!", timeout_ms=5_000)


async def test_who_asks_while_a_master_dies_gets_its_reply_or_its_time_out(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        nodes = [await made.node(**controlled(), allAckInSyncStateSet="true", minInSyncReplicas="2") for _ in range(3)]
        await until(lambda: any(node.serves for node in nodes))
        master = next(node for node in nodes if node.serves)
        await in_sync(master, 2)
        async with pair(made) as (asker, answerer), trio.open_nursery() as nursery:
            await nursery.start(answer, answerer, [])
            assert (await asker.request(Message("asked", b"before"), timeout_ms=30_000)).body == b"BEFORE"
            came: list[bytes] = []

            async def ask(number: int) -> None:
                await trio.sleep(0.05 * number)
                try:
                    came.append((await asker.request(Message("asked", b"n%d" % number), timeout_ms=20_000)).body)
                except NoReply:
                    came.append(b"")

            async with trio.open_nursery() as asking:
                for number in range(40):
                    asking.start_soon(ask, number)
                await trio.sleep(0.5)
                await master.kill()
                heir = await new_master(*(node for node in nodes if node is not master))
            assert len(came) == 40 and len(set(came) - {b""}) >= 38, "one under way at most"
            assert (await asker.request(Message("asked", b"behind"), timeout_ms=30_000)).body == b"BEHIND"
            assert heir.serves
            nursery.cancel_scope.cancel()


async def test_a_reply_is_taken_once_expanded_and_not_waited_for_when_it_cannot_be_read(
        autojump_clock: MockClock) -> None:
    packed = compress(bytes(900), Compression.ZLIB, 5)
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with pair(made) as (asker, answerer):
            taker = asker._session.requests
            assert taker is not None
            for sys_flag, body, found in ((flag_of(Compression.ZLIB), packed, bytes(900)), (0, b"plain", b"plain"),
                                          (flag_of(Compression.ZLIB), b"damaged", None)):
                async with trio.open_nursery() as nursery:
                    replies: list[Reply | MessageIllegal] = []

                    async def ask(replies: list[Reply | MessageIllegal] = replies) -> None:
                        try:
                            replies.append(await asker.request(Message("asked", b"?"), timeout_ms=60_000))
                        except MessageIllegal as error:
                            replies.append(error)

                    nursery.start_soon(ask)
                    async with answerer.consume("answers", "asked", start=Start.FIRST) as messages:
                        asked = await anext(messages)
                        asked.ack()
                    properties = f"{CORRELATION}\x01{asked.properties[CORRELATION]}\x02"
                    for what in (body, b"again"):
                        taker.take(ReplyMessageRequest(
                            "g", "r", "TBW102", 4, 0, sys_flag if what is body else 0, 0, 5, properties), what)
                (reply,) = replies
                assert isinstance(reply, MessageIllegal) if found is None else (
                    isinstance(reply, Reply) and (reply.body, reply.flag) == (found, 5))
