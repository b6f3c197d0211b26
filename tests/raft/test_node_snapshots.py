"""The shell of one node: its own snapshots, a leader's, and machines that refuse them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing
from google_crc32c import value as crc32c

from harness.simulation.worlds.nodes import THREE, Counter, machine_of, network, one, three
from raft.clientserver import serve_client
from raft.clientwire import Blocks, Op, Request, ResultCode, decode_answer, encode_request
from raft.config import Config, Read
from raft.errors import (
    Rejected,
    RejectReason,
    UsageError,
)
from raft.events import NodeFaulted, SnapshotRestored, SnapshotTaken
from raft.hello import Hello, Lane
from raft.membership import Member, Membership
from raft.messages import (
    SnapshotChunk,
    SnapshotMeta,
)
from raft.node import Served
from raft.snapshotio import PIECES_MAX
from raft.snapshotmeta import encode_meta
from raft.statemachine import Sink, StateMachine, query_of
from raft.storage.interface import SnapshotSink


async def test_a_snapshot_is_taken_by_size_and_restored_at_start(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(snapshot_log_bytes=5_000, snapshot_tail_entries=0)
    async with network(config) as net:
        leader = await one(net)
        events = leader.events()
        for _ in range(10):
            await leader.propose_many([b"1"] * 600)
        await trio.testing.wait_all_tasks_blocked()
        status = leader.status()
        assert status.snapshot_index > 5_000 and status.purged_index > 5_000
        total = machine_of(leader).n
        assert any(isinstance(event, SnapshotTaken) for event in events.pending())
        storage = net.kill("n0")
        await trio.testing.wait_all_tasks_blocked()
        again = await one(net, Counter(), storage=storage)
        await again.read_barrier()
        assert machine_of(again).n == total
        assert len(machine_of(again).log) < 1_000  # only what is behind the snapshot was applied


async def test_a_follower_far_behind_is_given_a_snapshot(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(snapshot_tail_entries=0, snapshot_chunk_bytes=1, propose_timeout_ms=60_000)
    async with network(config) as net:
        leader = await three(net)
        behind = next(node for node in net.nodes.values() if node is not leader)
        net.isolate(behind.node_id)
        await leader.propose_many([b"111"] * 1_000)
        assert (await leader.take_snapshot()).size == 6
        assert leader.status().purged_index == leader.status().snapshot_index
        net.heal()
        events = behind.events()
        async for event in events:
            if isinstance(event, SnapshotRestored):
                break
        await behind.read_barrier()
        assert machine_of(behind).n == 111_000
        assert machine_of(behind).log == []
        await leader.propose(b"1")
        await behind.read_barrier()
        assert machine_of(behind).n == 111_001


async def test_snapshots_that_cannot_be_taken_are_refused_in_words(autojump_clock: trio.testing.MockClock) -> None:
    class Bare:
        def apply(self, command: bytes) -> None: ...

    async with network() as net:
        node = await one(net, Bare())
        with pytest.raises(UsageError, match="no snapshot"):
            await node.take_snapshot()


class Unwilling(Counter):
    """Makes no snapshot of what is odd."""

    def snapshot(self) -> bytes:
        if self.n % 2:
            raise ValueError("odd")
        return super().snapshot()


async def test_a_machine_that_fails_at_a_snapshot_is_asked_again_later(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    config = Config(snapshot_log_bytes=5_000, snapshot_tail_entries=0)
    async with network(config) as net:
        leader = await one(net, Unwilling())
        await leader.propose_many([b"1"] * 1_001)
        await trio.testing.wait_all_tasks_blocked()
        assert "ValueError: odd" in caplog.text
        with pytest.raises(UsageError, match="ValueError: odd"):
            await leader.take_snapshot()
        assert leader.status().snapshot_index == 0
        await leader.propose_many([b"1"] * 1_001)
        await trio.testing.wait_all_tasks_blocked()
        assert leader.status().snapshot_index > 2_000


class Unwritable(Counter):
    """Captures, and then cannot write."""

    def capture(self) -> int:
        return self.n

    def write(self, view: int, sink: Sink) -> None:
        raise KeyError("lost")

    def restore_from(self, chunks: Iterator[bytes]) -> None: ...


@pytest.mark.parametrize(("machine", "words"), [(Unwilling(), "ValueError: odd"), (Unwritable(), "KeyError: 'lost'")])
async def test_a_client_is_told_that_the_machine_makes_no_snapshot(
    machine: Counter, words: str, autojump_clock: trio.testing.MockClock,
) -> None:
    """One question from outside must not end the server."""
    async with network() as net:
        leader = await one(net, machine)
        await leader.propose(b"1")
        near, far = trio.testing.memory_stream_pair()
        hello = Hello(cluster="test", node="", incarnation=b"", lane=Lane.CLIENT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_client, {1: Served(leader._driver)}, leader.config, far, hello, b"")
            await near.send_all(encode_request(Request(1, Op.SNAPSHOT)))
            (block,) = Blocks(1 << 20).feed(await near.receive_some())
            answer = decode_answer(block)
            assert answer.result is ResultCode.USAGE and words in answer.value[0]
            nursery.cancel_scope.cancel()


async def test_a_fault_of_the_library_is_not_taken_for_the_machines(autojump_clock: trio.testing.MockClock) -> None:
    class Broken(AssertionError):
        pass

    def broken(group: int, meta: SnapshotMeta) -> SnapshotSink:
        raise Broken

    async def run() -> None:
        async with network(Config(snapshot_log_bytes=5_000)) as net:
            leader = await one(net)
            net.disks["n0"].storage.create_snapshot = broken  # type: ignore[method-assign, assignment]
            await leader.propose_many([b"1"] * 1_001)
            await trio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.value.split(Broken)[1] is None


class Torn(Counter):
    """Restores in a thread; while it does, it is neither what it was nor what it will be."""

    capture = Counter.snapshot

    def write(self, view: bytes, sink: Sink) -> None:
        sink.write(view)

    def restore_from(self, chunks: Iterator[bytes]) -> None:
        self.restore(b"".join(chunks))

    def query(self, data: bytes) -> int:
        return self.n


async def test_nobody_reads_what_a_thread_is_restoring(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(snapshot_tail_entries=0, propose_timeout_ms=60_000)
    async with network(config) as net:
        for name in THREE:
            await net.start(name, THREE, Torn())
        leader = await net.leader()
        behind = next(node for node in net.nodes.values() if node is not leader)
        run, machine, gate = behind._driver.applier._run_blocking, behind._driver.applier.machine, trio.Event()

        async def slowly(function: Callable[..., Any], *args: Any) -> Any:
            if function == machine.restore:
                await gate.wait()
            return await run(function, *args)

        behind._driver.applier._run_blocking = slowly
        net.isolate(behind.node_id)
        await leader.propose_many([b"111"] * 1_000)
        await leader.take_snapshot()
        net.heal()
        while not behind._driver.applier.torn:
            await trio.sleep(0.01)
        with pytest.raises(Rejected) as refused:
            await behind.read_barrier(Read.UNSAFE)
        assert refused.value.reason is RejectReason.INSTALLING
        with pytest.raises(Rejected):
            await behind.query(b"", level=Read.UNSAFE)
        with pytest.raises(Rejected):
            await behind._driver.ask_machine(query_of(machine_of(behind)), b"", run_blocking=run)
        gate.set()
        await trio.sleep(1)
        await behind.read_barrier(Read.UNSAFE)
        assert await behind.query(b"", level=Read.UNSAFE) == 111_000


async def test_a_slow_disk_and_a_leader_that_repeats_itself_do_not_crowd_out_the_install(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """While a piece is stored the leader sends it again and again; all of them wait when the first is done."""
    async with network() as net:
        node = await net.start("n0", THREE, Counter())
        membership = Membership(voters=tuple(THREE), members={name: Member(at) for name, at in THREE.items()})
        meta = encode_meta(SnapshotMeta(10, 1, 0, membership, 0, size=1, crc=crc32c(b"5")))
        gate = trio.Event()

        async def slowly(function: Callable[..., Any], *args: Any) -> Any:
            await gate.wait()
            return function(*args)

        node._driver.snapshots._run_blocking = slowly
        for number in range(1, 3 * PIECES_MAX):
            node._driver.receive("n1", SnapshotChunk(1, 1, 1, number, meta, 0, b"5"))
            node._driver.pump()
            await trio.testing.wait_all_tasks_blocked()
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert machine_of(node).n == 5 and not node._driver.replica.installing


class Refusing(Counter):
    def restore(self, data: bytes) -> None:
        raise ValueError("not mine")


class Bare:
    """Has no snapshots, in a group whose other nodes have."""

    def apply(self, command: bytes) -> None: ...


@pytest.mark.parametrize("machine", [Refusing(), Bare()])
async def test_a_machine_that_refuses_a_snapshot_is_not_said_to_hold_it(
    machine: StateMachine, autojump_clock: trio.testing.MockClock,
) -> None:
    async with network(Config(snapshot_tail_entries=0)) as net:
        for name in ("n0", "n1"):
            await net.start(name, THREE, Counter())
        leader = await net.leader()
        await leader.propose_many([b"1"] * 1_000)
        await leader.take_snapshot()
        behind = await net.start("n2", THREE, machine)
        seen: list[object] = []
        with trio.move_on_after(5):
            async for event in behind.events():
                seen.append(event)
        assert any(isinstance(event, NodeFaulted) for event in seen)
        assert not any(isinstance(event, SnapshotRestored) for event in seen)
