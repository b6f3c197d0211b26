"""Snapshots and compaction: bugs that other libraries had (table S), each as a scenario."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from google_crc32c import value as crc32c

from harness.simulation.worlds.nodes import Counter, Nodes
from raft.config import Config
from raft.errors import DamagedLog
from raft.frame import Kind, build
from raft.leadership import Leadership
from raft.log import BOUNDARY_ENTRIES
from raft.membership import Membership
from raft.messages import (
    Append,
    Code,
    HardState,
    Install,
    Output,
    Send,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    StoreChunk,
    Write,
)
from raft.node import Node
from raft.progress import State
from raft.replica import Replica
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.snapshotmeta import decode_meta, encode_meta
from raft.storage.conformance import frames, read_all, snapshot_at
from raft.storage.identity import format_directory
from raft.storage.segment import SegmentStorage
from raft.trace import Dropped, SnapshotInstalled
from raft.wire import Decoder, encode
from tests.raft.script import Mail, Script, disk, frame

PURGE = Config(snapshot_tail_entries=0)
THREE = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}
BATCH = 600
"""Entries in one frame: so many that its end is a place where the log may be purged."""


def leadership(script: Script, name: str) -> Leadership:
    leading = script[name].leadership
    assert leading is not None
    return leading


def led(size: int = 3, config: Config = PURGE) -> Script:
    """A group that n0 leads, with nothing under way."""
    script = Script(size, config=config)
    script.elect("n0")
    script.elapse(100)
    return script


def purged(script: Script) -> SnapshotMeta:
    """n0 commits a large frame, takes a snapshot at its end and lets the log go."""
    script.propose("n0", *[b"%d" % number for number in range(BATCH)])
    script.elapse(10)
    meta = script.snapshot("n0")
    assert script["n0"].log.purged_index == meta.index
    return meta


def left_behind(script: Script, name: str = "n2") -> SnapshotMeta:
    """``name`` needs entries that n0 does not have any more; it is connected again, nothing is sent yet."""
    script.cut(name)
    script.propose("n0", b"before")
    meta = purged(script)
    script.heal()
    return meta


def traced(script: Script, name: str, kind: type[Any]) -> list[Any]:
    return [event for event in script.nodes[name].traces if isinstance(event, kind)]


def chunk(meta: SnapshotMeta, data: bytes, *, offset: int = 0, term: int = 1, sequence: int = 1) -> SnapshotChunk:
    return SnapshotChunk(1, term, 1, sequence, encode_meta(meta), offset, data)


def snapshot(index: int, term: int, data: bytes = b"state") -> SnapshotMeta:
    return SnapshotMeta(index, term, 0, Membership(voters=tuple(THREE)), 0, len(data), crc32c(data))


def replies(outputs: list[Output]) -> list[SnapshotReply]:
    return [out.message for out in outputs if isinstance(out, Send) and isinstance(out.message, SnapshotReply)]


def installing(node: Replica) -> SnapshotMeta | None:
    return node.installing


def state_of(script: Script, peer: str) -> State:
    """How n0 feeds ``peer``."""
    return leadership(script, "n0").peers[peer].state


def opened(files: VirtualDisk) -> SegmentStorage:
    return SegmentStorage(files, "cluster", "n0", segment_bytes=32 << 10, rng=Random(7))


def directory(files: VirtualDisk) -> SegmentStorage:
    format_directory(files, "cluster", "n0", bytes(range(16)))
    storage = opened(files)
    storage.open()
    return storage


@asynccontextmanager
async def group(config: Config) -> AsyncIterator[tuple[Nodes, Node, Node]]:
    """Three nodes: net, leader, a follower."""
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery, config)
        for name in THREE:
            await net.start(name, THREE, Counter())
        leader = await net.leader()
        yield net, leader, next(node for node in net.nodes.values() if node is not leader)
        nursery.cancel_scope.cancel()


def total(node: Node) -> int:
    assert isinstance(node.state_machine, Counter)
    return node.state_machine.n


async def soon(holds: Callable[[], bool]) -> bool:
    """Whether it holds within a minute of the virtual clock."""
    with trio.move_on_after(60):
        while not holds():
            await trio.sleep(0.01)
    return holds()


def slowly(
    run: Callable[..., Awaitable[Any]], seconds: float, only: Callable[..., Any] | None = None,
) -> Callable[..., Awaitable[Any]]:
    """Worker threads that are busy with something else before each function, or before ``only`` this one.

    A call that comes while another is under way raises.
    """
    under_way: list[object] = []

    async def run_slowly(function: Callable[..., Any], *args: Any) -> Any:
        assert not under_way, f"{function} while {under_way} is under way"
        under_way.append(function)
        try:
            if only in (None, function):
                await trio.sleep(seconds)
            return await run(function, *args)
        finally:
            under_way.clear()
    return run_slowly


# --- what a snapshot replaces ------------------------------------------------------------------------------------


def test_BUG_S1_a_snapshot_replaces_an_uncommitted_membership() -> None:
    """openraft 1808: an uncommitted membership entry outlives the snapshot that covers its index. No phantom voter.

    Guards that an install starts the history of memberships anew.
    """
    script = led()
    script.cut("n2")
    phantom = Membership(voters=("n0", "n1", "n2", "ghost"))
    follower = script["n2"]
    entry = frame(follower.log.last_index + 1, follower.term, phantom.encode(), chain=follower.log.last_mark,
                  kind=Kind.MEMBERSHIP)
    follower.receive(script.now, "n0", Append(
        1, follower.term, 99, 1, follower.log.last_index, follower.log.last_term, 0, 0, [entry]))
    script.pump("n2")
    assert follower.membership.votes("ghost") and follower.log.membership_index > follower.commit_index
    script.mail.clear()
    meta = purged(script)
    assert meta.index > entry.first and meta.membership_index < entry.first
    script.heal()
    script.elapse(500)
    assert traced(script, "n2", SnapshotInstalled)
    for _ in range(2):
        assert script["n2"].membership.voters == ("n0", "n1", "n2")
        assert script["n2"].log.membership_index == meta.membership_index
        script.crash("n2")
        script.restart("n2")


def test_BUG_S2_a_snapshot_that_contradicts_a_committed_entry_is_refused() -> None:
    """openraft 1892: the snapshot has the index of a committed entry and another term. Guards what is certain."""
    script = led()
    follower, committed = script["n1"], script["n1"].commit_index
    state = script.nodes["n1"].applied[:]
    lie = snapshot(committed, follower.term + 1)
    follower.receive(script.now, "n2", chunk(lie, b"state", term=follower.term + 1))
    outputs = follower.drain()
    assert not replies(outputs) and not any(isinstance(out, (StoreChunk, Install)) for out in outputs)
    assert traced(script, "n1", Dropped)[-1].reason == f"contradicts committed entry {committed}"
    assert (follower.commit_index, script.nodes["n1"].applied) == (committed, state)


def test_BUG_S3_the_term_never_falls_with_a_snapshot() -> None:
    """willemt PR 118 (4): installing a snapshot of an old term lowers the node's own. Also not over a crash."""
    script = Script(disks={"n0": disk([], term=5), "n1": disk([], term=5), "n2": disk([], term=5)})
    node = script["n1"]
    meta = snapshot(7, 3, b"a\0b")
    node.receive(script.now, "n0", chunk(meta, b"a\0b", term=5))
    script.pump("n1")
    assert (node.term, node.log.last_term, node.applied_index) == (5, 3, 7)
    script.crash("n1")
    assert script.restart("n1").replica.term == 5 and script["n1"].log.snapshot == meta


