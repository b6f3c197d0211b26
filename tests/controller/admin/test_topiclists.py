"""``mqadmin`` on many topics, against a broker and a name server of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from broker.client import Start
from controller.admin.cli import FAILED
from remoting.bodies.namesrv import TopicConfig
from tests.controller.admin.place import GROUP, TOPIC, place


async def test_topics_are_listed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", GROUP)
        async with asked.made.connect() as client, client.consume(GROUP, TOPIC):
            await trio.sleep(2)
            lines = await asked.lines("topicList")
            assert TOPIC in lines and f"%RETRY%{GROUP}" in lines
            head, *rows = await asked.lines("topicList", "-c")
            assert head == f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}"
            assert f"{'c':<20}  {TOPIC:<64}  {GROUP:<64}" in rows
            assert f"{'c':<20}  {'TBW102':<64}  {'':<64}" in rows
            assert not [row for row in rows if "%RETRY%" in row]
        assert await asked.lines("topicClusterList", "-t", TOPIC) == ["c"]
        assert "no broker registered" in await asked.mqadmin("topicClusterList", "-t", "nothing", code=FAILED)


async def test_a_permission_is_changed_and_nothing_else(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        await asked.mqadmin("updateTopic", "-b", asked.a, "-t", TOPIC, "-r", "3", "-w", "2", "-a",
                            "+message.type=FIFO")
        await asked.made.wait_route(TOPIC, {0: asked.a})
        assert await asked.lines("updateTopicPerm", "-c", "c", "-t", TOPIC, "-p", "4") == [
            f"update topic perm from 6 to 4 in {asked.a} success."]
        kept = TopicConfig(TOPIC, 3, 2, 4, attributes={"message.type": "FIFO"})
        assert asked.node.topics.get(TOPIC) == kept
        assert await asked.lines("updateTopicPerm", "-b", asked.a, "-t", TOPIC, "-p", "4") == [
            "new perm equals to the old one!"]
        lines = await asked.lines("updateTopicPerm", "-b", asked.a, "-t", TOPIC, "-p", "6")
        assert lines == [f"update topic perm from 4 to 6 in {asked.a} success.",
                         f"TopicConfig [topicName={TOPIC}, readQueueNums=3, writeQueueNums=2, perm=RW-, "
                         "topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={message.type=FIFO}]."]


async def test_the_topics_of_a_file_are_made(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    file = tmp_path / "topics.json"
    file.write_text(json.dumps([{"topicName": "One", "readQueueNums": 2, "writeQueueNums": 2}, {"topicName": "Two"}]))
    async with place(capsys) as asked:
        assert await asked.lines("updateTopicList", "-c", "c", "-f", str(file)) == [
            f"submit batch of topic config to {asked.a} success, please check the result later."]
        one, two = asked.node.topics.get("One"), asked.node.topics.get("Two")
        assert one is not None and one.read_queue_nums == 2 and two is not None
        for text, words in (("[]", "at least one object"), ("{", ""), ('[{"readQueueNums":1}]', "topicName")):
            file.write_text(text)
            assert words in await asked.mqadmin("updateTopicList", "-b", asked.a, "-f", str(file), code=FAILED)
        said = await asked.mqadmin("updateTopicList", "-b", asked.a, "-f", str(tmp_path / "no"), code=FAILED)
        assert "No such file" in said


async def test_how_queues_would_be_shared_out(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic(queues=3)
        (line,) = await asked.lines("allocateMQ", "-t", TOPIC, "-i", "1.1.1.1,1.1.1.2")
        assert [each["queueId"] for each in json.loads(line)["result"]["1.1.1.1"]] == [0, 1]
        found = await asked.data("allocateMQ", "-t", TOPIC, "-i", "1.1.1.1,1.1.1.2")
        assert found["result"]["1.1.1.2"] == [{"topic": TOPIC, "brokerName": "a", "queueId": 2}]
        await asked.mqadmin("allocateMQ", "-t", TOPIC, "-i", ",", code=FAILED)


async def test_rates(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.topic("Quiet")
        await trio.sleep(15)
        await asked.send("1", "2", "3")
        await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", GROUP)
        async with asked.made.connect() as client, client.consume(GROUP, TOPIC, start=Start.FIRST) as messages:
            for _ in range(3):
                await anext(messages)
            await asked.send("4")
            await trio.sleep(15)
            rows = await asked.each("statsAll", "-t", TOPIC)
            assert [(row["group"], row["inToday"], row["outToday"]) for row in rows] == [(GROUP, 4, 4)]
        head, *lines = await asked.lines("statsAll", "-a")
        assert head.split() == ["#Topic", "#Consumer", "Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour",
                                "#OutMsg24Hour"]
        assert [line.split()[0] for line in lines if "Quiet" in line or TOPIC in line] == [TOPIC]
        assert "NO_CONSUMER" in (await asked.lines("statsAll", "-t", "Quiet"))[1]
