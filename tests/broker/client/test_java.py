"""The client with a real Java broker and beside real Java clients: everything once, where they must agree.

One broker serves all tests of this file in turn. Where Java or the jars are missing it is reported as not run.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from broker.client import (
    Client,
    ClientError,
    ClientSettings,
    Compression,
    ConsumerSettings,
    Decision,
    Message,
    MessageQueue,
    Messages,
    Outcome,
    Received,
    Refused,
    SendFailed,
    Start,
    connect,
)
from broker.client.outcomes import Heard, of_decision
from harness.processes import java
from harness.processes.broker import Broker
from harness.processes.program import Report
from remoting.codes import RequestCode
from remoting.command import request
from remoting.headers.transactions import EndTransactionRequest
from tests.harness.processes.rocketmq import current_release

pytestmark = [pytest.mark.java, pytest.mark.slow]
FIRST = Start.FIRST
PATIENCE_S = 180
"""With what only a broken test takes so long."""
FEATURES: dict[str, str | int] = {
    "timerWheelEnable": "true", "mappedFileSizeTimerLog": 1 << 20, "timerFlushIntervalMs": 60_000,
    "recallMessageEnable": "true", "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_500, "transactionOpBatchInterval": 200}


@pytest.fixture
def rocketmq() -> java.Release:
    return current_release()


@asynccontextmanager
async def cluster(release: java.Release, here: Path, brokers: int = 1) -> AsyncIterator[tuple[str, list[Broker]]]:
    """A name server and masters; the name server's address."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(java.namesrv(release, here / "namesrv"))
        masters = [await stack.enter_async_context(java.broker(
            release, here / name, group=name, namesrv=[namesrv.address], extra=FEATURES))
            for name in ("a", "b")[:brokers]]
        yield namesrv.address, masters


async def made(client: Client, topic: str, queues: int = 4, brokers: int = 1) -> None:
    """Create a topic and wait until the name server knows it of every broker; one that has just started may not have
    registered when the topic is created, and is asked again."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                await client.create_topic(topic, queues)
                await trio.sleep(0.2)
                if len(await client.queues(topic)) == queues * brokers:
                    return
            except ClientError:  # brokers that have just started know no default topic yet
                await trio.sleep(0.2)


async def take(messages: Messages, count: int) -> list[Received]:
    found: list[Received] = []
    with trio.fail_after(PATIENCE_S):
        while len(found) < count:
            message = await anext(messages)
            message.ack()
            found.append(message)
    return found


def numbers(found: list[Received]) -> list[int]:
    return sorted(int(message.body) for message in found)


async def sending(client: Client) -> None:
    """One by one, in a batch, one-way, compressed each way; found again by key and by id."""
    await made(client, "Sends")
    sent = [await client.send(Message("Sends", b"%d" % number, tag="ab"[number % 2], keys=[f"k{number}"],
                                      properties={"colour": "red"})) for number in range(20)]
    assert len({(each.queue, each.queue_offset) for each in sent}) == 20
    batch = await client.send_batch([Message("Sends", b"%d" % number, tag="a") for number in range(20, 30)])
    assert [each.queue_offset for each in batch] == list(range(batch[0].queue_offset, batch[0].queue_offset + 10))
    await client.send_oneway(Message("Sends", b"30", tag="a"))
    one = {(await client.send(Message("Sends", b"%d" % number, tag="b"), order_by="customer")).queue
           for number in range(31, 36)}
    assert len(one) == 1
    queues = await client.queues("Sends")
    with trio.fail_after(PATIENCE_S):  # the key index and the queues follow the log
        while (sum([await client.max_offset(queue) for queue in queues]) < 36 or not await client.query("Sends", "k7")
               or not await client.query_id("Sends", sent[7].message_id)):
            await trio.sleep(0.2)
    (by_key,) = await client.query("Sends", "k7")
    (by_id,) = await client.query_id("Sends", sent[7].message_id)
    viewed = await client.view(sent[7].offset_message_id)
    assert by_key.body == by_id.body == viewed.body == b"7" and viewed.properties["colour"] == "red"
    assert (by_id.message_id, by_id.queue_offset) == (sent[7].message_id, sent[7].queue_offset)
    assert await client.query("Sends", "absent") == []
    assert sum([await client.max_offset(queue) for queue in queues]) == 36
    assert [await client.min_offset(queue) for queue in queues] == [0] * 4
    async with client.consume("tags", {"Sends": "b || c"}, start=FIRST) as messages:
        assert numbers(await take(messages, 15)) == [*range(1, 20, 2), *range(31, 36)]
    async with client.consume("everything", "Sends", start=FIRST) as messages:
        assert numbers(await take(messages, 36)) == list(range(36))


async def illegal(client: Client) -> None:
    """A broker's refusal is a typed failure."""
    with pytest.raises(SendFailed) as refused:
        await client.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
    assert refused.value.code in (16, 13, 1, 17)


