"""Requests and their replies through whole brokers: to whom a reply goes, what is stored, and what ends in words."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.replies.part import RepliesPart
from harness.simulation.worlds.brokers import CLUSTER, Cluster, Node, cluster, new_master, three
from remoting.bodies.consumers import HeartbeatData, ProducerData
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.headers.sending import SendMessageRequestV2
from remoting.record import NOTED, decode_all, decode_properties

TOPIC = f"{CLUSTER}_REPLY_TOPIC"


@attrs.define
class Requester:
    """A client that is known by its heartbeats, and takes replies."""

    client: Client
    pushed: list[Command]
    code: int = ResponseCode.SUCCESS

    async def beats(self, address: str, client_id: str = "asker") -> None:
        body = HeartbeatData(client_id, [ProducerData("askers")]).to_json()
        assert (await self.client.call(address, request(RequestCode.HEART_BEAT, body=body))).code == 0


@asynccontextmanager
async def requester(made: Cluster) -> AsyncGenerator[Requester, None]:
    found: list[Requester] = []

    def take(_: Connection, command: Command) -> Command:
        found[0].pushed.append(command)
        return response(command, found[0].code, remark="no room")

    async with open_client(connector=made.network.connector("10.0.7.1:1"),
                           handlers={RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: take}) as client:
        found.append(Requester(client, []))
        yield found[0]


def properties(**values: str) -> str:
    return "".join(f"{key}\x01{value}\x02" for key, value in values.items())


async def reply(made: Cluster, node: Node, values: str, *, body: bytes = b"answer", topic: str = TOPIC,
                queue: int = 0, sys_flag: int = 0) -> Command:
    header = SendMessageRequestV2(topic, queue, "repliers", "TBW102", 4, sys_flag, 1_700_000_000_000, 7, values)
    return await made.ask(node.address, RequestCode.SEND_REPLY_MESSAGE_V2, header, body)


ASKED = properties(REPLY_TO_CLIENT="asker", CORRELATION_ID="c1", TTL="3000", MSG_TYPE="reply")


async def test_a_reply_goes_to_its_requester_and_into_the_log(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node()
        await asker.beats(node.address)
        answer = await reply(made, node, ASKED, sys_flag=1)
        assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "0", "0")
        assert len(answer.ext["msgId"]) == 32, "of the record"
        (pushed,) = asker.pushed
        assert pushed.body == b"answer"
        assert {key: pushed.ext[key] for key in ("producerGroup", "topic", "queueId", "sysFlag", "flag")} == {
            "producerGroup": "repliers", "topic": TOPIC, "queueId": "0", "sysFlag": "1", "flag": "7"}
        assert pushed.ext["storeHost"] == node.address
        told = dict(pair.split("\x01") for pair in pushed.ext["properties"].split("\x02") if pair)
        assert told["CORRELATION_ID"] == "c1" and "PUSH_REPLY_TIME" in told
        (record,) = decode_all((await made.pull(node.address, 0, TOPIC)).body)
        assert (record.message.body, record.message.sys_flag & 1) == (b"answer", 1)
        assert "PUSH_REPLY_TIME" not in decode_properties(record.message.properties), "the log has it as it came"


async def test_a_reply_has_no_flag_that_is_the_brokers_alone(autojump_clock: MockClock) -> None:
    """Replicas would hear it as a record of the broker's own."""
    async with cluster() as made:
        node = await made.node()
        await reply(made, node, ASKED, sys_flag=NOTED | 1)
        (record,) = decode_all((await made.pull(node.address, 0, TOPIC)).body)
        assert record.message.sys_flag == 1


