"""Groups that share a log on real hosts: quiet ones beside a busy one, some that are closed, some that are removed."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import attrs
import pytest
import trio
import trio.testing

import raft
from harness.simulation.worlds.nodes import Counter
from raft import host as host_module
from raft.bounds import INV_R39
from raft.errors import DamagedLog, Faulted, Rejected, UsageError
from raft.groups import group_number, read_origin
from raft.host import Host, open_host
from raft.log import BOUNDARY_BYTES, RaftLog
from raft.membership import Membership
from raft.messages import Recovered
from raft.node import Node
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.statemachine import AnyMachine
from raft.storage.audit import records
from raft.storage.writer import LogWriter
from tests.raft.script import frame

ALONE = {"n0": "h:1"}
SEGMENT_BYTES = 64 << 10
SMALL = raft.Config(
    segment_bytes=SEGMENT_BYTES, message_bytes_max=16 << 10, append_bytes_max=4_096, frame_bytes_max=4_096,
    entry_bytes_max=2_048, snapshot_chunk_bytes=4_096, snapshot_log_bytes=SEGMENT_BYTES, snapshot_tail_entries=0,
    propose_timeout_ms=60_000)


class Silent:
    """Counts, and has no snapshot."""

    def __init__(self) -> None:
        self.n = 0

    def apply(self, command: bytes) -> int:
        self.n += 1
        return self.n


class Busy(Silent):
    def snapshot(self) -> bytes:
        return b"%d" % self.n

    def restore(self, data: bytes) -> None:
        self.n = int(data)


@asynccontextmanager
async def hosted(files: VirtualDisk, config: raft.Config = SMALL) -> AsyncIterator[Host]:
    async def connect(address: str) -> trio.abc.Stream:
        raise OSError("there is no network")

    async with open_host("unused", node_id="n0", listen=None, create=True, config=config, files=files, connect=connect,
                         rng=Random(3)) as host:
        yield host


async def begin(host: Host, name: str, machine: AnyMachine) -> Node:
    node = await host.open_group(name, state_machine=machine, peers=ALONE, bootstrap=True)
    while not node.is_leader:
        await trio.sleep(0.01)
    return node


async def load(node: Node, kilobytes: int) -> None:
    for _ in range(kilobytes):
        await node.propose(bytes(1_000))
    await trio.sleep(0.1)


async def test_BUG_G4_idle_groups_do_not_keep_the_log_of_a_busy_one(autojump_clock: trio.testing.MockClock) -> None:
    """Three of them, one that was closed, two that take no snapshot by themselves: the log stays short."""
    files = VirtualDisk()
    async with hosted(files) as host:
        for name in ("one", "two", "closed"):
            node = await begin(host, name, Busy() if name != "two" else Silent())
            await node.propose(b"x")
        await host.close_group("closed")
        busy = await begin(host, "busy", Busy())
        for _ in range(8):
            await load(busy, 100)
            INV_R39(host.storage.log_bytes, SEGMENT_BYTES, 2 * SEGMENT_BYTES, 3_000)
        assert host.drivers[group_number("one")].replica.log.snapshot is None
    async with hosted(files) as host:
        for name in ("one", "two", "closed"):
            node = await begin(host, name, Busy() if name != "two" else Silent())
            await node.read_barrier()
            assert node.state_machine.n == 1  # type: ignore[union-attr]


async def test_BUG_G4_a_group_with_much_takes_a_snapshot_when_it_keeps_the_log(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Less than its own threshold, more than is carried; what is kept behind snapshots goes too."""
    config = attrs.evolve(SMALL, snapshot_tail_entries=10_000)
    files = VirtualDisk()
    async with hosted(files) as host:
        idle = await host.open_group("idle", state_machine=Busy(), peers=ALONE, bootstrap=True, config=config)
        while not idle.is_leader:
            await trio.sleep(0.01)
        await load(idle, 40)
        busy = await begin(host, "busy", Busy())
        for _ in range(8):
            await load(busy, 100)
        replica = idle._driver.replica
        assert replica.log.snapshot is not None and replica.log.purged_index == replica.log.snapshot.index
        INV_R39(host.storage.log_bytes, SEGMENT_BYTES, 2 * SEGMENT_BYTES, 3_000)


