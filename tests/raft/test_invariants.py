"""Every invariant fires when its property is broken: a healthy simulated group, and one forged fact each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from raft import invariants
from raft.config import MS, Read
from raft.frame import Frame, Kind, build
from raft.held import Held
from raft.identities import GUESTS_MAX
from raft.invariants import DECLARED, Checker, InvariantViolation
from raft.membership import Membership
from raft.messages import (
    AppendReply,
    Code,
    HardState,
    Recovered,
    Role,
    Send,
    SnapshotMeta,
    SnapshotReply,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)
from raft.replica import Replica
from raft.shadow import Ghost
from raft.sim import Cluster
from raft.trace import BecameLeader, CommitAdvanced, RoundStarted, VoteCast
from tests.raft.sim.machines import Counter


class Group:
    """Three voters and a learner that have committed five entries; ``leader`` leads, ``other`` follows."""

    def __init__(self) -> None:
        self.cluster = Cluster(3, Counter, seed=3, learners=1)
        for _ in range(5):
            self.cluster.propose(b"1")
        self.cluster.run_ms(500)
        leader = self.cluster.leader
        assert leader is not None
        self.leader = leader
        self.other = next(name for name in ("n0", "n1", "n2") if name != leader)
        self.term = self.replica(leader).term

    @property
    def checker(self) -> Checker:
        return self.cluster.checker

    def replica(self, name: str) -> Replica:
        return self.cluster.life(name).replica

    def ghost(self, name: str) -> Ghost:
        return self.checker.nodes[name]

    def write(
        self, name: str, *, frames: tuple[Frame, ...] = (), hard: HardState | None = None, truncate: int = 0,
    ) -> None:
        """A forged write, as if the node's replica had put it out."""
        self.checker.written(name, Write(10**6 + len(self.ghost(name).pending), 1, None, truncate, hard, list(frames)))

    def frame(self, payload: bytes, kind: Kind = Kind.COMMANDS, first: int = 0) -> Frame:
        """A frame of the leader's term, behind its last or at ``first``."""
        memory = self.ghost(self.leader).memory
        return build(kind=kind, group=1, term=self.term, first=first or memory.last + 1, payloads=[payload], wall_ms=0,
                     chain=memory.end[2])

    def change(self, *voters: str, outgoing: tuple[str, ...] = ()) -> Frame:
        """A frame with a membership."""
        return self.frame(Membership(voters, outgoing).encode(), Kind.MEMBERSHIP)

    def lead(self, name: str, term: int) -> None:
        self.checker.event(BecameLeader(0, name, 1, term, 1, 0, (), "", 1, 0))


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    yield made
    made.cluster.close()


def uncommitted(group: Group) -> int:
    """An entry that only the leader holds; its index."""
    group.cluster.partition([group.leader])
    group.cluster.life(group.leader).propose([b"1"])
    group.cluster.run_ms(5)
    return group.replica(group.leader).log.last_index


def forge_r1(group: Group) -> None:
    group.lead(group.other, group.term)


def forge_r2(group: Group) -> None:
    group.write(group.other, hard=HardState(group.term, group.other))
    group.checker.durable(group.other, 10**6)


def forge_r3_reply(group: Group) -> None:
    group.checker.leaves(group.other, "n3", VoteReply(1, group.term, 1, VoteResult.ACCEPT, False))


def forge_r3_request(group: Group) -> None:
    group.checker.leaves(group.other, group.leader, Vote(1, group.term, 1, 5, 1))


def forge_r4(group: Group) -> None:
    reply = AppendReply(1, group.term + 1, 1, 1, Code.EXPIRED_TERM, 0, 0, 0, 0, 0)
    group.checker.leaves(group.other, group.leader, reply)


def forge_r5(group: Group) -> None:
    term = group.term + 1
    group.checker.event(VoteCast(0, group.other, 1, term, "n3", term, False, "ACCEPT", (0, 9), (0, 0)))


def forge_r6(group: Group) -> None:
    group.write(group.leader, truncate=group.replica(group.leader).log.last_index + 1)


