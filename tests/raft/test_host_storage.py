"""A host on a storage that somebody else wrote: through ``kill -9``, beside nodes on segments, full, lost, confused."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from sqlite_storage import SqliteStorage

import raft
from harness.simulation.worlds.nodes import Counter
from raft import raftlog
from raft.errors import DamagedLog, StorageError, UsageError, WrongDirectory
from raft.groups import group_number
from raft.host import open_host, segments
from raft.storage import place as place_module
from raft.storage.interface import Storage
from raft.storage.place import Place
from tests.raft.test_host import ALONE, CHILD, FAST, Three, acknowledged_by_the_killed, alone, n, until_leads

PATIENT = raft.Config(election_timeout_ms=3_000, heartbeat_interval_ms=100)
"""Leads are handed over by this test, and not lost to a busy machine."""
KILLED = "from sqlite_storage import SqliteStorage\n" + CHILD.replace(
    "config=config", "config=config, storage=SqliteStorage")


async def test_nothing_acknowledged_is_lost_to_kill_9_on_sqlite(tmp_path: Path) -> None:
    assert KILLED.count("SqliteStorage") == 2
    highest = await acknowledged_by_the_killed(KILLED, tmp_path)
    async with alone(tmp_path, storage=SqliteStorage) as node:
        await node.read_barrier()
        assert n(node) >= highest
    assert (tmp_path / "log.sqlite").exists() and not (tmp_path / "log").exists()


async def test_nodes_on_either_storage_are_one_group(tmp_path: Path) -> None:
    kinds: dict[str, dict[str, Any]] = {"n0": {}, "n1": {"storage": SqliteStorage}, "n2": {"storage": SqliteStorage}}
    with trio.fail_after(60):
        three = Three(tmp_path)
        await three.reserve(*kinds)
        async with AsyncExitStack() as stack:
            for name, kind in kinds.items():
                await stack.enter_async_context(three.open(name, config=PATIENT, **kind))
            leader = await three.leader()
            await leader.propose_many([b"1"] * 50)
            await leader.take_snapshot()
            for node in three.nodes.values():
                await node.read_barrier()
                assert n(node) == 50
                if node is not leader:
                    await leader.transfer_leadership(node.node_id)
                    leader = node
                assert (await leader.take_snapshot()).index > 0
                assert await leader.propose(b"0") == 50


async def test_groups_come_close_and_go_on_it(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", create=True, config=FAST,
                             storage=SqliteStorage) as host:
            for name in ("one", "two"):
                node = await host.open_group(name, state_machine=Counter(), peers=ALONE, bootstrap=True)
                await until_leads(node)
                await node.propose(b"5")
            await host.close_group("one")
            again = await host.open_group("one", state_machine=Counter(), peers=ALONE)
            await until_leads(again)
            await again.read_barrier()
            assert n(again) == 5
            await host.remove_group("two")
            forgotten = host.storage.recovered(group_number("two"))
            assert forgotten.last_index == 0 and forgotten.hard_state.term > 0
        async with open_host(tmp_path, node_id="n0", listen="127.0.0.1:0", storage=SqliteStorage) as host:
            with pytest.raises(raft.UsageError, match="was removed"):
                await host.open_group("two", state_machine=Counter(), peers=ALONE, bootstrap=True)


async def test_a_full_database_ends_leadership_until_there_is_room(tmp_path: Path) -> None:
    made: list[SqliteStorage] = []

    def make(place: Place) -> SqliteStorage:
        made.append(SqliteStorage(place))
        return made[-1]

    with trio.fail_after(60):
        async with alone(tmp_path, bootstrap=True, storage=make) as node:
            assert await node.propose(b"1") == 1
            (storage,) = made
            pages = storage._all("PRAGMA page_count")[0][0]
            storage._all(f"PRAGMA max_page_count = {pages}")
            with pytest.raises((raft.Unknown, raft.Rejected, raft.NotLeader)):
                await node.propose_many([b"1".zfill(2_000)] * 1_000)
            assert node.status().storage == "full"
            storage._all("PRAGMA max_page_count = 1000000")
            await until_leads(node)
            assert await node.propose(b"1") > 1
            assert node.status().storage == "ok"


# --- which storage a directory has -----------------------------------------------------------------------------


async def opens(directory: Path, **more: Any) -> None:
    with trio.fail_after(30):
        async with alone(directory, bootstrap=True, **more):
            pass


async def test_a_directory_is_not_opened_as_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would look empty, and its node would vote again where it has voted."""
    await opens(tmp_path / "sqlite", storage=SqliteStorage)
    await opens(tmp_path / "segments")
    with pytest.raises(WrongDirectory, match="kind 'sqlite', not 'segments'"):
        await opens(tmp_path / "sqlite")
    with pytest.raises(WrongDirectory, match="a segment log, not of kind 'sqlite'"):
        await opens(tmp_path / "segments", storage=SqliteStorage)
    await opens(tmp_path / "sqlite", storage=SqliteStorage)
    await opens(tmp_path / "segments")
    assert not (tmp_path / "segments" / place_module.NAME).exists(), "as it was before there were others"
    assert raftlog.main(["verify", str(tmp_path / "sqlite")]) == raftlog.DAMAGED
    assert "kind 'sqlite'" in capsys.readouterr().err


async def test_a_lost_log_is_not_begun_anew(tmp_path: Path) -> None:
    await opens(tmp_path, storage=SqliteStorage)
    (tmp_path / "log.sqlite").unlink()
    for _ in range(2):
        with pytest.raises(DamagedLog, match="the log is gone"):
            await opens(tmp_path, storage=SqliteStorage)


async def test_a_storage_is_closed_where_opening_fails_behind_it(tmp_path: Path) -> None:
    made: list[Storage] = []

    def make(place: Place) -> Storage:
        made.append(segments(place))
        return made[-1]

    await opens(tmp_path)
    (tmp_path / "lives").unlink()
    (tmp_path / "lives").mkdir()
    with pytest.raises(StorageError):
        await opens(tmp_path, storage=make)
    with pytest.raises(UsageError, match="not open"):
        made[0].sync()
    (tmp_path / "lives").rmdir()
    await opens(tmp_path)