async def test_BUG_G4_a_machine_without_snapshots_keeps_its_entries_in_words(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    """It cannot let go, so the log grows; status, explain and one line of the log say for whom."""
    files = VirtualDisk()
    async with hosted(files) as host:
        idle = await begin(host, "idle", Silent())
        await load(idle, 40)
        busy = await begin(host, "busy", Busy())
        with caplog.at_level(logging.WARNING, "raft.host"):
            for _ in range(8):
                await load(busy, 100)
        assert idle.status().keeps_log > 4 * SEGMENT_BYTES and busy.status().keeps_log == 0
        assert "no snapshot()" in "".join(idle.explain())
        assert [record.getMessage().count("'idle'") for record in caplog.records] == [1]
        await host.remove_group("idle")
        for _ in range(4):
            await load(busy, 100)
        INV_R39(host.storage.log_bytes, SEGMENT_BYTES, 2 * SEGMENT_BYTES, 0)


async def test_BUG_G5_a_closed_group_is_opened_again_with_all_it_had(autojump_clock: trio.testing.MockClock) -> None:
    """Its votes too: it does not lead a term twice."""
    files = VirtualDisk()
    async with hosted(files) as host:
        first, other = await begin(host, "first", Counter()), await begin(host, "other", Counter())
        assert await first.propose_many([b"1", b"2"]) == [1, 3]
        term = first._driver.replica.term
        await host.close_group("first")
        assert group_number("first") not in host.drivers
        with pytest.raises(Rejected):
            await first.propose(b"1")
        with pytest.raises(UsageError, match="not open"):
            await host.close_group("first")
        assert await other.propose(b"5") == 5
        first = await begin(host, "first", Counter())
        assert first._driver.replica.term > term and await first.propose(b"4") == 7


async def test_BUG_G5_a_removed_groups_name_is_not_taken_again(autojump_clock: trio.testing.MockClock) -> None:
    """Not in this life and not in the next; other groups do not notice, and its number stays in words."""
    files = VirtualDisk()
    async with hosted(files) as host:
        gone, other = await begin(host, "gone", Busy()), await begin(host, "other", Counter())
        await load(gone, 10)
        await gone.take_snapshot()
        await gone.propose(b"x")
        vote = gone._driver.replica.term, gone._driver.replica.voted_for
        await host.remove_group("gone")
        assert files.list("snapshots") == [] and await other.propose(b"5") == 5
        for bootstrap, join in ((True, False), (False, True), (False, False)):
            with pytest.raises(UsageError, match="was removed from this directory"):
                await host.open_group("gone", state_machine=Busy(), peers=ALONE, bootstrap=bootstrap, join=join)
        with pytest.raises(UsageError, match="has not begun"):
            await host.remove_group("never")
        await host.remove_group("gone")
    async with hosted(files) as host:
        with pytest.raises(UsageError, match="was removed from this directory"):
            await host.open_group("gone", state_machine=Busy(), peers=ALONE, bootstrap=True)
        other = await begin(host, "other", Counter())
        assert await other.propose(b"1") == 6
        kept = host.storage.recovered(group_number("gone"))
        assert (kept.last_index, (kept.hard_state.term, kept.hard_state.voted_for)) == (0, vote)
    assert [record.words for record in records(files) if record.upkeep] == 2 * ["removed: the group's log is empty"]


def test_BUG_G5_a_removal_is_whole_or_finished_at_the_next_opening() -> None:
    """The power goes in every operation of it: afterwards the group is there with all it had, or gone for good."""

    async def remove(files: VirtualDisk, crash_in: int) -> None:
        async with hosted(files) as host:
            gone = await begin(host, "gone", Busy())
            await load(gone, 90)
            await gone.take_snapshot()
            await gone.propose(b"x")
            assert host.storage.recovered(group_number("gone")).purged_index
            before = files.operations
            files.crash_at(before + crash_in if crash_in else 0)
            await host.remove_group("gone")
            files.counts["operations"] = files.operations - before

    async def look(files: VirtualDisk) -> bool:
        number = group_number("gone")
        async with hosted(files) as host:
            try:
                gone = await begin(host, "gone", Busy())
            except UsageError:
                kept = host.storage.recovered(number)
                assert (kept.last_index, kept.snapshot) == (0, None) and kept.hard_state.voted_for == "n0"
                assert files.list("snapshots") == []
                return True
            await gone.read_barrier()
            assert gone.state_machine.n == 91  # type: ignore[union-attr]
            return False

    whole = VirtualDisk(seeded(1))
    trio.run(remove, whole, 0, clock=trio.testing.MockClock(autojump_threshold=0))
    seen = set()
    for crash_in in range(1, whole.counts["operations"] + 1):
        for fate in range(3):
            files = VirtualDisk(seeded(10 * crash_in + fate))
            with pytest.raises((BaseExceptionGroup, SimulatedCrash, trio.TrioInternalError)):
                trio.run(remove, files, crash_in, clock=trio.testing.MockClock(autojump_threshold=0))
            files.restart()
            removed = False
            for _ in range(2):
                removed = trio.run(look, files, clock=trio.testing.MockClock(autojump_threshold=0))
                origin = read_origin(files, group_number("gone"))
                assert origin is not None and origin.removed is removed
            seen.add(removed)
    assert seen == {True, False}


def test_the_tail_behind_a_snapshot_is_limited_in_bytes_too() -> None:
    log = RaftLog(Recovered(), Membership(voters=("n0",)), 1 << 30)
    at = 0
    for at in range(1, 41):
        log.append(frame(at, 1, bytes(BOUNDARY_BYTES // 2)))
    log.durable_index = at
    log.note_end(35)
    assert log.tail_start(35, 1 << 40) == 0, "all of it fits"
    assert 35 - 10 <= log.tail_start(35, 4 * BOUNDARY_BYTES) <= 35 - 6
    assert log.purge_point(35) == 35
    log.purge(log.tail_start(35, 4 * BOUNDARY_BYTES))
    assert log.kept_bytes < 10 * BOUNDARY_BYTES
    log.truncate(38)
    assert log.purge_point(100) <= 37 and len(log._boundaries) == len(log._sizes)


@pytest.mark.parametrize("threads", [False, True])
async def test_BUG_G6_rot_in_one_groups_old_entries_stops_its_node_in_words_and_no_other(
    threads: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Upkeep meets it, inline or in the writer's helper. Status, explain, the callers' error and the log say where."""
    if threads:
        monkeypatch.setattr(host_module, "InlineWriter", partial(LogWriter, scrub=False))
        autojump_clock.autojump_threshold, autojump_clock.rate = math.inf, 1.0  # threads take real time
    files = VirtualDisk()
    async with hosted(files) as host:
        idle, other = await begin(host, "idle", Busy()), await begin(host, "other", Silent())
        for node in (idle, other):
            assert [await node.propose(b"x") for _ in range(3)] == [1, 2, 3]
        number = group_number("idle")
        where = next(record for record in records(files) if record.group == number and record.frame is not None)
        assert where.frame is not None
        files.rot(where.path, where.offset + where.frame.size - 1)
        busy = await begin(host, "busy", Busy())
        with caplog.at_level(logging.WARNING, "raft.host"):
            for _ in range(80):
                await load(busy, 10)
        status = idle.status()
        assert status.storage == "damaged" and f"{where.path} at byte {where.offset}" in (status.faulted or "")
        assert any("damaged" in line and where.path in line for line in idle.explain())
        with pytest.raises(Faulted, match="had stored is damaged") as caught:
            await idle.propose(b"x")
        assert isinstance(caught.value.__cause__, DamagedLog)
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == 1 and "'idle'" in said[0] and where.path in said[0]
        assert await other.propose(b"x") == 4 and busy.status().storage == "ok" and busy.is_leader
        assert where.path in [f"log/{name}" for name in files.list("log")], "what is damaged is kept"
        await host.remove_group("idle")
        for _ in range(4):
            await load(busy, 100)
        assert await other.propose(b"x") == 5
        INV_R39(host.storage.log_bytes, SEGMENT_BYTES, 2 * SEGMENT_BYTES, 1_000)


async def test_BUG_G6_a_group_that_is_opened_after_its_damage_was_found_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """While it was closed, upkeep met the rot; nothing of it is written again, and its callers would wait."""
    files = VirtualDisk()
    async with hosted(files) as host:
        idle = await begin(host, "idle", Busy())
        for _ in range(3):
            await idle.propose(b"x")
        await host.close_group("idle")
        where = next(record for record in records(files) if record.frame is not None and record.frame.first == 3)
        assert where.frame is not None
        files.rot(where.path, where.offset + where.frame.size - 1)
        busy = await begin(host, "busy", Busy())
        for _ in range(4):
            await load(busy, 100)
        idle = await host.open_group("idle", state_machine=Busy())
        assert idle.status().storage == "damaged"
        with pytest.raises(Faulted, match="had stored is damaged"):
            await idle.propose(b"x")
        assert await busy.propose(b"x") == 401
