"""Applying, resources and the API: bugs that other libraries had (table A), each as a scenario."""

from __future__ import annotations

import errno
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from google_crc32c import value as crc32c

import raft
from harness.simulation.worlds.nodes import Counter, Nodes
from raft.config import MS, Config, DLedgerTimers, Rules
from raft.errors import (
    Busy,
    ConfigError,
    DamagedLog,
    DiskFull,
    Faulted,
    MalformedMessage,
    NotLeader,
    RaftError,
    Rejected,
    RejectReason,
    Unknown,
    UsageError,
    WrongDirectory,
)
from raft.events import SnapshotRestored, SnapshotTaken
from raft.frame import Frame, build, parse
from raft.hello import Hello, Lane, Refused, check_hello
from raft.host import open_node
from raft.membership import Membership
from raft.messages import (
    Append,
    AppendReply,
    Code,
    HardState,
    PeerMessage,
    ReadReply,
    ReadRequest,
    Role,
    Send,
    SnapshotChunk,
    TimeoutNow,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)
from raft.node import Node
from raft.sim.disk import VirtualDisk
from raft.storage.identity import format_directory, read_identity
from raft.storage.segment import SegmentStorage
from raft.trace import Dropped, SnapshotInstalled
from raft.wire import Decoder, encode
from tests.raft.script import Script, disk, frame

ALONE = {"n0": "h:1"}
THREE = {"n0": "h:1", "n1": "h:2", "n2": "h:3"}
SMALL = Config(segment_bytes=32 << 10, message_bytes_max=16 << 10, append_bytes_max=4_096, frame_bytes_max=4_096,
               entry_bytes_max=2_048, snapshot_chunk_bytes=4_096, propose_timeout_ms=60_000)
LARGEST = (1 << 63) - 1
"""Of every term, index and counter that travels."""


@asynccontextmanager
async def opened(files: VirtualDisk, peers: dict[str, str], config: Config = SMALL,
                 machine: raft.AnyMachine | None = None, **changes: Any) -> AsyncIterator[Node]:
    """A real node n0 on a simulated disk, with nobody to talk to."""
    async def connect(address: str) -> trio.abc.Stream:
        raise OSError("there is no network")

    given = {"bootstrap": True, "config": config, "rng": Random(7), "listen": "127.0.0.1:0", **changes}
    async with open_node("n0", peers, "unused", machine or Counter(), files=files, connect=connect, **given) as node:
        yield node


@asynccontextmanager
async def net(names: dict[str, str], config: Config | None = None) -> AsyncIterator[tuple[Nodes, Node]]:
    """A group on memory storage, and its leader."""
    async with trio.open_nursery() as nursery:
        made = Nodes(nursery, config)
        for name in names:
            await made.start(name, names, Counter())
        yield made, await made.leader()
        nursery.cancel_scope.cancel()


async def soon(holds: Callable[[], bool]) -> bool:
    """Whether it holds within a minute of the virtual clock."""
    with trio.move_on_after(60):
        while not holds():
            await trio.sleep(0.01)
    return holds()


async def outcome(call: Callable[[], Awaitable[object]]) -> object:
    """What a call returned, or the error it raised."""
    try:
        return await call()
    except RaftError as error:
        return error


def total(node: Node) -> int:
    assert isinstance(node.state_machine, Counter)
    return node.state_machine.n


def applied(node: Node) -> list[bytes]:
    assert isinstance(node.state_machine, Counter)
    return node.state_machine.log


def fill(storage: SegmentStorage) -> int:
    """Write frames until the disk is full; returns the last index that was kept."""
    last, chain = 0, 0
    while True:
        one = frame(last + 1, 1, bytes(1_500), chain=chain)
        try:
            storage.write([Write(last + 1, 1, frames=[one])])
        except DiskFull:
            return last
        storage.sync()
        last, chain = last + 1, one.mark


# --- applying ----------------------------------------------------------------------------------------------------


