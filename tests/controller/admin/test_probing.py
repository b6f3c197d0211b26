"""``mqadmin`` sends to a broker of ours and takes the time."""

from __future__ import annotations

import re

import pytest
from trio.testing import MockClock

from controller.admin.cli import FAILED
from tests.controller.admin.place import TOPIC, place


async def test_sends_to_a_group_are_shown(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        lines = await asked.lines("sendMsgStatus", "-b", "a", "-c", "3", "-s", "20")
        assert len(lines) == 3
        assert re.fullmatch(
            r"rt=\d+ms, SendResult=SendResult \[sendStatus=SEND_OK, msgId=[0-9A-F]{32}, offsetMsgId=[0-9A-F]{32}, "
            r"messageQueue=MessageQueue \[topic=a, brokerName=a, queueId=\d+\], queueOffset=\d+, recallHandle=null\]",
            lines[0])
        assert [each["status"] for each in await asked.each("sendMsgStatus", "-b", "a", "-c", "2")] == ["SEND_OK"] * 2


async def test_sends_to_a_topic_are_timed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        head, *rows, average = await asked.lines("checkMsgSendRT", "-t", TOPIC, "-a", "3")
        assert head.split() == ["#Broker", "Name", "#QID", "#Send", "Result", "#RT"]
        assert [row.split()[:3] for row in rows] == [["a", "0", "true"], ["a", "1", "true"], ["a", "0", "true"]]
        assert re.fullmatch(r"Avg RT: \d+\.\d\d", average)
        await asked.mqadmin("updateTopicPerm", "-b", asked.a, "-t", TOPIC, "-p", "4")
        found = await asked.each("checkMsgSendRT", "-t", TOPIC, "-a", "1")
        assert found[1]["ok"] is False and "takes messages" in found[1]["error"]
        await asked.mqadmin("checkMsgSendRT", "-t", "nothing", code=FAILED)


async def test_clusters_are_timed_again_and_again(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        head, *rows = await asked.some(15, "clusterRT", "-a", "2")
        assert head.split() == ["#Cluster", "Name", "#Broker", "Name", "#RT", "#successCount", "#failCount"]
        assert [row.split()[:2] + row.split()[3:] for row in rows] == [["c", "a", "2", "0"]] * 2
        (row,) = await asked.some(5, "clusterRT", "-a", "1", "-c", "c", "-p", "true", "-m", "room")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|room\|c\|a\|\d+", row)
        assert "not exist" in await asked.mqadmin("clusterRT", "-c", "nothing", code=FAILED)