def test_BUG_S3_a_leader_of_an_earlier_term_installs_nothing() -> None:
    """willemt PR 118 (4): the snapshot of a deposed leader is taken. Guards that its sender is judged as any leader."""
    script = Script(disks={"n0": disk([]), "n1": disk([], term=5), "n2": disk([])})
    node = script["n1"]
    node.receive(script.now, "n0", chunk(snapshot(7, 3), b"state", term=3))
    outputs = node.drain()
    assert [(reply.code, reply.term, reply.done) for reply in replies(outputs)] == [(Code.EXPIRED_TERM, 5, False)]
    assert not any(isinstance(out, StoreChunk) for out in outputs)
    assert (node.term, node.leader) == (5, None)


# --- when a snapshot is sent -------------------------------------------------------------------------------------


def test_BUG_S4_whoever_needs_the_last_purged_entry_gets_a_snapshot() -> None:
    """willemt PR 118 (2): next index equals the snapshot's last, and an empty append goes out instead.

    Guards the boundary: the entry at the snapshot's own index is gone.
    """
    script = led()
    script.cut("n2")
    meta = purged(script)
    script.mail.clear()
    leading = leadership(script, "n0")
    progress = leading.peers["n2"]
    progress.probe_from(meta.index)
    leading.feed(progress)
    script.pump("n0")
    assert [type(mail.message) for mail in script.mail if mail.target == "n2"] == [SnapshotChunk]
    progress.probe_from(meta.index + 1)  # this one needs nothing that is gone
    script.mail.clear()
    leading.feed(progress)
    script.pump("n0")
    probe = next(mail.message for mail in script.mail if mail.target == "n2")
    assert isinstance(probe, Append) and probe.prev_index == meta.index


