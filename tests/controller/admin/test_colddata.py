"""``mqadmin`` on cold data, against a broker of ours."""

from __future__ import annotations

import json

import pytest
from trio.testing import MockClock

from controller.admin.cli import FAILED
from tests.controller.admin.place import GROUP, place


async def test_thresholds_are_set_shown_and_removed(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with place(capsys) as asked:
        assert await asked.lines("updateColdDataFlowCtrGroupConfig", "-c", "c", "-g", GROUP, "-v", "7") == [
            f"updateColdDataFlowCtrGroupConfig success, {asked.a}"]
        title, *lines = await asked.lines("getColdDataFlowCtrInfo", "-c", "c")
        assert title == f" ============Master: {asked.a}============"
        assert json.loads("".join(lines))["configTable"] == {GROUP: 7}
        assert await asked.lines("removeColdDataFlowCtrGroupConfig", "-b", asked.a, "-g", GROUP) == [
            f"remove broker cold read threshold success, {asked.a}"]
        assert (await asked.data("getColdDataFlowCtrInfo", "-b", asked.a))[asked.a]["configTable"] == {}


async def test_how_the_log_is_read_is_set(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        assert await asked.lines("setCommitLogReadAheadMode", "-b", asked.a, "-m", "1") == [
            f" ============{asked.a}============",
            "commitLog set readAhead mode rstStrset commitlog readahead mode success, mode: 1"]
        await asked.mqadmin("setCommitLogReadAheadMode", "-b", "10.0.0.99:1", "-m", "0", code=FAILED)