def forge_r7(group: Group) -> None:
    index = uncommitted(group)
    group.write(group.other, frames=(build(
        kind=Kind.COMMANDS, group=1, term=group.term, first=index, payloads=[b"another"], wall_ms=0,
        chain=group.ghost(group.other).memory.end[2]),))


def forge_r7_chain(group: Group) -> None:
    first = group.frame(b"1")
    second = build(kind=Kind.COMMANDS, group=1, term=group.term, first=first.last + 1, payloads=[b"1"], wall_ms=0,
                   chain=77)
    group.write(group.leader, frames=(first, second))


def forge_r8(group: Group) -> None:
    group.ghost(group.other).memory.truncate(3)
    group.checker.grants[group.term + 1, group.other] = {"n0", "n1", "n2"}
    group.lead(group.other, group.term + 1)


def last_applied(group: Group) -> Frame:
    frame = group.ghost(group.other).memory.frames[-1]
    group.ghost(group.other).applied = frame.first - 1
    return frame


def forge_r9_entry(group: Group) -> None:
    frame = last_applied(group)
    group.checker.applied(group.other, attrs.evolve(frame, mark=frame.mark ^ 1), group.checker.state[frame.last])


def forge_r9_result(group: Group) -> None:
    frame = last_applied(group)
    group.checker.applied(group.other, frame, group.checker.state[frame.last] ^ 1)


def forge_r9_order(group: Group) -> None:
    frame = last_applied(group)
    group.ghost(group.other).applied -= 1
    group.checker.applied(group.other, frame, group.checker.state[frame.last])


def forge_r10(group: Group) -> None:
    index = uncommitted(group)
    group.checker.event(CommitAdvanced(0, group.leader, 1, group.term, index, True))


def forge_r11(group: Group) -> None:
    group.checker.event(CommitAdvanced(0, group.leader, 1, group.term + 1, group.ghost(group.leader).memory.last, True))


def acknowledge(group: Group, match: int) -> None:
    reply = AppendReply(1, group.term, 1, 1, Code.SUCCESS, match, match, 0, 0, 0)
    group.checker.leaves(group.other, group.leader, reply)


def forge_r12_beyond(group: Group) -> None:
    acknowledge(group, group.ghost(group.other).disk.last + 1)


def forge_r12_other(group: Group) -> None:
    disk = group.ghost(group.other).disk
    disk.marks[disk.last] = 1
    acknowledge(group, disk.last)


def forge_r12_cut(group: Group) -> None:
    """What was truncated is acknowledged in the present term."""
    disk = group.ghost(group.other).disk
    last = disk.last
    disk.truncate(last)
    acknowledge(group, last)


def forge_r12_never_held(group: Group) -> None:
    """An earlier term excuses no entry that was never on this disk."""
    disk = group.ghost(group.other).disk
    disk.term += 1
    acknowledge(group, disk.last + 1)


def forge_r13(group: Group) -> None:
    ghost = group.ghost(group.other)
    ghost.memory.marks[ghost.memory.last] = 1
    ghost.commit -= 1
    group.checker.stepped(group.other)


def forge_r13_kept(group: Group) -> None:
    group.write(group.other, truncate=group.replica(group.other).commit_index)


def forge_r14_term(group: Group) -> None:
    group.ghost(group.other).term += 1
    group.checker.stepped(group.other)


def forge_r14_vote(group: Group) -> None:
    group.ghost(group.other).vote = "n9"
    group.checker.stepped(group.other)


def forge_r14_commit(group: Group) -> None:
    group.ghost(group.other).commit += 1
    group.checker.stepped(group.other)


def sample(group: Group, hears: bool = True, later_ms: int = 0) -> None:
    names = list(group.cluster.nodes)
    group.checker.sample(dict.fromkeys(names, later_ms * MS), 1, lambda one, other: hears)


def forge_r14_snapshot(group: Group) -> None:
    group.ghost(group.other).snapshot_seen = 1
    sample(group)


def forge_r14_restart(group: Group) -> None:
    ghost, replica = group.ghost(group.other), group.replica(group.other)
    replica.voted_for = "n9"
    group.checker.started(group.other, replica, recovered(ghost))


