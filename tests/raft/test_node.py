"""The shell of one node: what callers see of commits, losses, deadlines, limits, faults and stopping.

Nodes run on memory storage and links without sockets (``net``), on a virtual clock that jumps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from harness.simulation.worlds.nodes import THREE, Counter, machine_of, network, one, three
from raft import frame
from raft.alarms import SWEEP_MIN
from raft.config import Config, Read
from raft.errors import (
    Busy,
    DiskFull,
    Faulted,
    MalformedMessage,
    NotLeader,
    RaftError,
    Rejected,
    RejectReason,
    Unknown,
    UsageError,
    WriteFailed,
)
from raft.events import NodeFaulted
from raft.frame import Kind
from raft.messages import (
    Append,
    MembershipChanged,
    Role,
    RoleChanged,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)


class Caught:
    """What a call raised, kept for later."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.value: object = None
        self.done = trio.Event()

    async def of(self, call: Callable[[], Awaitable[object]]) -> None:
        try:
            self.value = await call()
        except RaftError as error:
            self.error = error
        self.done.set()


# --- committing --------------------------------------------------------------------------------------------------


async def test_each_caller_gets_its_own_result(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        results: list[object] = []

        async def call() -> None:
            results.append(await leader.propose(b"1"))

        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(call)
        assert sorted(results, key=str) == sorted(range(1, 201), key=str)
        assert leader._driver.counters["batches"] < 5  # they travelled together
        assert await leader.propose_many([b"1", b"10", b"100"]) == [201, 211, 311]
        assert await leader.propose_many([]) == []
        for node in net.nodes.values():
            await node.read_barrier()
            assert machine_of(node).n == 311
            assert node.status().applied_index == node.status().commit_index


async def test_a_call_larger_than_a_frame_is_split_and_answered_once(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(frame_bytes_max=4_096, frame_entries_max=100)
    async with network(config) as net:
        leader = await three(net)
        assert await leader.propose_many([b"1"] * 1_050) == list(range(1, 1_051))
        large = b"0" * 10_000
        assert await leader.propose(large) == 1_050
        assert [frame.count for frame in leader._driver.replica.log.cached(2, 1 << 20) or []][-2:] == [50, 1]


@pytest.mark.parametrize(("config", "size"), [
    (Config(frame_bytes_max=4_096), 8),
    (Config(frame_entries_max=50), 8),
    (Config(frame_bytes_max=4_096), 900),
])
async def test_what_gathers_fills_frames_and_no_frame_is_split(
    config: Config, size: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with network(config) as net:
        leader = await one(net)
        async with trio.open_nursery() as nursery:
            for _ in range(1_000):
                nursery.start_soon(leader.propose, b"1".rjust(size, b"0"))
        frames = [frame for frame in leader._driver.replica.log.cached(1, 1 << 30) or [] if frame.kind == Kind.COMMANDS]
        assert len(frames) == leader._driver.counters["batches"]
        assert all(frame.count >= 49 or frame.size > 1_800 for frame in frames[:-1])
        assert machine_of(leader).n == 1_000


async def test_a_follower_refuses_and_names_the_leader(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        follower = next(node for node in net.nodes.values() if node is not leader)
        await follower.wait_leader()
        for call in (partial(follower.propose, b"1"), partial(follower.propose_many, [b"1"])):
            with pytest.raises(NotLeader) as caught:
                await call()
            assert (caught.value.leader, caught.value.address) == (leader.node_id, THREE[leader.node_id])
        with pytest.raises(NotLeader):
            follower.propose_nowait(b"1")
        with pytest.raises(NotLeader):
            await follower.transfer_leadership()


async def test_a_ticket_can_be_awaited_late_often_or_never(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        tickets = [leader.propose_nowait(b"1") for _ in range(3)]
        assert [ticket.done for ticket in tickets] == [False] * 3
        assert await tickets[1].wait() == 2
        assert [ticket.done for ticket in tickets] == [True] * 3
        assert await tickets[0].wait() == 1
        assert await tickets[1].wait() == 2
        assert machine_of(leader).n == 3


async def test_too_large_a_command_is_refused_before_anything_is_sent(autojump_clock: trio.testing.MockClock) -> None:
    async with network(Config(entry_bytes_max=100)) as net:
        leader = await one(net)
        with pytest.raises(Rejected) as caught:
            await leader.propose_many([b"1", b"0" * 101])
        assert caught.value.reason is RejectReason.TOO_LARGE
        assert machine_of(leader).log == []


async def test_what_is_no_command_or_no_timeout_is_refused_at_the_door(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        wrong: Any = "1"
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(leader.propose, wrong), partial(leader.propose_many, [b"1", wrong]),
            partial(leader.propose, b"1", timeout_ms=0), partial(leader.read_barrier, timeout_ms=-1)]
        for call in calls:
            with pytest.raises(UsageError):
                await call()
        with pytest.raises(UsageError):
            leader.propose_nowait(wrong)
        assert await leader.propose(b"1") == 1


# --- what is lost, and what nobody knows -------------------------------------------------------------------------


async def test_a_deposed_leaders_entries_are_overwritten_and_their_callers_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with network() as net:
        old = await three(net)
        net.isolate(old.node_id)
        lost, many = Caught(), Caught()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lost.of, partial(old.propose, b"1", timeout_ms=60_000))
            nursery.start_soon(many.of, partial(old.propose_many, [b"1", b"1"], timeout_ms=60_000))
            others = [node for node in net.nodes.values() if node is not old]
            while not any(node.is_leader for node in others):
                await trio.sleep(0.05)
            new = next(node for node in others if node.is_leader)
            await new.propose(b"7")
            net.heal()
        for caught in (lost, many):
            assert isinstance(caught.error, Rejected) and caught.error.reason is RejectReason.OVERWRITTEN
        await old.read_barrier()
        assert machine_of(old).n == machine_of(new).n == 7


async def test_without_a_quorum_the_answer_is_unknown_at_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(propose_timeout_ms=300)
    async with network(config) as net:
        leader = await three(net)
        net.isolate(leader.node_id)
        start = trio.current_time()
        with pytest.raises(Unknown) as caught:
            await leader.propose(b"1")
        assert trio.current_time() - start == pytest.approx(0.3, abs=0.01)
        assert caught.value.first == caught.value.last == leader.status().last_index
        start = trio.current_time()
        with pytest.raises((Unknown, NotLeader)):
            await leader.propose(b"1", timeout_ms=50)
        assert trio.current_time() - start < 0.06


async def test_own_deadlines_do_not_shorten_those_of_others(autojump_clock: trio.testing.MockClock) -> None:
    """Four callers in one batch: each is answered at its own time, and the patient one gets the result."""
    config = Config(propose_timeout_ms=300)
    async with network(config) as net:
        leader = await one(net)
        net.disks["n0"].stalled = True
        calls = {limit: Caught() for limit in (None, 100, 200, 1_000)}
        answered: dict[int | None, float] = {}
        start = trio.current_time()

        async def call(limit: int | None) -> None:
            await calls[limit].of(partial(leader.propose, b"1", timeout_ms=limit))
            answered[limit] = trio.current_time() - start

        async with trio.open_nursery() as nursery:
            for limit in calls:
                nursery.start_soon(call, limit)
            await trio.sleep(0.5)
            net.disks["n0"].stalled = False
            net.disks["n0"].bell.ring()
        assert all(isinstance(calls[limit].error, Unknown) for limit in (None, 100, 200))
        assert isinstance(calls[1_000].value, int)
        for limit, expected in ((None, 0.3), (100, 0.1), (200, 0.2), (1_000, 0.5)):
            assert answered[limit] == pytest.approx(expected, abs=0.02)
        assert machine_of(leader).n == 4  # unknown is not failed


@pytest.mark.parametrize("again_ms", [None, 3_000])
async def test_the_deadline_of_a_call_that_was_cancelled_is_not_that_of_the_next(
    again_ms: int | None, autojump_clock: trio.testing.MockClock,
) -> None:
    """The same task may wait in the same batch, or for the same read, once more."""
    async with network(Config(uncommitted_frames_target=1, propose_timeout_ms=3_000)) as net:
        leader = await three(net)
        net.isolate(leader.node_id)
        leader.propose_nowait(b"1")  # what comes behind it gathers
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        with trio.move_on_after(0.001):
            await leader.propose(b"1", 20)
        with pytest.raises(RaftError):
            await leader.propose(b"1", again_ms)
        assert trio.current_time() - start > 0.2  # when the leader gave up, not at the first deadline


async def test_answered_callers_leave_no_alarms_behind(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        for _ in range(3 * SWEEP_MIN // 100):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(partial(leader.propose, b"1", timeout_ms=3_600_000))
                    nursery.start_soon(partial(leader.read_barrier, timeout_ms=3_600_000))
        for _ in range(2 * SWEEP_MIN):  # one task, again and again
            await leader.propose(b"1", timeout_ms=3_600_000)
        assert len(leader._driver.proposals._alarms) <= SWEEP_MIN and len(leader._driver.barriers._alarms) <= SWEEP_MIN


async def test_cancelling_takes_nothing_back_and_wakes_nobody_twice(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        net.disks["n0"].stalled = True
        with trio.move_on_after(0.1):
            await leader.propose(b"1")
        with trio.CancelScope() as scope:
            scope.cancel()
            await leader.propose(b"1")
        assert scope.cancelled_caught
        net.disks["n0"].stalled = False
        net.disks["n0"].bell.ring()
        assert await leader.propose(b"1") == 3


async def test_a_task_cancelled_in_the_very_step_of_its_commit_is_cancelled_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The commit wakes every caller while the cancellation of one is under way: trio would abort on a second wake."""
    async with network() as net:
        leader = await one(net)
        scope = trio.CancelScope()
        outcomes: list[str] = []

        class Cancels(Counter):
            def apply(self, command: bytes) -> int:
                scope.cancel()
                return super().apply(command)

        leader._driver.applier.machine.inner = Cancels()
        leader._driver.applier.machine.__attrs_post_init__()

        async def call() -> None:
            try:
                await leader.propose(b"1")
                outcomes.append("result")
            except trio.Cancelled:
                outcomes.append("cancelled")
                raise

        with scope:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(call)
        assert outcomes == ["cancelled"] * 3

# --- limits ------------------------------------------------------------------------------------------------------


async def test_at_the_limit_nowait_is_busy_and_callers_wait_in_order(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(proposals_pending_max=5)
    async with network(config) as net:
        leader = await one(net)
        net.disks["n0"].stalled = True
        tickets = [leader.propose_nowait(b"1") for _ in range(5)]
        await trio.sleep(0.01)
        with pytest.raises(Busy):
            leader.propose_nowait(b"1")
        order: dict[int, object] = {}

        async def call(number: int) -> None:
            order[number] = await leader.propose(b"1")

        async with trio.open_nursery() as nursery:
            for number in range(12):
                nursery.start_soon(call, number)
                await trio.sleep(0.01)
            assert leader.status().pending_proposals == 5
            with pytest.raises(Rejected) as caught:  # no room in time: certainly without effect
                await leader.propose(b"1000", timeout_ms=50)
            assert caught.value.reason is RejectReason.TIMED_OUT
            with trio.move_on_after(0.05):
                await leader.propose(b"1000")
            net.disks["n0"].stalled = False
            net.disks["n0"].bell.ring()
        assert [order[number] for number in range(12)] == list(range(6, 18))
        assert [await ticket.wait() for ticket in tickets] == [1, 2, 3, 4, 5]
        assert leader.status().pending_proposals == leader.status().pending_bytes == 0


async def test_bytes_are_limited_too(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(uncommitted_bytes_max=200_000, entry_bytes_max=50_000, message_bytes_max=150_000,
                    append_bytes_max=100_000, frame_bytes_max=20_000, snapshot_chunk_bytes=100_000)
    async with network(config) as net:
        leader = await one(net)
        net.disks["n0"].stalled = True
        tickets = [leader.propose_nowait(b"0" * 40_000) for _ in range(5)]
        await trio.sleep(0.01)
        with pytest.raises(Busy):
            leader.propose_nowait(b"0" * 1_000)
        with pytest.raises(Rejected) as caught:
            await leader.propose_many([b"0" * 50_000] * 5)
        assert caught.value.reason is RejectReason.TOO_LARGE
        net.disks["n0"].stalled = False
        net.disks["n0"].bell.ring()
        assert await tickets[-1].wait() == 0
        assert await leader.propose_nowait(b"0" * 1_000).wait() == 0


async def test_while_frames_wait_for_commit_proposals_gather(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(uncommitted_frames_target=2)
    async with network(config) as net:
        leader = await one(net)
        net.disks["n0"].stalled = True
        before = leader.status().last_index
        tickets = []
        for _ in range(50):
            tickets.append(leader.propose_nowait(b"1"))
            await trio.sleep(0.001)
        assert leader.status().last_index == before + 2
        net.disks["n0"].stalled = False
        net.disks["n0"].bell.ring()
        assert await tickets[-1].wait() == 50
        assert leader._driver.counters["batches"] == 3


async def test_who_comes_alone_waits_for_no_flusher_and_who_comes_then_gathers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with network() as net:
        leader = await one(net)
        assert await leader.propose_many([b"1"] * 3) == [1, 2, 3]
        for before_alone in (True, False):
            before = leader._driver.counters["batches"]
            call = leader.propose(b"1")
            call.send(None)  # its first step, and nobody else's
            assert leader._driver.counters["batches"] == before + (not before_alone)
            call.close()
            await trio.testing.wait_all_tasks_blocked()  # it is committed
        net.disks["n0"].stalled = True
        before = leader._driver.counters["batches"]
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(leader.propose, b"1")
            await trio.testing.wait_all_tasks_blocked()
            net.disks["n0"].stalled = False
            net.disks["n0"].bell.ring()
        assert machine_of(leader).n == 15
        assert leader._driver.counters["batches"] == before + 2, "the first alone, the others together"


async def test_a_write_that_is_durable_at_once_is_answered_at_once_and_can_still_be_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with network() as net:
        leader = await one(net)
        assert await leader.propose(b"1") == 1
        storage, taken = net.disks["n0"].storage, []

        def keep(write: Write) -> bool:
            storage.write([write])
            storage.sync()
            taken.append(write.token)
            return True

        leader._driver.disk.write_inline = keep  # type: ignore[method-assign]
        net.disks["n0"].stalled = True
        assert [await leader.propose(b"1") for _ in range(3)] == [2, 3, 4]
        with trio.CancelScope() as scope:
            scope.cancel()
            await leader.propose(b"1")
        assert scope.cancelled_caught
        assert machine_of(leader).n == 5 and leader._driver.durable_token == taken[-1] and len(taken) == 4
        net.disks["n0"].stalled = False


async def test_gathered_proposals_that_never_left_are_withdrawn_for_certain(
    autojump_clock: trio.testing.MockClock,
) -> None:
    config = Config(uncommitted_frames_target=1, propose_timeout_ms=400)
    async with network(config) as net:
        leader = await one(net)
        net.disks["n0"].stalled = True
        out, kept = Caught(), Caught()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(out.of, partial(leader.propose, b"1"))
            await trio.sleep(0.01)
            nursery.start_soon(kept.of, partial(leader.propose, b"100"))
        assert isinstance(out.error, Unknown)
        assert isinstance(kept.error, Rejected) and kept.error.reason is RejectReason.TIMED_OUT
        net.disks["n0"].stalled = False
        net.disks["n0"].bell.ring()
        assert await leader.propose(b"1") == 2


# --- reading -----------------------------------------------------------------------------------------------------


async def test_callers_of_one_pass_share_one_question(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        await leader.propose(b"1")
        before = leader._driver.counters["reads_asked"]
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(leader.read_barrier)
        assert leader._driver.counters["reads_asked"] == before + 1


@pytest.mark.parametrize("level", [Read.INDEX, Read.LEASE, Read.LOG])
async def test_a_read_sees_every_write_that_ended_before_it(
    level: Read, autojump_clock: trio.testing.MockClock
) -> None:
    async with network() as net:
        leader = await three(net)
        for node in net.nodes.values():
            if level is Read.LOG and node is not leader:
                continue
            await leader.propose(b"1")
            await node.read_barrier(level)
            assert machine_of(node).n == machine_of(leader).n


async def test_a_deposed_leader_answers_no_read(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        await leader.propose(b"1")
        net.isolate(leader.node_id)
        with pytest.raises(RaftError):
            await leader.read_barrier()
        with pytest.raises(RaftError):
            await leader.read_barrier(Read.LEASE)
        await leader.read_barrier(Read.UNSAFE)  # says what it is


async def test_a_read_times_out_for_certain(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        net.isolate(leader.node_id)
        start = trio.current_time()
        with pytest.raises(Rejected) as caught:
            await leader.read_barrier(timeout_ms=50)
        assert caught.value.reason is RejectReason.TIMED_OUT
        assert trio.current_time() - start == pytest.approx(0.05, abs=0.001)
        assert leader.status().pending_reads == 0


# --- faults ------------------------------------------------------------------------------------------------------


class Breaks(Counter):
    def apply(self, command: bytes) -> int:
        if command == b"0":
            raise ZeroDivisionError("cannot take 0")
        return super().apply(command)


async def test_a_machine_that_raises_stops_the_node_visibly(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net, Breaks())
        events = leader.events()
        await leader.propose(b"1")
        with pytest.raises(Faulted, match="ZeroDivisionError: cannot take 0") as caught:
            await leader.propose_many([b"2", b"0", b"4"])
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert machine_of(leader).log == [b"1", b"2"]  # nothing behind it was applied
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(leader.propose, b"1"), leader.read_barrier, partial(leader.read_barrier, Read.UNSAFE),
            leader.take_snapshot, leader.wait_leader, leader.transfer_leadership]
        for call in calls:
            with pytest.raises(Faulted):
                await call()
        assert "ZeroDivisionError" in (leader.status().faulted or "")
        seen = []
        async for event in events:
            seen.append(event)
            if isinstance(event, NodeFaulted):
                break
        assert "cannot take 0" in seen[-1].reason  # type: ignore[union-attr]


async def test_a_failed_write_is_final(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        net.disks["n0"].fault = WriteFailed("the disk is gone")
        with pytest.raises(Faulted, match="write or sync failed") as caught:
            await leader.propose(b"1")
        assert isinstance(caught.value.__cause__, WriteFailed)
        assert leader.status().storage == "failed"


async def test_a_full_disk_makes_a_leader_resign_and_comes_back(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        await leader.propose(b"1")
        net.disks["n0"].fault = DiskFull("no room")
        full = Caught()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(full.of, partial(leader.propose, b"10"))
            await trio.sleep(0.1)
            assert leader.status().storage == "full" and not leader.is_leader
            with pytest.raises(NotLeader):
                await leader.propose(b"1")
        assert full.value == 11  # it waited in memory, and was written when there was room
        again = await net.leader()
        assert again is leader and leader.status().storage == "ok"
        assert await leader.propose(b"1") == 12


# --- leadership and events ---------------------------------------------------------------------------------------


async def test_leadership_is_handed_over_and_events_tell_with_a_fencing_token(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with network() as net:
        leader = await three(net)
        target = next(node for node in net.nodes.values() if node is not leader)
        events = target.events()
        await leader.transfer_leadership(target.node_id)
        assert target.is_leader and leader.leader == target.node_id
        roles = [event for event in events.pending() if isinstance(event, RoleChanged)]
        assert roles[0].role is Role.FOLLOWER and roles[-1].role is Role.LEADER
        assert (roles[-1].term, roles[-1].leadership_seq) > (roles[0].term, roles[0].leadership_seq)
        with pytest.raises(Rejected) as caught:
            await target.transfer_leadership("nobody")
        assert caught.value.reason is RejectReason.NO_SUCH_MEMBER


async def test_members_change_one_call_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        events = leader.events()
        two = {name: address for name, address in THREE.items() if name == leader.node_id or name == "n2"}
        two = two if len(two) == 2 else {"n2": "h:3", "n0": "h:1"}
        calls = [Caught(), Caught()]
        async with trio.open_nursery() as nursery:
            for caught in calls:
                nursery.start_soon(caught.of, partial(leader.reconfigure, two))
        assert leader.status().membership.voters == tuple(sorted(two))
        assert sum(caught.error is None for caught in calls) == 1
        refused = next(caught.error for caught in calls if caught.error is not None)
        assert isinstance(refused, Rejected) and refused.reason is RejectReason.CHANGE_IN_PROGRESS
        assert any(isinstance(event, MembershipChanged) for event in events.pending())


@pytest.mark.parametrize("change", [
    {"voters": {**THREE, "n2": ("h", 3)}}, {"voters": THREE, "learners": {4: "h:4"}},
    {"voters": THREE, "priorities": {"n1": 0.5}}, {"voters": THREE, "priorities": {"n1": True}}])
async def test_what_no_node_could_read_as_a_membership_is_refused_before_it_is_in_the_log(
    change: dict[str, Any], autojump_clock: trio.testing.MockClock,
) -> None:
    async with network() as net:
        leader = await three(net)
        with pytest.raises(Rejected) as caught:
            await leader.reconfigure(**change)
        assert caught.value.reason is RejectReason.ILLEGAL_CHANGE
        await trio.sleep(1)
        await leader.propose(b"1")
        for node in net.nodes.values():
            await node.read_barrier()
            assert machine_of(node).n == 1


async def test_a_peers_membership_that_is_none_is_not_taken(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        node = await net.start("n0", THREE, Counter())

        def append(sequence: int, kind: int, payload: bytes) -> Append:
            made = frame.build(kind=kind, group=1, term=1, first=1, payloads=[payload], wall_ms=0, chain=0)
            return Append(1, 1, 1, sequence, 0, 0, 0, 0, [made])

        with pytest.raises(MalformedMessage):  # which ends the connection it came over
            node._driver.receive("n1", append(1, Kind.MEMBERSHIP, b"junk"))
        node._driver.pump()
        node._driver.receive("n1", append(2, Kind.COMMANDS, b"1"))
        node._driver.pump()
        await trio.testing.wait_all_tasks_blocked()
        (stored,) = net.disks["n0"].storage.read(1, 1, 1_000)
        assert stored.kind == Kind.COMMANDS and node._driver.replica.log.durable_index == 1


async def test_a_change_that_is_refused_moves_nobody(autojump_clock: trio.testing.MockClock) -> None:
    """Its addresses may be wrong, and no later membership would correct them."""
    async with network() as net:
        leader = await three(net)
        for node in net.nodes.values():
            book: dict[str, str] = {}
            node._driver.peers.learn = book.update  # type: ignore[method-assign]
            with pytest.raises((NotLeader, Rejected)):
                await node.reconfigure({**THREE, "n1": "wrong:1"}, {"n1": "wrong:1"})
            assert book == {}
        assert leader.is_leader


async def test_nothing_is_kept_for_a_caller_who_did_not_wait_for_the_change(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with network() as net:
        leader = await three(net)
        for number in range(3):
            with trio.CancelScope() as scope:
                scope.cancel()
                await leader.reconfigure(THREE, priorities={"n1": number + 1})
            await trio.sleep(1)
        assert leader._driver.replica.membership.members["n1"].priority == 3
        assert not leader._driver._answers and not leader._driver._requests


# --- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["change", "hand-over"])
async def test_whoever_asked_for_a_change_is_not_told_that_it_has_no_effect_when_the_node_stops(
    autojump_clock: trio.testing.MockClock, kind: str,
) -> None:
    """Others carry it on."""
    async with network() as net:
        leader = await three(net)
        await leader.propose(b"1")
        while leader.status().peers[0].match < leader.status().last_index:
            await trio.sleep(0.01)
        other = next(name for name in THREE if name != leader.node_id)
        kept = {name: address for name, address in THREE.items() if name != other}
        caught = Caught()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caught.of, partial(leader.reconfigure, kept) if kind == "change" else partial(
                leader.transfer_leadership, other))
            while not leader.status().membership.outgoing and not leader._driver._requests:
                await trio.lowlevel.checkpoint()
            leader._driver.close()
        assert isinstance(caught.error, Unknown) and "this node stopped" in str(caught.error)
        with pytest.raises(Rejected, match="stopping"):
            await leader.reconfigure(kept)


async def test_stopping_answers_everybody(autojump_clock: trio.testing.MockClock) -> None:
    config = Config(uncommitted_frames_target=1)
    async with network(config) as net:
        leader = await three(net)
        net.isolate(leader.node_id)
        flying, gathered, read = Caught(), Caught(), Caught()
        ended: list[object] = []

        async def listen() -> None:
            ended.extend([event async for event in leader.events()])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(flying.of, partial(leader.propose, b"1"))
            await trio.sleep(0.01)
            nursery.start_soon(gathered.of, partial(leader.propose, b"1"))
            nursery.start_soon(read.of, leader.read_barrier)
            await trio.sleep(0.01)
            leader._driver.close()
        assert isinstance(flying.error, Unknown) and flying.error.first > 0
        for caught in (gathered, read):
            assert isinstance(caught.error, Rejected) and caught.error.reason is RejectReason.STOPPED
        assert ended
        with pytest.raises(Rejected):
            await leader.propose(b"1")
        with pytest.raises(Rejected):
            await leader.wait_leader()


async def test_a_leader_that_stops_hands_over_first(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        await leader.stop(transfer=True)
        assert leader.leader is not None and leader.leader != leader.node_id


async def test_a_leader_without_peers_stops_within_its_second(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        net.isolate(leader.node_id)
        start = trio.current_time()
        await leader.stop(transfer=True)
        assert trio.current_time() - start <= 1.01


async def test_nothing_leaves_before_its_write_is_durable(autojump_clock: trio.testing.MockClock) -> None:
    """A follower with a stalled disk acknowledges nothing and grants nothing, and the group goes on without it."""
    async with network() as net:
        leader = await three(net)
        slow, other = (node for node in net.nodes.values() if node is not leader)
        net.disks[slow.node_id].stalled = True
        assert await leader.propose(b"1") == 1
        assert leader._driver.replica.peers[slow.node_id].match < leader._driver.replica.peers[other.node_id].match
        net.isolate(other.node_id)
        caught = Caught()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caught.of, partial(leader.propose, b"1"))
            await trio.sleep(0.2)
            assert not caught.done.is_set()
            net.disks[slow.node_id].stalled = False
            net.disks[slow.node_id].bell.ring()
        assert caught.value == 2


async def test_a_vote_is_said_only_when_it_cannot_be_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await three(net)
        voter = next(node for node in net.nodes.values() if node is not leader)
        candidate = next(name for name in THREE if name not in (leader.node_id, voter.node_id))
        net.isolate(leader.node_id)
        net.record = True
        net.disks[voter.node_id].stalled = True

        def replies() -> list[VoteReply]:
            return [message for source, _, message in net.sent
                    if source == voter.node_id and isinstance(message, VoteReply) and message.term == 9]

        voter._driver.receive(candidate, Vote(1, 9, 1, 1_000, 8, transfer=True))
        voter._driver.pump()
        await trio.testing.wait_all_tasks_blocked()
        assert voter.status().voted_for == candidate and replies() == []
        net.disks[voter.node_id].stalled = False
        net.disks[voter.node_id].bell.ring()
        await trio.testing.wait_all_tasks_blocked()
        assert [reply.result for reply in replies()] == [VoteResult.ACCEPT]
        recovered = net.disks[voter.node_id].storage.open()[1]
        assert (recovered.hard_state.term, recovered.hard_state.voted_for) == (9, candidate)