async def test_BUG_A1_a_machine_that_raises_is_seen_by_everybody(autojump_clock: trio.testing.MockClock) -> None:
    """jraft PR 1246, PySyncObj's auto-tick: apply raises, the node neither goes on nor says so.

    Guards that all callers hear of it at once, status too, and that nothing is skipped after a restart.
    """
    files = VirtualDisk()
    async with opened(files, ALONE) as node:
        await node.wait_leader()
        assert await soon(lambda: node.is_leader)
        assert await node.propose_many([b"1", b"0"]) == [1, 1]  # not one alone: those that come next share a frame
        start = trio.current_time()
        results: list[object] = []

        async def call(command: bytes) -> None:
            results.append(await outcome(partial(node.propose, command)))

        async with trio.open_nursery() as nursery:
            for command in (b"10", b"poison", b"100"):
                nursery.start_soon(call, command)
        assert len(results) == 3 and all(isinstance(result, Faulted) for result in results)
        for again in (partial(node.propose, b"1"), node.read_barrier, node.wait_leader, node.take_snapshot):
            error = await outcome(again)
            assert isinstance(error, Faulted) and isinstance(error.__cause__, ValueError)
        assert trio.current_time() - start < 1
        assert "ValueError" in (node.status().faulted or "") and not node.is_leader
        assert "ValueError" in node.explain()[0]
        before = sorted(applied(node))

    class Mended(Counter):
        def apply(self, command: bytes) -> int:
            if command == b"poison":
                self.log.append(command)
                return self.n
            return super().apply(command)

    async with opened(files, ALONE, machine=Mended(), bootstrap=False) as node:
        assert await soon(lambda: b"poison" in applied(node))
        assert total(node) == 111 and set(before) <= set(applied(node))


async def test_BUG_A2_when_a_leader_is_deposed_every_waiter_is_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """openraft 43dd8b6f, 1d5cc706: a leader steps down and callers wait for ever.

    Guards that writes in flight, gathered and tickets, reads, a hand-over and a change of members all end.
    """
    config = Config(propose_timeout_ms=600_000, uncommitted_frames_target=2, reconfigure_timeout_ms=600_000)
    async with net(THREE, config) as (made, old):
        made.isolate(old.node_id)
        results: dict[str, object] = {}

        async def call(name: str, do: Callable[[], Awaitable[object]]) -> None:
            results[name] = await outcome(do)

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, "change", partial(old.reconfigure, {**THREE, "n3": "h:4"}))
                nursery.start_soon(call, "read", partial(old.read_barrier, timeout_ms=600_000))
                for number in range(10):
                    nursery.start_soon(call, f"write {number}", partial(old.propose, b"1"))
                    await trio.sleep(0.001)
                nursery.start_soon(call, "many", partial(old.propose_many, [b"1", b"1"]))
                nursery.start_soon(call, "ticket", old.propose_nowait(b"1").wait)
                nursery.start_soon(call, "hand-over", partial(old.transfer_leadership, "n1"))
                assert await soon(lambda: any(node.is_leader for node in made.nodes.values() if node is not old))
                new = next(node for node in made.nodes.values() if node.is_leader and node is not old)
                await new.propose(b"7")
                made.heal()
        assert len(results) == 15 and all(isinstance(result, RaftError) for result in results.values()), results
        written = [results[name] for name in results if name.startswith("write")]
        assert all(isinstance(error, (NotLeader, Rejected)) for error in written)  # all certainly without effect
        assert any(isinstance(error, Rejected) and error.reason is RejectReason.OVERWRITTEN for error in written)
        assert old.status().pending_proposals == old.status().pending_reads == 0
        assert await soon(lambda: applied(old) == [b"7"])


async def test_BUG_A2_when_entries_are_purged_their_waiters_hear_that_nobody_knows(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """openraft 13df5b32: a snapshot takes the place of entries somebody waits for.

    Guards that the answer is Unknown, and that it comes.
    """
    config = Config(snapshot_tail_entries=0, propose_timeout_ms=600_000)
    async with net(THREE, config) as (made, old):
        made.isolate(old.node_id)
        results: list[object] = []

        async def call() -> None:
            results.append(await outcome(partial(old.propose, b"1000000")))

        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            assert await soon(lambda: any(node.is_leader for node in made.nodes.values() if node is not old))
            new = next(node for node in made.nodes.values() if node.is_leader and node is not old)
            await new.propose_many([b"1"] * 600)
            assert (await new.take_snapshot()).index == new.status().purged_index
            made.heal()
        assert trio.current_time() - start < 20
        assert isinstance(results[0], Unknown) and results[0].first and "snapshot" in results[0].detail
        assert total(old) == 600


# --- what comes from outside -------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [
    {"heartbeat_interval_ms": 200}, {"election_timeout_ms": 0}, {"election_timeout_ms": -1},
    {"election_timeout_ms": 4.5}, {"election_timeout_ms": "400"}, {"propose_timeout_ms": True},
    {"clock_drift_percent": 90}, {"message_bytes_max": 1 << 31}, {"frame_bytes_max": 1 << 21},
    {"entry_bytes_max": 9 << 20}, {"segment_bytes": 1 << 20}, {"inflight_bytes_max": 1_000},
    {"dledger": DLedgerTimers(vote_wait_ms=0)}, {"dledger": DLedgerTimers(min_vote_interval_ms=1_000)},
])
def test_BUG_A3_a_configuration_that_cannot_work_is_refused_by_name(changes: dict[str, Any]) -> None:
    """etcd 2904: limits that contradict each other are found out at run time. Guards field, value and rule."""
    with pytest.raises(ConfigError) as caught:
        Config(**changes)
    assert caught.value.field in str(caught.value) and caught.value.rule
    assert caught.value.field.partition(".")[0] in (*changes, "message_bytes_max", "append_bytes_max")


