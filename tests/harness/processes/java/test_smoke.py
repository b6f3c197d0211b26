"""One real name server and one run of the real mqadmin: enough to see that the Java side works on this machine.

It brings nothing: where Java or the jars are missing it is reported as not run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.processes import java
from harness.processes.java.jvm import log
from tests.harness.processes.rocketmq import current_release


@pytest.fixture
def rocketmq() -> java.Release:
    return current_release()


@pytest.mark.java
@pytest.mark.slow
async def test_a_name_server_and_mqadmin(rocketmq: java.Release, tmp_path: Path) -> None:
    async with java.namesrv(rocketmq, tmp_path) as namesrv:
        told = await java.mqadmin(rocketmq, "topicList", "-n", namesrv.address)
        assert told.ok, told
        failed = await java.mqadmin(rocketmq, "topicRoute", "-n", namesrv.address, "-t", "absent")
        assert failed.exit_code == 0, "mqadmin says so whatever happened"
        assert not failed.ok
        assert "CODE: 17" in str(failed)
        assert "The Name Server boot success" in namesrv.printed()
        assert "RocketmqRemoting" in log(namesrv), "our log settings are found first"
