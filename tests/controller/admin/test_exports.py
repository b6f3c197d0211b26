"""``mqadmin`` writes what a cluster of ours has into files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trio.testing import MockClock

from controller.admin.cli import FAILED
from tests.controller.admin.place import GROUP, TOPIC, place


async def test_topics_and_groups_are_written(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", GROUP)
        await asked.topic(f"%RETRY%{GROUP}", 1)
        to = ("-f", str(tmp_path))
        assert await asked.lines("exportMetadata", "-c", "c", *to) == [f"export {tmp_path}/metadata.json success"]
        found = json.loads((tmp_path / "metadata.json").read_text())
        assert list(found["topicConfigTable"]) == [TOPIC] and list(found["subscriptionGroupTable"]) == [GROUP]
        assert found["topicConfigTable"][TOPIC]["readQueueNums"] == 2
        await asked.mqadmin("exportMetadata", "-b", asked.a, "-t", "-s", *to)
        found = json.loads((tmp_path / "topic.json").read_text())
        assert sorted(found["topicConfigTable"]) == [f"%RETRY%{GROUP}", TOPIC] and "dataVersion" in found
        await asked.mqadmin("exportMetadata", "-c", "c", "-g", *to)
        assert list(json.loads((tmp_path / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]) == [GROUP]
        assert "-b goes with" in await asked.mqadmin("exportMetadata", "-b", asked.a, *to, code=FAILED)
        said = await asked.mqadmin("exportMetadata", "-c", "c", "-f", str(tmp_path / "topic.json"), code=FAILED)
        assert "cannot be written" in said


async def test_configurations_are_written(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    async with place(capsys) as asked:
        assert await asked.lines("exportConfigs", "-c", "c", "-f", str(tmp_path)) == [
            f"export {tmp_path}/configs.json success"]
        found = json.loads((tmp_path / "configs.json").read_text())
        assert found["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
        assert found["brokerConfigs"]["a"]["brokerClusterName"] == "c"
        said = await asked.mqadmin("exportConfigs", "-c", "d", "-f", str(tmp_path), code=FAILED)
        assert "knows no cluster d; it knows c" in said


async def test_rates_are_written(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: Path,
) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.send("1", "2")
        await asked.mqadmin("exportMetrics", "-c", "c", "-f", str(tmp_path))
        found = json.loads((tmp_path / "metrics.json").read_text())
        quota = found["evaluateReport"]["a"]["runtimeQuota"]
        assert quota["topicSize"] == 1 and set(quota["tps"]) == {
            "normalInTps", "normalOutTps", "transInTps", "scheduleInTps"}
        assert set(found["totalData"]["totalOneDayNum"]) == {
            "totalNormalOneDayInNum", "totalNormalOneDayOutNum", "totalTransOneDayInNum", "totalScheduleOneDayInNum"}