async def test_BUG_A3_a_directory_that_is_not_mine_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    """spacejam's fuzzing, etcd 2904: garbage, or another node's files, at start. Guards a typed refusal every time."""
    async def refusal(files: VirtualDisk, *kinds: type[RaftError], **changes: Any) -> str:
        with pytest.raises(kinds) as caught:
            async with opened(files, ALONE, **changes):
                pytest.fail("it started")
        return str(caught.value)

    files = VirtualDisk()
    assert "not formatted" in await refusal(files, WrongDirectory, bootstrap=False)
    async with opened(files, ALONE) as node:
        assert await soon(lambda: node.is_leader)
        await node.propose(b"1")
    assert "cluster 'default'" in await refusal(files, WrongDirectory, cluster="another")
    foreign = VirtualDisk()
    format_directory(foreign, "default", "n1", bytes(16))
    assert "node 'n1'" in await refusal(foreign, WrongDirectory)
    for name in (one for one in files.list("") if one not in ("log", "snapshots", "mark", "lives")):
        for at in range(files.open(name).size()):
            files.rot(name, at)
            assert await refusal(files, WrongDirectory, DamagedLog), (name, at)
            files.rot(name, at)
    async with opened(files, ALONE, bootstrap=False) as node:
        assert await soon(lambda: node.is_leader and total(node) == 1)


@pytest.mark.parametrize("data", [
    b"", b"\x00", b"\xff" * 40, b"\x9f" * 2_000, Membership(voters=("a",)).encode()[:-1], b"\x84\x80\x80\x80\x80",
    b"\x84\x81\x01\x80\x80\xa0", b"\x84\x81\x60\x80\x80\xa0", b"\x84\x81\x61a\x80\x80\xa1\x61a\x83\x01\x40\x00",
])
def test_BUG_A3_a_garbled_membership_is_malformed_and_nothing_else(data: bytes) -> None:
    """spacejam's fuzzing: a membership that does not decode takes the process down. Guards the type of the error."""
    with pytest.raises(MalformedMessage):
        Membership.decode(data)


@pytest.mark.parametrize("rules", Rules)
def test_BUG_A4_a_message_from_myself_is_none(rules: Rules) -> None:
    """etcd f215eff: a message that claims to come from its receiver is stepped. Guards the edge, in every role."""
    script = Script(3, config=Config(rules=rules))
    script.elect("n0")
    script.elapse(100)
    for name in ("n0", "n1"):
        node, log = script[name], script[name].log
        term, last = node.term, log.last_index
        forged: list[PeerMessage] = [
            Append(1, term + 5, 1, 1, last, term, last, 0, [frame(last + 1, term + 5)]),
            AppendReply(1, term + 5, 1, 1, Code.SUCCESS, last, last, 0, 0, 9), Vote(1, term + 5, 1, last + 9, term + 5),
            VoteReply(1, term + 5, 1, VoteResult.ACCEPT, False), TimeoutNow(1, term, last, term),
            ReadRequest(1, term, 7), ReadReply(1, term, 7, Code.SUCCESS, last),
            SnapshotChunk(1, term, 1, 1, b"", 0, b""),
        ]
        before = (node.role, node.term, node.voted_for, node.leader, last, node.election_deadline)
        for message in forged:
            node.receive(script.now, name, message)
            assert node.drain() == []
            dropped = script.nodes[name].traces[-1]
            assert isinstance(dropped, Dropped) and (dropped.peer, dropped.reason) == (name, "misdirected")
        assert before == (node.role, node.term, node.voted_for, node.leader, log.last_index, node.election_deadline)


def test_BUG_A4_a_peer_with_my_name_is_not_let_in() -> None:
    """etcd f215eff: somebody else under this node's id. Guards the greeting, on either end."""
    mine = Hello(cluster="c", node="n0", incarnation=b"0" * 16, lane=Lane.CONTROL, boot=1, address="a:1")
    theirs = Hello(cluster="c", node="n0", incarnation=b"1" * 16, lane=Lane.CONTROL, boot=2, address="b:1")
    for one, other in ((mine, theirs), (theirs, mine), (mine, mine)):
        with pytest.raises(Refused):
            check_hello(one, other)


# --- numbers -----------------------------------------------------------------------------------------------------