def test_BUG_S5_a_leader_without_a_log_serves_a_peer_it_knows_nothing_of() -> None:
    """openraft afd6508b, Ratis 1305 and 2487: all of the log is purged, the peer's place unknown: probing never ends.

    Guards that a hint below the log leads to the snapshot, in a handful of messages.
    """
    script = led()
    left_behind(script)
    assert script["n0"].log.purged_index == script["n0"].log.last_index
    leadership(script, "n0").tracker.renew("n2")
    seen: list[Mail] = []

    def note(mail: Mail) -> bool:
        seen.append(mail)
        return True

    script.filter = note
    script.elapse(300)
    assert script.nodes["n2"].applied == script.nodes["n0"].applied
    assert len(traced(script, "n2", SnapshotInstalled)) == 1
    assert sum(mail.target == "n2" for mail in seen) < 12
    assert leadership(script, "n0").peers["n2"].state == State.REPLICATE


def test_BUG_S5_a_peer_that_parts_below_the_purged_boundary_gets_a_snapshot() -> None:
    """As above: the peer's conflicting entry is the last one the leader purged, so no probe can ever match.

    Guards that a hint that the boundary contradicts leads to a snapshot, not to the same probe again.
    """
    script = Script(config=PURGE, disks={
        "n0": disk([1, 3, 3]), "n1": disk([1, 3, 3]), "n2": disk([1, 2, 2, 2])})
    script.cut("n2")
    script.elect("n0")
    script.elapse(100)
    meta = purged(script)
    assert script["n0"].log.purged_index == meta.index
    script.crash("n2")
    script.nodes["n2"].storage = disk([1] + [2] * (meta.index + 5))
    script.restart("n2")
    script.elect("n1")
    script.elect("n0")  # a new leadership looks for the common point from its own end
    script.heal()
    script.elapse(3_000)
    leader = script.leader()
    assert leader is not None
    assert script["n2"].commit_index == leader.commit_index >= meta.index


def test_BUG_S5_a_short_peer_of_the_same_term_gets_a_snapshot() -> None:
    """As above: the peer's log ends long before the leader's begins, in the very term of the purged boundary."""
    script = led()
    script.cut("n2")
    meta = purged(script)
    script.elect("n1")
    script.elect("n0")
    script.heal()
    script.elapse(3_000)
    leader = script.leader()
    assert leader is not None
    assert script["n2"].commit_index == leader.commit_index >= meta.index


# --- two at a time -----------------------------------------------------------------------------------------------


