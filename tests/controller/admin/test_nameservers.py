"""``mqadmin`` at a name server: its configuration, its keys, and who may be written to."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from controller.admin.cli import FAILED
from harness.simulation.worlds.brokers import NAMESRV
from tests.controller.admin.place import place


async def test_its_configuration_is_shown_and_changed(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        lines = await asked.lines("getNamesrvConfig")
        assert lines[0] == f"============{NAMESRV}============"
        assert f"{'orderMessageEnable':<50}=  false" in lines
        assert await asked.lines("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true") == [
            f"update name server config success![{NAMESRV}]", "orderMessageEnable : true"]
        assert (await asked.data("getNamesrvConfig"))[NAMESRV]["orderMessageEnable"] == "true"
        said = await asked.mqadmin("updateNamesrvConfig", "-k", "nobodyKnowsThis", "-v", "1", code=FAILED)
        assert "nobodyKnowsThis" in said


async def test_keys_are_kept_and_removed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        assert await asked.lines("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "t", "-v", "a:3") == [
            "create or update kv config to namespace success."]
        assert await asked.lines("updateOrderConf", "-m", "get", "-t", "t") == [
            "get orderConf success. topic=[t], orderConf=[a:3] "]
        assert await asked.lines("updateOrderConf", "-m", "put", "-t", "t", "-v", "a:5") == [
            "update orderConf success. topic=[t], orderConf=[a:5]"]
        assert await asked.data("updateOrderConf", "-m", "get", "-t", "t") == {"topic": "t", "orderConf": "a:5"}
        assert await asked.lines("updateOrderConf", "-m", "delete", "-t", "t") == [
            "delete orderConf success. topic=[t]"]
        await asked.mqadmin("updateOrderConf", "-m", "get", "-t", "t", code=FAILED)
        await asked.mqadmin("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "t", "-v", "a:3")
        assert await asked.lines("deleteKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "t") == [
            "delete kv config from namespace success."]
        await asked.mqadmin("updateOrderConf", "-m", "get", "-t", "t", code=FAILED)
        assert "option -v" in await asked.mqadmin("updateOrderConf", "-m", "put", "-t", "t", code=FAILED)


async def test_a_group_is_closed_to_writers_and_opened(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        (line,) = await asked.lines("wipeWritePerm", "-b", "a")
        begun, _, count = line.rpartition(" ")
        assert begun == f"wipe write perm of broker[a] in name server[{NAMESRV}] OK," and int(count) > 0
        route = await asked.data("topicRoute", "-t", "TBW102")
        assert [queue["perm"] & 2 for queue in route["queueDatas"]] == [0]
        assert await asked.data("addWritePerm", "-b", "a") == {NAMESRV: int(count)}
        route = await asked.data("topicRoute", "-t", "TBW102")
        assert [queue["perm"] & 2 for queue in route["queueDatas"]] == [2]


async def test_a_name_server_that_is_away_is_told_of(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        out = await asked.mqadmin("wipeWritePerm", "-b", "a", namesrv=f"10.0.9.8:1;{NAMESRV}")
        first, second = out.splitlines()
        assert first.startswith("wipe write perm of broker[a] in name server[10.0.9.8:1] Failed: ")
        assert " OK, " in second
        await asked.mqadmin("wipeWritePerm", "-b", "a", namesrv="10.0.9.8:1", code=FAILED)