def test_BUG_A5_numbers_near_their_limit_work_and_beyond_it_are_refused() -> None:
    """jraft aec90ee7, 8dc5c080: a wait-id overflows in a long run and meets another's. Guards 63 bits on the wire."""
    for message in (ReadRequest(1, LARGEST, LARGEST), ReadReply(1, LARGEST, LARGEST, Code.SUCCESS, LARGEST),
                    AppendReply(1, LARGEST, LARGEST, 2 * LARGEST + 1, 200, LARGEST, LARGEST, 0, 0, LARGEST),
                    Vote(1, LARGEST, LARGEST, LARGEST, LARGEST)):
        data = b"".join(encode(message))
        assert Decoder(0).feed(data) == [message]
        for offset in (16, 40):  # the term; the first field of the type
            wrapped = bytearray(data)
            struct.pack_into("<q", wrapped, offset, -(1 << 63))
            struct.pack_into("<I", wrapped, 84, crc32c(bytes(wrapped[:84])))
            with pytest.raises(MalformedMessage, match="63 bits"):
                Decoder(0).feed(bytes(wrapped))
    for message in (ReadRequest(1, 1, LARGEST + 1), ReadRequest(1, LARGEST + 1, 1), ReadRequest(1, 1, -1)):
        with pytest.raises(UsageError):
            encode(message)


def test_BUG_A5_entries_near_the_last_index_are_read_and_none_beyond_it() -> None:
    """jraft aec90ee7: an index wraps around. Guards the frame's own limit of 63 bits."""
    def at(first: int, term: int = LARGEST) -> Frame:
        return parse(build(kind=1, group=1, term=term, first=first, payloads=[b"a", b"b"], wall_ms=0, chain=0).data)

    assert at(LARGEST - 1).last == LARGEST and at(LARGEST - 1).term == LARGEST
    with pytest.raises(MalformedMessage, match="63 bits"):
        at(LARGEST)
    with pytest.raises(MalformedMessage, match="63 bits"):
        at(1, LARGEST + 2)


def test_BUG_A5_a_group_that_has_run_for_ever_runs_on() -> None:
    """jraft 8dc5c080: a counter starts anew in the middle of a run. Guards terms, sessions, rounds and tickets."""
    far = LARGEST - 1_000
    script = Script(disks={name: disk([far, far]) for name in ("n0", "n1", "n2")})
    leader = script.elect("n0")
    script.elapse(100)
    assert far < leader.term <= LARGEST and leader.leadership is not None
    for progress in leader.leadership.peers.values():
        progress.sequence = (1 << 64) - 10_000
        progress.session = LARGEST - 5
    leader.leadership.reads.round = (1 << 32) - 50
    script["n1"].following._asked = LARGEST - 500
    for number in range(100):
        script.propose("n0", b"%d" % number)
        ticket = script.read("n0")
        follower_ticket = script.read("n1")
        script.settle()
        assert script.outcome("n0", ticket) == script.outcome("n1", follower_ticket) == "done"
        for mail in script.mail:
            encode(mail.message)
    script.elapse(100)
    assert script.nodes["n2"].applied[-100:] == [b"%d" % number for number in range(100)]
    script.cut("n0")
    assert script.outcome("n0", script.read("n0")) == "open"  # no answer of an earlier round is one to this


class Huge(bytes):
    """Says that it has more bytes than a 32-bit size can name, to spare the memory."""

    size = 1 << 31

    def __len__(self) -> int:
        return self.size


def test_BUG_A6_a_size_beyond_32_bits_is_refused_when_encoding() -> None:
    """NuRaft 92fce2f: sizes above 4 GiB wrap and the receiver reads garbage. Guards the limit before a byte leaves."""
    one = frame(1, 1)
    large = Frame(Huge(), one.kind, 1, 1, 1, 1, 0, 0, one.mark)
    for message in (Append(1, 1, 1, 1, 0, 0, 0, 0, [large]), Append(1, 1, 1, 1, 0, 0, 0, 0, [large, large]),
                    SnapshotChunk(1, 1, 1, 1, b"meta", 0, Huge()), SnapshotChunk(1, 1, 1, 1, Huge(), 0, b"")):
        with pytest.raises(UsageError, match="a message carries at most 2147483647"):
            encode(message)
    with pytest.raises(ConfigError, match="2 GiB"):
        Config(message_bytes_max=1 << 31, segment_bytes=1 << 33, inflight_bytes_max=1 << 33,
               uncommitted_bytes_max=1 << 33)


