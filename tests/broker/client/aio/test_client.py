"""The client on asyncio: the surface of trio's, and its promises kept for asyncio's tasks."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

import broker.client
from broker.client import Decision, Message, Outcome, SendFailed, SendUnknown, Start, Transaction, aio
from broker.client.aio.guest import Guest, HeldBlock
from remoting.codes import RequestCode, ResponseCode
from tests.broker.client.cluster import SILENCE, Cluster, cluster, refusing
from tests.broker.client.halves import HalfBroker
from tests.broker.client.popped import popping

SURFACES = (broker.client.Client, broker.client.Messages, broker.client.Popper, broker.client.Puller,
            broker.client.Transactions)
OF_THE_CONSUMER = {"put", "taken", "something", "several", "pass_on", "open", "end", "close", "closed"}
OF_THE_PARTS = {"kept", "decide", "leave", "close", "check", "broken", "introduce", "follow"}


@attrs.frozen
class World:
    made: Cluster

    def connect(self, **settings: Any) -> Any:
        return aio.connect(["ns:9876"], connector=self.made.net.connect, host="127.0.0.1", **settings)

    @property
    def broker(self) -> Any:
        return self.made.brokers["a"]


@asynccontextmanager
async def world() -> AsyncGenerator[World, None]:
    guest = await Guest.enter()
    try:
        async with HeldBlock(guest, cluster("a"), lambda _, made: made) as made:
            yield World(made)
    finally:
        await guest.leave()


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with world() as made, asyncio.timeout(20):
            await test(made)

    asyncio.run(main())


# --- the surface ---------------------------------------------------------------------------------------------


def test_both_have_the_same_names() -> None:
    assert aio.__all__ == broker.client.__all__
    own = {"Client", "Messages", "Popper", "Puller", "Transactions", "connect"}
    for name in aio.__all__:
        assert (getattr(aio, name) is getattr(broker.client, name)) == (name not in own), name


@pytest.mark.parametrize("original", SURFACES, ids=lambda each: each.__name__)
def test_each_class_has_the_methods_of_the_original(original: type) -> None:
    ours = getattr(aio, original.__name__)
    hidden = OF_THE_CONSUMER | OF_THE_PARTS
    names = {name for name, _ in inspect.getmembers(original)
             if not name.startswith("_") and name not in hidden} | {
        name for name in ("__aiter__", "__anext__") if hasattr(original, name)}
    assert names <= set(dir(ours)), names - set(dir(ours))
    further = {name for name in vars(ours) if not name.startswith("_")} - names
    assert further <= {"left", "group"}, further
    assert ours.__doc__ == original.__doc__
    for name in names:
        theirs, here = inspect.getattr_static(original, name), inspect.getattr_static(ours, name)
        if isinstance(theirs, property):
            assert isinstance(here, property)
            continue
        assert inspect.iscoroutinefunction(theirs) == inspect.iscoroutinefunction(here), name
        if name[0] != "_":
            assert inspect.signature(theirs) == inspect.signature(here), name
            assert theirs.__doc__ == here.__doc__, name
    assert inspect.signature(aio.connect) == inspect.signature(broker.client.connect)


# --- what it does ---------------------------------------------------------------------------------------------


def test_it_sends_consumes_pulls_and_looks() -> None:
    async def test(world: World) -> None:
        async with world.connect() as client:
            sent = await client.send(Message("orders", b"1", keys=["k"]))
            assert sent.queue.topic == "orders"
            many = await client.send_batch([Message("orders", b"%d" % number) for number in range(2, 5)])
            assert len(many) == 3
            found = []
            async with client.consume("g", "orders", start=Start.FIRST) as messages:
                assert isinstance(messages, aio.Messages)
                async for message in messages:
                    found.append(message.body)
                    message.ack()
                    assert message.settled
                    if len(found) == 4:
                        break
                assert len(messages.queues) == 2
            assert sorted(found) == [b"1", b"2", b"3", b"4"]
            assert sum(world.broker.offsets["g", "orders", number] for number in range(2)) == 4
            async with client.pull("p", start=Start.FIRST) as puller:
                queues = await puller.queues("orders")
                await puller.assign(queues)
                bodies: list[bytes] = []
                while len(bodies) < 4:
                    bodies += [message.body for message in await puller.poll(timeout_ms=1_000)]
                assert sum(puller.position(queue) for queue in queues) == 4
                puller.seek(queues[0], 0)
                await puller.commit()
                assert await puller.committed(queues[0]) == 0
                assert await puller.poll(most=1)
            assert [message.body for message in await client.query("orders", "k")] == [b"1"]

    run(test)


def test_handlers_run_as_asyncio_tasks_and_what_they_raise_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        world.broker.retry_times_max = 0
        done: list[bytes] = []
        async with world.connect() as client:
            for number in range(4):
                await client.send(Message("orders", b"%d" % number))

            async def handle(message: aio.Received) -> None:
                await asyncio.sleep(0.01)
                if message.body == b"2":
                    raise LookupError("two")
                done.append(message.body)

            async with client.consume("g", "orders", start=Start.FIRST) as messages:
                each = asyncio.create_task(messages.for_each(handle, tasks=3))
                while len(done) < 3 or ("%DLQ%g", 0) not in world.broker.queues:
                    await asyncio.sleep(0.01)
                each.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await each
            assert sorted(done) == [b"0", b"1", b"3"]

    with caplog.at_level(logging.ERROR, "broker.client"):
        run(test)
    assert "the handler failed" in caplog.text and "LookupError: two" in caplog.text


@pytest.mark.parametrize("pops", [False, True])
def test_a_handler_that_waits_for_what_is_cancelled_has_failed_and_its_task_goes_on(
    pops: bool, caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        done: list[bytes] = []

        async def handle(message: aio.Received | aio.Popped) -> None:
            if message.body == b"0":
                waited_for = asyncio.ensure_future(asyncio.sleep(0))
                waited_for.cancel()
                await waited_for
            done.append(message.body)

        async def run(consumer: aio.Messages | aio.Popper) -> None:
            each = asyncio.create_task(consumer.for_each(handle, tasks=1))
            while len(done) < 3 and not each.done():
                await asyncio.sleep(0.01)
            assert not each.done()
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each

        async with asyncio.timeout(20):
            if pops:
                guest = await Guest.enter()
                async with HeldBlock(guest, popping("a", count=4), lambda _, made: made) as (_, _, inner):
                    await run(aio.Popper(guest, inner))
                await guest.leave()
            else:
                async with world() as made, made.connect() as client:
                    for number in range(4):
                        await client.send(Message("orders", b"%d" % number))
                    async with client.consume("g", "orders", start=Start.FIRST) as messages:
                        await run(messages)

    with caplog.at_level(logging.ERROR, "broker.client"):
        asyncio.run(main())
    assert "the handler failed" in caplog.text and "was cancelled" in caplog.text


def test_messages_that_are_given_back_come_again() -> None:
    async def test(world: World) -> None:
        settings = broker.client.ConsumerSettings(ordered_pause_ms=10)
        async with world.connect() as client, client.consume(
                "g", "orders", ordered=True, start=Start.FIRST, settings=settings) as messages:
            await client.send(Message("orders", b"1"))
            for times in range(3):
                message = await anext(messages)
                assert message.reconsume_times == times
                await message.retry_later()
            (await anext(messages)).ack()

    run(test)


def test_transactions_commit_roll_back_and_are_checked() -> None:
    async def test(world: World) -> None:
        world.made.kill("a:1")
        guest = await Guest.enter()
        half = HalfBroker("a")
        await guest.call(world.made.start, "a:1", half)
        asked: list[str] = []

        async def check(message: aio.Received) -> Decision:
            await asyncio.sleep(0)  # an asyncio task's
            asked.append(message.message_id)
            return Decision.COMMIT

        async with world.connect() as client, client.transactions(check, topics=["orders"]) as transactions:
            async with transactions.begin(Message("orders", b"1")) as first:
                assert isinstance(first, Transaction)
            assert first.outcome is Outcome.CONFIRMED
            with pytest.raises(ZeroDivisionError) as raised:
                async with transactions.begin(Message("orders", b"2")) as second:
                    raise ZeroDivisionError("mine")
            assert raised.value.args == ("mine",) and second.decision is Decision.ROLLBACK
            async with transactions.begin(Message("orders", b"3")) as third:
                third.leave()
            assert half.ask() == 1
            while not asked:
                await asyncio.sleep(0.01)
            while third.message_id not in half.halves.finals:
                await asyncio.sleep(0.01)
            assert asked == [third.message_id]
        await guest.leave()

    run(test)


def test_popped_messages_are_acknowledged_kept_and_given_back() -> None:
    async def main() -> None:
        guest = await Guest.enter()
        block = HeldBlock(guest, popping("a", count=12), lambda _, made: made)
        async with asyncio.timeout(20), block as (_, brokers, inner):
            popper = aio.Popper(guest, inner)
            first = await anext(popper)
            await first.extend(60_000)
            await first.ack()
            (second,) = await popper.poll(timeout_ms=1_000, most=1)
            await second.retry_later(pause_ms=1)
            assert second.settled and brokers[0].acked == [0]

            async def handle(message: aio.Popped) -> None:
                await asyncio.sleep(0)

            each = asyncio.create_task(popper.for_each(handle, tasks=3))
            while len(set(brokers[0].acked)) < 12:
                await asyncio.sleep(0.01)
            each.cancel()
            with pytest.raises(asyncio.CancelledError):
                await each
        await guest.leave()

    asyncio.run(main())


@pytest.mark.parametrize("polls", [False, True])
def test_a_task_whose_message_another_took_waits_for_the_next(polls: bool) -> None:
    async def main() -> None:
        guest = await Guest.enter()
        block = HeldBlock(guest, popping("a", count=0), lambda _, made: made)
        async with asyncio.timeout(20), block as (_, (broker,), inner):
            popper = aio.Popper(guest, inner)

            async def take() -> list[aio.Popped]:
                return await popper.poll(timeout_ms=15_000) if polls else [await anext(popper)]

            for number in range(0, 6, 2):
                broker.put("orders", 0, b"%d" % number)
                await guest.call(inner.something)
                both = {asyncio.create_task(take()) for _ in range(2)}  # each learns that a message is here
                done, waiting = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                assert len(waiting) == 1
                broker.put("orders", 0, b"%d" % (number + 1))
                await asyncio.wait(waiting)
                found = [message for task in (*done, *waiting) for message in task.result()]
                assert [int(message.body) for message in found] == [number, number + 1]
                for message in found:
                    await message.ack()
        with pytest.raises(StopAsyncIteration):
            await anext(popper)
        assert await popper.poll() == []
        await guest.leave()

    asyncio.run(main())


def test_a_poll_whose_messages_another_took_waits_for_the_next() -> None:
    async def test(world: World) -> None:
        async with world.connect() as client, client.pull("p", start=Start.FIRST) as puller:
            await client.send(Message("orders", b"0"))
            await puller.assign(await puller.queues("orders"))
            for number in range(0, 6, 2):
                await client.guest.call(puller._inner.something, 5_000)
                both = {asyncio.create_task(puller.poll(timeout_ms=15_000)) for _ in range(2)}  # each learns of it
                done, waiting = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                assert len(waiting) == 1
                await client.send(Message("orders", b"%d" % (number + 1)))
                await asyncio.wait(waiting)
                found = [message.body for task in (*done, *waiting) for message in task.result()]
                assert found == [b"%d" % number, b"%d" % (number + 1)]
                await client.send(Message("orders", b"%d" % (number + 2)))
            await client.guest.call(puller._inner.something, 5_000)
            assert await puller.poll(most=0) == []
            assert [message.body for message in await puller.poll()] == [b"6"]
            assert await puller.poll(timeout_ms=1) == []

    run(test)


# --- cancellation and errors ----------------------------------------------------------------------------------


def test_a_cancelled_call_has_ended_when_its_task_goes_on() -> None:
    async def test(world: World) -> None:
        async with world.connect() as client:
            await client.send(Message("orders", b"1"))
            world.broker.refuse = lambda command: SILENCE if command.code == RequestCode.SEND_MESSAGE_V2 else None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.send(Message("orders", b"2"))
            assert not client._inner._producer._under_way
            with pytest.raises(SendUnknown):
                await client.send(Message("orders", b"3"), timeout_ms=50)
            world.broker.refuse = refusing(RequestCode.SEND_MESSAGE_V2, ResponseCode.NO_PERMISSION)
            with pytest.raises(SendFailed, match="told so"):
                await client.send(Message("orders", b"4"))

    run(test)


def test_whoever_is_cancelled_while_waiting_for_a_message_loses_none() -> None:
    async def test(world: World) -> None:
        async with world.connect() as client, client.consume("g", "orders", start=Start.FIRST) as messages:
            found: list[bytes] = []
            for number in range(20):
                waiting = [asyncio.ensure_future(anext(messages)) for _ in range(2)]
                await asyncio.sleep(0)
                sending = asyncio.ensure_future(client.send(Message("orders", b"%d" % number)))
                await asyncio.sleep(0.0005 * number)
                waiting[0].cancel()
                await sending
                done, _ = await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
                taken = [each for each in waiting if each in done and not each.cancelled()]
                if not taken:
                    taken = [waiting[1]]
                    await waiting[1]
                for each in taken:
                    found.append(each.result().body)
                    each.result().ack()
                waiting[1].cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
            assert found == [b"%d" % number for number in range(20)]

    run(test)


def test_iteration_ends_when_the_consumer_is_closed() -> None:
    async def test(world: World) -> None:
        async with world.connect() as client:
            async with client.consume("g", "orders") as messages:
                waiting = asyncio.ensure_future(anext(messages))
                await asyncio.sleep(0.01)
            with pytest.raises(StopAsyncIteration):
                await waiting

    run(test)


def test_what_entering_a_block_raises_comes_out_as_it_is() -> None:
    async def test(world: World) -> None:
        async with world.connect() as client:
            with pytest.raises(ValueError, match="no topic is named"):
                await client.consume("g", {}).__aenter__()
            async with client.consume("g", "orders"):
                with pytest.raises(ValueError, match="in it already"):
                    await client.consume("g", "orders").__aenter__()
        with pytest.raises(ValueError, match="at least one is needed"):
            await aio.connect([])

    run(test)


# --- from its start to its end --------------------------------------------------------------------------------


def test_a_client_is_an_object_with_an_end() -> None:
    async def test(world: World) -> None:
        client = await world.connect(producer_group="p")
        await client.send(Message("orders", b"1"))
        while not client._inner._session.greeted:
            await asyncio.sleep(0)
        assert "p" in world.broker.producers
        await client.aclose()
        assert "p" not in world.broker.producers
        await client.aclose()
        async with world.connect() as other:
            with pytest.raises(RuntimeError, match="belongs to the block"):
                await other.aclose()

    run(test)


def test_trio_begins_with_the_first_client_and_ends_with_the_last() -> None:
    async def main() -> None:
        for _ in range(2):
            first, second = await aio.connect("127.0.0.1:1"), await aio.connect("127.0.0.1:1")
            assert trio.lowlevel.in_trio_run()
            await first.aclose()
            with pytest.raises(SendFailed):
                await second.send(Message("orders", b"1"), timeout_ms=20)
            closing = asyncio.ensure_future(second.aclose())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert not trio.lowlevel.in_trio_run()

    asyncio.run(main())
    asyncio.run(main())


def test_a_loop_that_ends_ends_the_clients_that_were_left_open(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> Any:
        return await aio.connect("127.0.0.1:1")

    with caplog.at_level(logging.WARNING, "broker.client"):
        client = asyncio.run(main())
    assert "1 clients are open" in caplog.text and not trio.lowlevel.in_trio_run()

    async def later() -> None:
        with pytest.raises(RuntimeError, match="trio has ended"):
            await client.send(Message("orders", b"1"))
        await client.aclose()

    asyncio.run(later())


def test_a_cancelled_program_closes_its_clients_first(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []

    async def worker() -> None:
        async with aio.connect("127.0.0.1:1"):
            try:
                await asyncio.Event().wait()
            finally:
                said.append("closing")
        said.append("closed")

    async def main() -> None:
        task = asyncio.create_task(worker())
        while not trio.lowlevel.in_trio_run():
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert not task.done()

    asyncio.run(main())
    assert said == ["closing"] and not caplog.text and not trio.lowlevel.in_trio_run()


async def test_a_client_of_trios_is_an_object_with_an_end_too() -> None:
    async with cluster("a") as made:
        client = await broker.client.connect(
            ["ns:9876"], producer_group="p", connector=made.net.connect, host="127.0.0.1")
        await client.send(Message("orders", b"1"))
        while not client._session.greeted:
            await trio.sleep(0.001)
        assert "p" in made.brokers["a"].producers
        await client.aclose()
        assert "p" not in made.brokers["a"].producers
        await client.aclose()
        async with made.client() as other:
            with pytest.raises(RuntimeError, match="belongs to the block"):
                await other.aclose()
        with pytest.raises(ValueError, match="at least one is needed"):
            await broker.client.connect([])
        with trio.CancelScope() as scope:
            scope.cancel()
            await broker.client.connect(["ns:9876"], connector=made.net.connect, host="127.0.0.1")
        assert scope.cancelled_caught
