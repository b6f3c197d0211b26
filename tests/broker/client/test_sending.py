"""Sends against brokers in memory: where messages go, what failures come to, and how a failover is followed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.client import (
    Client,
    ClientSettings,
    Message,
    MessageIllegal,
    MessageQueue,
    NoNameServer,
    SendFailed,
    SendUnknown,
    connect,
)
from broker.client.route import words
from remoting import record as codec
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from tests.broker.client.cluster import SILENCE, Cluster, FakeBroker, cluster, refusing

SEND = RequestCode.SEND_MESSAGE_V2


def message(body: bytes = b"x", **rest: object) -> Message:
    return Message("orders", body, **rest)  # type: ignore[arg-type]


def bodies(broker: FakeBroker) -> list[bytes]:
    return [record.message.body for record in broker.log]


# --- when all is well ----------------------------------------------------------------------------------------


async def test_a_message_is_stored_as_it_was_written(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        sent = await client.send(message(b"hello", tag="new", keys=["42"], properties={"colour": "red"}, flag=9))
        (record,) = made.brokers["a"].log
        assert record.message.body == b"hello" and record.message.flag == 9
        assert codec.decode_properties(record.message.properties) == {
            "UNIQ_KEY": sent.message_id, "WAIT": "true", "TAGS": "new", "KEYS": "42", "colour": "red"}
        assert sent.queue == MessageQueue("orders", "a", record.message.queue_id)
        assert (sent.queue_offset, sent.offset_message_id) == (0, record.message_id)
        (fields,) = made.brokers["a"].asked(SEND)
        assert (fields["a"], fields["c"], fields["d"], fields["n"]) == ("producers", "TBW102", "4", "a")


async def test_queues_of_all_brokers_take_turns(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        sent = [await client.send(message()) for _ in range(8)]
        assert {(each.queue.broker_name, each.queue.queue_id, each.queue_offset) for each in sent} == {
            (broker, number, offset) for broker in "ab" for number in range(2) for offset in range(2)}
        assert len(made.net.dialled) == 3, "one connection to each"


async def test_a_thousand_tasks_share_one_connection(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].delay_ms = 50
        async with trio.open_nursery() as nursery:
            for number in range(1_000):
                nursery.start_soon(client.send, message(b"%d" % number))
        assert sorted(map(int, bodies(made.brokers["a"]))) == list(range(1_000))
        assert made.net.dialled.count("a:1") == 1 and made.name_server.asked["orders"] == 1


async def test_a_queue_or_a_key_may_be_chosen(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        there = MessageQueue("orders", "b", 1)
        assert (await client.send(message(), queue=there)).queue == there
        one = {(await client.send(message(), order_by="customer 7")).queue for _ in range(5)}
        assert len(one) == 1
        assert len({(await client.send(message(), order_by=str(key))).queue for key in range(20)}) > 1
        # String.hashCode of "b" is 98: the third of four queues, as Java's selector has it
        assert words((await client.send(message(), order_by="b")).queue) == "queue 0 of orders at b"


async def test_large_bodies_leave_compressed(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        await client.send(message(b"." * 5_000))
        stored = made.brokers["a"].log[0].message
        assert zlib.decompress(stored.body) == b"." * 5_000 and stored.sys_flag & codec.COMPRESSED


async def test_a_topic_that_is_nowhere_is_made_after_the_template(autojump_clock: MockClock) -> None:
    async with cluster("a", topics=()) as made, made.client() as client:
        made.name_server.set("TBW102", {"a": {0: "a:1"}}, queues=8, perm=7)
        queues = {(await client.send(Message("new", b"x"))).queue.queue_id for _ in range(8)}
        assert queues == {0, 1, 2, 3}
        made.name_server.set("new", {"a": {0: "a:1"}}, queues=1)
        await trio.sleep(6)
        assert {(await client.send(Message("new", b"x"))).queue.queue_id for _ in range(4)} == {0}


async def test_what_is_illegal_does_not_leave(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(MessageIllegal, match="topic 'no topic'"):
            await client.send(Message("no topic", b"x"))
        with pytest.raises(MessageIllegal, match="body is empty"):
            await client.send(message(b""))
        with pytest.raises(MessageIllegal):
            await client.send_oneway(message(bytes(5 << 20)))
        assert not made.net.dialled


# --- batches and one-way -------------------------------------------------------------------------------------


async def test_a_batch_is_one_request_with_an_answer_for_each(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        sent = await client.send_batch([message(b"%d" % number, tag=f"t{number}") for number in range(5)])
        assert len(made.brokers["a"].asked(RequestCode.SEND_BATCH_MESSAGE)) == 1
        assert [each.queue_offset for each in sent] == list(range(5)) and len({each.queue for each in sent}) == 1
        assert [each.offset_message_id for each in sent] == [record.message_id for record in made.brokers["a"].log]
        stored = [codec.decode_properties(record.message.properties) for record in made.brokers["a"].log]
        assert [(each["UNIQ_KEY"], each["TAGS"]) for each in stored] == [
            (each.message_id, f"t{number}") for number, each in enumerate(sent)]


async def test_a_batch_is_split_by_size(autojump_clock: MockClock) -> None:
    settings = ClientSettings(batch_bytes_max=3_000)
    async with cluster("a") as made, made.client(settings=settings) as client:
        sizes = [1_000, 1_000, 1_000, 5_000, 10, 10]
        sent = await client.send_batch([message(bytes(size)) for size in sizes])
        assert len(sent) == 6 and [len(body) for body in bodies(made.brokers["a"])] == sizes
        assert len(made.brokers["a"].asked(RequestCode.SEND_BATCH_MESSAGE)) == 4


@pytest.mark.parametrize(("code", "error"), [
    (ResponseCode.MESSAGE_ILLEGAL, SendFailed), (ResponseCode.SUCCESS, SendUnknown)])
async def test_a_batch_that_fails_halfway_says_what_is_stored(
    autojump_clock: MockClock, code: int, error: type[SendFailed | SendUnknown],
) -> None:
    """Also where an answer makes no sense."""
    async with cluster("a") as made, made.client(settings=ClientSettings(batch_bytes_max=1_000)) as client:
        broker = made.brokers["a"]
        broker.refuse = lambda command: (
            response(command, code, remark="no") if len(broker.log) >= 2 else None)
        with pytest.raises(error, match="no") as failed:
            await client.send_batch([message(bytes(900)) for _ in range(4)])
        assert [each.offset_message_id for each in failed.value.sent] == [each.message_id for each in broker.log]


@pytest.mark.parametrize(("messages", "words_"), [
    ([], "of one topic"), ([Message("a", b"x"), Message("b", b"x")], "of one topic"),
    ([Message("a", b"x", delay_level=1)], "delayed"), ([Message("%RETRY%g", b"x")], "retry topic"),
])
async def test_batches_that_brokers_refuse_are_not_sent(
    messages: list[Message], words_: str, autojump_clock: MockClock,
) -> None:
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(MessageIllegal, match=words_):
            await client.send_batch(messages)


async def test_nothing_of_a_batch_is_sent_if_its_last_message_is_illegal(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client(settings=ClientSettings(batch_bytes_max=1_000)) as client:
        with pytest.raises(MessageIllegal, match="body is empty"):
            await client.send_batch([*(message(bytes(900)) for _ in range(4)), message(b"")])
        assert not made.brokers["a"].log


async def test_one_way_messages_arrive_without_an_answer(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        for number in range(100):
            await client.send_oneway(message(b"%d" % number))
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(map(int, bodies(made.brokers["a"]))) == list(range(100))


async def test_a_one_way_message_that_cannot_leave_says_so(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.kill("a:1")
        with pytest.raises(SendFailed, match="nobody listens"):
            await client.send_oneway(message())
        with pytest.raises(SendFailed, match="no name server knows it"):
            await client.send_oneway(Message("nowhere", b"x"))


async def test_oneway_messages_wait_no_longer_than_others_for_a_broker_that_does_not_read(
    autojump_clock: MockClock,
) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        await client.queues("orders")
        await client.send_oneway(message(), queue=MessageQueue("orders", "a", 0))
        stream = made.net.streams[made.net.dialled.index("a:1")]
        stream.send_stream.send_all_hook = trio.sleep_forever
        large, began = Random(1).randbytes(600 << 10), trio.current_time()
        for _ in range(2):
            await client.send_oneway(message(large), queue=MessageQueue("orders", "a", 0))
        with pytest.raises(SendFailed, match="a:1 does not read: 12"):
            await client.send_oneway(message(large), queue=MessageQueue("orders", "a", 0))
        assert 2.9 < trio.current_time() - began < 3.1
        for _ in range(4):
            await client.send_oneway(message())
        assert trio.current_time() - began < 3.1, "the other takes them"


async def test_oneway_messages_that_wait_for_a_broker_that_dies_fail(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        await client.send(message())
        stream = made.net.streams[made.net.dialled.index("a:1")]
        stream.send_stream.send_all_hook = trio.sleep_forever
        large = Random(1).randbytes(600 << 10)
        failures: list[SendFailed] = []

        async def send() -> None:
            try:
                await client.send_oneway(message(large))
            except SendFailed as failure:
                failures.append(failure)

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(send)
                await trio.sleep(0.1)
            made.kill("a:1")
            with trio.fail_after(5):
                while not failures:
                    await trio.sleep(0.1)
                assert "closed by the other end" in str(failures[0])


# --- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER])
async def test_a_refusal_is_final(code: int, autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        for broker in made.brokers.values():
            broker.refuse = refusing(SEND, code, "your fault")
        with pytest.raises(SendFailed, match=rf"answered {code}: your fault") as failed:
            await client.send(message())
        assert failed.value.code == code and sum(len(each.asked(SEND)) for each in made.brokers.values()) == 1


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_without_its_replicas_is_unknown(code: int, autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].refuse = refusing(SEND, code)
        with pytest.raises(SendUnknown) as unknown:
            await client.send(message())
        assert unknown.value.code == code and len(unknown.value.message_id) == 32
        assert len(made.brokers["a"].asked(SEND)) == 1, "sent again it would be there twice"


async def test_another_broker_takes_over_at_once(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        await client.send_batch([message()])
        made.brokers["a"].refuse = refusing(SEND, ResponseCode.SYSTEM_BUSY)
        began = trio.current_time()
        sent = [await client.send(message()) for _ in range(10)]
        assert {each.queue.broker_name for each in sent} == {"b"}
        assert trio.current_time() - began < 0.01
        assert len(made.brokers["a"].asked(SEND)) == 1, "then it is spared"
        made.brokers["a"].refuse = lambda _: None
        await trio.sleep(11)
        assert {(await client.send(message())).queue.broker_name for _ in range(4)} == {"a", "b"}


async def test_a_slow_broker_is_spared(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        made.brokers["a"].delay_ms = 600
        sent = [await client.send(message()) for _ in range(12)]
        assert [each.queue.broker_name for each in sent].count("a") == 1


async def test_attempts_with_unknown_outcome_are_counted(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].refuse = refusing(SEND, ResponseCode.SYSTEM_ERROR)
        with pytest.raises(SendUnknown):
            await client.send(message())
        assert len(made.brokers["a"].asked(SEND)) == 3
    async with cluster("a") as made, made.client(settings=ClientSettings(resend_unknown=False)) as client:
        made.brokers["a"].refuse = refusing(SEND, ResponseCode.SYSTEM_ERROR)
        with pytest.raises(SendUnknown):
            await client.send(message())
        assert len(made.brokers["a"].asked(SEND)) == 1


async def test_a_new_master_has_a_moment_to_find_its_replicas(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].refuse = lambda command: (
            response(command, ResponseCode.SYSTEM_ERROR, remark="in-sync replicas not enough")
            if trio.current_time() < began + 0.4 else None)
        began = trio.current_time()
        await client.send(message())
        assert 0.4 <= trio.current_time() - began < 0.46 and len(made.brokers["a"].log) == 1
        made.brokers["a"].refuse = refusing(SEND, ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough")
        with pytest.raises(SendFailed, match="not enough"):
            await client.send(message(), timeout_ms=300)


async def test_the_only_broker_has_a_moment_to_learn_of_the_topic(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        began = trio.current_time()
        made.brokers["a"].refuse = lambda command: (
            response(command, ResponseCode.TOPIC_NOT_EXIST) if trio.current_time() < began + 0.2 else None)
        await client.send(message())
        made.brokers["a"].refuse = refusing(SEND, ResponseCode.TOPIC_NOT_EXIST)
        with pytest.raises(SendFailed, match="answered 17"):
            await client.send(message())


async def test_no_answer_in_time_is_unknown(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].refuse = lambda command: SILENCE
        began = trio.current_time()
        with pytest.raises(SendUnknown, match="did not answer"):
            await client.send(message(), timeout_ms=700)
        assert trio.current_time() - began == pytest.approx(0.7, abs=0.06)


async def test_a_group_without_a_master_is_certainly_failed(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.name_server.set("orders", {"a": {1: "a:1"}})
        began = trio.current_time()
        with pytest.raises(SendFailed, match="no master"):
            await client.send(message(), timeout_ms=500)
        assert trio.current_time() - began == pytest.approx(0.5, abs=0.06)
        assert 8 < made.name_server.asked["orders"] < 20, "at growing pauses"


async def test_name_servers_that_do_not_answer_are_passed_over(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster("a") as made:
        async with made.client(name_servers=["gone:1", "ns:9876"]) as client:
            await client.send(message())
        async with made.client(name_servers=["gone:1", "gone:2"]) as client:
            with pytest.raises(SendFailed, match=r"gone:1.*gone:2"):
                await client.send(message(), timeout_ms=300)
            with pytest.raises(NoNameServer):
                await client.queues("orders")
            assert caplog.text.count("route of orders") == 1, "however often it was asked"


async def test_answers_that_make_no_sense_are_no_success(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        made.brokers["a"].refuse = response
        with pytest.raises(SendUnknown, match="no place"):
            await client.send(message())


# --- a failover ----------------------------------------------------------------------------------------------


async def _gap_ms(made: Cluster, client: Client, fail: Callable[[], object], heal_after_ms: float) -> float:
    """Milliseconds between the last send before ``fail`` and the first that is stored at the new master."""
    await client.send(message(b"before"))
    fail()
    began = trio.current_time()

    async def heal() -> None:
        await trio.sleep(heal_after_ms / 1e3)
        await made.start("a:2", FakeBroker("a"))
        made.name_server.set("orders", {"a": {0: "a:2"}})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(heal)
        await client.send(message(b"after"))
        return (trio.current_time() - began) * 1e3


async def test_a_new_master_of_the_group_is_found_within_50_ms(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        gap_ms = await _gap_ms(made, client, lambda: made.kill("a:1"), heal_after_ms=123)
        assert 123 <= gap_ms <= 123 + 51
        assert bodies(made.brokers["a"]) == [b"after"]


async def test_a_master_that_steps_down_is_left_as_fast(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        def step_down() -> None:
            made.brokers["a"].refuse = refusing(SEND, ResponseCode.SERVICE_NOT_AVAILABLE)

        assert await _gap_ms(made, client, step_down, heal_after_ms=100) <= 151


async def test_a_name_server_that_still_knows_the_old_master_is_asked_again(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        await client.send(message(b"before"))
        asked = made.name_server.asked["orders"]
        assert await _gap_ms(made, client, lambda: made.kill("a:1"), heal_after_ms=400) <= 451
        assert 5 < made.name_server.asked["orders"] - asked < 25


async def test_a_machine_that_swallows_connections_is_left_for_the_new_master(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        dial = made.net.connect

        async def swallowing(address: str) -> trio.abc.Stream:
            if address == "a:1" and "a:1" not in made.net.servers:
                await trio.sleep_forever()
            return await dial(address)

        made.net.connect = swallowing  # type: ignore[method-assign, assignment]
        async with made.client() as client:
            gap_ms = await _gap_ms(made, client, lambda: made.kill("a:1"), heal_after_ms=100)
            assert gap_ms <= 251, "connect_patience_ms, and a pause"


async def test_a_silent_master_is_left_for_its_successor(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        queue = MessageQueue("orders", "a", 0)
        await client.send(message(), queue=queue)
        made.brokers["a"].refuse = lambda command: SILENCE
        await made.start("a:2", FakeBroker("a"))
        began = trio.current_time()

        async def heal() -> None:
            await trio.sleep(1.2)
            made.name_server.set("orders", {"a": {0: "a:2"}, "b": {0: "b:1"}})

        made.name_server.set("orders", {"a": {0: "a:1"}, "b": {0: "b:1"}})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal)
            await client.send(message(b"after"), queue=queue)
        assert trio.current_time() - began < 1.5, "and not the end of its time, which is 3 s"
        assert bodies(made.brokers["a"]) == [b"after"]
        spared = [await client.send(message()) for _ in range(4)]
        assert {sent.queue.broker_name for sent in spared} == {"a", "b"}, "the group is not blamed for its old master"


async def test_a_send_that_only_takes_long_stays_where_it_is(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        await client.send(message())
        asked = made.name_server.asked["orders"]
        made.brokers["a"].delay_ms = 2_000
        await client.send(message(b"slow"))
        assert bodies(made.brokers["a"]) == [b"x", b"slow"], "once"
        assert 0 < made.name_server.asked["orders"] - asked < 40


async def test_who_does_not_send_again_is_told_at_once_that_a_hung_master_has_a_successor(
    autojump_clock: MockClock,
) -> None:
    async with cluster("a") as made, made.client(settings=ClientSettings(resend_unknown=False)) as client:
        await client.send(message())
        made.brokers["a"].refuse = lambda command: SILENCE
        await made.start("a:2", FakeBroker("a"))
        made.name_server.set("orders", {"a": {0: "a:2"}})
        began = trio.current_time()
        with pytest.raises(SendUnknown, match="another broker is master of its group now"):
            await client.send(message())
        assert trio.current_time() - began < 1.1


async def test_many_senders_in_a_failover_ask_for_the_route_together(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        await client.send(message())
        asked = made.name_server.asked["orders"]
        made.kill("a:1")

        async def heal() -> None:
            await trio.sleep(0.2)
            await made.start("a:2", FakeBroker("a"))
            made.name_server.set("orders", {"a": {0: "a:2"}})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(heal)
            for number in range(500):
                nursery.start_soon(client.send, message(b"%d" % number))
        assert sorted(map(int, bodies(made.brokers["a"]))) == list(range(500))
        assert made.name_server.asked["orders"] - asked < 20


async def test_a_send_under_way_when_the_master_dies_keeps_its_id(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        old = made.brokers["a"]
        old.delay_ms = 1_000  # stored, but the answer never comes

        async def fail_over() -> None:
            await trio.sleep(0.1)
            made.kill("a:1")
            await made.start("a:2", FakeBroker("a"))
            made.name_server.set("orders", {"a": {0: "a:2"}})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_over)
            sent = await client.send(message())
        ids = [codec.property_of(broker.log[0].message.properties, b"UNIQ_KEY") for broker in (old, made.brokers["a"])]
        assert ids == [sent.message_id.encode()] * 2


async def test_a_server_that_goes_away_is_asked_anew(autojump_clock: MockClock) -> None:
    async with cluster("a") as made, made.client() as client:
        await client.send(message())
        answers = iter([ResponseCode.GO_AWAY])
        made.brokers["a"].refuse = lambda command: (
            response(command, code) if (code := next(answers, None)) is not None else None)
        await client.send(message(b"second"))
        assert bodies(made.brokers["a"])[-1] == b"second" and made.net.dialled.count("a:1") == 2


# --- room ----------------------------------------------------------------------------------------------------


async def test_bodies_under_way_are_bounded(autojump_clock: MockClock) -> None:
    settings = ClientSettings(in_flight_bytes_max=10_000, compress_from_bytes=1 << 20)
    async with cluster("a") as made, made.client(settings=settings) as client:
        under_way, most = 0, 0
        broker = made.brokers["a"]
        broker.delay_ms = 10

        def counted(command: Command) -> None:
            nonlocal under_way, most
            under_way += len(command.body) if command.code == SEND else 0
            most = max(most, under_way)

        broker.refuse = counted

        async def send(size: int) -> None:
            nonlocal under_way
            await client.send(message(bytes(size)))
            under_way -= size

        async with trio.open_nursery() as nursery:
            for size in [3_000, 9_000, 20_000, 100, 5_000, 5_000, 10_000] * 3:
                nursery.start_soon(send, size)
        assert len(broker.log) == 21 and most <= 20_000, "one that is larger than all room goes alone"


async def test_who_gives_up_waiting_for_room_takes_none(autojump_clock: MockClock) -> None:
    settings = ClientSettings(in_flight_bytes_max=1_000)
    async with cluster("a") as made, made.client(settings=settings) as client:
        made.brokers["a"].delay_ms = 500
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, message(bytes(900)))
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(SendFailed, match="in_flight_bytes_max"):
                await client.send(message(bytes(900)), timeout_ms=100)
            with trio.move_on_after(0.1):
                await client.send(message(bytes(900)))
        made.brokers["a"].delay_ms = 0
        await client.send(message(bytes(1_000)))
        assert len(made.brokers["a"].log) == 2


# --- coming and going ----------------------------------------------------------------------------------------


async def test_a_producer_greets_its_brokers_and_says_goodbye(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        async with made.client() as client:
            await client.send(message())
            await trio.testing.wait_all_tasks_blocked()
            assert made.brokers["a"].producers == {"producers"}
            before = len(made.brokers["a"].heartbeats)
            await trio.sleep(95)
            assert len(made.brokers["a"].heartbeats) == before + 3
        assert made.brokers["a"].producers == set()


async def test_routes_are_polled(autojump_clock: MockClock) -> None:
    async with cluster("a", "b") as made, made.client() as client:
        made.name_server.set("orders", {"a": {0: "a:1"}})
        await client.send(message())
        made.name_server.set("orders", {"b": {0: "b:1"}})
        await trio.sleep(36)
        assert (await client.send(message())).queue.broker_name == "b"
        assert made.name_server.asked["orders"] == 2


async def test_a_client_of_nobody_ends_at_once(autojump_clock: MockClock) -> None:
    async with cluster() as made, made.client():
        assert not made.net.dialled


async def test_the_block_s_own_error_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    async with cluster("a") as made:
        with pytest.raises(KeyError):  # noqa: PT012  # the block is what is tested
            async with made.client() as client:
                await client.send(message())
                raise KeyError("mine")


@pytest.mark.parametrize("name_servers", [[], ["nonsense"], "a:1;b"])
async def test_addresses_that_make_no_sense_are_refused(name_servers: list[str] | str) -> None:
    with pytest.raises(ValueError, match=r"name_servers|no address"):
        async with connect(name_servers):
            pass


async def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="send_timeout_ms = 0"):
        ClientSettings(send_timeout_ms=0)
    with pytest.raises(ValueError, match="route_pause_max_ms"):
        ClientSettings(route_pause_min_ms=60)


async def test_one_illegal_message_of_a_batch_is_named_and_none_leaves(autojump_clock: MockClock) -> None:
    wrong: Any = {"colour": None}
    async with cluster("a") as made, made.client() as client:
        with pytest.raises(MessageIllegal, match=r"message 1 of the batch: property str 'colour' is NoneType"):
            await client.send_batch([message(b"0"), attrs.evolve(message(b"1"), properties=wrong), message(b"2")])
        with pytest.raises(MessageIllegal, match=r"message 0 of the batch: topic is dict"):
            await client.send_batch([attrs.evolve(message(b"0"), topic=wrong), message(b"1")])
        assert not made.net.dialled
