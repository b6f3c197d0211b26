"""``mqadmin`` looks after a broker of ours."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.client import Start
from controller.admin.cli import FAILED
from tests.controller.admin.place import GROUP, TOPIC, place


async def test_configurations_are_shown(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        lines = await asked.lines("getBrokerConfig", "-c", "c")
        assert lines[0] == f"============Master: {asked.a}============" and lines[-1] == ""
        assert f"{'brokerName':<50}=  a" in lines
        assert (await asked.lines("getBrokerConfig", "-b", asked.a))[0] == f"============{asked.a}============"
        assert (await asked.data("getBrokerConfig", "-b", asked.a))[asked.a]["brokerClusterName"] == "c"
        await asked.mqadmin("getBrokerConfig", "-b", "10.0.0.99:1", code=FAILED)
        slave = await asked.made.node(brokerId="1", brokerRole="SLAVE")
        await asked.made.wait_route("TBW102", {0: asked.a, 1: slave.address})
        titles = [line for line in await asked.lines("getBrokerConfig", "-c", "c") if line.startswith("====")]
        assert titles[1] == f"============My Master: {asked.a}=====Slave: {slave.address}============"


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
async def test_old_files_go(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], command: str,
) -> None:
    async with place(capsys) as asked:
        for which in ([], ["-c", "c"], ["-b", asked.a]):
            assert await asked.lines(command, *which) == ["success"]
            assert await asked.data(command, *which) == {"brokers": [asked.a]}
        await asked.mqadmin(command, "-c", "nothing", code=FAILED)
        assert "-n is needed" in await asked.mqadmin(command, code=FAILED, namesrv="")


async def test_how_far_groups_are_at_a_broker(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("1", "2", "3")
        await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", GROUP)
        async with asked.made.connect() as client, client.consume(GROUP, TOPIC, start=Start.FIRST) as messages:
            (await anext(messages)).ack()
            await trio.sleep(10)
        head, *rows, _, total = await asked.lines("brokerConsumeStats", "-b", asked.a)
        assert head.split() == ["#Topic", "#Group", "#Broker", "Name", "#QID", "#Broker", "Offset", "#Consumer",
                                "Offset", "#Diff", "#LastTime"]
        (row,) = (row.split() for row in rows)
        assert row[:4] == [TOPIC, GROUP, "a", "0"], "nothing was consumed of the other queues"
        assert row[4:7] == ["3", "1", "2"] and total == "Diff Total: 2"
        found = await asked.data("brokerConsumeStats", "-b", asked.a, "-l", "1", "-t", "5000")
        assert [(each["queueId"], each["diff"]) for each in found["queues"]] == [(0, 2)]
        assert (await asked.data("brokerConsumeStats", "-b", asked.a, "-o", "true"))["queues"] == []