async def delayed(client: Client) -> None:
    """Delivered when it is due and not before; not delivered when it was taken back."""
    await made(client, "Later", 1)
    began = dt.datetime.now(dt.UTC)
    due = began + dt.timedelta(seconds=12)  # later than it is taken back, however slow the machine
    sent = [await client.send(message) for message in (
        Message("Later", b"0", delay=dt.timedelta(seconds=2)), Message("Later", b"1", deliver_at=due),
        Message("Later", b"2", deliver_at=due), Message("Later", b"3", deliver_at=began))]
    assert [each.recall_handle is not None for each in sent] == [True, True, True, False]
    assert await client.recall(sent[2]) == sent[2].message_id
    async with client.consume("patient", "Later", start=FIRST) as messages:
        found = await take(messages, 3)
        assert [message.body for message in found] == [b"3", b"0", b"1"]
        assert found[1].store_time_ms >= (began.timestamp() + 2) * 1e3
        assert found[2].store_time_ms >= due.timestamp() * 1e3
        with trio.move_on_after(2):
            raise AssertionError(f"it was taken back: {await anext(messages)}")
    with pytest.raises(SendFailed, match="delay time") as too_late:
        await client.send(Message("Later", b"x", delay=dt.timedelta(days=400)))
    assert too_late.value.code == 13
    with pytest.raises(Refused) as refused:
        await client.recall(sent[0])
    assert refused.value.code == 604


async def in_transactions(client: Client) -> None:
    """Committed by the block, rolled back by it, and decided by the checker; one message for each that is committed."""
    await made(client, "Pairs", 1)
    checked: list[bytes] = []

    async def check(message: Received) -> Decision:
        checked.append(message.body)
        return Decision.COMMIT if message.body == b"left, committed" else Decision.ROLLBACK

    async with client.transactions(check) as transactions:
        async with transactions.begin(Message("Pairs", b"committed", keys=["k"])) as committed:
            assert await client.query("Pairs", "k") == []
        with pytest.raises(KeyError):
            async with transactions.begin(Message("Pairs", b"raised")) as raised:
                raise KeyError
        async with transactions.begin(Message("Pairs", b"rolled back")) as rolled_back:
            rolled_back.rollback()
        async with transactions.begin(Message("Pairs", b"left, committed")) as left:
            left.leave()
        async with transactions.begin(Message("Pairs", b"left, rolled back")) as left:
            left.leave()
        async with transactions.begin(Message("Pairs", b"late")) as late:
            await trio.sleep(4)  # asked meanwhile, and nobody else decides
        assert [each.outcome for each in (committed, rolled_back, late, left)] == [Outcome.CONFIRMED] * 3 + [None]
        async with client.consume("pairing", "Pairs", start=FIRST) as messages:
            found: dict[str, Received] = {}
            twice: list[bytes] = []

            async def receive() -> None:
                async for message in messages:
                    message.ack()
                    if found.setdefault(message.message_id, message) is not message:
                        twice.append(message.body)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                with trio.fail_after(PATIENCE_S):
                    while len(found) < 3 or len(checked) < 2:
                        await trio.sleep(0.1)
                await trio.sleep(3)  # what comes wrongly comes then
                nursery.cancel_scope.cancel()
            assert sorted(message.body for message in found.values()) == [b"committed", b"late", b"left, committed"]
            assert found.keys() >= {committed.message_id, late.message_id}
            # a Java broker that asks again before it wrote down the answer follows it twice
            assert not [body for body in twice if body != b"left, committed"]
    assert sorted(checked) == [b"left, committed", b"left, rolled back"]
    assert raised.outcome is Outcome.CONFIRMED
    address, _ = await client._session.address("Pairs", "a")
    nowhere = EndTransactionRequest("quorate-producers", 0, 1 << 40, 8, msg_id="m")
    answer = await client._session.remoting.call(address, request(RequestCode.END_TRANSACTION, nowhere), 3_000)
    assert of_decision(answer.code, answer.remark) is Heard.REFUSED


