"""A directory whose log is gone while the rest of it is there, on real files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.simulation.worlds.nodes import Counter
from raft.errors import DamagedLog, StorageError
from raft.host import open_node
from raft.storage.directory import DirectoryFiles
from raft.storage.faulty import FaultyFiles
from tests.raft.test_host import ALONE, FAST, alone, until_leads


async def opens(directory: Path, **more: Any) -> None:
    with trio.fail_after(30):
        async with alone(directory, bootstrap=True, **more):
            pass


@pytest.mark.parametrize("lost", [("log", "mark"), ("log", "mark", "snapshots"), ("log",)])
@pytest.mark.parametrize("mounted", [False, True])
async def test_BUG_F22_a_segment_log_that_is_gone_is_not_begun_anew(
    lost: tuple[str, ...], mounted: bool, tmp_path: Path,
) -> None:
    """Its folder was removed, or is a disk of its own that is not mounted: the node would vote where it has voted."""
    await opens(tmp_path)
    kept = tmp_path.with_suffix(".log")
    shutil.copytree(tmp_path / "log", kept)
    for name in lost:
        path = tmp_path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if mounted:
        (tmp_path / "log").mkdir()
    for _ in range(2):
        with pytest.raises(DamagedLog, match="the log is gone, and term and votes with it"):
            await opens(tmp_path)
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(kept, tmp_path / "log")
    await opens(tmp_path)


async def test_BUG_F22_where_only_the_mark_tells_of_the_log_its_end_counts_as_lost(tmp_path: Path) -> None:
    """A directory of before lives were written: it neither votes nor leads, even alone, and says why."""
    async with alone(tmp_path, bootstrap=True) as node:
        await until_leads(node)
        assert await node.propose(b"1") == 1
        term = node.status().term
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "lives").unlink()
    async with open_node("n0", ALONE, tmp_path, Counter(), config=FAST) as node:
        status, driver = node.status(), node._driver
        assert status.term == term and status.voted_for == "n0" and status.last_index == 0
        driver.replica.tick(driver.replica.deadline)  # an election would be due
        assert not node.is_leader and node.status().term == term
        assert any("lost what it had acknowledged" in line for line in node.explain())


async def test_BUG_F22_a_first_opening_that_failed_begins_the_log_at_the_next(tmp_path: Path) -> None:
    """Nobody has heard of its node yet."""
    files = FaultyFiles(DirectoryFiles(tmp_path))
    files.fail("sync", skip=2)
    with pytest.raises(StorageError):
        await opens(tmp_path, files=files)
    shutil.rmtree(tmp_path / "log", ignore_errors=True)
    await opens(tmp_path)