def test_BUG_S6_the_report_of_the_first_snapshot_says_nothing_of_the_second() -> None:
    """raft-rs 417: a second snapshot arrives while the first is reported. Guards that a report names what it is of."""
    script = Script(3, disks={"n1": disk((), term=1)})
    node = script["n1"]
    first, second = snapshot(5, 1, b"one"), snapshot(9, 1, b"two")
    node.receive(script.now, "n0", chunk(first, b"one"))
    node.receive(script.now, "n0", chunk(second, b"two", sequence=2))
    node.snapshots.chunk_stored(script.now, "n0", first, 3, True)
    assert [out.meta for out in node.drain() if isinstance(out, Install)] == [first]
    node.snapshots.chunk_stored(script.now, "n0", second, 3, True)
    assert installing(node) is first and not any(isinstance(out, Install) for out in node.drain())
    node.snapshots.installed(script.now, first)
    node.receive(script.now, "n0", chunk(second, b"two", sequence=3))
    node.snapshots.chunk_stored(script.now, "n0", second, 3, True)
    node.snapshots.installed(script.now, first)  # once more, late
    assert installing(node) is second and node.applied_index == 5
    node.snapshots.installed(script.now, second)
    assert installing(node) is None and node.applied_index == 9


def test_BUG_S6_installed_is_said_when_log_and_machine_hold_it() -> None:
    """raft-rs 417: the report of one half completes the whole. Guards that the answer waits for disk and machine."""
    for machine_first in (True, False):
        script = Script(3, disks={"n1": disk((), term=1)})
        node, meta = script["n1"], snapshot(5, 1)
        node.receive(script.now, "n0", chunk(meta, b"state"))
        node.snapshots.chunk_stored(script.now, "n0", meta, meta.size, True)
        token = max(out.token for out in node.drain() if isinstance(out, Write))
        steps: list[Callable[[], None]] = [
            partial(node.snapshots.installed, script.now, meta), partial(node.durable, script.now, token)]
        for step in steps if machine_first else reversed(steps):
            assert not replies(node.drain())
            step()
        assert [(reply.index, reply.done) for reply in replies(node.drain())] == [(5, True)]


async def test_BUG_S7_an_install_waits_for_the_commands_under_way(autojump_clock: trio.testing.MockClock) -> None:
    """openraft eed681d5, etcd 18055: a snapshot is installed while a command is applied, a second one follows closely.

    Guards that machine calls are serial: what was applied never regresses, nothing counts twice.
    """
    class Threaded(Counter):
        threaded = True

    config = Config(snapshot_tail_entries=0, propose_timeout_ms=60_000)
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery, config)
        for name in THREE:
            await net.start(name, THREE, Threaded())
        leader = await net.leader()
        slow = next(node for node in net.nodes.values() if node is not leader)
        applier = slow._driver.applier
        applier._run_blocking = slowly(applier._run_blocking, 5.0, only=applier.machine.apply_many)
        applied: list[int] = []

        async def watch() -> None:
            while True:
                applied.append(slow.status().applied_index)
                await trio.sleep(0.05)

        nursery.start_soon(watch)
        await leader.propose(b"1000")
        await trio.sleep(0.3)
        assert total(slow) == 0 and slow.status().commit_index == leader.status().commit_index  # it is being applied
        net.isolate(slow.node_id)
        for _ in range(2):
            await leader.propose_many([b"1"] * BATCH)
            await leader.take_snapshot()
            assert leader.status().purged_index == leader.status().last_index
            net.heal()
            await trio.sleep(1)
        assert await soon(lambda: bool(slow.status().faulted)
                          or slow.status().applied_index == leader.status().last_index)
        assert slow.status().faulted is None
        assert total(slow) == total(leader) == 1_000 + 2 * BATCH
        assert applied == sorted(applied)
        nursery.cancel_scope.cancel()


def test_BUG_S7_entries_that_arrive_while_a_snapshot_is_stored_are_not_thrown_away() -> None:
    """openraft eed681d5: appends and a snapshot of the same entries overtake each other.

    Guards that what the log holds by then is not installed over, nor promised before it is durable.
    """
    script = Script(3, disks={"n1": disk((), term=1)})
    node, meta = script["n1"], snapshot(3, 1)
    node.receive(script.now, "n0", chunk(meta, b"state", sequence=2))
    log = [frame(1, 1)]
    for index in (2, 3, 4):
        log.append(frame(index, 1, chain=log[-1].mark))
    node.receive(script.now, "n0", Append(1, 1, 1, 1, 0, 0, 0, 0, log))
    node.drain()
    node.snapshots.chunk_stored(script.now, "n0", meta, meta.size, True)
    outputs = node.drain()
    assert not any(isinstance(out, Install) for out in outputs) and not replies(outputs)
    assert (node.log.last_index, node.commit_index, node.installing) == (4, 3, None)
    node.durable(script.now, 1 << 40)
    node.receive(script.now, "n0", chunk(meta, b"state", sequence=3))
    assert [(reply.index, reply.done) for reply in replies(node.drain())] == [(3, True)]