def test_BUG_A6_a_size_that_is_announced_is_judged_before_memory_is_taken() -> None:
    """NuRaft 92fce2f, the receiver's side. Guards that the header alone is enough to refuse."""
    data = b"".join(encode(Append(1, 1, 1, 1, 0, 0, 0, 0, [frame(1, 1, bytes(2_000))])))
    decoder = Decoder(1_000)
    with pytest.raises(MalformedMessage, match="a payload of 2068 bytes; at most 1000 are taken"):
        decoder.feed(data[:88])
    assert decoder.unfinished_bytes <= 88


# --- deadlines ---------------------------------------------------------------------------------------------------


async def test_BUG_A7_a_deadline_that_passes_in_the_queue_proves_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """hashicorp's BatchApplyCh: a caller times out while its command waits in a batch, hears "failed", and it commits.

    Guards that the answer is Unknown while the batch may still go, and certain only once it was withdrawn.
    """
    config = Config(uncommitted_frames_target=1, propose_timeout_ms=10_000)
    async with net(ALONE, config) as (made, leader):
        made.disks["n0"].stalled = True
        results: dict[str, object] = {}

        async def call(name: str, command: bytes, timeout_ms: int | None) -> None:
            results[name] = await outcome(partial(leader.propose, command, timeout_ms=timeout_ms))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "flies", b"1", 200)
            await trio.sleep(0.01)
            nursery.start_soon(call, "queues, in a hurry", b"10", 100)
            await trio.sleep(0.01)
            nursery.start_soon(call, "queues", b"100", None)
            await trio.sleep(1)
            assert isinstance(results["flies"], Unknown) and results["flies"].first == leader.status().last_index
            assert isinstance(results["queues, in a hurry"], Unknown)
            assert "queues" not in results
            made.disks["n0"].stalled = False
            made.disks["n0"].bell.ring()
        assert results["queues"] == total(leader) == 111


async def test_BUG_A7_what_is_called_withdrawn_is_withdrawn(autojump_clock: trio.testing.MockClock) -> None:
    """hashicorp's BatchApplyCh: "timed out" and yet applied. Guards that certain answers are kept."""
    config = Config(uncommitted_frames_target=1, propose_timeout_ms=500, storage_stall_ms=60_000)
    async with net(ALONE, config) as (made, leader):
        made.disks["n0"].stalled = True
        flying, queued = leader.propose_nowait(b"1"), None
        await trio.sleep(0.01)
        queued = leader.propose_nowait(b"10")
        errors = [await outcome(flying.wait), await outcome(queued.wait)]
        assert isinstance(errors[0], Unknown)
        assert isinstance(errors[1], Rejected) and errors[1].reason is RejectReason.TIMED_OUT
        made.disks["n0"].stalled = False
        made.disks["n0"].bell.ring()
        assert await leader.propose(b"100") == 101
        assert applied(leader) == [b"1", b"100"]


# --- no room -----------------------------------------------------------------------------------------------------


async def test_BUG_A8_a_full_disk_ends_leadership_and_not_the_node(autojump_clock: trio.testing.MockClock) -> None:
    """ENOSPC on an append takes the process down, or is retried in silence. Guards a state that says so and passes."""
    files = VirtualDisk()
    async with opened(files, ALONE) as node:
        assert await soon(lambda: node.is_leader)
        files.faults.capacity_bytes = files.used_bytes()
        kept, result = 0, None
        while not isinstance(result, RaftError):
            result = await outcome(partial(node.propose, b"1".rjust(1_500, b"0"), 2_000))
            kept += isinstance(result, int)
        assert isinstance(result, (Unknown, NotLeader, Rejected))  # in memory still, or never taken
        status = node.status()
        assert (status.storage, status.faulted, node.is_leader) == ("full", None, False) and kept > 3
        with pytest.raises(NotLeader):
            await node.propose(b"1")
        assert any("disk" in line for line in node.explain())
        files.faults.capacity_bytes = 1 << 30
        assert await soon(lambda: node.is_leader)
        assert node.status().storage == "ok"
        assert await node.propose(b"1") == total(node) > kept


async def test_BUG_A8_a_node_with_a_full_disk_still_votes_and_remembers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """ENOSPC on a vote: the node grants and forgets, or blocks every election. Guards the room kept for votes."""
    files = VirtualDisk()
    async with opened(files, THREE) as node:
        sent: list[PeerMessage] = []
        node._driver.peers.send = lambda peer, message: sent.append(message)  # type: ignore[method-assign]
        files.faults.capacity_bytes = files.used_bytes()
        chain, index = 0, 0
        while node.status().storage == "ok":
            one = frame(index + 1, 1, bytes(1_500), chain=chain)
            node._driver.receive("n1", Append(1, 1, 1, index + 1, index, min(index, 1), 0, 0, [one]))
            node._driver.pump()
            chain, index = one.mark, index + 1
            await trio.sleep(0.01)
        assert node.status().storage == "full" and index > 3
        await trio.sleep(2)
        node._driver.receive("n2", Vote(1, 9, 1, index + 5, 1))
        node._driver.pump()
        await trio.sleep(0.01)
        assert [(reply.term, reply.result) for reply in sent if isinstance(reply, VoteReply)] == [
            (9, VoteResult.ACCEPT)]
    async with opened(files, THREE, bootstrap=False) as node:
        assert (node.status().term, node._driver.replica.voted_for) == (9, "n2")


