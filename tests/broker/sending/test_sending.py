"""Sends over the wire: each check with its code and words, in order; what is stored; what is answered."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.ha.acks import BrokerRole, Holders, Mode, PutStatus, QuorumConfig, Replicas
from broker.properties import parse, write
from broker.sending.answers import NOT_STORED, STORED, refusal
from broker.sending.config import SendingConfig
from broker.sending.sending import packed_peer
from broker.store.tables import SubscriptionGroup, Topics, load
from broker.topics import TopicsConfig
from broker.transactions.conversion import ConversionConfig
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY, Command
from remoting.headers.sending import SendMessageResponse
from remoting.record import decode_properties, encode_batch, encode_properties, parse_message_id, read_properties
from tests.broker.sending.world import STORE_HOST, UNIQ, World, running, send

OWN = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
STORED_TOO = {**OWN, "CLUSTER": "DefaultCluster"}
ILLEGAL = ("the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, "
           "msg properties length limit 32KB.")
NO_HALF = "Its flags say that it is in a transaction, and its properties do not (TRAN_MSG)."


def orders(world: World, **changes: Any) -> None:
    world.topics.update([attrs.evolve(TopicConfig("Orders", 4, 4), **changes)])


# --- what is stored and answered -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_message_is_stored_and_answered(autojump_clock: MockClock, code: RequestCode) -> None:
    async with running() as world:
        orders(world)
        for number in range(3):
            answer = await world.ask(send(code=code, flag=9, sys_flag=1, properties={"UNIQ_KEY": UNIQ, "TAGS": "a b"}))
            assert answer.code == ResponseCode.SUCCESS and answer.remark is None
            assert {key: answer.ext[key] for key in OWN} == OWN
            found = SendMessageResponse.from_ext(answer.ext)
            host, offset = parse_message_id(found.msg_id)
            assert (host, found.queue_id, found.queue_offset) == (STORE_HOST, 1, number)
            assert found.transaction_id == UNIQ
            record = world.journal.log.record(offset)
            message = record.message
            assert (message.topic, message.body, message.queue_id, message.flag, message.sys_flag) == (
                b"Orders", b"hello", 1, 9, 1)
            assert (message.born_time_ms, message.store_host, message.reconsume_times) == (7, STORE_HOST, 0)
            assert record.store_time_ms == world.wall_ms()
            assert decode_properties(message.properties) == {"UNIQ_KEY": UNIQ, "TAGS": "a b", **STORED_TOO}
        assert world.sending.counters.messages == 3
        assert world.journal.messages.max_offset(b"Orders", 1) == 3


async def test_a_bare_request_of_a_sparing_client(autojump_clock: MockClock) -> None:
    """What is missing has a default, also the last separator and the unique id."""
    async with running() as world:
        orders(world)
        answer = await world.ask(Command(RequestCode.SEND_MESSAGE_V2, ext={"b": "Orders", "i": "TAGS\x01a"}, body=b"."))
        assert answer.code == ResponseCode.SUCCESS
        topic, queue_id, properties = await world.last()
        assert (topic, queue_id) == ("Orders", 0)
        uniq = properties.pop("UNIQ_KEY")
        assert properties == {"TAGS": "a", **STORED_TOO}
        assert answer.ext["transactionId"] == uniq and len(uniq) == 32


async def test_a_topic_that_changes_is_looked_at_anew(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        for number in range(2):
            bare = {"b": "Orders", "e": "3", "i": "TAGS\x01a\x02UNIQ_KEY\x01u"}
            answer = await world.ask(Command(RequestCode.SEND_MESSAGE_V2, ext=bare, body=b"."))
            assert answer.ext["queueOffset"] == str(number)
        assert (await world.last())[2] == {"TAGS": "a", "UNIQ_KEY": "u", **STORED_TOO}
        orders(world, read_queue_nums=2, write_queue_nums=2)
        assert (await world.ask(send(queue_id=3))).code == ResponseCode.INVALID_PARAMETER
        world.topics.delete("Orders")
        assert (await world.ask(send(queue_id=3, default_topic=""))).code == ResponseCode.TOPIC_NOT_EXIST
        assert world.journal.messages.max_offset(b"Orders", 3) == 0
        answer = await world.ask(send(queue_id=3))
        assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")


async def test_a_queue_is_chosen_for_who_wants_none(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world, read_queue_nums=9)
        chosen = [int((await world.ask(send(queue_id=-1))).ext["queueId"]) for _ in range(40)]
        assert set(chosen) == {0, 1, 2, 3}
        assert [record.message.queue_id for record in await world.records()] == chosen


async def test_a_oneway_send_is_stored_and_not_answered(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        for topic in ("Orders", "?"):
            command = send(topic)
            command.flag = ONEWAY
            await world.client.send_oneway("s:1", command)
        await trio.sleep(1)
        assert [record.message.topic for record in await world.records()] == [b"Orders"]
        assert (await world.ask(send())).ext["queueOffset"] == "1"


@pytest.mark.parametrize(("sent", "stored"), [
    ({"POP_CK": "1 2 3"}, {}),
    ({"MSG_REGION": "elsewhere", "TRACE_ON": "false", "CLUSTER": "theirs"}, {}),
    ({"_SYS_MSG_PRIORITY_": "-1"}, {}),
    ({"_SYS_MSG_PRIORITY_": "1", "__SHARDINGKEY": "k"}, {"__SHARDINGKEY": "k"}),
    ({"DELAY": "0"}, {"DELAY": "0"}),
    ({"KEYS": "ключ"}, {"KEYS": "ключ"}),
])
async def test_properties_are_cleaned(autojump_clock: MockClock, sent: dict[str, str], stored: dict[str, str]) -> None:
    async with running() as world:
        orders(world)
        assert (await world.ask(send(properties={"UNIQ_KEY": UNIQ, **sent}))).code == ResponseCode.SUCCESS
        assert await world.last() == ("Orders", 1, {"UNIQ_KEY": UNIQ, **stored, **STORED_TOO})


async def test_a_priority_chooses_the_queue(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        for priority, queue_id in (("0", 0), ("2", 2), ("99", 3)):
            await world.ask(send(properties={"UNIQ_KEY": UNIQ, "_SYS_MSG_PRIORITY_": priority}))
            assert (await world.last())[1] == queue_id


def test_properties_as_java_reads_them() -> None:
    assert parse("a\x01b\x02c\x01d\x02") == {"a": "b", "c": "d"}
    assert parse("a\x01b\x01c") == {"a": "b\x01c"}
    assert parse("a\x02") is None and parse("a\x01b\x02a\x01c\x02") is None
    assert read_properties("a\x01b\x02junk\x02\x01x\x02e\x01\x02a\x01c") == {"a": "c"}
    assert write({"a": "b", "c": "d"}) == encode_properties({"a": "b", "c": "d"})


@pytest.mark.parametrize(("peer", "packed"), [
    ("1.2.3.4:5", b"\x01\x02\x03\x04\x00\x00\x00\x05"), ("[::1]:5", bytes(15) + b"\x01\x00\x00\x00\x05"),
    ("a pipe", bytes(8)), ("client:7", bytes(8)),
])
def test_where_a_message_was_born(peer: str, packed: bytes) -> None:
    assert packed_peer(peer) == packed


# --- checks, in their order ----------------------------------------------------------------------------------


async def test_the_first_thing_that_is_wrong_is_told(autojump_clock: MockClock) -> None:
    """Each step puts right what the one before it complained of."""
    async with running(topics=TopicsConfig(auto_create_topic_enable=False)) as world:
        orders(world, order=True)
        world.slave = True
        world.puts.fence("this broker follows")
        world.sending.permission = 4
        world.halves.config = ConversionConfig(reject_transaction_message=True)
        world.topics.touch()
        wrong: dict[str, Any] = {"queue_id": 9, "properties": {"UNIQ_KEY": UNIQ, "TRAN_MSG": "true", "DELAY": "x"}}
        steps = [
            (send(**wrong), ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"),
            (send(**wrong), ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending message is forbidden"),
            (send("a b", **wrong), ResponseCode.INVALID_PARAMETER,
             "The specified topic: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
            (send("SELF_TEST_TOPIC", **wrong), ResponseCode.NO_PERMISSION,
             "Sending message to topic[SELF_TEST_TOPIC] is forbidden."),
            (send("New", **wrong), ResponseCode.TOPIC_NOT_EXIST, "topic[New] not exist, apply first please!"),
            (send("%DLQ%" + "g" * 123, default_topic="DefaultCluster", **wrong), ResponseCode.MESSAGE_ILLEGAL,
             "message topic length too long 128"),
            (send(**wrong), ResponseCode.INVALID_PARAMETER,
             "request queueId[9] is illegal, topic Orders has 4 queues Producer: client:1"),
            (send(**wrong | {"queue_id": 1}, body=b""), ResponseCode.MESSAGE_ILLEGAL, f"{ILLEGAL} It has no body."),
            (send(**wrong | {"queue_id": 1}), ResponseCode.MESSAGE_ILLEGAL,
             "DELAY is 'x'; a delay level is a whole number"),
            (send(properties={"TRAN_MSG": "True"}), ResponseCode.NO_PERMISSION,
             "the broker[127.0.0.1] sending transaction message is forbidden"),
            (send(), ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. this broker follows"),
        ]
        for number, (command, code, words) in enumerate(steps):
            if number == 1:
                world.slave = False
            if number == 2:
                world.sending.permission = 6
                world.topics.touch()
            answer = await world.ask(command)
            assert (answer.code, answer.remark) == (code, words), number
            assert answer.ext == OWN
        assert not await world.records()
        world.serve()
        assert (await world.ask(send())).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("options", "code", "words"), [
    ({"sys_flag": 4}, ResponseCode.MESSAGE_ILLEGAL, f"{ILLEGAL} {NO_HALF}"),
    ({"sys_flag": 12}, ResponseCode.MESSAGE_ILLEGAL, f"{ILLEGAL} {NO_HALF}"),
    ({"sys_flag": 4, "properties": {"TRAN_MSG": "true", "DELAY": "1"}, "reconsume_times": 1},
     ResponseCode.MESSAGE_ILLEGAL, f"{ILLEGAL} {NO_HALF}"),
    ({"properties": {"INNER_NUM": "3"}}, ResponseCode.MESSAGE_ILLEGAL, f"{ILLEGAL} INNER_NUM is for batches alone."),
    ({"sys_flag": 128}, ResponseCode.MESSAGE_ILLEGAL,
     f"{ILLEGAL} It is a batch within a message, which no topic here takes."),
    ({"properties": {"__LITE_TOPIC": "t"}}, ResponseCode.MESSAGE_ILLEGAL,
     "this broker has no light topics (property __LITE_TOPIC)"),
    ({"body": b"." * (4 << 20 | 1)}, ResponseCode.MESSAGE_ILLEGAL,
     f"{ILLEGAL} body of 4194305 bytes; 4194304 are allowed"),
    ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER,
     "request queueId[4] is illegal, topic Orders has 4 queues Producer: client:1"),
    ({"topic": ""}, ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION,
     "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."),
    ({"topic": "Other", "default_topic": "Orders"}, ResponseCode.TOPIC_NOT_EXIST,
     "topic[Other] not exist, apply first please!"),  # Orders may not be inherited
    ({"topic": "%RETRY%nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group not exist, nobody"),
])
async def test_refusals(autojump_clock: MockClock, options: dict[str, Any], code: int, words: str) -> None:
    """With the properties of a sender that wants nothing special beside."""
    async with running() as world:
        orders(world)
        properties = {"UNIQ_KEY": UNIQ} | options.get("properties", {})
        answer = await world.ask(send(**options | {"properties": properties}))
        assert (answer.code, answer.remark) == (code, words)
        assert answer.ext == OWN
        assert not await world.records()
        assert world.sending.counters.refused == 1


@pytest.mark.parametrize(("field", "text"), [
    ("e", "x"), ("f", str(1 << 31)), ("g", "1" * 20), ("h", ""), ("j", "1_0"), ("d", "-"), ("l", "1.5")])
async def test_a_field_that_is_no_number_is_named(autojump_clock: MockClock, field: str, text: str) -> None:
    async with running() as world:
        orders(world)
        command = send()
        command.ext[field] = text
        answer = await world.ask(command)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"SendMessageRequestHeader: {field} is {text!r}; a whole number is needed"
        assert not await world.records()


async def test_transactions_can_be_rejected_in_javas_words(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world)
        world.halves.config = ConversionConfig(reject_transaction_message=True)
        answer = await world.ask(send(properties={"TRAN_MSG": "true"}))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION, "the broker[127.0.0.1] sending transaction message is forbidden")
        retried = send(properties={"TRAN_MSG": "true", "DELAY": "1"}, reconsume_times=1)  # a client before 4.6.1
        assert (await world.ask(retried)).code == ResponseCode.SUCCESS


async def test_a_slave_that_may_act_as_master_says_so(autojump_clock: MockClock) -> None:
    async with running(config=SendingConfig(enable_slave_acting_master=True)) as world:
        orders(world)
        world.slave = True
        world.puts.fence("this broker follows")
        assert (await world.ask(send())).code == ResponseCode.SERVICE_NOT_AVAILABLE


# --- topics made by sends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (99, 8), (0, 0), (-5, 0)])
async def test_a_topic_is_made_and_on_disk_before_its_first_message(
    autojump_clock: MockClock, asked: int, queues: int,
) -> None:
    async with running() as world:
        answer = await world.ask(send("New", queue_id=0, default_topic_queue_nums=asked, unit_mode=True))
        made = TopicConfig("New", queues, queues, 6, topic_sys_flag=1)
        assert world.topics.get("New") == made
        assert load(world.files, Topics).topic_config_table["New"] == made
        assert answer.code == (ResponseCode.SUCCESS if queues else ResponseCode.INVALID_PARAMETER)
        if not queues:
            answer = await world.ask(send("New", queue_id=-1))
            assert answer.remark == "topic New has no queue to write to"


async def test_sends_that_wait_for_their_topic_keep_their_order(autojump_clock: MockClock) -> None:
    async with running() as world:
        connection = await world.client.connect("s:1")
        for number in range(20):
            command = send("New" if number % 5 else "Other", body=b"%d" % number)
            command.flag = ONEWAY
            connection.send(command)
            if number % 7 == 0:
                await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        bodies = [(record.message.topic, int(record.message.body)) for record in await world.records()]
        for topic in (b"New", b"Other"):
            mine = [number for name, number in bodies if name == topic]
            assert mine == sorted(mine)
        assert len(bodies) == 20


async def test_no_topic_is_made_where_that_is_off(autojump_clock: MockClock) -> None:
    async with running(topics=TopicsConfig(auto_create_topic_enable=False)) as world:
        assert (await world.ask(send("New"))).code == ResponseCode.TOPIC_NOT_EXIST
        world.groups.known["g"] = SubscriptionGroup("g")
        answer = await world.ask(send("%RETRY%g", queue_id=0, unit_mode=True))
        assert answer.code == ResponseCode.SUCCESS
        assert world.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6, topic_sys_flag=2)


async def test_many_tags_are_marked(autojump_clock: MockClock) -> None:
    async with running() as world:
        orders(world, topic_filter_type="MULTI_TAG")
        await world.ask(send())
        assert (await world.records())[-1].message.sys_flag == 2


# --- batches -------------------------------------------------------------------------------------------------


def batch(*messages: tuple[int, bytes, bytes], properties: dict[str, str] | None = None,
          **options: Any) -> Command:
    return send(body=encode_batch(list(messages)), properties=properties or {}, batch=True, **options)


@pytest.mark.parametrize("code", [
    RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE])
async def test_a_batch(autojump_clock: MockClock, code: RequestCode) -> None:
    async with running() as world:
        orders(world)
        await world.ask(send())
        inner = [(number, b"body %d" % number, encode_properties({"UNIQ_KEY": str(number)})) for number in range(5)]
        answer = await world.ask(batch(*inner, code=code))
        assert answer.code == ResponseCode.SUCCESS
        found = SendMessageResponse.from_ext(answer.ext)
        assert (found.queue_id, found.queue_offset, found.transaction_id) == (1, 1, None)
        stored = [world.journal.log.record(parse_message_id(each)[1]) for each in found.msg_id.split(",")]
        assert [(record.message.flag, record.message.body, record.message.properties) for record in stored] == inner
        assert [record.queue_offset for record in stored] == [1, 2, 3, 4, 5]
        assert world.sending.counters.messages == 6


@pytest.mark.parametrize(("command", "words"), [
    (batch((0, b"x", b""), topic="%RETRY%g", queue_id=0), "batch request does not support retry group %RETRY%g"),
    (batch((0, b"x", b""), sys_flag=4), f"{ILLEGAL} A batch takes no transaction."),
    (batch((0, b"x", b""), properties={"TRAN_MSG": "true"}), f"{ILLEGAL} A batch takes no transaction."),
    (batch((0, b"x", b""), properties={"DELAY": "2"}), f"{ILLEGAL} A batch cannot be delayed."),
    (batch(), f"{ILLEGAL} It has no message."),
    (send(body=b"\0\0\0\1", batch=True), f"{ILLEGAL} message 0 of the batch is cut off"),
    (batch((0, b"x", b""), (0, b"y" * (4 << 20 | 1), b"")), f"{ILLEGAL} body of 4194305 bytes; 4194304 are allowed"),
])
async def test_batches_that_are_refused(autojump_clock: MockClock, command: Command, words: str) -> None:
    async with running() as world:
        orders(world)
        world.topics.create_for_retry("g")
        answer = await world.ask(command, flag=0)
        assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, words)
        assert not await world.records()


# --- what became of the put ----------------------------------------------------------------------------------


def test_every_status_is_answered() -> None:
    assert {status.name: code for status, code in STORED.items()} == {
        "PUT_OK": 0, "FLUSH_DISK_TIMEOUT": 10, "FLUSH_SLAVE_TIMEOUT": 12, "SLAVE_NOT_AVAILABLE": 11}
    assert {status.name: refusal(status, 5).code for status in NOT_STORED} == {
        "IN_SYNC_REPLICAS_NOT_ENOUGH": 1, "CREATE_MAPPED_FILE_FAILED": 1, "MESSAGE_ILLEGAL": 13,
        "PROPERTIES_SIZE_EXCEEDED": 13, "WHEEL_TIMER_MSG_ILLEGAL": 13, "WHEEL_TIMER_FLOW_CONTROL": 1,
        "WHEEL_TIMER_NOT_ENABLE": 1, "TOPIC_GONE": 17, "SERVICE_NOT_AVAILABLE": 14, "OS_PAGE_CACHE_BUSY": 2,
        "LMQ_CONSUME_QUEUE_NUM_EXCEEDED": 2017, "UNKNOWN_ERROR": 1, "PUT_TO_REMOTE_BROKER_FAIL": 1}
    assert "limit 5B" in refusal(PutStatus.MESSAGE_ILLEGAL, 5, "why").remark


@attrs.define
class Slaves:
    """Replication that somebody else acknowledges, or nobody."""

    accepted: int = 2
    acknowledges: bool = False
    mode: Mode = Mode(BrokerRole.SYNC_MASTER, controller=True)

    @property
    def holders(self) -> Holders:
        return Holding(self.acknowledges, self.accepted)

    def replicas(self) -> Replicas:
        return Replicas(accepted=self.accepted)


@attrs.frozen
class Holding:
    everything: bool
    accepted: int

    def holds_all(self, end: int) -> bool:
        return self.everything

    def holders(self, end: int) -> int:
        return 3 if self.everything else 1

    def enough(self, least: int) -> bool:
        return self.accepted >= least


@pytest.mark.parametrize("made_again", [False, True])
async def test_what_a_young_master_holds_for_a_topic_that_is_deleted_is_refused(
    autojump_clock: MockClock, made_again: bool,
) -> None:
    """It does not come into a topic of that name that is made meanwhile."""
    quorum = QuorumConfig(3, 2, 2, young_master_hold_ms=5_000)
    async with running(quorum=quorum) as world, trio.open_nursery() as nursery:
        orders(world)
        world.topics.update([TopicConfig("Others", 4, 4, 6)])
        slaves = Slaves(accepted=1, acknowledges=True)
        world.puts.serve(slaves)
        answers: dict[str, Command] = {}

        async def asks(topic: str) -> None:
            answers[topic] = await world.ask(send(topic))

        nursery.start_soon(asks, "Orders")
        nursery.start_soon(asks, "Others")
        await trio.sleep(1)
        assert not answers
        world.topics.delete("Orders")
        await trio.sleep(0.1)
        gone = answers.pop("Orders")
        assert gone.code == ResponseCode.TOPIC_NOT_EXIST
        assert gone.remark == "topic not exist, apply first please! topic[Orders] was deleted meanwhile"
        if made_again:
            orders(world)
        slaves.accepted = 2
        world.puts.advanced()
        await trio.sleep(0.1)
        assert answers["Others"].code == ResponseCode.SUCCESS
        assert [record.message.topic for record in await world.records()] == [b"Others"]


async def test_acknowledgements(autojump_clock: MockClock) -> None:
    """In time, too late, too few replicas, a sender that waits for none, and the end of the master."""
    async with running(quorum=QuorumConfig(3, 2, 2, slave_timeout_ms=1_000)) as world:
        orders(world)
        slaves = Slaves()
        world.puts.serve(slaves)
        late = await world.ask(send())
        assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert (late.ext["queueOffset"], late.ext["transactionId"]) == ("0", UNIQ)
        assert (await world.ask(send(properties={"UNIQ_KEY": UNIQ, "WAIT": "false"}))).code == ResponseCode.SUCCESS
        slaves.acknowledges = True
        assert (await world.ask(send())).code == ResponseCode.SUCCESS
        slaves.accepted = 1
        few = await world.ask(send())
        assert (few.code, few.remark) == (ResponseCode.SYSTEM_ERROR, (
            "in-sync replicas not enough 1 replicas are in sync, 2 are needed: nothing was written"))
        slaves.accepted, slaves.acknowledges = 2, False
        async with trio.open_nursery() as nursery:
            async def asks() -> None:
                answer = await world.ask(send())
                assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.FLUSH_SLAVE_TIMEOUT, "3")

            nursery.start_soon(asks)
            await trio.sleep(0.5)
            world.puts.fence("no longer master")
        assert len(await world.records()) == 4
