"""``mqadmin`` on consumer groups as a broker of ours keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from broker.client import Start
from controller.admin.cli import FAILED
from tests.controller.admin.place import GROUP, TOPIC, Place, place


async def consumed(asked: Place, count: int) -> None:
    """So many messages by a member of the group, which then leaves."""
    async with asked.made.connect() as client, client.consume(GROUP, TOPIC, start=Start.FIRST) as messages:
        for _ in range(count):
            (await anext(messages)).ack()
        await trio.sleep(1)


async def test_a_group_is_shown_and_deleted(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys, autoCreateSubscriptionGroup="false") as asked:
        await asked.mqadmin("updateSubGroup", "-c", "c", "-g", GROUP, "-r", "3")
        lines = await asked.lines("getConsumerConfig", "-g", GROUP)
        assert lines[0] == "=============================c:a============================="
        assert f"{'retryMaxTimes':<40}=  3" in lines
        assert (f"{'groupRetryPolicy':<40}=  GroupRetryPolicy{{type=CUSTOMIZED, exponentialRetryPolicy=null, "
                "customizedRetryPolicy=null}") in lines
        assert (await asked.data("getConsumerConfig", "-g", GROUP))[0]["config"]["groupName"] == GROUP
        assert await asked.lines("deleteSubGroup", "-c", "c", "-g", GROUP) == [
            f"delete subscription group [{GROUP}] from broker [{asked.a}] in cluster [c] success."]
        assert "no broker has a group" in await asked.mqadmin("getConsumerConfig", "-g", GROUP, code=FAILED)
        assert GROUP not in asked.node.groups.groups


async def test_a_group_s_offsets_go_with_it_if_that_is_wanted(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("1", "2")
        await consumed(asked, 2)
        for wanted, left in (("false", 2), ("true", None)):
            await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", GROUP)
            assert await asked.lines("deleteSubGroup", "-b", asked.a, "-g", GROUP, "-r", wanted) == [
                f"delete subscription group [{GROUP}] from broker [{asked.a}] success."]
            assert asked.node.offsets.query(GROUP, TOPIC, 0) == left


async def test_the_groups_of_a_file_are_made(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"groupName": "one", "retryMaxTimes": 2}, {"groupName": "two"}]))
    async with place(capsys, autoCreateSubscriptionGroup="false") as asked:
        assert await asked.lines("updateSubGroupList", "-b", asked.a, "-f", str(file)) == [
            f"submit batch of group config to {asked.a} success, please check the result later."]
        one, two = asked.node.groups.get("one"), asked.node.groups.get("two")
        assert one is not None and one.retry_max_times == 2 and two is not None
        file.write_text("[{}]")
        said = await asked.mqadmin("updateSubGroupList", "-c", "c", "-f", str(file), code=FAILED)
        assert "entry 1 has no groupName" in said


async def test_the_mode_of_a_group_is_set(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        assert await asked.lines("setConsumeMode", "-c", "c", "-t", TOPIC, "-g", GROUP, "-m", "PULL") == [
            f"set consume mode to {asked.a} success.",
            f"topic[{TOPIC}] group[{GROUP}] consume mode[PULL] popShareQueueNum[0]"]


async def test_offsets_are_cloned(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("1", "2")
        await asked.send("3", queue=1)
        await consumed(asked, 3)
        await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", "others")
        assert await asked.lines("cloneGroupOffset", "-s", GROUP, "-d", "others", "-t", TOPIC) == [
            f"clone group offset success. srcGroup[{GROUP}], destGroup=[others], topic[{TOPIC}]"]
        assert [asked.node.offsets.query("others", TOPIC, queue) for queue in (0, 1)] == [2, 1]
        await asked.mqadmin("cloneGroupOffset", "-s", "nobody", "-d", "others", "-t", TOPIC, code=FAILED)


async def test_what_is_behind_is_skipped(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("1", "2", "3")
        await consumed(asked, 1)
        lines = await asked.lines("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
        assert [line.split() for line in lines] == [
            ["#brokerName", "#queueId", "#offset"], ["a", "0", "3"], ["a", "1", "0"]]
        assert asked.node.offsets.query(GROUP, TOPIC, 0) == 3