async def giving_back(client: Client) -> None:
    """Given back, a message comes again after the delay, and in the end lies with the dead letters."""
    await made(client, "Returns", 1)
    await client.send(Message("Returns", b"poison", tag="t", keys=["k"]))
    seen: list[tuple[int, str, bytes]] = []
    async with client.consume("returning", {"Returns": "t"}, start=FIRST,
                              settings=ConsumerSettings(reconsume_times_max=2)) as messages:
        with trio.fail_after(PATIENCE_S):
            while len(seen) < 3:
                message = await anext(messages)
                seen.append((message.reconsume_times, message.topic, message.body))
                await message.retry_later(1)
        assert seen == [(times, "Returns", b"poison") for times in range(3)]
    async with client.pull("undertaker", start=FIRST) as puller:
        with trio.fail_after(PATIENCE_S):
            while not (queues := await _queues(client, "%DLQ%returning")):
                await trio.sleep(0.2)
        await puller.assign(queues)
        (dead,) = await puller.poll(PATIENCE_S * 1_000)
        assert dead.body == b"poison" and dead.properties["RETRY_TOPIC"] == "Returns"


async def _queues(client: Client, topic: str) -> list[MessageQueue]:
    try:
        return await client.queues(topic)
    except ClientError:  # not there yet
        return []


