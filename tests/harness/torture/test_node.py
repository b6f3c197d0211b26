"""Nodes of a run: whoever starts one is told of its process, however short its life."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.processes.handle import Handle
from harness.targets.target import Ready
from harness.torture.node import NodeVersion, RunNode


async def test_a_node_is_another_version_when_it_is_started_next(tmp_path: Path) -> None:
    node = RunNode("n1", tmp_path, [], "", "", kind="n", data=tmp_path / "data", ports={}, ready=Ready("line", "up", 9),
                   versions=[NodeVersion(["sh", "-c", "echo up $WHICH $(cat sub/conf); sleep 60"], {"WHICH": which},
                                         {"sub/conf": f"conf {which}"}) for which in ("one", "two")])
    assert node.become(0)
    for upgraded, words in ((False, "up one conf one"), (True, "up two conf two")):
        assert not upgraded or node.upgrade()
        await node.start()
        assert node.printed().strip() == words
        await node.kill()
    node.versions = node.versions[:1]
    assert not node.upgrade()


async def test_a_process_that_has_ended_already_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Handle.launch

    async def launch_and_end(self: Handle) -> None:
        await launch(self)
        await self.wait()

    monkeypatch.setattr(Handle, "launch", launch_and_end)
    told: list[int] = []
    node = RunNode("n1", tmp_path, ["true"], "", "", kind="n", data=tmp_path / "data", ports={},
                   ready=Ready("line", "up", 1), started=told.append)
    await node.launch()
    assert node.pid == 0, "it has ended"
    assert len(told) == 1 and told[0] > 1