def test_BUG_A8_votes_fit_behind_the_last_frame() -> None:
    """ENOSPC on a vote, on the disk itself: frames may not use the last of a segment. Guards many votes, not one."""
    files = VirtualDisk()
    format_directory(files, "c", "n0", bytes(16))
    storage = SegmentStorage(files, "c", "n0", segment_bytes=32 << 10, rng=Random(7))
    storage.open()
    files.faults.capacity_bytes = files.used_bytes()
    last = fill(storage)
    assert last > 3
    for term in range(2, 12):
        storage.write([Write(100 + term, 1, hard_state=HardState(term, "n2"))])
        storage.sync()
    files.crash()
    files.restart()
    found = SegmentStorage(files, "c", "n0", segment_bytes=32 << 10, rng=Random(8)).open()[1]
    assert (found.hard_state, found.last_index) == (HardState(11, "n2"), last)


async def test_BUG_A8_a_vote_that_was_lost_with_the_room_is_written_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """ENOSPC on the very write that holds a vote. Guards that the vote is written again, before the answer leaves."""
    files = VirtualDisk()
    async with opened(files, THREE) as node:
        sent: list[PeerMessage] = []
        node._driver.peers.send = lambda peer, message: sent.append(message)  # type: ignore[method-assign]
        await trio.sleep(0.01)
        writer = node._driver.disk.submit.__self__  # type: ignore[attr-defined]
        write, storage = writer._storage.write, writer._storage

        def full_once(writes: list[Write]) -> None:
            storage.write = write
            raise DiskFull("no room")

        storage.write = full_once
        for answers in ([], [(9, VoteResult.ACCEPT)]):  # the first answer is lost with the write; it asks again
            node._driver.receive("n2", Vote(1, 9, 1, 5, 1))
            node._driver.pump()
            await trio.sleep(0.01)
            assert node.status().storage == "full"
            assert [(reply.term, reply.result) for reply in sent if isinstance(reply, VoteReply)] == answers
    async with opened(files, THREE, bootstrap=False) as node:
        assert (node.status().term, node._driver.replica.voted_for) == (9, "n2")


def test_BUG_A8_what_found_no_room_twice_waits_for_it() -> None:
    """ENOSPC on a vote even in the reserve: written again at once it fails again, for as long as the disk is full.

    Guards that neither the write nor a promise that rests on it leaves before there is room, and that both then do.
    """
    script = Script(3)
    script.elect("n0")
    script.elapse(200)
    voter = script["n1"]
    kept, entries = voter.term, voter.log.last_index
    voter.storage_fault(script.now, "full")
    again, = (output for output in voter.drain() if isinstance(output, Write))
    assert again.hard_state == HardState(kept, voter.voted_for)
    voter.durable(script.now, again.token)
    promises = []
    for term in (kept + 1, kept + 2):  # the first spends the reserve, the second finds none
        script.now += 10_000 * MS
        voter.receive(script.now, "n2", Vote(1, term, 1, entries, kept))
        promise, write = (output for output in voter.drain() if isinstance(output, Write | Send))
        assert isinstance(write, Write) and write.hard_state == HardState(term, "n2")
        assert isinstance(promise, Send) and promise.after == write.token
        promises.append(promise)
        if term == kept + 1:
            voter.durable(script.now, write.token)
    voter.storage_fault(script.now, "full")
    assert not voter.drain()
    for term in range(kept + 3, kept + 60):
        script.now += 10_000 * MS
        voter.tick(script.now)
        voter.receive(script.now, "n2", Vote(1, term, 1, entries, kept))
        voter.receive(script.now, "n0", Append(1, kept, 9, 1, 0, 0, 0, 0))
        voter.storage_fault(script.now, "full")
        assert not [output for output in voter.drain() if isinstance(output, Write | Send)]
        assert (voter.term, voter.voted_for) == (term, "n2")
    assert voter.writes.durable_token < promises[-1].after
    voter.storage_fault(script.now, "room")
    write, = (output for output in voter.drain() if isinstance(output, Write))
    assert write.hard_state == HardState(kept + 59, "n2") and write.token > promises[-1].after
    voter.durable(script.now, write.token)
    voter.receive(script.now, "n2", Vote(1, kept + 59, 1, entries, kept))
    assert [output.message.result for output in voter.drain()
            if isinstance(output, Send) and isinstance(output.message, VoteReply) and not output.after] == [
                VoteResult.ACCEPT]