async def ordered(client: Client, other: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Two members share ordered queues, and each queue stays in order whoever reads it.

    Nothing is read twice but what was given back, as long as brokers answer: the first member logs a position that it
    cannot tell in time, and whoever has the queue then may begin at an earlier one, but passes nothing over.
    """
    await made(client, "Ordered")
    for number in range(40):
        await client.send(Message("Ordered", b"%d" % number), order_by=str(number % 4))
    seen: dict[int, list[tuple[int, int]]] = {queue: [] for queue in range(4)}
    settled: set[tuple[int, int]] = set()

    async def read(messages: Messages) -> None:
        async for message in messages:
            queue, offset = message.queue.queue_id, message.queue_offset
            seen[queue].append((offset, message.reconsume_times))
            if int(message.body) == 13 and message.reconsume_times < 1:
                await message.retry_later()
            else:
                message.ack()
                settled.add((queue, offset))
            if len(settled) == 40:
                nursery.cancel_scope.cancel()

    async with client.consume("in-order", "Ordered", ordered=True, start=FIRST) as one:
        async with other.consume("in-order", "Ordered", ordered=True, start=FIRST) as two:
            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read, one)
                    nursery.start_soon(read, two)
    for found in seen.values():
        offsets = [offset for offset, _ in found]
        assert offsets[0] == 0 and all(later <= before + 1 for before, later in pairwise(offsets)), "none passed over"
    if not [record for record in caplog.records if "of in-order in" in record.message]:
        assert all(found == sorted(found) for found in seen.values()), "in order"
        assert [times for found in seen.values() for _, times in found if times] == [1]
        assert sum(map(len, seen.values())) == 41, "once, but for what was given back"


async def broadcast(client: Client, other: Client, here: Path) -> None:
    """Every member gets every message."""
    await made(client, "News")
    first, second = (ConsumerSettings(offsets_dir=here / name) for name in ("one", "two"))
    for number in range(10):
        await client.send(Message("News", b"%d" % number))
    async with (
        client.consume("readers", "News", broadcast=True, start=FIRST, settings=first) as one,
        other.consume("readers", "News", broadcast=True, start=FIRST, settings=second) as two,
    ):
        assert numbers(await take(one, 10)) == numbers(await take(two, 10)) == list(range(10))


async def pulled(client: Client) -> None:
    """Queues of one's own choice, read twice, and kept for the group."""
    await made(client, "Pulled", 2)
    for number in range(20):
        await client.send(Message("Pulled", b"%d" % number))
    async with client.pull("pullers", start=FIRST) as puller:
        queues = await puller.queues("Pulled")
        await puller.assign(queues)
        found: list[Received] = []
        with trio.fail_after(PATIENCE_S):
            while len(found) < 20:
                found += await puller.poll()
        assert numbers(found) == list(range(20))
        puller.seek(queues[0], 5)
        again = await puller.poll(PATIENCE_S * 1_000)
        assert [message.queue_offset for message in again] == [5, 6, 7, 8, 9]
        await puller.commit()
        assert [await puller.committed(queue) for queue in queues] == [10, 10]


async def compressed(rocketmq: java.Release, namesrv: str, here: Path) -> None:
    """Bodies that either side compressed are read by the other."""
    for compression in Compression:
        settings = ClientSettings(compression=compression, compress_from_bytes=1_000)
        async with connect(namesrv, settings=settings) as client:
            await made(client, "Large")
            await client.send(Message("Large", (b"%d " % compression).ljust(50_000, b".")))
    async with java.receiver(rocketmq, here / "receiver", namesrv=[namesrv], topic="Large") as receiver:
        reports = await receiver.wait_for("received", lambda found: len(found) >= 3)
        assert sorted(report["sequence"] for report in reports) == [1, 2, 3]
    async with (
        java.sender(rocketmq, here / "sender", namesrv=[namesrv], topic="Large", count=3, interval_ms=0,
                    body_bytes=50_000, timeout_ms=60_000) as sender,
        connect(namesrv) as client,
    ):
        reports = await sender.wait_for("sent", lambda found: len(found) >= 3)
        assert all(report["ok"] for report in reports), reports
        async with client.consume("large", "Large", start=FIRST) as messages:
            found = await take(messages, 6)
    assert all(len(message.body) == 50_000 and len(message.record.message.body) < 5_000 for message in found)
    assert zlib.decompress(next(each for each in found if each.body.startswith(b"3 ")).record.message.body)


async def test_everything_a_client_does_works_with_a_java_broker(
    rocketmq: java.Release, tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        cluster(rocketmq, tmp_path) as (namesrv, _), connect(namesrv) as client,
        connect(namesrv, producer_group="others") as other,  # a broker asks any of a group, and this one checks nothing
    ):
        await sending(client)
        await illegal(client)
        async with trio.open_nursery() as nursery:  # what mostly waits, side by side
            nursery.start_soon(compressed, rocketmq, namesrv, tmp_path)
            nursery.start_soon(delayed, client)
            nursery.start_soon(giving_back, client)
            nursery.start_soon(pulled, client)
            nursery.start_soon(broadcast, client, other, tmp_path)
            nursery.start_soon(ordered, client, other, caplog)
        await in_transactions(client)  # the last: once a Java broker has written which halves are over, a thread spins


ROUNDS_S = 75
"""Longer than the 30 s after which a Java client's heartbeat comes by itself, twice."""


async def unsettled_shares(
    client: Client, rocketmq: java.Release, namesrv: str, here: Path, group: str,
) -> str:
    """What each member read last, where they do not agree in time; empty where they do, and each message came once."""
    async with (
        client.consume(group, "Shared", start=FIRST) as messages,
        java.receiver(rocketmq, here, namesrv=[namesrv], topic="Shared", group=group) as receiver,
    ):
        ours: list[Received] = []

        async def receive() -> None:
            async for message in messages:
                message.ack()
                ours.append(message)

        def mine() -> set[MessageQueue]:
            return {queue for queue in messages.queues if queue.topic == "Shared"}

        def theirs() -> list[Report]:
            return receiver.reports("received")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            queues = set(await client.queues("Shared"))
            found: set[tuple[str, int]] = set()
            with trio.move_on_after(ROUNDS_S) as patience:  # until each reads its share, and no more
                while True:
                    before = len(theirs())
                    for queue in queues:
                        await client.send(Message("Shared", b"1000 ."), queue=queue)
                    await trio.sleep(4)
                    found = {(each["broker"], each["queue"]) for each in theirs()[before:]}
                    if len(mine()) == 3 and found == {(queue.broker_name, queue.queue_id) for queue in queues - mine()}:
                        break
            if patience.cancelled_caught:
                nursery.cancel_scope.cancel()
                return f"of {len(queues)} queues ours reads {sorted(map(str, mine()))}, Java's {sorted(found)}"
            sent = {number: (await client.send(Message("Shared", b"%d ." % number))).queue for number in range(60)}
            with trio.move_on_after(30):
                while sent.keys() - {each["sequence"] for each in theirs()} - {
                        int(message.body.split()[0]) for message in ours}:
                    await trio.sleep(0.2)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        counted = Counter([int(message.body.split()[0]) for message in ours])
        counted += Counter([each["sequence"] for each in theirs()])
        assert {number: counted[number] for number in sent} == dict.fromkeys(sent, 1), "at one member, once"
        assert {message.queue for message in ours if int(message.body.split()[0]) < 60} == mine()
        return ""


async def sends_go_on(client: Client, first: Broker) -> None:
    """While a broker is killed and comes back."""
    await made(client, "Steady", brokers=2)
    there: list[str] = []
    for number in range(300):
        if number == 100:
            await first.kill()
        if number == 200:
            await first.start()
        there.append((await client.send(Message("Steady", b"%d" % number))).queue.broker_name)
        await trio.sleep(0.01)
    assert "a" in there[:100] and set(there[100:200]) == {"b"}, "the other broker takes over"


async def test_members_share_two_java_brokers_and_sends_go_on_without_one(
    rocketmq: java.Release, tmp_path: Path,
) -> None:
    """Members in Java and in Python agree on their shares."""
    async with cluster(rocketmq, tmp_path, 2) as (namesrv, (first, _)), connect(namesrv) as client:
        await made(client, "Shared", 3, brokers=2)
        assert not await unsettled_shares(client, rocketmq, namesrv, tmp_path / "receiver", "mixed")
        await sends_go_on(client, first)