def forge_r15(group: Group) -> None:
    group.replica(group.other).applied_index += 1
    sample(group)


def forge_r16(group: Group) -> None:
    group.write(group.leader, frames=(group.change("n0", "n1", outgoing=("n0", "n1", "n2")),))
    group.write(group.leader, frames=(group.change("n0", "n1"),))


def forge_r16_joint(group: Group) -> None:
    group.write(group.leader, frames=(group.change("n0", "n1", outgoing=("n0", "n1")),))


def forge_r17(group: Group) -> None:
    group.write(group.leader, frames=(group.change("n0", "n3", "n4"),))


def forge_r18(group: Group) -> None:
    group.ghost(group.leader).term_first = (group.term, group.replica(group.leader).commit_index + 1)
    group.write(group.leader, frames=(group.change("n0", "n1"),))


def forge_r19_round(group: Group) -> None:
    group.checker.event(RoundStarted(0, "n3", 1, group.term, 1, True, group.term + 1))


def forge_r19_removed(group: Group) -> None:
    replica, ghost = group.replica(group.leader), group.ghost(group.leader)
    replica.membership = Membership(("n7", "n8"))
    ghost.commit -= 1
    group.checker.stepped(group.leader)


def forge_r20(group: Group) -> None:
    group.checker.read_answered(group.other, Read.INDEX, floor=group.checker.read_floor, index=1, applied=1)


def forge_r20_unapplied(group: Group) -> None:
    floor = group.checker.read_floor
    group.checker.read_answered(group.other, Read.LOG, floor=floor, index=floor + 1, applied=floor)


def forge_r21(group: Group) -> None:
    group.checker.read_answered(group.leader, Read.LEASE, floor=group.checker.read_floor, index=1, applied=1)


def meta_at(group: Group, index: int, *, mark: int | None = None) -> SnapshotMeta:
    truth = group.ghost(group.leader).memory.mark_at(index)
    return SnapshotMeta(index, group.term, truth if mark is None else mark, Membership(("n0",)), 0)


def forge_r22_state(group: Group) -> None:
    group.ghost(group.other).applied = 0
    group.checker.restored(group.other, meta_at(group, 5), group.checker.state[5] ^ 1)


def forge_r22_prefix(group: Group) -> None:
    group.ghost(group.other).applied = 0
    group.checker.restored(group.other, meta_at(group, 5, mark=1), group.checker.state[5])


def forge_r22_back(group: Group) -> None:
    group.checker.restored(group.other, meta_at(group, 5), group.checker.state[5])


def forge_r22_purge(group: Group) -> None:
    group.checker.written(group.other, Write(10**6, 1, purge_to=2))


def forge_r23_goes_on(group: Group) -> None:
    group.checker.disk_failed(group.other)


def forge_r23_promises(group: Group) -> None:
    group.replica(group.other).faulted = "forged"
    group.checker.disk_failed(group.other)
    group.checker.leaves(group.other, group.leader, SnapshotReply(1, group.term, 1, 1, Code.SUCCESS, 10**6, 9, True))


def recovered(ghost: Ghost, **changes: Any) -> Recovered:
    index, term, mark = ghost.disk.end
    state = Recovered(HardState(ghost.disk.term, ghost.disk.vote), 0, 0, 0, index, term, mark)
    return attrs.evolve(state, **changes)


def forge_r24_lost(group: Group) -> None:
    ghost = group.ghost(group.other)
    frame = ghost.disk.frames[-2]
    group.checker.started(group.other, group.replica(group.other), recovered(
        ghost, last_index=frame.last, last_term=frame.term, last_mark=frame.mark))


def forge_r24_vote(group: Group) -> None:
    ghost = group.ghost(group.other)
    other = recovered(ghost, hard_state=HardState(ghost.disk.term, "n9"))
    group.checker.started(group.other, group.replica(group.other), other)


def forge_r25(group: Group) -> None:
    group.checker.delivered_twice(group.other, (1, None), (2, None))


