"""``mqadmin`` looks for messages in the real store of a broker in memory, and shows them in the original's lines."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

import pytest
from trio.testing import MockClock

from controller.admin import lookups
from controller.admin.cli import FAILED
from remoting.bodies.consumers import ConsumerConnection, SubscriptionData
from remoting.bodies.namesrv import TopicConfig
from remoting.record import encode_properties
from tests.broker.sending.world import send
from tests.controller.admin.shop import STORED_AT, Shop, shop


@pytest.fixture(autouse=True)
def bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lookups, "BODIES", tmp_path / "bodies")
    return tmp_path / "bodies"


async def stored(asked: Shop, body: str = "hello", key: str = "k") -> dict[str, str]:
    asked.world.topics.update([TopicConfig("t", 2, 2)])
    sent: dict[str, str] = await asked.data("sendMessage", "-t", "t", "-p", body, "-k", f"{key} other", "-c", "tag",
                                            "-b", "a", "-i", "1")
    await asked.world.records()
    return sent


async def test_a_message_is_found_by_its_place(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], bodies: Path,
) -> None:
    async with shop(capsys) as asked:
        sent = await stored(asked)
        lines = (await asked.mqadmin("queryMsgById", "-t", "t", "-i", sent["offsetMsgId"], "-f", "UTF-8")).splitlines()
        assert lines[0] == f"{'OffsetID:':<20} {sent['offsetMsgId']}"
        assert [line.partition(":")[0] for line in lines[1:-3]] == [
            "Topic", "Tags", "Keys", "Queue ID", "Queue Offset", "CommitLog Offset", "Reconsume Times",
            "Born Timestamp", "Store Timestamp", "Born Host", "Store Host", "System Flag", "Properties",
            "Message Body Path", "Message Body"]
        assert lines[2:5] == [f"{'Tags:':<20} [tag]", f"{'Keys:':<20} [k other]", f"{'Queue ID:':<20} 1"]
        assert lines[11] == f"{'Store Host:':<20} {STORED_AT}"
        assert re.fullmatch(rf"Properties: +{{KEYS=k other, UNIQ_KEY={sent['msgId']}, WAIT=true, TAGS=tag.*}}",
                            lines[13])
        assert lines[-4:] == [f"{'Message Body:':<20} hello", "", "", "WARN: No Consumer"]
        assert (bodies / sent["msgId"]).read_bytes() == b"hello"


async def test_ids_of_senders_and_several_are_found_too(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with shop(capsys) as asked:
        first, second = await stored(asked), await stored(asked, "again")
        monkeypatch.setattr(lookups, "UNIQUE_AGE_MS", 1 << 50)  # the store's clock is that of the test
        found = await asked.data("queryMsgById", "-t", "t", "-i", f"{first['msgId']},{second['offsetMsgId']}")
        assert [(each["body"], each["msgId"]) for each in found] == [
            ("hello", first["msgId"]), ("again", second["msgId"])]


async def test_messages_are_found_by_key(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        first, second = await stored(asked), await stored(asked)
        await stored(asked, key="another")
        lines = (await asked.mqadmin("queryMsgByKey", "-t", "t", "-k", "k")).splitlines()
        records = await asked.world.records()
        hour = 1_699_999_200_000
        assert [line.rstrip() for line in lines] == [
            f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40} #IndexKey",
            f"{second['msgId']:<50} {1:>4} {1:>40} {hour}@t@K@k@{second['msgId']}@{records[1].offset}",
            f"{first['msgId']:<50} {1:>4} {0:>40} {hour}@t@K@k@{first['msgId']}@0"]
        assert len(await asked.data("queryMsgByKey", "-t", "t", "-k", "k", "-m", "1", "-c", "c")) == 1
        for nothing in (["-k", "missing"], ["-k", "k", "-e", "1"], ["-k", "k", "-c", "elsewhere"]):
            said = await asked.mqadmin("queryMsgByKey", "-t", "t", *nothing, code=FAILED)
            assert "was found" in said
        said = await asked.mqadmin("queryMsgByKey", "-t", "t", "-k", "tag", "-p", "T", code=FAILED)
        assert "indexType T is not offered" in said


async def test_copies_of_a_message_are_found_by_its_sender_s_id(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], bodies: Path,
) -> None:
    async with shop(capsys) as asked:
        sent = await stored(asked)
        command = send("t", b"copy", properties={"UNIQ_KEY": sent["msgId"]})
        await asked.world.ask(command)
        await asked.world.records()
        lines = (await asked.mqadmin("queryMsgByUniqueKey", "-t", "t", "-i", sent["msgId"])).splitlines()
        assert lines[0] == f"{'Topic:':<20} t" and lines[-1] == "WARN: No Consumer" and len(lines) == 17
        said = await asked.mqadmin("queryMsgByUniqueKey", "-t", "t", "-i", sent["msgId"], "-e", "1", code=FAILED)
        assert "was found" in said
        found = await asked.data("queryMsgByUniqueKey", "-t", "t", "-i", sent["msgId"], "-a")
        assert {each["body"] for each in found} == {"hello", "copy"}
        assert sorted(os.listdir(bodies)) == [sent["msgId"], sent["msgId"] + "_1"]


async def test_a_compressed_body_is_shown_as_it_was_sent(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t", 2, 2)])
        await asked.world.ask(send("t", zlib.compress(b"x" * 999), sys_flag=1, properties={"KEYS": "k"}))
        record = (await asked.world.records())[-1]
        (found,) = await asked.data("queryMsgById", "-t", "t", "-i", record.message_id)
        assert found["body"] == "x" * 999 and found["sysFlag"] == 1


async def test_an_id_is_no_path(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], bodies: Path) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t", 2, 2)])
        await asked.world.ask(send("t", b"x", properties={"UNIQ_KEY": "../../escaped", "KEYS": "k"}))
        record = (await asked.world.records())[-1]
        (found,) = await asked.data("queryMsgById", "-t", "t", "-i", record.message_id)
        assert found["bodyPath"] == str(bodies / record.message_id) and found["msgId"] == "../../escaped"
        (bodies / record.message_id).unlink()
        (bodies / record.message_id).symlink_to(bodies / "elsewhere")
        said = await asked.mqadmin("queryMsgById", "-t", "t", "-i", record.message_id, code=FAILED)
        assert "cannot be written" in said and not (bodies / "elsewhere").exists()


@pytest.mark.parametrize(("kind", "tags", "group", "wanted"), [
    ("CONSUME_PASSIVELY", None, "g", "CONSUMED, exceptionDesc=null"),
    ("CONSUME_PASSIVELY", frozenset({"*"}), "g", "CONSUMED, exceptionDesc=null"),
    ("CONSUME_PASSIVELY", frozenset({"b"}), "g", "CONSUMED_BUT_FILTERED, exceptionDesc=null"),
    ("CONSUME_ACTIVELY", None, "g", "PULL, exceptionDesc=null"),
    ("CONSUME_POP", None, "g", "UNKNOWN, exceptionDesc=null"),
    ("CONSUME_PASSIVELY", None, "gone", "NOT_ONLINE, exceptionDesc=CODE:206 DESC:not online"),
])
async def test_who_has_consumed_it(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], kind: str, tags: frozenset[str] | None, group: str,
    wanted: str,
) -> None:
    async with shop(capsys) as asked:
        sent = await stored(asked)
        asked.world.topics.create_for_retry(group)
        asked.script.readers = [group]
        asked.names.master = STORED_AT
        asked.script.members = ConsumerConnection(
            [], {} if tags is None else {"t": SubscriptionData("t", tags_set=tags)}, kind)
        lines = (await asked.mqadmin("queryMsgById", "-t", "t", "-i", sent["offsetMsgId"])).splitlines()
        assert lines[-1] == f"MessageTrack [consumerGroup={group}, trackType={wanted}]"


async def test_what_is_not_yet_consumed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        sent = await stored(asked)
        asked.world.topics.create_for_retry("g")
        asked.script.readers = ["g"]
        lines = (await asked.mqadmin("queryMsgByUniqueKey", "-t", "t", "-i", sent["msgId"])).splitlines()
        assert lines[-1] == (  # it was stored by another broker than those that the name server knows
            "MessageTrack [consumerGroup=g, trackType=NOT_CONSUME_YET, exceptionDesc=null]")


async def test_one_client_consumes_it_or_it_is_sent_again(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        sent = await stored(asked)
        asked.world.topics.create_for_retry("g")
        for command, message_id in (("queryMsgById", sent["offsetMsgId"]), ("queryMsgByUniqueKey", sent["msgId"])):
            assert await asked.mqadmin(command, "-t", "t", "-i", message_id, "-g", "g", "-d", "id") == (
                "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null, "
                "spentTimeMills=3]\n")
            assert asked.script.asked[-1].ext["msgId"] == sent["offsetMsgId"]
        asked.script.members = ConsumerConnection([], {}, "CONSUME_ACTIVELY")
        said = await asked.mqadmin("queryMsgById", "-t", "t", "-i", sent["offsetMsgId"], "-g", "g", "-d", "id",
                                   code=FAILED)
        assert "is not push consumer" in said
        said = await asked.mqadmin("queryMsgById", "-t", "t", "-i", sent["offsetMsgId"], "-s", "true")
        assert re.fullmatch(
            rf"prepare resend msg. originalMsgId={sent['offsetMsgId']}SendResult \[sendStatus=SEND_OK, "
            rf"msgId={sent['msgId']}, offsetMsgId=[0-9A-F]{{32}}, messageQueue=MessageQueue \[topic=t, brokerName=a, "
            r"queueId=[01]\], queueOffset=\d, recallHandle=null\]\n", said)
        records = await asked.world.records()
        assert [record.message.body for record in records] == [b"hello", b"hello"]


async def test_a_send_is_traced(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t", 1, 1), TopicConfig("RMQ_SYS_TRACE_TOPIC", 1, 1)])
        sent = await asked.data("sendMessage", "-t", "t", "-p", "x", "-k", "k", "-m", "true")
        assert sent["trace"] == "SEND_OK"
        first, trace = (record.message for record in await asked.world.records())
        fields = trace.body.decode().removesuffix("\x02").split("\x01")
        assert (trace.topic, len(fields)) == (b"RMQ_SYS_TRACE_TOPIC", 14)
        assert (fields[0], fields[2:4], fields[4:6]) == (
            "Pub", ["DefaultRegion", "TOOLS_PRODUCER"], ["t", sent["msgId"]])
        assert fields[6:10] == ["", "k", "a:1", "1"] and fields[11:] == ["0", sent["offsetMsgId"], "true"]
        assert encode_properties({"KEYS": f"{sent['msgId']} k"}) in trace.properties
        assert first.topic == b"t"