# --- disk --------------------------------------------------------------------------------------------------------

OLD = frames(5)
STATE = Random(8).randbytes((1 << 20) + 500)
META = SnapshotMeta(20, 2, 77, Membership(voters=tuple(THREE)), 4, len(STATE), crc32c(STATE))
BEHIND = build(kind=Kind.COMMANDS, group=1, term=2, first=21, payloads=[b"x"], wall_ms=0, chain=77)


def before_install(fate: int) -> tuple[VirtualDisk, SegmentStorage]:
    files = VirtualDisk(seeded(fate))
    storage = directory(files)
    storage.write([Write(1, 1, hard_state=HardState(2, "n1"), frames=OLD)])
    storage.sync()
    return files, storage


def install(storage: SegmentStorage) -> None:
    """As the shell does it: stage, finish, say so in the log, go on behind it."""
    sink = storage.receive_snapshot(1, META)
    while sink.offset < META.size:
        sink.write(STATE[sink.offset : sink.offset + 600_000])
    sink.finish()
    storage.write([Write(2, 1, install=META)])
    storage.sync()
    storage.write([Write(3, 1, frames=[BEHIND])])
    storage.sync()


def old_or_new(storage: SegmentStorage) -> str:
    """Which of the two the storage holds, all of it."""
    found = storage.open()[1]
    kept = [one.data for one in read_all(storage, 1, found.purged_index + 1)]
    assert found.hard_state == HardState(2, "n1")
    if found.snapshot is None:
        assert (found.purged_index, found.last_index) == (0, 5) and kept == [one.data for one in OLD]
        return "old"
    assert found.snapshot == META and found.purged_index == META.index and kept in ([], [BEHIND.data])
    assert found.last_index == META.index + len(kept)
    data = b""
    while piece := storage.read_snapshot(1, META.index, len(data), 1 << 20):
        data += piece
    assert data == STATE
    return "new"


def test_BUG_S8_a_crash_in_an_install_leaves_the_old_state_or_the_new() -> None:
    """raft-rs 12470, etcd's snapshot races: a crash in each operation of an install, with many fates of what was not
    synced. Guards the order stage, sync, rename, sync the directory, say so in the log."""
    files, storage = before_install(0)
    start = files.operations
    files.journal = []
    install(storage)
    end = files.operations
    last_sync = max(number for number, line in enumerate(files.journal, 1) if line.startswith("sync log/"))
    assert end - start > 8 and start + last_sync == end - 1  # behind it, the mark
    seen = set()
    for crash_at in range(start + 1, end + 1):
        for fate in range(8):
            files, storage = before_install(100 * crash_at + fate)
            files.crash_at(crash_at)
            with pytest.raises(SimulatedCrash):
                install(storage)
            files.restart()
            storage = opened(files)
            state = old_or_new(storage)
            seen.add(state)
            if state == "old":  # and it can be tried again, to the end
                install(storage)
                storage.close()
                assert old_or_new(opened(files)) == "new"
    assert seen == {"old", "new"}


def test_BUG_S9_a_gap_between_snapshot_and_log_is_refused_in_words() -> None:
    """redisraft 43: restart finds the log beginning behind a snapshot that is not there, and starts anyway.

    Guards the check at open; with the file back in its place the node starts.
    """
    files = VirtualDisk()
    storage = directory(files)
    log = frames(60, size=2_000)
    for one in log:
        storage.write([Write(one.first, 1, frames=[one])])
        storage.sync()
    sink = storage.create_snapshot(1, snapshot_at(log[49]))
    sink.write(b"state")
    sink.finish()
    storage.write([Write(100, 1, hard_state=HardState(1), purge_to=50)])
    storage.sync()
    storage.close()
    name = next(name for name in files.list("snapshots") if name.endswith(".snap"))
    files.rename(f"snapshots/{name}", "elsewhere")
    with pytest.raises(DamagedLog, match=r"log of group 1 begins behind entry \d+, but no good snapshot"):
        opened(files).open()
    files.rename("elsewhere", f"snapshots/{name}")
    storage = opened(files)
    found = storage.open()[1]
    assert found.snapshot is not None and 0 < found.purged_index <= found.snapshot.index == 50
    assert [one.first for one in read_all(storage, 1, found.purged_index + 1)] == [*range(found.purged_index + 1, 61)]