async def test_BUG_A8_a_disk_that_stays_full_is_left_alone(autojump_clock: trio.testing.MockClock) -> None:
    """ENOSPC on votes, for so long that the room kept for them is used up: the node wrote as fast as it could.

    Guards that it waits, that no vote which is not on the disk is told to anybody, and that it comes back.
    """
    files = VirtualDisk()
    async with opened(files, THREE) as node:
        sent: list[PeerMessage] = []
        writes: list[Write] = []
        submit = node._driver.disk.submit
        node._driver.peers.send = lambda peer, message: sent.append(message)  # type: ignore[method-assign]

        def counted(write: Write) -> None:
            writes.append(write)
            assert len(writes) < 300, "the disk is asked again and again"
            submit(write)

        node._driver.disk.submit = counted  # type: ignore[method-assign]
        files.faults.capacity_bytes = files.used_bytes()
        chain, index = 0, 0
        while node.status().storage == "ok":
            one = frame(index + 1, 1, bytes(1_500), chain=chain)
            node._driver.receive("n1", Append(1, 1, 1, index + 1, index, min(index, 1), 0, 0, [one]))
            node._driver.pump()
            chain, index = one.mark, index + 1
            await trio.sleep(0.01)
        for term in range(2, 150):
            await trio.sleep(1)
            node._driver.receive("n2", Vote(1, term, 1, index + 5, 9))
            node._driver.pump()
        await trio.sleep(1)
        granted = [reply.term for reply in sent if isinstance(reply, VoteReply)]
        assert granted == list(range(2, granted[-1] + 1)) and 10 < granted[-1] < 140, "the room kept for votes"
        assert (node._driver.replica.term, node.status().storage, node.status().faulted) == (149, "full", None)
        cut = deepcopy(files)
        cut.crash()
        cut.restart()
        found = SegmentStorage(cut, "default", "n0", segment_bytes=32 << 10, rng=Random(8)).open()[1]
        assert found.hard_state == HardState(granted[-1], "n2")
        files.faults.capacity_bytes = 1 << 30
        assert await soon(lambda: node.status().storage == "ok")
        node._driver.receive("n2", Vote(1, 149, 1, index + 5, 9))
        node._driver.pump()
        await trio.sleep(0.01)
        assert [(reply.term, reply.result) for reply in sent if isinstance(reply, VoteReply)][-1] == (
            149, VoteResult.ACCEPT)
    async with opened(files, THREE, bootstrap=False) as node:
        assert (node.status().term, node._driver.replica.voted_for) == (149, "n2")


async def test_BUG_A8_a_snapshot_without_room_costs_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    """ENOSPC on a snapshot takes the log with it. Guards that only the snapshot fails, typed, and leaves no remains."""
    files = VirtualDisk()
    async with opened(files, ALONE) as node:
        assert await soon(lambda: node.is_leader)
        await node.propose(b"1")
        before = files.list("snapshots")
        for operation in ("create", "write"):
            files.fail(operation, errno.ENOSPC)
            with pytest.raises(DiskFull):
                await node.take_snapshot()
            assert files.list("snapshots") == before
        assert node.is_leader and (node.status().storage, node.status().faulted) == ("ok", None)
        assert await node.propose(b"1") == 2
        assert (await node.take_snapshot()).index == node.status().applied_index
    assert read_identity(files) is not None


# --- memory ------------------------------------------------------------------------------------------------------

BOUNDED = Config(uncommitted_bytes_max=200_000, entry_bytes_max=50_000, message_bytes_max=150_000,
                 append_bytes_max=100_000, frame_bytes_max=20_000, snapshot_chunk_bytes=100_000)


