"""Whatever comes to a broker's ports or lies in its store: an answer in words or a closed connection, a counter,
nothing that was answered lost, and service goes on.

Whole brokers on virtual time.
"""

from __future__ import annotations

import importlib
import struct
import weakref
from random import Random
from types import ModuleType
from typing import Any

import attrs
import pytest
import trio

from broker.consumers.locks import Locks
from broker.ha.wire import Ack, SlaveHandshake, report
from broker.replicas.identity import IdentityError
from broker.store.errors import WrongStore
from broker.store.files import MemoryFile, Space
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, until
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.bodies.consumers import ConsumerData, HeartbeatData, MessageQueue, ProducerData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY, Command, request
from remoting.fields import described
from remoting.frame import encode
from remoting.header import Header
from remoting.headers.pulling import PullMessageRequest
from remoting.headers.topics import CreateTopicRequest
from remoting.record import decode_all
from tests.broker.test_server import bodies, send_all

OK = ResponseCode.SUCCESS
LONG = "n" * 300
HEADERS = [importlib.import_module(f"remoting.headers.{name}") for name in (
    "broker", "consumers", "controller", "namesrv", "popping", "pulling", "queries", "sending", "topics",
    "transactions")]


def plausible(modules: list[ModuleType]) -> dict[str, str]:
    """Every field of every header that anybody sends, with a value that it may have."""
    found = {}
    for module in modules:
        for cls in vars(module).values():
            if isinstance(cls, type) and issubclass(cls, Header) and cls is not Header:
                for field in described(cls):
                    found[field.wire] = "true" if field.hint is bool else "1" if field.hint is not str else (
                        "G" if "roup" in field.wire else "T")
    return dict(sorted(found.items()))


RECEIPT = "0 1 60000 0 0 a 0 0"
WHOLE = plausible(HEADERS) | {"extraInfo": RECEIPT, "expType": "TAG", "order": "false"}
NAMES = list(WHOLE)
VALUES = [
    "", " ", "x", "-1", "0", "1", "4", "true", "T", "G", "TBW102", "%RETRY%G", "c", "a", "*", "a||b", "SQL92", "TAG",
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "../../etc", "a/b", "a\0b", "a\nb", "t\x01p", "t\x02p", "\x7f", "é中",
    str(2**31 - 1), str(-2**31), str(2**31), str(2**63 - 1), str(-2**63), str(2**63), "9" * 30, "1.5", "1e9",
    "7F0000010000854900000000000000F5", LONG, RECEIPT, "0 1 60000 999 0 a 0 0", "0 1 60000 0 0 other 0 0",
    "0 1", f"{2**63} 1 1 0 0 a 0 0", "0 0 10;1 0 7", "0 1 60000 0 0 a 0 0 x y",
]
BODIES = [
    b"", b"\0", b"\xff\xfe", b"{", b"[" * 30_000, b'{"a":' * 10_000, b"9" * 30_000, b"null", b"1", b'"a"', b"{}",
    b"[]",
    b'{"$ref":"$"}', b"a=b", b"brokerPermission=x", b"x" * 20_000,
    b'{"clientID":"x","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","subString":"(((",'
    b'"expressionType":"SQL92"}]}],"producerDataSet":[{"groupName":"P"}]}',
    b'{"clientID":"x","heartbeatFingerprint":5,"isWithoutSub":true,"withoutSub":true,"consumerDataSet":[{"groupName":'
    b'"\\u0000","consumeType":"99","messageModel":"-1","subscriptionDataSet":[{"topic":"a/b"}]}]}',
    b'{"topic":"T","consumerGroup":"G","clientId":"x","mqSet":[{"topic":"T","brokerName":"a","queueId":-1}]}',
    b'{"topic":"T","consumerGroup":"G","clientId":"x","strategyName":"none","messageModel":"none"}',
    b'{"topicConfigList":[{"topicName":"../x","readQueueNums":-1,"writeQueueNums":2147483647,"perm":-1}]}',
    b'{"groupName":"a/b","retryQueueNums":-1,"retryMaxTimes":-9}', b'[{"groupName":"g#"}]',
    b'{"groupName":"G2","retryQueueNums":2147483647}',
    b'{"brokerName":"a","acks":[{"c":"G","t":"T","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"AQ=="}]}',
    b'{"brokerName":"a","acks":[{"c":"G","t":"T","r":"2","so":-1,"q":-1,"rq":999,"pt":-1,"it":-1,"b":"/////w=="}]}',
    b'{"brokerName":"other","acks":[{"c":"a/b","t":"%RETRY%G","r":"x","so":9223372036854775807,"q":0,"rq":0,"pt":1,'
    b'"it":9223372036854775807,"b":"AQ=="},{"b":"?"},{}]}',
    b'{"subscriptionGroupTable":{"x":{"groupName":"y"}}}', b'{"offsetTable":{"T@G":{"0":-5,"x":1}}}',
]