async def test_BUG_S10_a_new_leader_serves_the_snapshot_and_what_is_behind_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """redisraft 14: after a failover the new leader, which has only a snapshot, serves an empty state.

    Guards that the machine is restored on install and on restart before anything is answered.
    """
    async with group(Config(snapshot_tail_entries=0, propose_timeout_ms=30_000)) as (net, leader, behind):
        net.isolate(behind.node_id)
        await leader.propose_many([b"111"] * BATCH)
        await leader.take_snapshot()
        net.heal()
        await leader.propose(b"1")
        assert await soon(lambda: behind.status().applied_index == leader.status().last_index)
        assert behind.status().snapshot_index and total(behind) == 111 * BATCH + 1
        storage = net.kill(behind.node_id)
        await trio.testing.wait_all_tasks_blocked()
        again = await net.start(behind.node_id, THREE, Counter(), storage)
        assert await soon(lambda: again.status().applied_index == leader.status().last_index)
        await leader.transfer_leadership(again.node_id)
        await again.read_barrier()
        assert again.is_leader and total(again) == 111 * BATCH + 1
        assert await again.propose(b"1") == 111 * BATCH + 2


# --- membership in snapshots -------------------------------------------------------------------------------------


def test_BUG_S11_a_snapshot_right_behind_a_membership_change_includes_it() -> None:
    """matrixone 23281 (dragonboat): the snapshot has the membership from before. Guards: the one in effect there."""
    script = led()
    before = script["n1"].log.membership_index
    script.nodes["n1"].applying = False
    ticket = script.reconfigure("n0", ("n0", "n1"), learners=("n2",))
    script.elapse(200)
    assert script.outcome("n0", ticket) == "done"
    leader = script["n0"]
    meta = script.snapshot("n0")
    assert (meta.membership, meta.membership_index) == (leader.membership, leader.log.membership_index)
    assert meta.membership.voters == ("n0", "n1") and meta.membership.learners == ("n2",)
    early = script.snapshot("n1")  # its log has the change already, its machine is not there yet
    assert script["n1"].log.membership_index > early.index
    assert early.membership.voters == ("n0", "n1", "n2") and early.membership_index == before


def test_BUG_S12_the_membership_keeps_its_own_index() -> None:
    """matrixone 24966 (dragonboat): the index of an imported snapshot is taken for the membership's own.

    Guards that both are kept apart on the wire, in the log and over a restart.
    """
    script = led()
    made_at = script["n0"].log.membership_index
    script.cut("n2")
    script.reconfigure("n0", ("n0", "n1"), learners=("n2",))
    script.elapse(100)
    changed_at = script["n0"].log.membership_index
    meta = left_behind(script)
    assert 0 < made_at < changed_at == meta.membership_index < meta.index
    assert decode_meta(encode_meta(meta)) == meta
    script.elapse(500)
    node = script.nodes["n2"]
    assert node.replica.log.snapshot == meta and node.replica.log.membership_index == changed_at
    assert node.memberships[-1].index == changed_at
    script.crash("n2")
    assert script.restart("n2").replica.log.membership_index == changed_at


