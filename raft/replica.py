"""The core: one group on one node. It takes inputs and gives outputs; it has no clock, no I/O, no chance of its own.

Inputs are methods whose first argument is ``now``, the node's monotonic clock in nanoseconds. Outputs are values
(``messages``) that ``drain`` hands over in order; the shell carries them out and reports back. Same inputs, same
outputs. The leader's part is in ``leadership``, the candidate's in ``candidacy``, the follower's in ``following``, the
log's steps onto snapshots in ``snapshots``, writes on their way to the disk in ``writes``; this file keeps term, vote,
role and pointers.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from raft.candidacy import Campaign
from raft.config import MS, NEVER, Config, Read
from raft.errors import DamagedLog, NotLeader, Rejected, RejectReason
from raft.following import Following
from raft.frame import Frame
from raft.identities import Identities
from raft.leadership import Leadership
from raft.log import MEMBERSHIP, RaftLog
from raft.membership import Membership
from raft.messages import (
    CANDIDATE,
    FOLLOWER,
    LEADER,
    Append,
    AppendReply,
    Code,
    Committed,
    HardState,
    MembershipChanged,
    Output,
    PeerMessage,
    ReadReady,
    ReadReply,
    ReadRequest,
    Recovered,
    RoleChanged,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    Vote,
    VoteReply,
)
from raft.progress import Progress
from raft.regaining import Regaining
from raft.rules.interface import ElectionRules, Voter
from raft.snapshots import Snapshots
from raft.trace import (
    Appended,
    BecameCandidate,
    BecameFollower,
    CommitAdvanced,
    Dropped,
    MembershipSet,
    Started,
    StorageTrouble,
    Trace,
    Truncated,
)
from raft.voting import answer_vote
from raft.writes import Writes

LIFE_BITS: Final = 62
"""Bits of the number from which questions are counted; they travel in 63 bits (``wire``)."""


class Replica:
    """One group on one node. Every public method that takes ``now`` is an input; call ``drain`` after any of them."""

    __slots__ = (  # too many attributes for a dict with shared keys
        "_followed_term", "announced_index", "applied_index", "campaign", "commit_index", "config",
        "election_deadline", "faulted", "following", "gave_way", "group", "heard_leader_at", "identities",
        "incarnation", "installing", "lapse", "leader", "leadership", "leadership_seq", "led_term", "life", "log",
        "membership", "node_id", "now", "output", "previous_leader", "regaining", "rng", "role", "rules", "send",
        "silence_ns", "snapshots", "term", "trace", "voted_for", "wall_ms", "writes",
    )

    def __init__(
        self, *, group: int, node_id: str, config: Config, rules: ElectionRules, rng: Random, now: int,
        recovered: Recovered, membership: Membership, life: int, incarnation: bytes = b"", trace: Trace | None = None,
    ) -> None:
        """Begin a run. ``life`` has ``LIFE_BITS`` random bits, so it differs from that of every other run."""
        if recovered.hard_state.term < recovered.last_term:
            raise DamagedLog(
                "log", 0, f"term {recovered.hard_state.term} is older than the log's last term {recovered.last_term}: "
                "the vote state was lost; rejoin this node with an empty directory")
        self.group, self.node_id, self.config, self.rules, self.rng = group, node_id, config, rules, rng
        self.incarnation, self.trace, self.now, self.life = incarnation, trace, now, life
        self.wall_ms = 0
        """Wall clock for frames that the core makes itself; the shell keeps it fresh. It decides nothing."""
        self.log = RaftLog(recovered, membership, config.cache_bytes_max)
        self.writes = Writes(group, self.log, config.unsynced_bytes_max)
        self.output, self.send = self.writes.output, self.writes.send
        self.membership = self.log.membership
        self.term, self.voted_for = recovered.hard_state.term, recovered.hard_state.voted_for
        self.role = FOLLOWER
        self.leader: str | None = None
        self.leadership_seq = 0
        self.led_term = self.term if self.voted_for == node_id else 0
        """Largest term that this node has led or may have led: it never leads that one again."""
        self.commit_index = self.applied_index = (
            self.log.snapshot.index if self.log.snapshot else self.log.purged_index)
        assert self.log.purged_index <= self.commit_index <= self.log.last_index
        assert 0 <= life < 1 << LIFE_BITS, life
        self.announced_index = self.commit_index
        self.faulted: str | None = None
        self.installing: SnapshotMeta | None = None
        self.previous_leader: str | None = None
        self.heard_leader_at = now
        self.silence_ns = rules.first_delay_ns(rng)
        """Time that this follower waits for its leader, drawn anew with every leader."""
        if self.term == 0 or self.membership.voters == (node_id,):
            # It never promised a leader to ignore other candidates, so it need not wait until that time is over.
            self.heard_leader_at -= rules.lease_ns
            self.silence_ns = 0 if self.membership.voters == (node_id,) else self.silence_ns // 4
        self.election_deadline = now + self.silence_ns
        self._followed_term = self.term
        self.gave_way = 0
        self.campaign = Campaign(self)
        self.following, self.regaining = Following(self), Regaining(self, recovered.told)
        self.snapshots, self.identities = Snapshots(self), Identities(self)
        self.lapse = recovered.lapse
        """What this node acknowledged and lost; None: nothing. Before it holds that again it neither votes nor
        counts."""
        self.leadership: Leadership | None = None
        if trace:
            trace(Started(now, node_id, group, self.term, self.log.last_index, self.voted_for))

    # --- looked at from outside

    @property
    def peers(self) -> Mapping[str, Progress]:
        """A leader's record of each peer; empty on other nodes."""
        return self.leadership.peers if self.leadership else {}

    @property
    def deadline(self) -> int:
        """Time (ns) when ``tick`` is due; ``NEVER`` if it is not."""
        if self.faulted:
            return NEVER
        if self.leadership:
            return self.leadership.deadline()
        return min(self.campaign.deadline() if self.role == CANDIDATE else self.following.patience_deadline(),
                   self.following.deadline(), self.regaining.deadline)

    def voter(self) -> Voter:
        """Return the facts that election rules judge."""
        contact = self.leadership.tracker.quorum_contact() if self.leadership else self.heard_leader_at
        return Voter(
            self.node_id, self.role, self.term, self.voted_for, self.leader, self.log.last_term, self.log.last_index,
            self.membership, self.now - contact, self.campaign.state.transfer, self.campaign.allowed)

    # --- drain

    def drain(self) -> list[Output]:
        """Return the outputs since the last call, in order."""
        return self.writes.drain(self.now)

    # --- what changes the log and the hard state; the parts call these

    def set_hard_state(self, term: int, voted_for: str | None) -> None:
        """Take a term and a vote. Terms never fall, and a vote never changes within a term."""
        assert term >= self.term, (term, self.term)
        assert term > self.term or self.voted_for in (None, voted_for), (self.voted_for, voted_for)
        if term == self.term and voted_for == self.voted_for:
            return
        self.term, self.voted_for = term, voted_for
        self.writes.set_hard_state(HardState(term, voted_for))

    def append(self, frame: Frame) -> None:
        """Append one frame, in memory now and on disk by the next write."""
        self.writes.append(frame)
        if self.trace:
            self.trace(Appended(self.now, self.node_id, self.group, self.term, frame.first, self.log.last_index,
                                frame.term, frame.kind, frame.mark))
        if frame.kind == MEMBERSHIP:
            self.membership_changed()

    def truncate(self, first: int) -> None:
        """Drop a conflicting suffix; never a committed entry."""
        assert first > self.commit_index, (first, self.commit_index)
        if self.trace:
            self.trace(Truncated(self.now, self.node_id, self.group, self.term, first, self.log.last_index))
        self.writes.truncate(first, self.now)
        self.membership_changed()

    def membership_changed(self) -> None:
        """Follow a possible change of the log's latest membership."""
        if self.log.membership is self.membership:
            return
        self.membership = membership = self.log.membership
        assert self.log.membership_index <= self.log.last_index
        self.output(MembershipChanged(membership, self.log.membership_index))
        if self.trace:
            self.trace(MembershipSet(self.now, self.node_id, self.group, self.term, self.log.membership_index,
                                     membership.voters, membership.outgoing, membership.learners))
        self.identities.find_strangers()
        if self.leadership:
            self.leadership.sync_peers()
        if self.role == CANDIDATE and not self.campaign.allowed:
            self.become_follower(None, "no longer a voter")

    # --- roles

    def become_follower(self, leader: str | None, reason: str) -> None:
        """Follow ``leader`` (None: nobody known). Ends a leadership or candidacy."""
        assert leader != self.node_id, leader
        if self.role == FOLLOWER and leader == self.leader and self._followed_term == self.term:
            return
        self._followed_term = self.term
        leadership, self.leadership = self.leadership, None
        self.role = FOLLOWER
        self._set_leader(leader)
        if leadership:
            leadership.end(reason)
        self.campaign.stop()
        self.following.wait_for_leader()
        self.following.reset()
        self.snapshots.reset()
        self._role_changed()
        if self.trace:
            self.trace(BecameFollower(self.now, self.node_id, self.group, self.term, leader, reason))
        self.regaining.reset()
        self.following.settle_hand_over()

    def become_candidate(self, reason: str) -> None:
        """Leave the role and ask for votes when the rules say so."""
        leadership, self.leadership = self.leadership, None
        was = self.role
        self.role = CANDIDATE
        self._set_leader(None)
        if leadership:
            leadership.end(reason)
        if was != CANDIDATE:
            self.campaign.start(reason)
            self._role_changed()
            if self.trace:
                self.trace(BecameCandidate(self.now, self.node_id, self.group, self.term, reason))

    def become_leader(self, grants: tuple[str, ...]) -> None:
        """Lead the present term, which no node does twice."""
        assert self.term > self.led_term and self.voted_for == self.node_id, (self.term, self.led_term)
        self.led_term = self.term
        self.leadership_seq += 1
        self.role = LEADER
        self._set_leader(self.node_id)
        campaign = self.campaign
        self.leadership = Leadership(self)
        self._role_changed()
        self.leadership.begin(grants, campaign.cause, campaign.rounds, (self.now - campaign.started_at) // MS)
        campaign.stop()

    def step_down(self, reason: str) -> None:
        """Leave leadership or candidacy for a reason of this node's own."""
        if self.role != FOLLOWER:
            self.become_follower(None, reason)
        assert self.role == FOLLOWER and self.leadership is None

    def _set_leader(self, leader: str | None) -> None:
        if self.leader not in (None, leader):
            self.previous_leader = self.leader
        self.leader = leader

    def _role_changed(self) -> None:
        self.output(RoleChanged(self.role, self.term, self.leader, self.leadership_seq))

    # --- commit and apply

    def advance_commit(self, index: int, *, counted: bool) -> None:
        """Raise the commit index to ``index``, which never falls and never passes the log's end."""
        if index > self.log.last_index:
            index = self.log.last_index
        if index <= self.commit_index:
            return
        assert counted == (self.role == LEADER), "a leader counts, others are told"
        assert self.applied_index <= self.announced_index <= index <= self.log.last_index
        self.commit_index = index
        if self.trace:
            self.trace(CommitAdvanced(self.now, self.node_id, self.group, self.term, index, counted))
        self.announce()

    def announce(self) -> None:
        """Let the shell apply what is committed and on this node's own disk."""
        index, durable = self.commit_index, self.log.durable_index
        if index > durable:
            index = durable
        if index > self.announced_index and not self.installing:
            self.announced_index = index
            assert self.applied_index < index
            self.output(Committed(index))

    # --- inputs

    def enter(self, now: int) -> bool:
        """Take the time. Return False if the node is faulted and must do nothing."""
        if self.leadership and now - self.now > self.leadership.pause_ns:
            self.leadership.void_lease(now)
        if now > self.now:
            self.now = now
        return self.faulted is None

    def receive(self, now: int, peer: str, message: PeerMessage) -> None:
        """Take a message from ``peer``, whose identity the transport has checked."""
        if not self.enter(now):
            return
        if peer == self.node_id or message.group != self.group:
            self.dropped(peer, message, "misdirected")
            return
        if peer in self.identities.strangers and not isinstance(message, (Append, SnapshotChunk)):
            # A stranger may be the leader: it may have been admitted anew after this node's latest membership.
            self.dropped(peer, message, "stranger")
            return
        if not (self.following.hears(peer) or isinstance(message, Vote)):
            self.dropped(peer, message, "no member")
            return
        leadership = self.leadership
        if isinstance(message, Append):
            self.following.on_append(peer, message)
        elif isinstance(message, AppendReply):
            if leadership:
                leadership.on_append_reply(peer, message)
        elif isinstance(message, Vote):
            answer_vote(self, peer, message)
        elif isinstance(message, VoteReply):
            self.campaign.on_reply(peer, message)
        elif isinstance(message, SnapshotChunk):
            self.snapshots.on_chunk(peer, message)
        elif isinstance(message, SnapshotReply):
            if leadership:
                leadership.on_snapshot_reply(peer, message)
        elif isinstance(message, ReadRequest):
            if leadership:
                leadership.reads.ask(message.ticket, peer)
            else:
                self.send(peer, ReadReply(self.group, self.term, message.ticket, Code.NOT_LEADER, 0))
        elif isinstance(message, ReadReply):
            self.following.on_read_reply(peer, message)
        else:
            self.following.on_timeout_now(peer, message)

    def dropped(self, peer: str, message: object, reason: str) -> None:
        if self.trace:
            self.trace(Dropped(self.now, self.node_id, self.group, self.term, peer, type(message).__name__, reason))

    def tick(self, now: int) -> None:
        """Do what is due by now. Must be called at ``deadline``; earlier calls are harmless."""
        if not self.enter(now):
            return
        self.following.tick()
        if self.leadership:
            self.leadership.tick()
        elif self.role == CANDIDATE:
            self.campaign.tick()
        elif now >= self.following.patience_deadline():
            self.become_candidate("no leader heard")
            self.campaign.tick()
        self.regaining.tick()

    def leading(self, now: int) -> Leadership:
        """Return this node's leadership, for calls that only a leader takes, such as ``changes`` and ``transfer``.

        Raises ``NotLeader``.
        """
        self.enter(now)
        if self.faulted or self.leadership is None:
            raise NotLeader(self.leader, self.membership.address_of(self.leader))
        return self.leadership

    def propose(self, now: int, payloads: list[bytes], wall_ms: int) -> tuple[int, int]:
        """Append commands in this leadership. Return their first and last index.

        Raises ``NotLeader``, ``Rejected`` or ``Busy``: then nothing was appended.
        """
        self.wall_ms = wall_ms
        return self.leading(now).propose(payloads)

    def read(self, now: int, ticket: int, level: Read) -> None:
        """Ask from which applied index reads may be answered; ``ReadReady`` follows. Raises ``NotLeader``."""
        self.enter(now)
        if self.faulted:
            raise NotLeader(None, None)
        if level is Read.UNSAFE:
            self.output(ReadReady(ticket, self.applied_index))
        elif self.leadership:
            self.leadership.read(ticket, level)
        elif self.leader is None or level is Read.LOG:
            raise NotLeader(self.leader, self.membership.address_of(self.leader))
        elif self.installing:
            raise Rejected(RejectReason.INSTALLING)
        else:
            self.following.ask_leader(ticket)

    def lease_valid(self, now: int) -> bool:
        """Return whether this leader may answer a read at once, from its own state."""
        self.enter(now)
        return self.leadership is not None and self.leadership.lease_valid()

    def void_lease(self, now: int) -> None:
        """Void the lease, since the clock stood still (suspend, long pause): earlier contacts prove nothing."""
        self.enter(now)
        if self.leadership:
            self.leadership.void_lease(self.now)

    def durable(self, now: int, token: int) -> None:
        """Note that every write up to ``token`` is on disk. Late, repeated or reordered reports do no harm."""
        writes = self.writes
        if not self.enter(now) or token <= writes.durable_token:
            return
        if writes.durable_token < writes.hard_token <= token and self.role == FOLLOWER and self.leader is None:
            # The time that a new leader has starts when this node's vote for it may leave (Ratis 980).
            self.following.wait_for_leader()
        writes.durable(token)
        if self.leadership:
            self.leadership.on_durable()
        else:
            self.campaign.on_durable()
            self.following.on_durable()
        self.announce()

    @property
    def needs_disk(self) -> bool:
        """True if only this node's own disk holds up something that would be committed, applied or answered."""
        log = self.log
        return log.durable_index < log.last_index and (
            self.commit_index > log.durable_index
            or (self.leadership.tracker.needs_disk if self.leadership else self.following.needs_disk))

    def applied(self, now: int, index: int) -> None:
        """Note that the state machine has taken everything up to ``index``."""
        self.enter(now)
        assert self.applied_index <= index <= self.commit_index, (self.applied_index, index, self.commit_index)
        self.applied_index = index

    def loaded(self, now: int, peer: str, session: int, first: int, frames: list[Frame]) -> None:
        """Take the answer to ``Load``: frames, or [] if storage no longer holds them."""
        if self.enter(now) and self.leadership:
            self.leadership.on_loaded(peer, session, first, frames)

    def unreachable(self, now: int, peer: str) -> None:
        """Take the hint that messages to ``peer`` may have been lost."""
        if not self.enter(now):
            return
        if self.leadership:
            self.leadership.on_unreachable(peer)
        else:
            self.campaign.on_unreachable(peer)

    def storage_fault(self, now: int, kind: str) -> None:
        """Note trouble of the disk. ``full``: it kept no write after the durable token. ``room``: space is back.
        ``failed``: final."""
        if not self.enter(now):
            return
        if self.trace:
            self.trace(StorageTrouble(self.now, self.node_id, self.group, self.term, kind))
        if kind == "room":
            self.writes.disk_has_room(self.now)
        elif kind == "failed":
            self.fault(now, "a write or sync failed; what the disk holds is not known")
        elif kind == "stall":
            self.step_down("storage stalls")
        else:
            assert kind == "full", kind
            self.step_down("disk full")
            self.writes.disk_became_full(HardState(self.term, self.voted_for))

    def fault(self, now: int, reason: str) -> None:
        """Stop for good, since the disk failed or the state machine raised: no votes, acknowledgements, leadership."""
        if not self.enter(now):
            return
        if self.leadership:
            self.become_follower(None, reason)
        self.faulted = reason
        self._set_leader(None)
        self.role = FOLLOWER
        self._role_changed()
        self.writes.say_nothing()