def forge_r26(group: Group) -> None:
    for _ in range(invariants.ALONE_LOOKS + 3):
        sample(group, hears=False)
    group.replica(group.other).term += 1
    group.ghost(group.other).term += 1
    sample(group, hears=False)


def forge_r27(group: Group) -> None:
    for later_ms in (0, 600, 1_300):
        sample(group, hears=False, later_ms=later_ms)


def forge_r30_leader(group: Group) -> None:
    group.checker.finished({"n0": (5, 1)}, leader=None, leased=True, served=10, wanted=10)


def forge_r30_lease(group: Group) -> None:
    group.checker.finished({"n0": (5, 1)}, leader="n0", leased=False, served=10, wanted=10)


def forge_r30_served(group: Group) -> None:
    group.checker.finished({"n0": (5, 1)}, leader="n0", leased=True, served=9, wanted=10)


def forge_r30_states(group: Group) -> None:
    group.checker.finished({"n0": (5, 1), "n1": (5, 2)}, leader="n0", leased=True, served=10, wanted=10)


def forge_r31(group: Group) -> None:
    group.checker.grants[group.term + 1, group.other] = {group.other, "n3"}
    group.lead(group.other, group.term + 1)


def forge_r32(group: Group) -> None:
    progress = group.replica(group.leader).peers[group.other]
    progress.inflight.extend((index, 1, 0) for index in range(group.cluster.config.inflight_messages_max + 1))
    sample(group)


def forge_r32_reads(group: Group) -> None:
    leadership = group.replica(group.leader).leadership
    assert leadership is not None
    leadership.reads._waiting.extend((ticket, None) for ticket in range(group.cluster.config.reads_pending_max + 1))
    sample(group)


def forge_r32_guests(group: Group) -> None:
    incarnations = group.replica(group.leader).identities.met
    incarnations.update((f"guest{number}", b"") for number in range(GUESTS_MAX + 1))
    sample(group)


def forge_r37(group: Group) -> None:
    group.checker.calm, group.checker.elected = True, 3 * len(group.checker.nodes)
    group.cluster.crash(group.leader)
    group.cluster.run_ms(10_000)


def forge_r38(group: Group) -> None:
    _hang(group)
    held = Held()
    for number in range(100):
        held.add(Send(f"guest{number}", VoteReply(1, 1, 1, VoteResult.ACCEPT, False), 1))
    group.checker.waits(group.other, group.replica(group.other).now + 60_000 * MS, held)