async def test_the_old_form_of_the_request_is_read_too(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node()
        await asker.beats(node.address)
        command = request(RequestCode.SEND_REPLY_MESSAGE, body=b"answer")
        command.ext.update({"producerGroup": "repliers", "topic": TOPIC, "queueId": "-1", "properties": ASKED})
        answer = await made.client.call(node.address, command)
        assert answer.code == 0 and asker.pushed[0].ext["producerGroup"] == "repliers"


async def test_what_is_not_to_be_stored_is_only_pushed(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node(storeReplyMessageEnable="false")
        await asker.beats(node.address)
        answer = await reply(made, node, ASKED)
        assert (answer.code, answer.ext["msgId"], len(asker.pushed)) == (0, "0", 1)
        assert (await made.pull(node.address, 0, TOPIC)).code != 0


async def test_a_requester_that_is_not_there_or_refuses_is_told_in_words(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node()
        node.broker.parts[RepliesPart].replies.absent = type(node.broker.parts[RepliesPart].replies.absent)()
        gone = await reply(made, node, ASKED)
        assert (gone.code, gone.remark) == (1, "push reply message fail, channel of <asker> not found.")
        assert len(gone.ext["msgId"]) == 32, "it is stored all the same, as by Java"
        nobody = await reply(made, node, properties(CORRELATION_ID="c1"))
        assert (nobody.code, nobody.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        await asker.beats(node.address)
        asker.code = ResponseCode.SYSTEM_ERROR
        refused = await reply(made, node, ASKED)
        assert refused.code == 1 and (refused.remark or "").startswith("push reply message to asker fail.")


@pytest.mark.parametrize(("topic", "queue", "body", "code"), [
    ("no/topic", 0, b"x", ResponseCode.INVALID_PARAMETER), (TOPIC, 9, b"x", ResponseCode.INVALID_PARAMETER),
    ("SCHEDULE_TOPIC_XXXX", 0, b"x", ResponseCode.NO_PERMISSION), (TOPIC, 0, b"", ResponseCode.MESSAGE_ILLEGAL),
    (TOPIC, 0, bytes(5 << 20), ResponseCode.MESSAGE_ILLEGAL)])
async def test_what_no_send_may_do_no_reply_may(
        autojump_clock: MockClock, topic: str, queue: int, body: bytes, code: int) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node()
        await asker.beats(node.address)
        answer = await reply(made, node, ASKED, topic=topic, queue=queue, body=body)
        assert answer.code == code and not asker.pushed


async def test_a_reply_topic_that_there_is_not_and_that_nobody_makes_is_told_so(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node(autoCreateTopicEnable="false")
        await asker.beats(node.address)
        end, version = node.broker.journal.end, node.topics.version
        for topic in ("None", "other_REPLY_TOPIC", "x" * 120):
            answer = await reply(made, node, ASKED, topic=topic)
            assert (answer.code, answer.remark) == (
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        assert not asker.pushed and (node.broker.journal.end, node.topics.version) == (end, version)
        assert (await reply(made, node, ASKED)).code == 0 and len(asker.pushed) == 1, "its own is there from the start"


async def test_a_topic_that_a_reply_makes_is_on_disk_first(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node()
        await asker.beats(node.address)
        assert (await reply(made, node, ASKED, topic="Own")).code == 0 and node.topics.get("Own") is not None


async def test_a_reply_that_comes_before_its_requester_to_a_new_master_waits_for_it(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made, requester(made) as asker:
        master, *others = await three(made)
        await asker.beats(master.address)
        await master.kill()
        heir = await new_master(*others)
        answers: list[Command] = []

        async def answer() -> None:
            answers.append(await reply(made, heir, ASKED))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            await trio.sleep(1)
            assert not answers
            await asker.beats(heir.address)
        assert (answers[0].code, len(asker.pushed)) == (0, 1)
        began = trio.current_time()
        alone = await reply(made, heir, ASKED.replace("asker", "nobody"))
        assert alone.code == ResponseCode.SYSTEM_ERROR and trio.current_time() - began < 3, "its sender still waits"


async def test_a_slave_takes_no_replies(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        _, slave, _ = await three(made)
        assert (await reply(made, slave, ASKED)).code == ResponseCode.SYSTEM_BUSY


async def test_a_client_that_came_by_another_connection_is_answered_there(autojump_clock: MockClock) -> None:
    async with cluster() as made, requester(made) as asker:
        node = await made.node()
        async with requester(made) as before:
            await before.beats(node.address)
            await asker.beats(node.address)
        await trio.sleep(1)
        assert (await reply(made, node, ASKED)).code == 0 and len(asker.pushed) == 1
