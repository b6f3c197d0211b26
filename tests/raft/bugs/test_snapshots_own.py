"""Snapshots (table S), the rest: a node's own, given-up transfers, and what waits for what."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import Counter, Nodes
from raft.config import Config
from raft.errors import DiskFull
from raft.events import SnapshotRestored
from raft.messages import Append, SnapshotChunk, SnapshotMeta, Write
from raft.progress import State
from raft.snapshotmeta import decode_meta
from raft.trace import PeerState
from tests.raft.bugs.test_snapshots import (
    BATCH,
    chunk,
    group,
    installing,
    leadership,
    led,
    left_behind,
    purged,
    slowly,
    snapshot,
    soon,
    state_of,
    total,
    traced,
)
from tests.raft.script import Mail, Script, disk, frame


async def test_BUG_S18_the_next_snapshot_becomes_due_after_one_in_flight(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """openraft d0e245a2: what falls due while a snapshot is being built is never taken, nor anything after it.

    Guards that the policy is armed again when a build ends, well or badly.
    """
    config = Config(snapshot_log_bytes=5_000, snapshot_tail_entries=0)
    async with group(config) as (_, leader, _):
        run = leader._driver.snapshots._run_blocking
        leader._driver.snapshots._run_blocking = slowly(run, 3.0)
        indices: list[int] = []
        for _ in range(3):
            await leader.propose_many([b"1"] * BATCH * 2)
            assert await soon(lambda: leader._driver.snapshots.taking > 0)
            await leader.propose_many([b"1"] * BATCH * 2)  # due again, while one is in flight
            assert leader._driver.snapshots.taking > leader.status().snapshot_index
            assert await soon(lambda: not leader._driver.snapshots.taking)
            indices.append(leader.status().snapshot_index)
        assert indices == sorted(set(indices)) and 0 not in indices

        async def full(*args: object) -> None:
            raise DiskFull("no room")

        leader._driver.snapshots._run_blocking = full
        await leader.propose_many([b"1"] * BATCH * 3)
        await trio.sleep(5)
        assert not leader._driver.snapshots.taking
        leader._driver.snapshots._run_blocking = run
        for _ in range(5):
            await leader.propose_many([b"1"] * BATCH * 3)
            await trio.sleep(0.1)
        assert leader.status().snapshot_index > indices[-1] + 3 * BATCH


async def test_BUG_S18_a_snapshot_that_failed_is_tried_again_when_an_eighth_more_has_come(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """openraft d0e245a2, the next try after a failure: it waited for as much log as a whole snapshot, and an eighth."""
    async with group(Config(snapshot_log_bytes=80_000, snapshot_tail_entries=0)) as (_, leader, _):
        run = leader._driver.snapshots._run_blocking
        tries: list[int] = []

        async def full(*args: object) -> None:
            tries.append(leader.status().last_index)
            raise DiskFull("no room")

        leader._driver.snapshots._run_blocking = full
        for _ in range(110):
            await leader.propose(b"1".rjust(1_000, b"0"))
            await trio.lowlevel.checkpoint()
        first, *later = tries
        assert 70 < first < 80 and len(later) in (3, 4)
        assert all(9 <= after - before <= 11 for before, after in pairwise(tries))
        leader._driver.snapshots._run_blocking = run
        assert (await leader.take_snapshot()).index == leader.status().last_index
        before = leader.status().snapshot_index
        for _ in range(100):  # what failed earlier is forgotten
            await leader.propose(b"1".rjust(1_000, b"0"))
            await trio.lowlevel.checkpoint()
        assert 70 < leader.status().snapshot_index - before < 80


async def test_BUG_S19_a_snapshot_by_hand_does_not_start_a_transfer_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """TiKV 11618: a newer snapshot takes the place of the one that a peer has half of, again and again.

    Guards that a peer gets to the end of what it began with.
    """
    config = Config(snapshot_tail_entries=0, snapshot_chunk_bytes=1, propose_timeout_ms=60_000)
    async with group(config) as (net, leader, slow):
        run = slow._driver.snapshots._run_blocking
        slow._driver.snapshots._run_blocking = slowly(run, 0.3)
        net.isolate(slow.node_id)
        await leader.propose_many([b"111"] * BATCH)
        begun = await leader.take_snapshot()
        net.record = True
        net.heal()

        def chunks() -> list[tuple[int, int]]:
            """(snapshot, offset) of each piece that was sent."""
            return [(decode_meta(message.meta).index, message.offset) for _, peer, message in net.sent
                    if peer == slow.node_id and isinstance(message, SnapshotChunk)]

        assert await soon(lambda: (begun.index, 2) in chunks())
        await leader.propose_many([b"111"] * BATCH)
        newer = await leader.take_snapshot()
        assert newer.index > begun.index == leader._driver.snapshots._sending[begun.index].index
        events = slow.events()
        assert await soon(lambda: total(slow) == total(leader) == 111 * 2 * BATCH)
        restored = [event.meta.index for event in events.pending() if isinstance(event, SnapshotRestored)]
        assert restored[0] == begun.index
        offsets = [offset for index, offset in chunks() if index == begun.index]
        assert offsets == sorted(offsets) and set(offsets) == set(range(begun.size))


@pytest.mark.parametrize("loses", ["the sender's snapshot", "the receiver's disk"])
def test_BUG_S19_a_snapshot_that_is_given_up_is_asked_for_again(loses: str) -> None:
    """TiKV 11618: the application drops a snapshot whose message is queued. Guards that the peer is served later."""
    script = led()
    left_behind(script)
    storage = script.nodes["n0"].storage
    read = storage.read_snapshot
    if loses == "the sender's snapshot":
        storage.read_snapshot = lambda *args: None  # type: ignore[method-assign]
    else:
        script.filter = lambda mail: not isinstance(mail.message, SnapshotChunk)
    script.elapse(500)
    assert state_of(script, "n2") == State.SNAPSHOT and script["n2"].log.snapshot is None
    storage.read_snapshot = read  # type: ignore[method-assign]
    script.filter = None
    script.elapse(2 * script.config.replication_timeout_ms + 200)
    assert state_of(script, "n2") == State.REPLICATE
    states = [event.state for event in traced(script, "n0", PeerState) if event.peer == "n2"]
    assert states[-3:] == ["SNAPSHOT", "PROBE", "REPLICATE"]
    assert script.nodes["n2"].applied == script.nodes["n0"].applied


def test_BUG_S19_a_snapshot_replaced_on_the_way_starts_over_with_the_new_one() -> None:
    """TiKV 11618: the snapshot under way is replaced by a newer one. Guards that none is mixed with another."""
    script = led(config=Config(snapshot_tail_entries=0, snapshot_chunk_bytes=500))
    first = left_behind(script)
    passed: list[int] = []

    def count(mail: Mail) -> bool:
        if isinstance(mail.message, SnapshotChunk) and len(passed) < 2:
            passed.append(mail.message.offset)
            return True
        return not isinstance(mail.message, SnapshotChunk)

    script.filter = count
    script.elapse(300)
    assert passed == [0, 500] and state_of(script, "n2") == State.SNAPSHOT
    second = purged(script)
    script.filter = None
    script.elapse(3_000)
    assert second.index > first.index and script["n2"].log.snapshot == second
    assert script.nodes["n2"].applied == script.nodes["n0"].applied


@pytest.mark.parametrize("threaded", [False, True])
async def test_BUG_S20_a_snapshot_waits_for_what_is_being_applied(
    threaded: bool, autojump_clock: trio.testing.MockClock,
) -> None:
    """Ratis 2245: a snapshot is taken while applies are outstanding, and holds half of a frame under its full index.

    Guards that state and index belong together, whether commands run on the loop or in a thread.
    """
    clock = autojump_clock

    class Slow(Counter):
        def apply(self, command: bytes) -> int:
            clock.jump(0.003)
            return super().apply(command)

    Slow.threaded = threaded  # type: ignore[attr-defined]
    async with trio.open_nursery() as nursery:
        net = Nodes(nursery, Config(election_timeout_ms=1_000))
        node = await net.start("n0", {"n0": "h:1"}, Slow())
        await net.leader()
        if threaded:
            node._driver.applier._run_blocking = slowly(node._driver.applier._run_blocking, 0.2)
        done = trio.Event()

        async def propose() -> None:
            await node.propose_many([b"1"] * 300, timeout_ms=60_000)
            done.set()

        before = node.status().last_index
        nursery.start_soon(propose)
        while node.status().last_index == before or (not threaded and not 20 < total(node) < 250):
            await trio.lowlevel.checkpoint()
        if threaded:
            await trio.sleep(0.05)
        assert not done.is_set()
        meta = await node.take_snapshot()
        state = net.disks["n0"].storage.read_snapshot(1, meta.index, 0, 100)
        assert state == b"300" and meta.index == before + 300
        nursery.cancel_scope.cancel()


def test_BUG_A8_a_disk_that_filled_up_takes_no_snapshot_either() -> None:
    """ENOSPC while the last piece is staged: the log cannot stand on it. Guards that it is not taken, and later is."""
    script = Script(3)
    node = script["n1"]
    meta = snapshot(5, 1)
    node.receive(script.now, "n0", chunk(meta, b"state"))
    for _ in range(2):  # the second finds not even room for the term
        node.storage_fault(script.now, "full")
        node.drain()
    node.snapshots.chunk_stored(script.now, "n0", meta, 5, True)
    assert installing(node) is None and not node.drain()
    node.storage_fault(script.now, "room")
    node.durable(script.now, [out.token for out in node.drain() if isinstance(out, Write)][-1])
    node.receive(script.now, "n0", chunk(meta, b"state", sequence=2))
    node.snapshots.chunk_stored(script.now, "n0", meta, 5, True)
    assert installing(node) is meta and [out.install for out in node.drain() if isinstance(out, Write)] == [meta]


def test_BUG_A8_a_snapshot_that_the_machine_holds_and_a_full_disk_lost_is_stood_on_again() -> None:
    """The machine was faster than the disk, and the disk is full. Guards that the log stands on the snapshot, with what
    came behind it, and is not cut from its first entry on."""
    script = Script(3, disks={"n1": disk((), term=1)})
    node, meta = script["n1"], snapshot(5, 1)
    node.receive(script.now, "n0", chunk(meta, b"state"))
    node.snapshots.chunk_stored(script.now, "n0", meta, 5, True)
    node.snapshots.installed(script.now, meta)
    node.receive(script.now, "n0", Append(
        1, 1, 1, 2, 5, 1, 0, 0, (frame(6, 1), frame(7, 1))))
    node.drain()
    for _ in range(2):  # the second finds not even room for the snapshot's position
        node.storage_fault(script.now, "full")
        said = [out for out in node.drain() if isinstance(out, Write)]
        assert [(out.install, out.truncate_from, out.frames) for out in said] in ([(meta, 0, [])], [])
    node.storage_fault(script.now, "room")
    again = [out for out in node.drain() if isinstance(out, Write)]
    assert [out.install for out in again] == [meta, None]
    assert [frame.first for out in again for frame in out.frames] == [6, 7]
    for write, index in zip(again, (5, 7), strict=True):
        node.durable(script.now, write.token)
        assert node.log.durable_index == index


def snapshot_first() -> tuple[Script, SnapshotMeta]:
    """The first word that n2 has of n0's newer term is a whole snapshot; its disk takes the term later."""
    script = led()
    script.cut("n2")
    for name in ("n1", "n0"):
        script.elect(name)
    meta = purged(script)
    script.heal()
    script.nodes["n2"].syncing = False
    leading = leadership(script, "n0")
    leading.peers["n2"].probe_from(meta.index)
    leading.feed(leading.peers["n2"])
    script.pump("n0")
    script.settle()
    assert script["n2"].term == meta.term == 3
    return script, meta


def test_BUG_S21_a_crash_before_the_term_is_on_disk_leaves_no_newer_snapshot() -> None:
    """Seed 51,000,044 of the controllers' simulation: a snapshot is on disk while its leader's term waits for a slow
    sync. Behind a crash the node takes its vote for lost, and never starts again.

    Guards that no piece is stored before the term is durable.
    """
    script, meta = snapshot_first()
    script.crash("n2")
    assert script.restart("n2").replica.term == 1
    script.elapse(2_000)
    assert script["n2"].log.snapshot == meta and script["n2"].term == 3


def test_BUG_S21_the_leader_begins_again_as_soon_as_its_term_is_on_disk() -> None:
    script, meta = snapshot_first()
    assert script["n2"].commit_index < meta.index
    script.nodes["n2"].syncing = True
    script.pump("n2")
    script.settle()
    assert script["n2"].log.snapshot == meta, "no timer is waited for"
