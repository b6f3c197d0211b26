"""The client with this project's own broker, name server and controllers: all real, on memory streams and virtual time.

What a group loses or repeats when its master dies, and how long its users wait.
"""

from __future__ import annotations

import datetime as dt

import pytest
import trio
from trio.testing import MockClock

from broker.client import (
    Client,
    ClientError,
    ConsumerSettings,
    Contradicted,
    Decision,
    Message,
    Messages,
    Outcome,
    Received,
    Refused,
    SendFailed,
    SendUnknown,
    Start,
)
from harness.simulation.worlds.brokers import cluster, controlled, until, wall_ms


async def created(client: Client, topic: str, queues: int = 2) -> None:
    """Made, and known to the name server."""
    await client.create_topic(topic, queues)
    with trio.fail_after(60):
        while True:
            try:
                await client.queues(topic)
                return
            except ClientError:  # not there yet
                await trio.sleep(0.01)


async def take(messages: Messages, count: int) -> list[Received]:
    found: list[Received] = []
    with trio.fail_after(120):
        while len(found) < count:
            message = await anext(messages)
            message.ack()
            found.append(message)
    return found


def numbers(found: list[Received]) -> list[int]:
    return sorted(int(message.body) for message in found)


async def test_send_query_consume_and_give_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect() as client:
            await created(client, "orders")
            sent = [await client.send(Message("orders", b"%d" % number, tag="ab"[number % 2], keys=[f"k{number}"]))
                    for number in range(20)]
            await client.send_batch([Message("orders", b"%d" % number, tag="a") for number in range(20, 30)])
            await client.send_oneway(Message("orders", b"30", tag="a"))
            async with client.consume("all", "orders", start=Start.FIRST) as messages:
                assert numbers(await take(messages, 31)) == list(range(31))
            async with client.consume("odd", {"orders": "b"}, start=Start.FIRST) as messages:
                assert numbers(await take(messages, 10)) == list(range(1, 20, 2))
            (found,) = await client.query("orders", "k7")
            (same,) = await client.query_id("orders", sent[7].message_id)
            assert found.body == same.body == (await client.view(sent[7].offset_message_id)).body == b"7"
            settings = ConsumerSettings(reconsume_times_max=1)
            async with client.consume("some", {"orders": "b"}, start=Start.FIRST, settings=settings) as messages:
                bad = 0
                with trio.fail_after(120):
                    while bad < 2:
                        message = await anext(messages)
                        if message.body == b"13":
                            assert (message.reconsume_times, message.topic) == (bad, "orders")
                            bad += 1
                            await message.retry_later(1)
                        else:
                            message.ack()
            async with client.pull("undertaker", start=Start.FIRST) as puller:
                await trio.sleep(5)
                await puller.assign(await puller.queues("%DLQ%some"))
                assert [message.body for message in await puller.poll(10_000)] == [b"13"]