def forge_r38_bytes(group: Group) -> None:
    _hang(group)
    config, large = group.cluster.config, group.frame(bytes(1 << 20))
    for _ in range((config.unsynced_bytes_max + 2 * config.uncommitted_bytes_max) // len(large.data)):
        group.ghost(group.other).pending.append(Write(10**6, 1, None, 0, None, [large]))
    group.checker.waits(group.other, group.replica(group.other).now + 60_000 * MS, Held())


def forge_r39(group: Group) -> None:
    group.checker.shares(log_bytes=2_301, segment_bytes=1_000, tails=200, live=100)


def forge_r40(group: Group) -> None:
    group.checker.neighbour_came_back(group.other, [b"1", b"2"], [b"1", b"2", b"3"])


def forge_r40_refused(group: Group) -> None:
    group.checker.neighbour_came_back(group.other, None, [b"1"])


def _lose(group: Group) -> Ghost:
    """The other's disk lost all it held, and knows."""
    ghost = group.ghost(group.other)
    ghost.lost, ghost.knows = ghost.disk.copy(), True
    ghost.disk.truncate(1)
    return ghost


def forge_r35(group: Group) -> None:
    _lose(group).told.add((group.leader, group.term))
    group.checker.event(CommitAdvanced(0, group.leader, 1, group.term, group.ghost(group.leader).memory.last, True))


def forge_r36(group: Group) -> None:
    _lose(group)
    group.checker.event(VoteCast(0, group.other, 1, group.term, "n3", group.term, False, "ACCEPT", (9, 99), (1, 1)))


def forge_r36_candidate(group: Group) -> None:
    _lose(group)
    group.checker.event(RoundStarted(0, group.other, 1, group.term, 1, True, group.term + 1))


def forge_r36_elected(group: Group) -> None:
    _lose(group)
    group.checker.event(BecameLeader(0, group.other, 1, group.term + 1, 1, 1, ("n3",), "planted", 1, 1))


def forge_r36_probe(group: Group) -> None:
    _lose(group)
    group.checker.leaves(group.other, "n3", VoteReply(1, group.term, 1, VoteResult.ACCEPT, True))


def _hang(group: Group) -> None:
    """The other's disk takes nothing more, and a write waits for it."""
    group.cluster.stall_disk(group.other, 60_000)
    group.cluster.propose(b"1")
    group.cluster.run_ms(100)


FORGERIES = {name.removeprefix("forge_"): value for name, value in sorted(globals().items())
             if name.startswith("forge_")}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_fact_fires_its_invariant(name: str, group: Group) -> None:
    forge: Callable[[Group], None] = FORGERIES[name]
    expected = "INV_" + name.split("_", maxsplit=1)[0].upper()
    before = group.checker.counts[expected]
    with pytest.raises(InvariantViolation) as caught:
        forge(group)
    assert caught.value.id == expected
    assert group.checker.counts[expected] > before


def test_every_declared_invariant_has_a_forgery_and_a_function_with_a_docstring() -> None:
    forged = {"INV_" + name.split("_")[0].upper() for name in FORGERIES}
    assert forged == set(DECLARED)
    functions = [name for name in dir(invariants) if name.startswith("INV_R")]
    assert {"_".join(name.split("_", 2)[:2]) for name in functions} == set(DECLARED)
    assert all(getattr(invariants, name).__doc__ for name in functions)


def test_an_acknowledgement_may_leave_with_the_sync_that_cuts_what_it_speaks_of(group: Group) -> None:
    """Its disk stalled; meanwhile a later leader truncated what this node had held durably, and said so, before."""
    ghost = group.ghost(group.other)
    last = ghost.disk.last
    ghost.disk.truncate(last)
    ghost.disk.term += 1
    acknowledge(group, last)


def test_an_acknowledgement_of_an_earlier_term_may_leave_with_the_sync_that_cuts_other_entries_there(
    group: Group,
) -> None:
    """Several leaders' truncations in one sync: what each was told was on the disk, last of all what is there now."""
    disk = group.ghost(group.other).disk
    last, held = disk.last, disk.marks[disk.last]
    disk.term += 1
    disk.cut[last] = frozenset({7, 8})
    acknowledge(group, last)
    disk.truncate(last)
    assert disk.cut[last] == {7, 8, held}
    acknowledge(group, last)


def test_a_healthy_group_breaks_none(group: Group) -> None:
    assert group.replica(group.leader).role is Role.LEADER
    for name in ("n0", "n1", "n2", "n3"):
        group.checker.stepped(name)
    for later_ms in range(0, 5_000, 100):
        sample(group, later_ms=later_ms)


def test_an_unsafe_read_and_a_lease_read_under_wild_clocks_promise_nothing(group: Group) -> None:
    group.checker.read_answered(group.other, Read.UNSAFE, floor=9, index=1, applied=1)
    group.checker.read_answered(group.leader, Read.LEASE, floor=9, index=1, applied=1, sound=False)
    assert not group.checker.counts["INV_R21"]


def test_what_was_never_written_may_be_lost_and_what_was_not_synced_too(group: Group) -> None:
    """A recovery anywhere between the last sync and the last write is allowed, and becomes the new truth."""
    ghost = group.ghost(group.other)
    before = recovered(ghost)
    first = group.frame(b"1")
    group.write(group.other, frames=(first,))
    replica = group.replica(group.other)
    group.checker.started(group.other, replica, before)
    assert ghost.disk.last == before.last_index
    group.write(group.other, frames=(first,))
    after = attrs.evolve(before, last_index=first.last, last_term=first.term, last_mark=first.mark)
    group.checker.started(group.other, replica, after)
    assert ghost.disk.last == first.last