def test_BUG_S13_a_snapshot_that_names_me_a_voter_does_not_make_me_one() -> None:
    """NuRaft f9c7462: a joiner gets a snapshot whose *older* membership includes it, and counts as caught up.

    Guards that matched entries decide, and that a joiner with another directory does not campaign on old words.
    """
    script = led(4, Config(snapshot_tail_entries=0, learner_lag_entries=5))
    script.elapse(200)
    meta = purged(script)
    assert "n3" in meta.membership.voters
    script.reconfigure("n0", ("n0", "n1", "n2"))
    script.elapse(500)
    assert "n3" not in script["n0"].membership.everyone
    script.crash("n3")
    script.wipe("n3")
    script.propose("n0", *[b"x"] * BATCH)
    script.elapse(50)
    script.filter = lambda mail: not (
        mail.target == "n3" and isinstance(mail.message, Append) and bool(mail.message.frames))
    ticket = script.reconfigure("n0", ("n0", "n1", "n2", "n3"))
    script.elapse(3_000)
    joiner = script["n3"]
    assert joiner.log.snapshot == meta and joiner.membership.votes("n3") and not joiner.campaign.allowed
    assert script["n0"].membership.learners == ("n3",) and script.outcome("n0", ticket) == "open"
    script.filter = None
    script.elapse(3_000)
    assert script.outcome("n0", ticket) == "done" and "n3" in script["n0"].membership.voters
    assert script.nodes["n3"].applied == script.nodes["n0"].applied


# --- exactness ---------------------------------------------------------------------------------------------------


def test_BUG_S14_behind_a_snapshot_the_very_next_entry_follows() -> None:
    """KAFKA-14618: the snapshot's id is off by one. Guards: it covers its own index, and the next append is behind."""
    script = led()
    meta = left_behind(script)
    sent: list[Append] = []

    def note(mail: Mail) -> bool:
        if mail.target == "n2" and isinstance(mail.message, Append) and script["n2"].log.snapshot is not None:
            sent.append(mail.message)
        return True

    script.filter = note
    script.elapse(500)
    follower = script["n2"]
    assert (follower.log.purged_index, follower.log.purged_term) == (meta.index, meta.term)
    assert follower.applied_index == follower.commit_index == meta.index
    assert sent[0].prev_index == meta.index and sent[0].prev_term == meta.term
    script.propose("n0", b"next")
    script.elapse(100)
    assert script.nodes["n2"].applied == script.nodes["n0"].applied
    assert script.nodes["n2"].persisted()[0][0] == meta.index + 1


@pytest.mark.parametrize("indices", [(9, 10), (10, 9), (99, 100), (5, 40)])
def test_BUG_S14_the_newest_snapshot_wins(indices: tuple[int, int]) -> None:
    """KAFKA-15076: of two snapshots the older one is preferred. Guards the order by index, as a number."""
    files = VirtualDisk()
    storage = directory(files)
    log = frames(100)
    storage.write([Write(1, 1, frames=log)])
    storage.sync()
    for index in indices:
        sink = storage.create_snapshot(1, snapshot_at(log[index - 1]))
        sink.write(b"%d" % index)
        sink.finish()
    for _ in range(2):
        newest = storage.newest_snapshot(1)
        assert newest is not None and newest.index == max(indices)
        assert storage.read_snapshot(1, max(indices), 0, 100) == b"%d" % max(indices)
        storage.close()
        storage = opened(files)
        assert storage.open()[1].snapshot == newest


# --- the stream --------------------------------------------------------------------------------------------------


def test_BUG_S15_a_refused_snapshot_leaves_the_connection_whole() -> None:
    """hashicorp 212: the stream of a refused snapshot is not drained, and its bytes are read as the next message.

    Guards that the framing does not depend on what becomes of a message.
    """
    script = Script(disks={"n0": disk([]), "n1": disk([], term=5), "n2": disk([])})
    data = bytes(range(256)) * 40
    refused = chunk(snapshot(7, 3, data), data, term=3)
    welcome = Append(1, 5, 1, 1, 0, 0, 0, 0, [])
    stream = b"".join((*encode(refused), *encode(welcome), *encode(refused), *encode(welcome)))
    decoder, node = Decoder(1 << 20), script["n1"]
    for start in range(0, len(stream), 777):
        for message in decoder.feed(stream[start : start + 777]):
            node.receive(script.now, "n0", message)
    sent = [out.message for out in node.drain() if isinstance(out, Send)]
    assert [(type(message).__name__, message.code) for message in sent] == [  # type: ignore[union-attr]
        ("SnapshotReply", Code.EXPIRED_TERM), ("AppendReply", Code.SUCCESS)] * 2
    assert decoder.unfinished_bytes == 0 and node.leader == "n0"