async def test_ordered_members_share_and_hand_over(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect("c1") as client, made.connect("c2") as other:
            await created(client, "orders")
            for number in range(20):
                await client.send(Message("orders", b"%d" % number), order_by=str(number % 2))
            seen: list[tuple[int, int]] = []

            async def read(messages: Messages, count: int) -> None:
                seen.extend((message.queue.queue_id, message.queue_offset) for message in await take(messages, count))

            async with client.consume("g", "orders", ordered=True, start=Start.FIRST) as one:
                await read(one, 6)
                async with other.consume("g", "orders", ordered=True, start=Start.FIRST) as two:
                    await until(lambda: any(queue.topic == "orders" for queue in two.queues))
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(read, two, 2)
                await read(one, 12)
            for queue in range(2):
                offsets = [offset for each, offset in seen if each == queue]
                assert offsets == sorted(offsets) and len(offsets) == len(set(offsets))


async def test_a_group_that_loses_its_master_loses_nothing_and_its_users_hardly_wait(
    autojump_clock: MockClock,
) -> None:
    async with cluster(controllers=3) as made:
        settings = {**controlled(), "allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
        nodes = [await made.node(**settings) for _ in range(3)]
        await until(lambda: any(node.serves for node in nodes))
        await trio.sleep(20)  # everybody in sync
        async with made.connect() as client:
            await created(client, "orders")
            stored: set[int] = set()
            stores: set[str] = set()
            waits: list[float] = []
            received: list[Received] = []

            async def send() -> None:
                number = 0
                while not done.is_set():
                    began = trio.current_time()
                    try:
                        sent = await client.send(Message("orders", b"%d" % number), timeout_ms=10_000)
                        stored.add(number)
                        stores.add(sent.offset_message_id[:8])
                    except SendUnknown:
                        pass
                    waits.append(trio.current_time() - began)
                    number += 1
                    await trio.sleep(0.02)

            async def receive() -> None:
                async for message in messages:
                    message.ack()
                    received.append(message)

            done = trio.Event()
            async with client.consume("g", "orders", start=Start.FIRST) as messages, trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                async with trio.open_nursery() as senders:
                    senders.start_soon(send)
                    for _ in range(2):
                        await trio.sleep(1)
                        (master,) = [node for node in nodes if node.serves]
                        await master.kill()
                        await until(lambda: any(node.serves for node in nodes))
                        await trio.sleep(1)
                        await master.start()
                        await trio.sleep(10)
                    done.set()
                with trio.move_on_after(60):
                    while stored - set(numbers(received)):
                        await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
            assert stored and not stored - set(numbers(received)), "everything acknowledged arrived"
            assert len(stores) >= 2, "there was another master"
            assert max(waits) < 0.3, sorted(waits)[-5:]


async def test_what_waits_is_delivered_in_time_or_taken_back_by_whoever_is_master(autojump_clock: MockClock) -> None:
    """The master that took them is killed; recalls and deliveries are its successor's."""
    async with cluster(controllers=3) as made:
        settings = {**controlled(), "allAckInSyncStateSet": "true", "minInSyncReplicas": "2",
                    "recallMessageEnable": "true"}
        nodes = [await made.node(**settings) for _ in range(3)]
        await until(lambda: any(node.serves for node in nodes))
        await trio.sleep(20)  # everybody in sync
        async with made.connect() as client:
            await created(client, "orders")
            now = dt.datetime.fromtimestamp(wall_ms() / 1e3, dt.UTC)
            soon, late, recalled = [await client.send(message) for message in (
                Message("orders", b"1", delay=dt.timedelta(seconds=30)),
                Message("orders", b"2", deliver_at=now + dt.timedelta(seconds=60)),
                Message("orders", b"3", deliver_at=now + dt.timedelta(seconds=60)))]
            with pytest.raises(SendFailed, match="max delay") as refused:
                await client.send(Message("orders", b"x", delay=dt.timedelta(days=30)))
            assert refused.value.code == 13
            await trio.sleep(15)  # until replicas have copied the topic
            (master,) = [node for node in nodes if node.serves]
            await master.kill()
            assert await client.recall(recalled) == recalled.message_id
            async with client.consume("g", "orders", start=Start.FIRST) as messages:
                found = await take(messages, 2)
                assert [(each.message_id, each.body) for each in found] == [
                    (soon.message_id, b"1"), (late.message_id, b"2")]
                begun = now.timestamp() * 1e3
                assert 60_000 <= found[1].store_time_ms - begun < 63_000
                with trio.move_on_after(30):
                    raise AssertionError(f"it was taken back: {await anext(messages)}")
            with pytest.raises(Refused) as too_late:
                await client.recall(soon)
            assert too_late.value.code == 604


async def test_transactions_are_decided_once_whoever_is_master(autojump_clock: MockClock) -> None:
    """Halves of the old master are decided at the new one: by their blocks, or by the checker that it asks."""
    async with cluster(controllers=3) as made:
        settings = {**controlled(), "allAckInSyncStateSet": "true", "minInSyncReplicas": "2",
                    "transactionTimeOut": "2000", "transactionCheckInterval": "3000"}
        nodes = [await made.node(**settings) for _ in range(3)]
        await until(lambda: any(node.serves for node in nodes))
        await trio.sleep(20)  # everybody in sync
        async with made.connect() as client:
            await created(client, "orders")
            checked: list[bytes] = []

            async def check(message: Received) -> Decision:
                checked.append(message.body)
                return Decision.COMMIT if message.body == b"3" else Decision.ROLLBACK

            async with client.transactions(check) as transactions:
                async with transactions.begin(Message("orders", b"0")) as first:
                    pass
                with pytest.raises(KeyError):
                    async with transactions.begin(Message("orders", b"1")):
                        raise KeyError
                async with transactions.begin(Message("orders", b"2")) as second:
                    async with transactions.begin(Message("orders", b"3")) as left:
                        left.leave()
                    async with transactions.begin(Message("orders", b"4")) as away:
                        away.leave()
                    await trio.sleep(6)  # asked for, and put back
                    (master,) = [node for node in nodes if node.serves]
                    await master.kill()
                    await trio.sleep(0.1)
                assert [each.outcome for each in (first, second)] == [Outcome.CONFIRMED] * 2
                async with client.consume("g", "orders", start=Start.FIRST) as messages:
                    found = await take(messages, 3)
                    assert sorted(each.body for each in found) == [b"0", b"2", b"3"]
                    assert {each.message_id for each in found} == {
                        each.message_id for each in (first, second, left)}
                    await until(lambda: {*checked} == {b"3", b"4"})
                    with trio.move_on_after(30):
                        raise AssertionError(f"each once: {await anext(messages)}")
                with pytest.raises(Contradicted):
                    away.commit()
            assert {*checked} == {b"3", b"4"}


async def test_a_decision_that_our_broker_has_otherwise_is_refused(autojump_clock: MockClock) -> None:
    """Two clients of a group, whose checkers do not agree."""
    async with cluster() as made:
        node = await made.node(transactionTimeOut="1000", transactionCheckInterval="2000")
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect("c1") as client, made.connect("c2") as other:
            await created(client, "orders")
            await created(other, "orders")

            async def rolls_back(_: Received) -> Decision:
                return Decision.ROLLBACK

            async def knows_nothing(_: Received) -> Decision:
                return Decision.UNDECIDED

            async with client.transactions(knows_nothing) as transactions, other.transactions(
                    rolls_back, topics=["orders"]):
                with pytest.raises(Contradicted, match="decided before"):
                    async with transactions.begin(Message("orders", b"0")):
                        await trio.sleep(20)
