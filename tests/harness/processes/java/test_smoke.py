"""One real name server and one run of the real mqadmin: enough to see that the Java side works on this machine.

It brings nothing: where Java or the jars are missing it is reported as not run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from harness.processes import java
from harness.processes.java.jvm import log


@pytest.fixture
def rocketmq() -> java.Release:
    """The current release, if it is here. Not async: a skip inside of trio loses its reason."""
    try:
        trio.run(java.find_tools)
    except java.JavaMissing as missing:
        pytest.skip(f"not run: {missing}")
    if not java.cached():
        pytest.skip(f"not run: RocketMQ {java.CURRENT} is not in the cache; "
                    "`python -m harness.processes.java fetch` brings it")
    return trio.run(java.fetch)


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
