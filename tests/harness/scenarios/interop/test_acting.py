"""The groups in which a slave acts: they stand before the scenario begins, each member with the topic."""

from __future__ import annotations

import subprocess
from pathlib import Path

import attrs
import pytest
import trio

from harness.scenarios.interop import acting
from harness.scenarios.interop.ha import topics_of
from harness.scenarios.interop.scenario import Stage
from remoting.daemon.child import child
from tests.harness.scenarios.interop.reporting import stage


async def ours_makes_it(_: Stage, namesrv: str, topic: str) -> None:
    """In place of Java's tool, with the same words."""
    line = [*child("controller.admin.cli"), "updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", topic]
    with trio.fail_after(60):
        while (await trio.run_process(line, check=False, stdout=subprocess.DEVNULL)).returncode:
            await trio.sleep(0.2)


@pytest.mark.slow
async def test_the_groups_stand_with_a_slave_that_has_the_topic(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "create_topic", ours_makes_it)
    here, _ = stage()
    async with acting.groups(attrs.evolve(here, here=tmp_path), topic="Acted", timerPrecisionMs=500) as up:
        members = (up.master, up.slave, up.other)
        assert all(each.running and '"Acted"' in topics_of(each) for each in members)
        assert [each.group for each in members] == ["a", "a", "b"]
        assert "brokerRole=SLAVE" in " ".join(up.slave.command)
    assert not any(each.running for each in members)