async def ask(made: Cluster, address: str, code: int, ext: dict[str, str] | None = None, body: bytes = b"") -> Command:
    return await made.client.call(address, Command(code, ext=ext or {}, body=body), timeout_ms=120_000)


def sound(node: Node, where: object) -> None:
    """No handler had a defect."""
    assert not node.broker.server.counters.failed, where


async def serves(made: Cluster, node: Node, topic: str = "still") -> None:
    answer = await made.send(node.address, b"m", topic)
    assert answer.code == OK, answer
    found = await made.pull(node.address, int(answer.ext["queueOffset"]), topic)
    assert decode_all(found.body)[0].message.body == b"m"


async def served(made: Cluster, node: Node) -> list[int]:
    """Codes, each of which has been asked with nothing."""
    return [code for code in RequestCode
            if (await ask(made, node.address, code)).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED]


@pytest.mark.parametrize("kind", ["master", "slave", "controlled"])
async def test_any_fields_and_bodies_of_every_code(autojump_clock: trio.abc.Clock, kind: str) -> None:
    rng = Random(kind)
    async with cluster(controllers=1 if kind == "controlled" else 0) as made:
        master = await made.node(**(controlled(1) if kind == "controlled" else {}))
        await until(lambda: master.serves)
        node = await made.node(brokerRole="SLAVE", brokerId="1", slaveReadEnable="true") if kind == "slave" else master
        await send_all(made, master.address, b"m0", b"m1")
        codes = await served(made, node)
        assert len(codes) > 40
        for code in codes:
            if code == RequestCode.NOTIFY_BROKER_ROLE_CHANGED:
                continue  # a controller's word is believed, as in Java
            asked: list[tuple[dict[str, str], bytes]] = [({}, b""), *(({}, body) for body in BODIES)]
            asked += [(dict.fromkeys(NAMES, value), b"") for value in VALUES]
            asked += [({name: rng.choice(VALUES) for name in NAMES}, rng.choice(BODIES)) for _ in range(5)]
            if kind != "master":
                asked = rng.sample(asked, 15)
            asked += [({**WHOLE, **{rng.choice(NAMES): rng.choice(VALUES) for _ in range(rng.randrange(20))}},
                       rng.choice(BODIES)) for _ in range(10)]
            for ext, body in asked:
                answer = await ask(made, node.address, code, ext, body)
                assert not answer.code or answer.code >= 0
                assert answer.code == OK or answer.remark or answer.ext, (code, str(ext)[:200], body[:40], answer)
                assert len(str(answer.remark)) < 3_000, (code, len(str(answer.remark)))
                sound(node, (code, str(ext)[:300], body[:80], answer.remark))
        await ask(made, master.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
        await serves(made, master)


# --- bytes -----------------------------------------------------------------------------------------------------------


def garbage(rng: Random, frames: list[bytes]) -> bytes:
    frame = bytearray(rng.choice(frames))
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(1, 200))
        case 1:
            return bytes(frame[: rng.randrange(1, len(frame))])
        case 2:
            return struct.pack(">i", rng.choice([-1, 0, 1, 3, 4, 1 << 24, 1 << 25, 2**31 - 1])) + rng.randbytes(20)
        case 3:
            return struct.pack(">ii", 60, rng.choice([0, 1]) << 24 | rng.randrange(200)) + rng.randbytes(56)
        case 4:
            return rng.choice([b"\x16\x03\x01", b"PROXY ", b"GET / HTTP/1.1\r\n\r\n"]) + rng.randbytes(150)
        case _:
            for _ in range(rng.randrange(1, 6)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            return bytes(frame)


async def test_any_bytes_on_both_ports(autojump_clock: trio.abc.Clock) -> None:
    rng = Random(5)
    requests = [
        encode(Command(code, 1, rng.choice([0, ONEWAY]), WHOLE, rng.choice(BODIES))) for code in (10, 11, 14, 34)]
    words = [SlaveHandshake(7).to_bytes() + Ack(0).to_bytes(), report(0), report(1 << 50), b"\xff" * 40,
             Ack(1 << 60).to_bytes()]
    async with cluster() as made:
        node = await made.node(serverChannelMaxIdleTimeSeconds="5")
        await send_all(made, node.address, b"m0")
        end = node.broker.journal.end
        connect: Any = made.network.connector("stranger")
        streams = []
        for number in range(400):
            ha = number % 4 == 0
            stream = await connect(f"{node.host}:10912" if ha else node.address)
            with trio.move_on_after(1):
                await stream.send_all(garbage(rng, words if ha else requests))
            streams.append(stream)
        await trio.sleep(60)  # longer than any of them may be idle
        for stream in streams:
            await trio.aclose_forcefully(stream)
        sound(node, "bytes")
        counters = node.broker.server.counters
        assert counters.bad_frames > 20 and counters.idle > 3
        assert all("stranger" not in connection.peer for connection in node.broker.server.connections)
        assert node.broker.roles.runtime_info().in_sync_slave_nums == 0
        assert node.broker.journal.end >= end
        await serves(made, node)


# --- messages that are none ------------------------------------------------------------------------------------------


def sending(**changed: Any) -> SendMessageRequest:
    fields: dict[str, Any] = {
        "producer_group": "P", "topic": "T", "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 0,
        "born_timestamp": 1, "properties": "", "reconsume_times": 0, "unit_mode": False, "batch": False}
    return SendMessageRequest(**{**fields, **changed})


@pytest.mark.parametrize(("changed", "body"), [
    ({}, b"x" * 1_001), ({"topic": "a/b"}, b"x"), ({"topic": ".."}, b"x"), ({"topic": "a\0"}, b"x"),
    ({"topic": ""}, b"x"),
    ({"topic": "t" * 128}, b"x"), ({"topic": "中"}, b"x"), ({"topic": "SCHEDULE_TOPIC_XXXX"}, b"x"),
    ({"topic": "%RETRY%" + "g" * 250}, b"x"), ({"properties": "k\x01" + "v" * 40_000}, b"x"),
    ({"queue_id": 9_999}, b"x"),
    ({"batch": True}, b"x"), ({"batch": True}, struct.pack(">iiiii", -1, 0, 0, 0, -1) + b"\0\0"),
    ({"batch": True}, b"\0" * 22), ({"default_topic": "none", "topic": "new"}, b"x"),
])
async def test_messages_that_cannot_be_stored(
    changed: dict[str, Any], body: bytes, autojump_clock: trio.abc.Clock,
) -> None:
    async with cluster() as made:
        node = await made.node(maxMessageSize="1000")
        await send_all(made, node.address, b"m0")
        end, topics = node.broker.journal.end, node.topics.version
        code = RequestCode.SEND_BATCH_MESSAGE if changed.get("batch") else RequestCode.SEND_MESSAGE
        answer = await made.ask(node.address, code, sending(**changed), body)
        assert answer.code and answer.remark, answer
        assert len(answer.remark) < 500
        sound(node, answer)
        assert (node.broker.journal.end, node.topics.version) == (end, topics)
        await serves(made, node)


@pytest.mark.parametrize("properties", [
    "k", "\x01", "\x02\x02", "k\x01v\x02k\x01w", "\x01v\x02", "a\x01b\x01c\x02", "DELAY\x01x", "DELAY\x01-1",
    "DELAY\x0199",
    "DELAY\x01" + "9" * 40, "TAGS\x01\x02", "KEYS\x01" + " " * 50, "WAIT\x01maybe", "TRAN_MSG\x01true",
    "RECONSUME_TIME\x01x",
    "TIMER_DELAY_SEC\x01x", "INNER_MULTI_DISPATCH\x01a,b", "UNIQ_KEY\x01" + "u" * 3_000, "\ufffd\x01\U0001f600",
])
async def test_properties_of_any_kind(properties: str, autojump_clock: trio.abc.Clock) -> None:
    """Stored or refused; never half of either, and the queue behind goes on."""
    async with cluster() as made:
        node = await made.node()
        answer = await made.ask(node.address, RequestCode.SEND_MESSAGE, sending(properties=properties), b"odd")
        assert answer.code == OK or answer.remark
        await send_all(made, node.address, b"m1")
        await trio.sleep(1)
        assert (await bodies(made, node.address))[-1] == b"m1"
        sound(node, answer)
        await node.kill()
        await node.start()
        await serves(made, node)


# --- floods ----------------------------------------------------------------------------------------------------------


async def test_what_clients_make_of_themselves_is_bounded(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        clients = node.clients
        await serves(made, node)
        node.topics.config = attrs.evolve(node.topics.config, clients_topics_max=40)
        node.groups.config = attrs.evolve(node.groups.config, clients_groups_max=50)
        clients.consumers.config = clients.producers.config = attrs.evolve(
            clients.consumers.config, groups_of_client_max=60)
        for name in [f"{prefix}flood{number}" for number in range(100) for prefix in ("", "%RETRY%")]:
            await made.send(node.address, b"m", name)
        for name in ("last", "%RETRY%last"):
            answer = await made.send(node.address, b"m", name)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST and answer.remark
        assert len(node.topics.topics) == 40
        for start in range(0, 1_000, 100):
            beat = HeartbeatData(
                "x", [ProducerData(f"p{number}") for number in range(start, start + 100)],
                [ConsumerData(f"g{number}") for number in range(start, start + 100)])
            assert (await ask(made, node.address, RequestCode.HEART_BEAT, body=beat.to_json())).code == OK
        assert len(node.groups.groups) == 50
        assert len(clients.consumers.groups) <= 60 and len(clients.producers.groups) == 60
        huge = HeartbeatData("x", [ProducerData("p" * 90 + str(number)) for number in range(20_000)])
        answer = await ask(made, node.address, RequestCode.HEART_BEAT, body=huge.to_json())
        assert answer.code == ResponseCode.SYSTEM_ERROR and "bytes" in str(answer.remark)
        answer = await made.ask(node.address, RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest(
            "still", 1, 1, 6))
        assert answer.code == OK, "administrators may"
        await serves(made, node)
        await made.network.drop("10.0.9.1:1")
        await trio.sleep(1)
        assert not clients.consumers.groups and not clients.producers.groups


def test_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.consumers.locks.HELD_MAX", 10)
    now = [0]
    locks = Locks(lambda: now[0])
    queues = [MessageQueue("T", "a", number) for number in range(20)]
    assert locks.lock("G", queues, "x") == queues[:10]
    assert locks.lock("G", queues, "x") == queues[:10], "again"
    assert locks.lock("other", queues, "x") == []
    locks.unlock("G", queues[:4], "x")
    assert locks.lock("other", queues, "y") == queues[:4]
    now[0] = 1 << 50
    locks.expire()
    assert locks.lock("other", queues, "y") == queues[:10]


async def test_pulls_that_wait_are_bounded(autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.pulling.holding.HELD_MAX", 5)
    async with cluster() as made:
        node = await made.node()
        await send_all(made, node.address, b"m0")
        answers = []

        async def pull() -> None:
            answers.append(await made.ask(node.address, RequestCode.PULL_MESSAGE, PullMessageRequest(
                "G", "T", 0, 1, sys_flag=6, suspend_timeout_millis=20_000, subscription="*")))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(pull)
            await trio.sleep(1)
            assert len(answers) == 15 and len(node.pulling.holding) == 5
        assert {answer.code for answer in answers} == {ResponseCode.PULL_NOT_FOUND}
        assert len(node.pulling.holding) == 0


async def test_what_pulls_bring_while_they_wait_is_bounded_and_let_go(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.waiters.BYTES_MAX", 40_000)
    async with cluster() as made:
        node = await made.node()
        await send_all(made, node.address, b"m0")
        holding, answers = node.pulling.holding, []

        async def pull(body: bytes, key: str) -> None:
            command = request(RequestCode.PULL_MESSAGE, PullMessageRequest(
                "G", "T", 0, 1, sys_flag=6, suspend_timeout_millis=1 << 40, subscription="*"), body)
            command.ext[key] = ""
            answers.append(await made.client.call(node.address, command, 1 << 40))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(pull, bytes(8_000), "")
                nursery.start_soon(pull, b"", "k" * 8_000)
            await trio.sleep(1)
            assert len(answers) == 4 and len(holding) == 4
            nursery.start_soon(pull, b"", "")
            await trio.sleep(1)
            assert len(answers) == 4, "one as clients send them"
            kept = [weakref.ref(held.request) for waiting in holding._held.values() for held in waiting]
            await send_all(made, node.address, *(b"m%d" % number for number in range(20)))
        assert len(holding) == 0 and holding._bytes.total == 0
        assert not any(command() for command in kept), "the queue of deadlines keeps none"


# --- stores ----------------------------------------------------------------------------------------------------------


async def stored(made: Cluster, **settings: str) -> Node:
    node = await made.node(flushDiskType="SYNC_FLUSH", **settings)
    await send_all(made, node.address, *(b"m%d" % number for number in range(10)))
    node.offsets.commit("G", "T", 0, 3)
    await trio.sleep(30)
    return node


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "zeros"])
@pytest.mark.parametrize("kind", ["checkpoint", "index", "config", "consumequeue", "abort"])
async def test_every_other_file_may_be_damaged(
    kind: str, how: str, killed: bool, autojump_clock: trio.abc.Clock,
) -> None:
    """It starts with every message, or says in words which file it cannot read; then an older copy is put back."""
    async with cluster() as made:
        node = await stored(made)
        await (node.kill() if killed else node.stop())
        whole = {name: bytes(file.data) for name, file in node.store.content.items()}
        for name in [name for name in whole if name.startswith(kind)]:
            damage(node, name, how)
        try:
            await node.start()
        except WrongStore as error:
            said = str(error)
            assert kind in said and ("repair" in said or "remove" in said), said
            node.store.content |= {name: MemoryFile(bytearray(data), data) for name, data in whole.items()}
            await node.start()
        if kind == "config" and how == "gone":  # the topic is made again by who sends to it
            await send_all(made, node.address, b"m10")
        answer = await made.pull(node.address)
        if kind == "consumequeue" and how == "flipped":
            assert answer.code == ResponseCode.SYSTEM_ERROR and "it is built again" in str(answer.remark)
            await trio.sleep(1)
            answer = await made.pull(node.address)
        if kind != "consumequeue" or how != "zeros":  # a queue of zeros looks like one that is empty
            found = [each.message.body for each in decode_all(answer.body)]
            assert found[:10] == [b"m%d" % number for number in range(10)]
        sound(node, kind)
        await serves(made, node)


def damage(node: Node, name: str, how: str) -> None:
    data = node.store.content[name].data
    match how:
        case "flipped":
            data[:60] = bytes(byte ^ 0xFF for byte in data[:60])
        case "cut":
            del data[45 if "consumequeue" in name else len(data) // 2 :]
        case "gone":
            node.store.remove(name)
        case _:
            data[:] = bytes(len(data))
    if name in node.store.content:
        node.store.content[name].synced = data[:]


async def test_a_damaged_log_is_not_cut_before_what_was_answered(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await stored(made)
        await node.kill()
        (name,) = [name for name in node.store.content if name.startswith("commitlog")]
        file = node.store.content[name]
        at = file.data.index(b"m4")
        file.data[at] ^= 1
        with pytest.raises(WrongStore, match="commitlog is damaged at offset"):
            await node.start()
        file.data[at] ^= 1
        await node.start()
        assert len(await bodies(made, node.address)) == 10


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await stored(made)
        node.store.disk = Space(1 << 40, 1 << 20)
        await trio.sleep(30)
        answer = await made.send(node.address, b"no room")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE and "disk" in str(answer.remark), answer
        assert len(await bodies(made, node.address)) == 10, "reads go on"
        node.store.disk = Space(1 << 40, 1 << 39)
        await trio.sleep(30)
        await serves(made, node)
        sound(node, "full")


@pytest.mark.parametrize("text", [b"c#other#1", b"other#a#1", b"c#a#x", b"\xff\xfe", b"", b"c#a#1#2"])
async def test_a_wrong_identity_file(text: bytes, autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=1) as made:
        node = Node(made, "10.0.0.1", controlled(1))
        node.files.replace("/store/brokerIdentity", text)
        with pytest.raises(IdentityError, match="identity file"):
            await node.start()


@pytest.mark.parametrize("text", [b"\xff\xfe", b"1\n5\n1-0\n", b"2\n0\n1-0\n", b"1\n0\n1-100000\n", b"0\n0\n"])
@pytest.mark.parametrize("whose", ["master", "slave"])
async def test_an_epoch_file_that_disagrees_with_the_log(
    text: bytes, whose: str, autojump_clock: trio.abc.Clock,
) -> None:
    """Whatever it says, the replicas end with one log, and with every message."""
    async with cluster(controllers=1) as made:
        nodes = [await made.node(**controlled(1)) for _ in range(2)]
        await until(lambda: any(node.serves for node in nodes))
        master = next(node for node in nodes if node.serves)
        slave = next(node for node in nodes if node is not master)
        await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == 1)
        await send_all(made, master.address, b"m0", b"m1")
        await until(lambda: slave.topics.get("T")
                    and slave.broker.journal.end == master.broker.journal.end)
        victim = master if whose == "master" else slave
        await victim.stop()
        for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
            victim.store.content[name] = MemoryFile(bytearray(text), text)
        await victim.start()
        await until(lambda: any(node.serves for node in nodes))
        now = next(node for node in nodes if node.serves)
        await until(lambda: now.broker.roles.runtime_info().in_sync_slave_nums == 1, within_s=300)
        await serves(made, now)
        assert await bodies(made, now.address) == [b"m0", b"m1"]
        await until(lambda: len({node.broker.journal.end for node in nodes}) == 1)
        assert len({node.broker.journal.read(0, node.broker.journal.end) for node in nodes}) == 1


async def test_an_epoch_file_of_a_later_epoch_than_the_groups(autojump_clock: trio.abc.Clock) -> None:
    """Nobody can say whose log that is: this replica takes no role, and says so; the others go on."""
    async with cluster(controllers=1) as made:
        nodes = [await made.node(**controlled(1)) for _ in range(2)]
        await until(lambda: any(node.serves for node in nodes))
        master = next(node for node in nodes if node.serves)
        slave = next(node for node in nodes if node is not master)
        await send_all(made, master.address, b"m0")
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await slave.stop()
        for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
            slave.store.content[name] = MemoryFile(bytearray(b"1\n0\n9-0\n"), b"1\n0\n9-0\n")
        await slave.start()
        end = slave.broker.journal.end
        await trio.sleep(60)
        assert slave.broker.journal.end == end
        assert not slave.serves and master.serves
        await serves(made, master)
        assert await bodies(made, master.address) == [b"m0"]


async def test_a_plain_slave_ahead_of_its_master(autojump_clock: trio.abc.Clock) -> None:
    """Nothing is cut unasked, and nothing is taken; the master says why it closes, and goes on."""
    async with cluster() as made:
        master = await made.node()
        slave = await made.node(brokerRole="SLAVE", brokerId="1")
        await send_all(made, master.address, b"m0", b"m1")
        await until(lambda: slave.broker.journal.end == master.broker.journal.end)
        await master.stop()
        master.store.content.clear()
        await master.start()
        await send_all(made, master.address, b"n0")
        ahead = slave.broker.journal.end
        await trio.sleep(60)
        assert slave.broker.journal.end == ahead
        assert master.broker.roles.runtime_info().in_sync_slave_nums == 0
        await serves(made, master)