async def test_BUG_S16_chunks_count_only_where_they_belong(autojump_clock: trio.testing.MockClock) -> None:
    """openraft 2eccb9e1, Ratis 1587: a chunk from the middle starts a snapshot, chunks come reordered and twice.

    Guards the exact offset: the answer names what is staged, and the state is whole in the end.
    """
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery)
        node = await net.start("n1", THREE, Counter())
        net.record = True
        meta = snapshot(5, 1, b"123456")
        offsets: list[tuple[int, bool]] = []
        pieces = {0: b"12", 2: b"34", 4: b"56"}
        for sequence, offset in enumerate((4, 2, 0, 0, 4, 2, 2, 4), 1):
            net.sent.clear()
            node._driver.receive("n0", chunk(meta, pieces[offset], offset=offset, sequence=sequence))
            node._driver.pump()
            await trio.testing.wait_all_tasks_blocked()
            offsets += [(message.offset, message.done) for _, _, message in net.sent
                        if isinstance(message, SnapshotReply)]
        assert [offset for offset, _ in offsets] == [0, 0, 2, 2, 2, 4, 4, 6]
        assert [done for _, done in offsets] == [False] * 7 + [True]
        assert total(node) == 123_456
        nursery.cancel_scope.cancel()


def test_BUG_S16_an_answer_of_another_session_moves_no_transfer() -> None:
    """openraft 2eccb9e1: the answer to an earlier transfer places the next chunk. Guards session and sequence."""
    script = led(config=Config(snapshot_tail_entries=0, snapshot_chunk_bytes=100))
    meta = left_behind(script)
    script.filter = lambda mail: not isinstance(mail.message, SnapshotChunk)
    script.elapse(500)
    leading = leadership(script, "n0")
    old = leading.peers["n2"]
    assert old.state == State.SNAPSHOT and old.snapshot_index == meta.index
    stale = SnapshotReply(1, script["n0"].term, old.session, old.sequence, Code.SUCCESS, meta.index, 300, False)
    leading.tracker.renew("n2")
    script.elapse(200)
    fresh = leading.peers["n2"]
    assert fresh.state == State.SNAPSHOT and fresh.snapshot_index == meta.index and fresh.session != old.session
    script["n0"].receive(script.now, "n2", stale)
    done = SnapshotReply(1, script["n0"].term, old.session, 1, Code.SUCCESS, meta.index, meta.size, True)
    script["n0"].receive(script.now, "n2", done)
    assert (fresh.state, fresh.chunk_offset, fresh.match) == (State.SNAPSHOT, 0, 0)
    script.filter = None
    script.elapse(3_000)
    assert script.nodes["n2"].applied == script.nodes["n0"].applied


def test_BUG_S17_a_joint_membership_survives_in_a_snapshot() -> None:
    """etcd e515a67, openraft 447dc11c: a restart from a snapshot taken while joint forgets the outgoing half.

    Guards that the snapshot's membership counts on restart, both halves of it.
    """
    script = led(4)

    def joint_only(mail: Mail) -> bool:
        message = mail.message
        return not (mail.target == "n3" and isinstance(message, Append) and any(
            one.kind == Kind.MEMBERSHIP and not Membership.decode(one.payloads()[0]).joint for one in message.frames))

    purged(script)
    script.propose("n0", *[b"x"] * (BOUNDARY_ENTRIES - 1))  # so that the next entry's end is where a log may be purged
    script.elapse(10)
    script.filter = joint_only
    script.reconfigure("n0", ("n0", "n2", "n3"))
    script.elapse(150)
    node = script.nodes["n3"]
    assert node.replica.membership.joint and node.replica.applied_index == node.replica.log.membership_index
    meta = script.snapshot("n3")
    assert meta.membership.joint and node.replica.log.purged_index == meta.index
    script.crash("n3")
    again = script.restart("n3").replica
    assert again.membership == meta.membership and again.membership.outgoing == ("n0", "n1", "n2", "n3")
    assert again.membership.voters == ("n0", "n2", "n3") and not again.membership.agree(("n2", "n3"))
    script.filter = None
    script.elapse(2_000)
    assert not script["n3"].membership.joint and script["n3"].membership.voters == ("n0", "n2", "n3")