def test_BUG_A9_an_isolated_leader_takes_so_much_and_no_more() -> None:
    """etcd's bounded-log test: proposals without a quorum fill the memory. Guards a typed refusal, and recovery."""
    script = Script(3, config=BOUNDED)
    leader = script.elect("n0")
    script.elapse(50)
    assert leader.leadership is not None
    for partition in range(3):
        script.cut("n0")
        accepted = refused = 0
        before = leader.log.last_index
        for _ in range(10 * BOUNDED.uncommitted_bytes_max // 10_000):
            try:
                script.propose("n0", bytes(10_000))
                accepted += 1
            except Busy:
                refused += 1
        assert 15 <= accepted <= 20 < refused, partition
        assert leader.log.last_index == before + accepted
        assert leader.leadership.uncommitted_bytes <= BOUNDED.uncommitted_bytes_max + 20 * 100
        script.heal()
        script.elapse(300)
        assert leader.role == Role.LEADER and leader.commit_index == leader.log.last_index
        assert leader.leadership.uncommitted_bytes == 0
    assert script.nodes["n1"].applied == script.nodes["n0"].applied


async def test_BUG_A9_callers_of_an_isolated_leader_are_limited_too(autojump_clock: trio.testing.MockClock) -> None:
    """etcd's bounded-log test, before the core: what gathers behind a commit that does not come is bounded as well."""
    async with net(ALONE, BOUNDED) as (made, leader):
        made.disks["n0"].stalled = True
        tickets, refused = [], 0
        for _ in range(200):
            try:
                tickets.append(leader.propose_nowait(b"0" * 9_999 + b"1"))
            except Busy:
                refused += 1
            await trio.sleep(0.001)
        assert len(tickets) <= 20 and refused >= 180
        assert leader.status().pending_bytes <= BOUNDED.uncommitted_bytes_max
        made.disks["n0"].stalled = False
        made.disks["n0"].bell.ring()
        for number, ticket in enumerate(tickets, 1):
            assert await ticket.wait() == number
        assert await leader.propose_nowait(b"1").wait() == len(tickets) + 1


def test_BUG_A10_whoever_lags_less_than_the_tail_needs_no_snapshot() -> None:
    """A slow follower and compaction: each purge takes what it needs next. Guards the tail kept behind a snapshot."""
    script = Script(3, config=Config(snapshot_tail_entries=2_000))
    script.elect("n0")
    script.elapse(100)
    for _ in range(6):
        script.cut("n2")
        for _ in range(2):
            script.propose("n0", *[b"x"] * 600)
            script.settle()
            script.snapshot("n0")
        script.heal()
        script.elapse(400)
        assert script["n2"].applied_index == script["n0"].applied_index
    assert script["n0"].log.purged_index > 0
    assert not [event for event in script.nodes["n2"].traces if isinstance(event, SnapshotInstalled)]


async def test_BUG_A10_a_slow_transfer_ends_while_the_group_works_on(autojump_clock: trio.testing.MockClock) -> None:
    """A slow follower and compaction: before a snapshot is over the next one takes its place, again and again.

    Guards that the next one waits for a transfer under way, and for a peer that is gone only so long.
    """
    config = Config(snapshot_log_bytes=5_000, snapshot_tail_entries=0, snapshot_chunk_bytes=1,
                    propose_timeout_ms=60_000)
    async with net(THREE, config) as (made, leader):
        slow = next(node for node in made.nodes.values() if node is not leader)
        run = slow._driver.snapshots._run_blocking

        async def slowly(function: Callable[..., Any], *args: Any) -> Any:
            await trio.sleep(0.3)
            return await run(function, *args)

        slow._driver.snapshots._run_blocking = slowly
        made.isolate(slow.node_id)
        await leader.propose_many([b"1"] * 1_200)
        assert await soon(lambda: leader.status().purged_index > 1_000)
        events, restored = leader.events(), slow.events()
        for second in range(20):  # a snapshot falls due every second, a transfer takes longer
            if second == 3:
                made.heal()
            await leader.propose_many([b"1"] * 1_200)
            await trio.sleep(1)
        assert slow.status().applied_index == leader.status().applied_index
        assert sum(isinstance(event, SnapshotRestored) for event in restored.pending()) == 1
        assert 14 <= sum(isinstance(event, SnapshotTaken) for event in events.pending()) < 20


async def test_BUG_A10_a_transfer_that_never_ends_does_not_keep_the_log_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A slow follower and compaction, the other end: the leader keeps all entries for a peer that takes nothing."""
    config = Config(snapshot_log_bytes=5_000, snapshot_tail_entries=0, propose_timeout_ms=60_000)
    async with net(THREE, config) as (made, leader):
        slow = next(node for node in made.nodes.values() if node is not leader)
        slow._driver.snapshots.handle = lambda question: None  # type: ignore[method-assign]
        made.isolate(slow.node_id)
        await leader.propose_many([b"1"] * 1_200)
        assert await soon(lambda: leader.status().purged_index > 1_000)
        made.heal()
        kept = 0
        for _ in range(20):
            await leader.propose_many([b"1"] * 1_200)
            await trio.sleep(1)
            kept = max(kept, leader.status().last_index - leader.status().purged_index)
        assert leader.status().purged_index > 20_000 and 1_200 < kept <= 4 * 1_200
