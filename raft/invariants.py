"""The safety properties of Raft as code: one function for each property, called at the moments that could break it.

``Checker`` watches a whole group from outside. It keeps what no node may see: who led which term, every vote, the hash
of every log prefix, what was ever committed, and a shadow of each node's log in memory and on disk, built from the
``Write``s alone. The simulator calls it after every event; other programs that own all replicas may.

``InvariantViolation`` carries the property's name. ``Checker.counts`` says how often each property was evaluated (only
if there was something to compare): a property that was never evaluated proves nothing.
This module does no I/O, draws no chance and changes no replica.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from raft.bounds import INV_R32, INV_R37, INV_R38, INV_R39, INV_R40
from raft.config import MS, Config, Read, Rules
from raft.forgotten import INV_R35, INV_R36, begins, believes, greets, knew, said, told
from raft.frame import Frame, Kind
from raft.held import Held
from raft.memberrules import INV_R16, INV_R17, INV_R18, INV_R19_candidate, INV_R19_removed
from raft.membership import Membership
from raft.messages import (
    AppendReply,
    Code,
    PeerMessage,
    Recovered,
    Role,
    SnapshotMeta,
    SnapshotReply,
    Vote,
    VoteReply,
    VoteResult,
    Write,
)
from raft.replica import Replica
from raft.shadow import Copy, Ghost
from raft.trace import BecameLeader, CommitAdvanced, Event, Regained, RoundStarted, VoteCast
from raft.violation import InvariantViolation, require

__all__ = ["DECLARED", "Checker", "InvariantViolation", "quorum", "require"]
DECLARED = (*(f"INV_R{number}" for number in range(1, 33) if number not in (28, 29)), "INV_R35", "INV_R36",
            "INV_R37", "INV_R38", "INV_R39", "INV_R40")
"""All properties that are checked. R28 and R29 are left for client sessions."""
LEADER: Final = Role.LEADER
MEMBERSHIP: Final = Kind.MEMBERSHIP
GRANT = int(VoteResult.ACCEPT)
ACK = int(Code.SUCCESS)
ALONE_LOOKS = 15
"""Samples after which a node that hears nobody is taken to be alone."""


def quorum(membership: Membership, names: Iterable[str]) -> bool:
    """Return whether these make a majority of each half. Does not use ``raft.quorum``: a checker must not rely on what
    it checks."""
    held, voters, outgoing = set(names), membership.voters, membership.outgoing
    return 2 * len(held.intersection(voters)) > len(voters) and (
        not outgoing or 2 * len(held.intersection(outgoing)) > len(outgoing))


class Checker:
    """The ghost state of one group, and the moments at which properties are checked."""

    def __init__(self, config: Config, bootstrap: Membership) -> None:
        self.config, self.bootstrap = config, bootstrap
        self.strict = config.rules is Rules.STRICT
        self.counts: dict[str, int] = dict.fromkeys(DECLARED, 0)
        """Property -> number of evaluations."""
        self.nodes: dict[str, Ghost] = {}
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, bytes, int], str] = {}
        self.grants: dict[tuple[int, str], set[str]] = {}
        """(term, candidate) -> voters that voted for it."""
        self.chain: dict[tuple[int, int], int] = {}
        """(index at a frame's edge, term) -> mark, of all nodes at all times."""
        self.committed_lasts: list[int] = []
        self.committed: list[Frame] = []
        """The one committed log, up to where any node ever saw it."""
        self.marks: dict[int, int] = {}
        """Index at a frame's end -> mark, of the committed log."""
        self.commits: list[tuple[int, int]] = []
        """(term, largest index that its leader counted as committed), rising."""
        self.state: dict[int, int] = {}
        """Index -> digest of all results up to it."""
        self.acknowledged = 0
        self.calm = False
        """True once nothing fails any more: then elections are counted, from the latest commit on."""
        self.elected = 0
        self.lapses = False
        """True once a disk has lost its end."""
        self.recent: deque[Event] = deque(maxlen=400)
        self._on_event: dict[type[Event], Callable[[Ghost, Event], None]] = {
            VoteCast: self._vote_cast, CommitAdvanced: self._commit_advanced, BecameLeader: self._became_leader,
            RoundStarted: self._round_started, Regained: self._regained,
        }

    # --- a node's life ---------------------------------------------------------------------------------------

    def born(self, name: str, incarnation: bytes, bootstrap: Membership) -> None:
        """A directory was formatted, for a new node or after a wipe."""
        former = self.nodes.get(name)
        self.nodes[name] = ghost = Ghost(name, incarnation, bootstrap)
        if former is not None:
            ghost.former = former.former if former.disk.last == 0 and former.former else former.disk

    def started(self, name: str, replica: Replica, recovered: Recovered, life: int = 0) -> None:
        """A node came up with what its storage gave back. ``life``: no other one of any node has this number."""
        ghost = self.nodes[name]
        ghost.replica = replica
        if ghost.rotten:
            ghost.believe(recovered.hard_state.term, recovered.hard_state.voted_for, recovered.last_index)
        if ghost.lost is not None:
            ghost.knows = recovered.lapse is not None
        begins(ghost, life, knows=recovered.lapse is not None)
        INV_R24(self, ghost, recovered)
        INV_R2(self, ghost)
        INV_R14_restart(self, ghost, replica, recovered)
        ghost.memory = ghost.disk.copy()
        ghost.role, ghost.term, ghost.vote = replica.role, replica.term, replica.voted_for
        ghost.commit, ghost.applied = replica.commit_index, replica.applied_index
        ghost.snapshot = ghost.snapshot_seen = replica.log.snapshot.index if replica.log.snapshot else 0
        ghost.broken = ghost.full = False
        ghost.alone, ghost.cut_since, ghost.term_first = None, None, (0, 0)

    def greeted(self, name: str, source: str) -> None:
        """A hello of ``source`` reached a node."""
        greets(self.nodes[name], self.nodes[source])

    def believed(self, name: str) -> None:
        """A node takes what nodes said that have become members since."""
        believes(self.nodes[name])

    def kept_lives(self, name: str) -> None:
        """Note that a node's disk holds the lives of its peers that it met."""
        ghost = self.nodes[name]
        ghost.kept = {peer: lives[:] for peer, lives in ghost.met.items()}

    def lost(self, name: str, copy: Copy | None) -> None:
        """A disk that is down lost its end, or (``copy``) an older copy of it was put back."""
        assert self.nodes[name].replica is None, "the node is down"
        self.nodes[name].forget(copy)
        self.lapses = True

    def settled(self, name: str, recovered: Recovered) -> bool:
        """Return whether a stopped node's disk holds exactly what was synced, so that a copy of it holds the same."""
        assert self.nodes[name].replica is None, "a process keeps the disk from being looked at"
        disk = self.nodes[name].disk
        return (disk.term, disk.vote, *disk.end) == (
            recovered.hard_state.term, recovered.hard_state.voted_for, recovered.last_index, recovered.last_term,
            recovered.last_mark)

    def arrives(self, name: str, source: str, reply: AppendReply) -> None:
        """Note an answer that reaches a node, before the node handles it. Needed while ``lapses``."""
        told(self, self.nodes[name], source, reply)

    def stopped(self, name: str) -> None:
        """A node crashed or was stopped; what is pending may or may not be on its disk."""
        self.nodes[name].replica = None

    def resumed(self, name: str) -> None:
        """Note that a node goes on after it stood still or its clock jumped: it could not have noticed anything."""
        self.nodes[name].cut_since = None

    def disk_full(self, name: str) -> None:
        """Note that a disk was full: no pending write was kept. The node's memory is as before."""
        ghost = self.nodes[name]
        ghost.pending.clear()
        ghost.full = True

    def disk_room(self, name: str) -> None:
        """Note that a disk has room again, and that what it missed was written anew."""
        self.nodes[name].full = False

    def disk_failed(self, name: str) -> None:
        """A write or sync failed and the replica was told so."""
        ghost = self.nodes[name]
        ghost.broken = True
        INV_R23_stops(self, ghost)

    # --- after every event -----------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Note one event in a replica's trace, and check its properties."""
        self.recent.append(event)
        handle = self._on_event.get(type(event))
        if handle is not None:
            handle(self.nodes[event.node], event)

    def written(self, name: str, write: Write) -> None:
        """Note a write that a replica put out. Its log in memory has it already."""
        ghost = self.nodes[name]
        replica = ghost.replica
        assert replica is not None
        assert not ghost.pending or ghost.pending[-1].token < write.token, "tokens rise"
        ghost.pending.append(write)
        if ghost.full:
            return
        if replica.role is LEADER:
            INV_R6(self, ghost, replica, write)
        if write.truncate_from or write.install is not None:
            INV_R13_kept(self, ghost, write)
        if write.purge_to:
            INV_R22_purge(self, ghost, write)
        memory, frames = ghost.memory, write.frames
        memory.prepare(write)
        for frame in frames:
            if frame.kind == MEMBERSHIP:
                self._membership_appended(ghost, replica, frame)
            memory.append(frame)
        if frames:
            INV_R7(self, ghost, frames)

    def durable(self, name: str, token: int) -> None:
        """Writes up to this token are on the disk."""
        ghost = self.nodes[name]
        pending = ghost.pending
        while pending and pending[0].token <= token:
            write = pending.popleft()
            ghost.disk.apply(write)
            if write.hard_state is not None:
                INV_R2(self, ghost)

    def leaves(self, name: str, peer: str, message: PeerMessage) -> None:
        """Note a message that leaves a node: all that it promises must be on the disk by now."""
        ghost = self.nodes[name]
        kind = type(message)
        if kind is AppendReply:
            INV_R12(self, ghost, peer, message)
            if ghost.lost is not None:
                said(ghost, peer, message)
        elif kind is Vote:
            INV_R3_request(self, ghost, message)
        elif kind is VoteReply:
            INV_R3_reply(self, ghost, peer, message)
            if ghost.lost is not None and ghost.knows:
                INV_R36(self, ghost, f"answers {peer}'s question for a vote",
                        gave=isinstance(message, VoteReply) and message.result == GRANT)
        if message.term > ghost.disk.term:
            INV_R4(self, ghost, message)
        else:
            self.counts["INV_R4"] += 1
        if ghost.broken:
            INV_R23_silent(self, ghost, message)

    def stepped(self, name: str) -> None:
        """A node took an input; its outputs were carried out or queued."""
        ghost = self.nodes[name]
        replica = ghost.replica
        assert replica is not None
        term, commit, role = replica.term, replica.commit_index, replica.role
        if term != ghost.term or replica.voted_for != ghost.vote:
            INV_R14_term(self, ghost, replica)
            ghost.term, ghost.vote = term, replica.voted_for
        if role is not ghost.role:
            ghost.role = role
            ghost.cut_since = None
        if commit != ghost.commit:
            INV_R14_commit(self, ghost, replica)
            INV_R13(self, ghost, commit)
            ghost.commit = commit
            if role is LEADER:
                INV_R19_removed(self, ghost, replica)

    def applied(self, name: str, frame: Frame, digest: int) -> None:
        """A node's state machine took a frame; ``digest`` stands for all its results so far."""
        ghost = self.nodes[name]
        INV_R9(self, ghost, frame, digest)
        ghost.applied = frame.first + frame.count - 1

    def restored(self, name: str, meta: SnapshotMeta, digest: int) -> None:
        """A node's state machine was set to a snapshot from its leader."""
        ghost = self.nodes[name]
        INV_R22_restored(self, ghost, meta, digest)
        ghost.applied = max(ghost.applied, meta.index)

    def snapshot_taken(self, name: str, meta: SnapshotMeta) -> None:
        """A snapshot is finished and visible on this node's disk."""
        ghost = self.nodes[name]
        ghost.snapshot = max(ghost.snapshot, meta.index)

    def delivered_twice(self, name: str, before: tuple[object, ...], after: tuple[object, ...]) -> None:
        """Compare a node's state ``before`` and ``after`` the second delivery of the same message."""
        INV_R25(self, name, before, after)

    # --- reads -----------------------------------------------------------------------------------------------

    @property
    def read_floor(self) -> int:
        """Largest index that is committed now: a read that begins now must show everything up to it."""
        return self.commits[-1][1] if self.commits else 0

    def read_answered(
        self, name: str, level: Read, floor: int, index: int, applied: int, *, sound: bool = True,
    ) -> None:
        """Note a read that is answered from a machine at ``applied``. ``sound``: clocks drift no more than
        configured."""
        if level is Read.UNSAFE:
            return
        if level is Read.LEASE:
            if sound:
                INV_R21(self, name, floor, index, applied)
        else:
            INV_R20(self, name, floor, index, applied)

    # --- sampled, and at the end -----------------------------------------------------------------------------

    def sample(
        self, clocks: Mapping[str, int], version: int, hears: Callable[[str, str], bool],
    ) -> None:
        """Check the whole group. ``clocks``: time on each running node; ``hears(a, b)``: messages from ``b`` reach
        ``a`` now; ``version`` rises whenever an answer of ``hears`` may have changed."""
        for name, clock in clocks.items():
            ghost = self.nodes[name]
            replica = ghost.replica
            if replica is None:
                continue
            INV_R15(self, ghost, replica)
            INV_R14_snapshot(self, ghost, replica)
            INV_R32(self, ghost, replica)
            if self.strict:
                INV_R26(self, ghost, replica, version, any(hears(name, peer) for peer in self.nodes if peer != name))
                INV_R27(self, ghost, replica, clock, hears)

    def waits(self, name: str, clock: int, held: Held) -> None:
        """Check the messages (``held``) that a running node holds back at this moment of its clock."""
        ghost = self.nodes[name]
        if ghost.replica is not None:
            INV_R38(self, ghost, ghost.replica, clock, held)

    def shares(self, log_bytes: int, segment_bytes: int, tails: int, live: int) -> None:
        """Check the log of a running node that a quiet group shares."""
        self.counts["INV_R39"] += 1
        INV_R39(log_bytes, segment_bytes, tails, live)

    def neighbour_came_back(self, name: str, found: list[bytes] | None, due: list[bytes]) -> None:
        """Check the entries of the quiet group that a life found; None if it could not read them."""
        self.counts["INV_R40"] += 1
        INV_R40(name, found, due)

    def finished(self, states: Mapping[str, tuple[int, int]], *, leader: str | None, leased: bool, served: int,
                 wanted: int) -> None:
        """Check the end of a run, after healing and a quiet time. ``states``: (applied index, state digest) of every
        live member."""
        INV_R30(self, states, leader, leased, served, wanted)

    # --- events of one kind ----------------------------------------------------------------------------------

    def _vote_cast(self, ghost: Ghost, event: Event) -> None:
        assert isinstance(event, VoteCast)
        if not event.probe and event.result == VoteResult.ACCEPT.name:
            INV_R5(self, ghost, event)
            INV_R36(self, ghost, f"votes for {event.candidate} in term {event.asked_term}")

    def _round_started(self, ghost: Ghost, event: Event) -> None:
        assert ghost.replica is not None
        INV_R19_candidate(self, ghost, ghost.replica)
        INV_R36(self, ghost, "asks for votes")

    def _regained(self, ghost: Ghost, event: Event) -> None:
        ghost.own |= ghost.told_of
        ghost.told_of.clear()

    def _became_leader(self, ghost: Ghost, event: Event) -> None:
        assert isinstance(event, BecameLeader) and ghost.replica is not None
        INV_R36(self, ghost, f"leads term {event.term}")
        INV_R1(self, ghost, event.term)
        INV_R31(self, ghost, ghost.replica, event.term)
        INV_R37(self, ghost, event.term)
        INV_R8(self, ghost, event.term)

    def _commit_advanced(self, ghost: Ghost, event: Event) -> None:
        assert isinstance(event, CommitAdvanced) and ghost.replica is not None
        if not event.counted:
            return
        self.elected = 0
        INV_R11(self, ghost, event)
        INV_R10(self, ghost, ghost.replica, event.index)
        if not self.commits or event.term > self.commits[-1][0]:
            self.commits.append((event.term, event.index))
        elif event.index > self.commits[-1][1]:
            self.commits[-1] = (self.commits[-1][0], event.index)
        assert len(self.commits) < 2 or self.commits[-2][0] < self.commits[-1][0], "terms rise"

    def _membership_appended(self, ghost: Ghost, replica: Replica, frame: Frame) -> None:
        old = ghost.memory.memberships[-1]
        new = Membership.decode(frame.payloads()[0])
        INV_R17(self, ghost, old[1], new)
        if replica.role is Role.LEADER and frame.term == replica.term:
            INV_R16(self, ghost, replica, old, frame, new)
            INV_R18(self, ghost, replica, frame)


# --- the properties ------------------------------------------------------------------------------------------


def INV_R1(group: Checker, node: Ghost, term: int) -> None:
    """Election safety: a term has at most one leader. Paper §5.2."""
    group.counts["INV_R1"] += 1
    first = group.leaders.setdefault(term, node.name)
    require(first == node.name, "INV_R1", f"{node.name} leads term {term}, which {first} has led")


def INV_R2(group: Checker, node: Ghost) -> None:
    """One vote in each term, over all restarts of one directory. Paper §5.2. The vote on disk counts (INV_R3)."""
    term, vote = node.disk.term, node.disk.vote
    if vote is None:
        return
    group.counts["INV_R2"] += 1
    first = group.votes.setdefault((node.name, node.incarnation, term), vote)
    require(first == vote, "INV_R2", f"{node.name} votes for {vote} in term {term}, after {first}")
    group.grants.setdefault((term, vote), set()).add(node.name)


def INV_R3_request(group: Checker, node: Ghost, message: PeerMessage) -> None:
    """A candidate's vote for itself is on its disk before it asks others. Paper §5.2, figure 2.

    A DLedger candidate may ask in a term in which it voted for another; then its own vote does not count (INV_R31).
    """
    assert isinstance(message, Vote)
    if message.probe:
        return
    group.counts["INV_R3"] += 1
    disk = node.disk
    require(disk.term > message.term or (
        disk.term == message.term and (disk.vote == node.name or not group.strict)), "INV_R3",
            f"{node.name} asks for votes in term {message.term}; its disk says", disk.term, disk.vote)


def INV_R3_reply(group: Checker, node: Ghost, peer: str, message: PeerMessage) -> None:
    """A granted vote is on the voter's disk before the candidate hears of it."""
    assert isinstance(message, VoteReply)
    if message.probe or message.result != GRANT:
        return
    group.counts["INV_R3"] += 1
    disk = node.disk
    require(disk.term > message.term or (disk.term == message.term and disk.vote == peer), "INV_R3",
            f"{node.name} grants {peer} its vote in term {message.term}; its disk says", disk.term, disk.vote)


def INV_R4(group: Checker, node: Ghost, message: PeerMessage) -> None:
    """No message speaks for a term that is not on the disk. A probe may name a term that nobody has taken."""
    if isinstance(message, (Vote, VoteReply)) and message.probe:
        return
    group.counts["INV_R4"] += 1
    require(message.term <= node.disk.term, "INV_R4",
            f"{node.name} sends {type(message).__name__} of term {message.term}; its disk says", node.disk.term)


def INV_R5(group: Checker, node: Ghost, event: VoteCast) -> None:
    """A vote goes only to a candidate whose log is at least as up to date. Paper §5.4.1."""
    group.counts["INV_R5"] += 1
    index, term, _ = node.memory.end
    require(event.candidate_last >= (term, index), "INV_R5",
            f"{node.name} grants {event.candidate} (last term, last index)", event.candidate_last, "has itself",
            (term, index))


def INV_R6(group: Checker, node: Ghost, replica: Replica, write: Write) -> None:
    """A leader only ever appends to its log. Paper §5.3."""
    if node.term == replica.term and node.role is LEADER:
        group.counts["INV_R6"] += 1
        if write.truncate_from or write.install is not None:
            raise InvariantViolation("INV_R6", f"{node.name} leads term {replica.term} and cuts its log: "
                                               f"{write.truncate_from}, {write.install}")
    if node.term_first[0] != replica.term and write.frames:
        node.term_first = (replica.term, write.frames[0].first)


def INV_R7(group: Checker, node: Ghost, frames: Sequence[Frame]) -> None:
    """Log matching: two logs with the same index and term are the same up to there. Paper §5.3.

    ``Frame.mark`` hashes the whole prefix, so one look-up per frame implies the property for all entries.
    """
    chain = group.chain
    due = None
    group.counts["INV_R7"] += len(frames)
    for frame in frames:
        first, count, term, mark = frame.first, frame.count, frame.term, frame.mark
        if chain.setdefault((first, term), mark) != mark or (
                count != 1 and chain.setdefault((first + count - 1, term), mark) != mark):
            raise InvariantViolation("INV_R7", f"{node.name} holds another {first}..{frame.last} of term {term} "
                                               "than some node before it")
        if due is not None and due != frame.chain:
            raise InvariantViolation("INV_R7", f"{node.name}: frame {first} does not follow its predecessor's mark")
        due = mark


def INV_R8(group: Checker, node: Ghost, term: int) -> None:
    """Leader completeness: a leader holds everything committed in earlier terms. Paper §5.4.3."""
    index = max((index for counted, index in group.commits if counted < term), default=0)
    if not index:
        return
    group.counts["INV_R8"] += 1
    memory = node.memory
    require(memory.last >= index, "INV_R8",
            f"{node.name} leads term {term} without committed entry {index}; it ends at", memory.last)
    if index < memory.base[0]:
        return
    held, truth = memory.mark_at(index), group.marks.get(index, 0)
    require(not held or not truth or held == truth, "INV_R8",
            f"{node.name} leads term {term} with another entry {index} than was committed")


def INV_R9(group: Checker, node: Ghost, frame: Frame, digest: int) -> None:
    """State-machine safety: all nodes apply the same entries in the same order, with the same results. Paper
    §5.4.3."""
    group.counts["INV_R9"] += 1
    last = frame.first + frame.count - 1
    if frame.first != node.applied + 1:
        raise InvariantViolation("INV_R9", f"{node.name} applies {frame.first} after {node.applied}")
    if group.marks.get(last) != frame.mark:
        raise InvariantViolation("INV_R9", f"{node.name} applies another entry {last} than was committed")
    if group.state.setdefault(last, digest) != digest:
        raise InvariantViolation("INV_R9", f"{node.name} has other results than some node before it, at {last}")


def INV_R10(group: Checker, node: Ghost, replica: Replica, index: int) -> None:
    """Entries that a leader counts as committed are on the disks of a majority, of both halves while joint.

    An entry that a disk lost later counts too, as long as the leader cannot know (INV_R35).
    """
    group.counts["INV_R10"] += 1
    membership, mark, holders = replica.membership, node.memory.marks.get(index), []
    for voter in (*membership.voters, *membership.outgoing):
        ghost = group.nodes.get(voter)
        if ghost is None:
            continue
        if ghost.lost is not None:
            INV_R35(group, node, replica, ghost)
        if ghost.disk.may_hold(index, mark) or (ghost.former is not None and ghost.former.may_hold(index, mark)) or (
                ghost.lost is not None and not knew(node, ghost) and ghost.lost.may_hold(index, mark)):
            holders.append(voter)
    if not quorum(membership, holders):
        raise InvariantViolation("INV_R10", f"{node.name} counts {index} as committed; it is on the disks of "
                                            f"{holders}, of {membership.voters} and {membership.outgoing}")


def INV_R11(group: Checker, node: Ghost, event: CommitAdvanced) -> None:
    """A leader counts replicas only for entries of its own term. Paper §5.4.2, figure 8."""
    term = node.memory.term_at(event.index)
    if not term:
        return
    group.counts["INV_R11"] += 1
    if term != event.term:
        raise InvariantViolation(
            "INV_R11", f"{node.name} counts {event.index} of term {term} as committed in term {event.term}")


def INV_R12(group: Checker, node: Ghost, peer: str, message: PeerMessage) -> None:
    """An acknowledgement leaves only when the disk holds the leader's log up to it.

    One exception: the disk held it in the message's own, earlier term, and a later leader's truncation reached the disk
    in the same sync that the message waited for. Then the message was true before this node took the later term, as a
    delayed message would be.
    """
    assert isinstance(message, AppendReply)
    if message.code != ACK or not message.match:
        return
    group.counts["INV_R12"] += 1
    disk, match, truth = node.disk, message.match, 0
    leader = group.nodes.get(peer)
    if leader is not None and leader.replica is not None and leader.role is LEADER and leader.term == message.term:
        truth = leader.memory.marks.get(match, 0)
    if disk.may_hold(match, truth):
        return
    held = disk.cut.get(match, frozenset()) if message.term < disk.term else frozenset()
    if held and (not truth or truth in held):
        return
    raise InvariantViolation(
        "INV_R12", f"{node.name} acknowledges {match} to {peer}; "
        + (f"its disk ends at {disk.last}" if disk.last < match and not held else "the entry there is another"))


def INV_R13(group: Checker, node: Ghost, commit: int) -> None:
    """Commit immutability: an index once committed keeps its entry, everywhere and for ever."""
    group.counts["INV_R13"] += 1
    memory = node.memory
    if commit > memory.last:
        raise InvariantViolation("INV_R13", f"{node.name} commits {commit} beyond its last {memory.last}")
    lasts, frames = group.committed_lasts, group.committed
    reach = lasts[-1] if lasts else 0
    if commit > reach:
        at = bisect_left(memory.lasts, reach + 1)
        fresh = memory.frames[at : bisect_left(memory.lasts, commit) + 1]
        if fresh and frames and fresh[0].first == reach + 1:
            require(fresh[0].chain == frames[-1].mark, "INV_R13",
                    f"{node.name} commits {fresh[0].first} behind another entry {reach} than was committed")
        for frame in fresh:
            if frame.first > reach:
                last = frame.first + frame.count - 1
                frames.append(frame)
                lasts.append(last)
                group.marks[last] = frame.mark
        return
    held, truth = memory.marks.get(commit), group.marks.get(commit)
    if held and truth and held != truth:
        raise InvariantViolation("INV_R13", f"{node.name} commits another entry {commit} than was committed")


def INV_R13_kept(group: Checker, node: Ghost, write: Write) -> None:
    """No node drops what it knows to be committed."""
    group.counts["INV_R13"] += 1
    if write.truncate_from and write.truncate_from <= node.commit:
        raise InvariantViolation(
            "INV_R13", f"{node.name} truncates from {write.truncate_from} below its commit index {node.commit}")


def INV_R14_term(group: Checker, node: Ghost, replica: Replica) -> None:
    """Terms never fall, and a vote stays within its term."""
    group.counts["INV_R14"] += 1
    require(replica.term > node.term or (replica.term == node.term and node.vote is None), "INV_R14",
            f"{node.name} went from (term, vote)", (node.term, node.vote), (replica.term, replica.voted_for))


def INV_R14_commit(group: Checker, node: Ghost, replica: Replica) -> None:
    """Within one life of a node its commit index never falls."""
    group.counts["INV_R14"] += 1
    if replica.commit_index < node.commit:
        raise InvariantViolation(
            "INV_R14", f"commit index of {node.name} fell from {node.commit} to {replica.commit_index}")


def INV_R14_snapshot(group: Checker, node: Ghost, replica: Replica) -> None:
    """Within one life of a node its snapshot index never falls."""
    group.counts["INV_R14"] += 1
    index = replica.log.snapshot.index if replica.log.snapshot else 0
    require(index >= node.snapshot_seen, "INV_R14", f"snapshot index of {node.name} fell", node.snapshot_seen, index)
    node.snapshot_seen = index


def INV_R14_restart(group: Checker, node: Ghost, replica: Replica, recovered: Recovered) -> None:
    """A restart forgets neither term nor vote, and starts at or behind its snapshot."""
    group.counts["INV_R14"] += 1
    disk = node.disk
    require((replica.term, replica.voted_for) == (disk.term, disk.vote), "INV_R14",
            f"{node.name} restarts with (term, vote)", (replica.term, replica.voted_for), (disk.term, disk.vote))
    index = recovered.snapshot.index if recovered.snapshot else 0
    require(replica.applied_index >= index, "INV_R14", f"{node.name} restarts behind its snapshot", index)


def INV_R15(group: Checker, node: Ghost, replica: Replica) -> None:
    """Pointers keep their order: purged <= snapshot <= applied <= committed <= last, and durable <= last."""
    group.counts["INV_R15"] += 1
    log = replica.log
    snapshot = replica.log.snapshot.index if replica.log.snapshot else 0
    pointers = (log.purged_index, snapshot, replica.applied_index, replica.commit_index, log.last_index)
    if replica.installing is not None:  # between the log's step onto a snapshot and the state machine's
        require(log.purged_index <= snapshot <= replica.commit_index <= log.last_index, "INV_R15",
                f"pointers of {node.name} while installing", *pointers)
    else:
        purged, _, applied, committed, last = pointers
        require(purged <= snapshot <= applied <= committed <= last, "INV_R15", f"pointers of {node.name}", *pointers)
    require(log.durable_index <= log.last_index, "INV_R15",
            f"{node.name} is durable beyond its last", log.durable_index)
    require(node.memory.last == log.last_index and node.memory.end[1] == log.last_term, "INV_R15",
            f"{node.name} ends elsewhere than its writes say", node.memory.end, (log.last_index, log.last_term))


def INV_R20(group: Checker, node: str, floor: int, index: int, applied: int) -> None:
    """Linearizable reads: what was committed when the read began shows in its answer. Thesis §6.4."""
    group.counts["INV_R20"] += 1
    require(index >= floor and applied >= index, "INV_R20",
            f"{node} answers a read at {index} with {applied} applied; committed before it began", floor)


def INV_R21(group: Checker, node: str, floor: int, index: int, applied: int) -> None:
    """Lease reads are linearizable while clocks drift no more than configured. Thesis §6.4.1."""
    group.counts["INV_R21"] += 1
    require(index >= floor and applied >= index, "INV_R21",
            f"{node} answers a lease read at {index} with {applied} applied; committed before it began", floor)


def INV_R22_restored(group: Checker, node: Ghost, meta: SnapshotMeta, digest: int) -> None:
    """A snapshot is the state that the same log prefix gives by applying it."""
    group.counts["INV_R22"] += 1
    truth = group.marks.get(meta.index, 0)
    require(not truth or not meta.mark or truth == meta.mark, "INV_R22",
            f"{node.name} installs a snapshot of another log prefix, up to", meta.index)
    require(group.state.get(meta.index, digest) == digest, "INV_R22",
            f"{node.name} installs another state than applying gives, at", meta.index)
    require(meta.index >= node.applied, "INV_R22", f"{node.name} went back by a snapshot", node.applied, meta.index)


def INV_R22_purge(group: Checker, node: Ghost, write: Write) -> None:
    """The log is never purged beyond a finished snapshot."""
    group.counts["INV_R22"] += 1
    require(write.purge_to <= node.snapshot, "INV_R22",
            f"{node.name} purges to {write.purge_to}; on its disk is a snapshot of", node.snapshot)


def INV_R23_stops(group: Checker, node: Ghost) -> None:
    """A node with a failed write or sync is faulted and leads no more: nobody knows what its disk holds."""
    group.counts["INV_R23"] += 1
    replica = node.replica
    require(replica is not None and replica.faulted is not None and replica.role is not Role.LEADER, "INV_R23",
            f"{node.name} goes on after a failed write")


def INV_R23_silent(group: Checker, node: Ghost, message: PeerMessage) -> None:
    """A node with a failed write or sync promises nothing more."""
    group.counts["INV_R23"] += 1
    promises = (isinstance(message, AppendReply) and message.code == ACK and message.match > node.disk.last) or (
        isinstance(message, SnapshotReply) and message.done and message.index > node.disk.last)
    require(not promises, "INV_R23", f"{node.name} promises after a failed write", message)


def INV_R24(group: Checker, node: Ghost, recovered: Recovered) -> None:
    """Recovery gives back the effect of a prefix of the writes that includes every synced one.

    Leaves the disk's shadow at that prefix.
    """
    group.counts["INV_R24"] += 1
    snapshot = recovered.snapshot
    found = (recovered.hard_state.term, recovered.hard_state.voted_for, recovered.last_index, recovered.last_term,
             recovered.last_mark)
    shadow = node.disk
    tried = []
    for write in (None, *node.pending):
        if write is not None:
            shadow.apply(write)
        standing = shadow
        if snapshot is not None and snapshot.index > shadow.base[0]:
            standing = shadow.copy()
            standing.install(snapshot)
        state = (standing.term, standing.vote, *standing.end)
        if state == found:
            node.disk = standing
            node.pending.clear()
            return
        tried.append(state)
    raise InvariantViolation("INV_R24", f"{node.name} recovered (term, vote, last index, its term, mark) {found}; "
                                        f"its writes allow {tried[:8]}")


def INV_R25(group: Checker, node: str, before: tuple[object, ...], after: tuple[object, ...]) -> None:
    """Delivering a message twice has the same effect as once."""
    group.counts["INV_R25"] += 1
    require(before == after, "INV_R25", f"{node} changed by the second delivery", before, after)


def INV_R26(group: Checker, node: Ghost, replica: Replica, version: int, hears: bool) -> None:
    """Pre-vote: a node that hears nobody raises no term. Thesis §9.6."""
    membership = replica.membership
    if hears or quorum(membership, (node.name,)):
        node.alone = None
        return
    if node.alone is None or node.alone[0] != version:
        node.alone = (version, 0, 0)
        return
    _, looks, term = node.alone
    node.alone = (version, looks + 1, replica.term)
    if looks > ALONE_LOOKS:  # by then, messages that dead nodes had sent have arrived
        group.counts["INV_R26"] += 1
        require(replica.term == term, "INV_R26", f"{node.name}, cut off, raised its term", term, replica.term)


def INV_R27(group: Checker, node: Ghost, replica: Replica, clock: int, hears: Callable[[str, str], bool]) -> None:
    """Check quorum: a leader that hears no quorum, or is not heard by one, stops leading within two of the longest
    election timeouts."""
    if replica.role is not Role.LEADER or quorum(replica.membership, [node.name, *(
            peer for peer in group.nodes if peer != node.name and hears(node.name, peer) and hears(peer, node.name))]):
        node.cut_since = None
        return
    if node.cut_since is None:
        node.cut_since = clock
    group.counts["INV_R27"] += 1
    require(clock - node.cut_since <= 3 * group.config.election_timeout_ms * MS, "INV_R27",
            f"{node.name} leads term {replica.term} without a quorum for {(clock - node.cut_since) // MS} ms")


def INV_R30(
    group: Checker, states: Mapping[str, tuple[int, int]], leader: str | None, leased: bool, served: int, wanted: int,
) -> None:
    """Liveness: after healing there is a leader, it has its lease, writes are served, and all members reach the same
    state."""
    group.counts["INV_R30"] += 1
    require(leader is not None, "INV_R30", "no leader after healing", *sorted(states))
    require(leased, "INV_R30", "no lease after healing of", leader)
    require(served >= wanted, "INV_R30", f"{served} of {wanted} writes were served after healing by", leader)
    require(len(set(states.values())) == 1, "INV_R30", "members differ after healing", *sorted(states.items()))


def INV_R31(group: Checker, node: Ghost, replica: Replica, term: int) -> None:
    """A quorum of a leader's own membership granted its term, of both halves while joint. The leader belongs to that
    membership, or is needed to commit it (thesis §4.2.2)."""
    group.counts["INV_R31"] += 1
    membership = replica.membership
    grants = sorted(group.grants.get((term, node.name), ()))
    belongs = membership.votes(node.name) or replica.log.membership_index > replica.commit_index
    require(quorum(membership, grants) and belongs, "INV_R31",
            f"{node.name} leads term {term} by the votes of", *grants,
            f"of {membership.voters} and {membership.outgoing}")
