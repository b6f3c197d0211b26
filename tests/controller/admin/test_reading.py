"""``mqadmin`` reads the queues of a broker of ours."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from controller.admin import lookups
from controller.admin.cli import FAILED
from controller.admin.reading import Traced, traces_in
from controller.admin.stored import stored_of
from remoting.record import Message, Record
from tests.controller.admin.place import TOPIC, place


async def test_messages_are_printed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("one", "two", tag="a", key="k")
        await asked.send("three", tag="b")
        lines = await asked.lines("printMsg", "-t", TOPIC)
        where = f"MessageQueue [topic={TOPIC}, brokerName=a, queueId=0]"
        assert lines[0] == f"minOffset=0, maxOffset=3, {where}"
        assert lines[1].startswith(
            "MSGID: IDone MessageExt [brokerName=a, queueId=0, storeSize=") and lines[1].endswith(
            "body=[111, 110, 101], transactionId='null'}] BODY: one")
        assert "properties={TAGS=a, KEYS=k, UNIQ_KEY=IDone, " in lines[1]
        assert ", MIN_OFFSET=0, MAX_OFFSET=3}, body=" in lines[1]
        assert lines[4] == "-" * 56
        assert lines[5:] == [f"minOffset=0, maxOffset=0, {where[:-2]}1]", "-" * 56]
        found = await asked.each("printMsg", "-t", TOPIC, "-s", "b", "-d", "false")
        assert [(each["msgId"], "body" in each) for each in found if each and "msgId" in each] == [("IDthree", False)]
        lines = await asked.lines("printMsg", "-t", TOPIC, "-s", "none")
        assert lines[1] == f"{where} no matched msg. status=NO_MATCHED_MSG, offset=3"
        lines = await asked.lines("printMsg", "-t", TOPIC, "-b", "now")
        assert lines[0] == f"minOffset=3, maxOffset=3, {where}"
        assert "no encoding" in await asked.mqadmin("printMsg", "-t", TOPIC, "-c", "nothing", code=FAILED)


async def test_one_queue_is_printed_and_counted(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send(*map(str, range(40)), tag="a")
        await asked.send("x", "y", tag="b")
        await asked.send("z")
        at = ("printMsgByQueue", "-t", TOPIC, "-a", "a", "-i", "0")
        assert await asked.lines(*at) == []
        assert await asked.lines(*at, "-f", "true") == [f"Tag: {'a':<30} Count: 40", f"Tag: {'b':<30} Count: 2"]
        lines = await asked.lines(*at, "-p", "true", "-d", "true")
        assert len(lines) == 43 and lines[-1].endswith("BODY: z")
        assert (await asked.lines(*at, "--print msg", "true"))[0].endswith("BODY: NOT PRINT BODY")
        said = await asked.mqadmin("printMsgByQueue", "-t", TOPIC, "-a", "b", "-i", "0", code=FAILED)
        assert "no broker group b has topic" in said


async def test_messages_are_consumed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("0", "1", "2", "3")
        await asked.send("4", queue=1)
        lines = await asked.lines("consumeMessage", "-t", TOPIC)
        assert lines[0] == "Consume ok"
        assert [line[-1] for line in lines if line.startswith("MSGID")] == ["0", "1", "2", "3", "4"]
        assert lines[5:7] == [
            f"MessageQueue [topic={TOPIC}, brokerName=a, queueId=0] print msg finished. status=NO_NEW_MSG, offset=4",
            "Consume ok"]
        lines = await asked.lines("consumeMessage", "-t", TOPIC, "-c", "2")
        assert lines[0] == "The older 2 message of the 0 queue will be provided"
        assert [line[-1] for line in lines if line.startswith("MSGID")] == ["0", "1"]
        lines = await asked.lines("consumeMessage", "-t", TOPIC, "-b", "a", "-i", "0", "-o", "3", "-g", "G")
        assert [line[-1] for line in lines if line.startswith("MSGID")] == ["3"]
        assert await asked.lines("consumeMessage", "-t", TOPIC, "-b", "a", "-i", "0", "-o", "9") == [
            f"MessageQueue [topic={TOPIC}, brokerName=a, queueId=0] no matched msg, offset=9"]
        for wrong, words in (
            (("-i", "0"), "brokerName before queueId"), (("-b", "a", "-o", "1"), "queueId before offset"),
            (("-s", "99999999999999"), "beginTimestamp before now"), (("-s", "2", "-e", "1"), "less than or equal"),
            (("-s", "soon"), "is no time"),
        ):
            assert words in await asked.mqadmin("consumeMessage", "-t", TOPIC, *wrong, code=FAILED)


async def test_what_stands_at_an_offset(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: object, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "BODIES", tmp_path)
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("one", "two")
        at = ("-t", TOPIC, "-b", "a", "-i", "0", "-o")
        lines = await asked.lines("queryMsgByOffset", *at, "1", "-f", "UTF-8")
        assert f"{'Queue Offset:':<20} 1" in lines and f"{'Message Body:':<20} two" in lines
        assert (await asked.data("queryMsgByOffset", *at, "0", "-r", TOPIC))["body"] == "one"
        assert "has no message at 2" in await asked.mqadmin("queryMsgByOffset", *at, "2", code=FAILED)


async def test_entries_of_a_queue(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("one", "two", "three")
        lines = await asked.lines("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "1")
        rule = "=" * 38
        assert lines[:4] == ["Queue data: ", "max: 3, min: 0", rule, "idx: 1"]
        assert lines[4].startswith("ConsumeQueueData{physicOffset=") and lines[5:] == [rule]
        lines = await asked.lines("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-b", asked.a, "-g", "nobody")
        assert lines[:3] == ["Filter data: ", f"nobody@{TOPIC} is not online!", rule]
        assert "is not exist" in await asked.mqadmin("queryCq", "-t", TOPIC, "-q", "9", "-i", "0", code=FAILED)


async def test_a_send_that_was_traced(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys, traceTopicEnable="true") as asked:
        await asked.topic()
        sent = await asked.data("sendMessage", "-t", TOPIC, "-p", "x", "-m", "true")
        assert sent["trace"] == "SEND_OK"
        await asked.send("settle")
        head, row, _ = await asked.lines("queryMsgTraceById", "-i", sent["msgId"])
        assert head.split() == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
        assert row.split()[:2] == ["Pub", "TOOLS_PRODUCER"] and row.split()[-1] == "success"
        assert "was found" in await asked.mqadmin("queryMsgTraceById", "-i", "nothing", code=FAILED)


@pytest.mark.parametrize(("fields", "wanted"), [
    (["SubAfter", "r", "ID", "12", "false", "k", "0", "99", "g"], Traced("SubAfter", "g", "127.0.0.1", 99, 12, False)),
    (["SubAfter", "r", "ID", "12", "true", "k"], Traced("SubAfter", "", "127.0.0.1", 0, 12, True)),
    (["Pub", "5", "r", "g", "t", "ID", "", "", "s", "1", "7", "0", "false"],
     Traced("Pub", "g", "127.0.0.1", 5, 7, False)),
    (["SubAfter", "r", "another", "12", "true", "k"], None),
    (["SubBefore", "5", "r", "g", "q", "ID", "0", "k"], None),
    (["Pub", "5"], None),
])
def test_events_of_a_trace(fields: list[str], wanted: Traced | None) -> None:
    body = ("\x01".join(fields) + "\x02").encode()
    stored = stored_of(Record(Message(b"t", body), 0, 0, 0, 100, 0))
    assert traces_in(stored, "ID") == ([] if wanted is None else [wanted])
