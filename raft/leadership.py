"""The leader's part: replicates, commits, sends heartbeats and checks its quorum. One object is one leadership.

It commits only through an entry of its own term on a quorum of *durable* logs. Its own log counts only once its disk
said so (paper §5.4.2; KAFKA-10533). Progress starts anew with every leadership (dledger F1). Appends leave without
waiting for the leader's own disk.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import cbor2

from raft.changes import Changes
from raft.config import MS, NEVER, Read
from raft.errors import Busy, Rejected, RejectReason
from raft.frame import Frame, Kind, build, frame_bytes
from raft.messages import (
    LEADER,
    SUCCESS,
    Append,
    AppendReply,
    Code,
    Load,
    LoadChunk,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
)
from raft.progress import PROBE, REPLICATE, SNAPSHOT, Progress
from raft.reads import Reads
from raft.rules.interface import HeartbeatTally, LeaderDecision
from raft.snapshotmeta import encode_meta
from raft.standstill import Standstill
from raft.trace import BecameLeader, PeerState
from raft.tracker import Tracker
from raft.transfer import LeadershipTransfer

if TYPE_CHECKING:
    from raft.replica import Replica

_OBJECTIONS = frozenset((Code.EXPIRED_TERM, Code.INCONSISTENT_LEADER, Code.TERM_NOT_READY))
BEAT_AGAIN_NS = 10 * MS
"""Least time between two heartbeats if a peer wants another at once. A peer that cannot take the term wants one with
every answer, and answers that come twice would double the heartbeats. DLedger's own loop looks every 10 ms."""
COMMIT_NOTICE_NS = 2 * MS
"""Time that a new commit index may wait for an append to travel with."""


class Leadership:
    """One leadership. ``core`` is the replica it belongs to."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.term = core.term
        self.tracker = Tracker(core)
        self.peers = self.tracker.peers
        self.reads = Reads(self)
        self.transfer = LeadershipTransfer(self)
        self.changes = Changes(self)
        self._standstill = Standstill(self)
        self.lease_dead = False
        self.lease_floor = core.now
        """Only answers to messages sent at or after this moment extend the lease."""
        self.heartbeat_ns = core.rules.heartbeat_ns
        self.pause_ns = max(4 * self.heartbeat_ns, core.rules.lease_ns // 2)
        """Longest gap between two inputs that does not yet mean that this node stood still."""
        self._stall_ns = core.config.storage_stall_ms * MS
        self.uncommitted_bytes = 0
        self._uncommitted: deque[tuple[int, int]] = deque()
        self.own_first = core.log.last_index + 1
        """Index of this leadership's no-op."""
        self._next_beat = self._beaten_at = core.now
        self._notice_at = NEVER

    # --- life

    def begin(self, grants: tuple[str, ...], cause: str, rounds: int, election_ms: int) -> None:
        """Append the no-op of this term and send it to everyone (paper §8). Its payload is for analysis."""
        core = self.core
        if core.trace:
            core.trace(BecameLeader(core.now, core.node_id, core.group, core.term, core.leadership_seq,
                                    core.log.last_index, grants, cause, rounds, election_ms))
        self.sync_peers()
        self.append_own(Kind.NOOP, cbor2.dumps({
            "leader": core.node_id, "cause": cause, "rounds": rounds, "votes": list(grants),
            "previous_leader": core.previous_leader, "election_ms": election_ms}))
        assert core.log.term_at(self.own_first) == self.term
        self.broadcast()
        self._next_beat = core.now + self.heartbeat_ns

    def end(self, reason: str) -> None:
        """Answer everybody who waits for this leadership."""
        self.transfer.leave()
        self.changes.leave()
        self.reads.refuse_all()

    def deadline(self) -> int:
        due, stall = self._next_beat, self.core.writes.oldest_unsynced_ns() + self._stall_ns
        if self._notice_at < due:
            due = self._notice_at
        if stall < due:
            due = stall
        if self.transfer.deadline < due:
            due = self.transfer.deadline
        if self.changes.deadline < due:
            due = self.changes.deadline
        return due

    def tick(self) -> None:
        core = self.core
        now = core.now
        if now >= core.writes.oldest_unsynced_ns() + self._stall_ns:
            core.step_down("storage stalls")
            return
        if now >= self._next_beat:
            planned = self._next_beat
            self._judge()
            if core.leadership is self and (decision := self._standstill.judge()) is not None:
                self.resign(decision)
            if core.leadership is not self:
                return
            self.beat()
            self._next_beat = max(planned, now - self.heartbeat_ns + 1) + self.heartbeat_ns  # late ticks do not add up
            assert now < self._next_beat
        elif now >= self._notice_at:
            self._notice_at = NEVER
            for progress in self.peers.values():
                if progress.sent_commit < core.commit_index and not progress.disk_full:
                    self._send_beat(progress)
        self.transfer.tick()
        if core.leadership is self:
            self.changes.tick()

    def sync_peers(self) -> None:
        """Follow a change of the membership: feed its members, and check which directories it records."""
        self.tracker.sync()
        self.changes.met_again()

    # --- proposing

    def propose(self, payloads: list[bytes]) -> tuple[int, int]:
        """Append commands, and return the first and last index. Raises ``Rejected`` or ``Busy`` and appends nothing
        then."""
        core, config = self.core, self.core.config
        if self.transfer.busy:
            raise Rejected(RejectReason.TRANSFERRING)
        if core.writes.disk_full:
            raise Rejected(RejectReason.DISK_FULL)
        sizes = list(map(len, payloads))
        largest, total = max(sizes), sum(sizes)
        if largest > config.entry_bytes_max:
            raise Rejected(RejectReason.TOO_LARGE, f"{largest} bytes, entry_bytes_max={config.entry_bytes_max}")
        if self.uncommitted_bytes and self.uncommitted_bytes + total > config.uncommitted_bytes_max:
            raise Busy(f"{self.uncommitted_bytes} bytes wait for commit")
        if core.writes.disk_lags:
            raise Busy(f"{core.writes.unsynced_bytes} bytes wait for this node's disk")
        first = core.log.last_index + 1
        if len(payloads) <= config.frame_entries_max and frame_bytes(len(sizes), total) <= config.frame_bytes_max:
            self._append_frame(Kind.COMMANDS, payloads)
        else:
            for start, stop in self._cuts(sizes):
                self._append_frame(Kind.COMMANDS, payloads[start:stop])
        assert core.log.last_index == first + len(payloads) - 1, "one index for each command"
        self.broadcast()
        return first, core.log.last_index

    def _cuts(self, sizes: list[int]) -> list[tuple[int, int]]:
        """Return the ranges that split payloads into frames: at the limits, an oversized entry alone."""
        config, cuts, start, used = self.core.config, [], 0, frame_bytes(0, 0)
        for position, size in enumerate(sizes):
            if position > start and (
                used + size + 4 > config.frame_bytes_max or position - start >= config.frame_entries_max):
                cuts.append((start, position))
                start, used = position, frame_bytes(0, 0)
            used += size + 4
        cuts.append((start, len(sizes)))
        assert cuts[0][0] == 0 and all(start < stop for start, stop in cuts)
        return cuts

    def append_own(self, kind: Kind, payload: bytes) -> Frame:
        """Append one entry of the leader's own, which is no command."""
        return self._append_frame(kind, [payload])

    def _append_frame(self, kind: Kind, payloads: list[bytes]) -> Frame:
        core = self.core
        log = core.log
        # The entry has the term in which this node was elected, whatever happens meanwhile (hashicorp 695).
        assert core.role == LEADER and self.term == core.term >= log.last_term
        frame = build(kind=kind, group=core.group, term=self.term, first=log.last_index + 1, payloads=payloads,
                      wall_ms=core.wall_ms, chain=log.last_mark)
        core.append(frame)
        self._uncommitted.append((log.last_index, len(frame.data)))
        self.uncommitted_bytes += len(frame.data)
        assert log.last_term == self.term and log.last_index > core.commit_index
        return frame

    # --- replicating

    def broadcast(self) -> None:
        """Send every peer what its window allows."""
        for progress in self.peers.values():
            self.feed(progress)

    def feed(self, progress: Progress) -> None:
        """Send a peer its next frames, or probe for the common point, or send nothing while something is under way."""
        core = self.core
        log, config = core.log, core.config
        if progress.state == PROBE:
            if not progress.probe_sent:
                self._probe(progress)
            return
        messages_max, bytes_max = config.inflight_messages_max, config.append_bytes_max
        if progress.disk_full:
            messages_max = bytes_max = 1  # one frame, to see whether there is room
        while (progress.next <= log.last_index and progress.state == REPLICATE and not progress.load_pending
               and progress.window_open(config.inflight_bytes_max, messages_max)):
            if progress.next <= log.purged_index:
                self._start_snapshot(progress)
                return
            frames = log.cached(progress.next, bytes_max)
            if frames is None:
                progress.load_pending = True
                core.output(Load(progress.peer, progress.session, progress.next, bytes_max))
                return
            self._send_frames(progress, frames)

    def _send_frames(self, progress: Progress, frames: list[Frame]) -> None:
        core = self.core
        previous, newest = frames[0].first - 1, frames[-1]
        assert previous >= core.log.purged_index, "the term before them is known"
        sequence = progress.stamp(core.now)
        size = len(newest.data) if len(frames) == 1 else sum([len(frame.data) for frame in frames])
        progress.sent_frames(newest.first + newest.count - 1, size, core.now)
        progress.sent_commit = core.commit_index
        core.send(progress.peer, Append(
            core.group, self.term, progress.session, sequence, previous, core.log.term_at(previous), core.commit_index,
            self.reads.round, frames))

    def _probe(self, progress: Progress) -> None:
        """Send one message to find out whether the logs agree at ``next - 1``. The first one brings frames."""
        core = self.core
        log = core.log
        previous, frames = progress.next - 1, None
        if progress.next <= log.last_index and not progress.probe_sent and not progress.disk_full:
            frames = log.cached(progress.next, core.config.frame_bytes_max)
        if frames:
            previous = frames[0].first - 1
        assert previous <= log.last_index, (previous, log.last_index)
        if previous < log.purged_index:
            self._start_snapshot(progress)
            return
        progress.probe_sent = True
        progress.sent_commit = core.commit_index
        core.send(progress.peer, Append(
            core.group, self.term, progress.session, progress.stamp(core.now), previous, log.term_at(previous),
            core.commit_index, self.reads.round, frames or ()))

    def beat(self) -> None:
        """Send everyone a heartbeat. It carries the read round, and repeats what is due to be tried again."""
        core = self.core
        self._beaten_at = core.now
        self._next_beat = core.now + self.heartbeat_ns
        self._notice_at = NEVER
        self.tracker.answers = {}
        self.tracker.drop_departed()
        timeout = core.config.replication_timeout_ms * MS
        for progress in list(self.peers.values()):
            if progress.inflight and core.now - progress.inflight[0][2] > timeout:
                # Answered heartbeats do not prove that an append arrived (hashicorp 612).
                self._to_probe(progress, progress.match + 1, "no answer")
            self._send_beat(progress)

    def _send_beat(self, progress: Progress) -> None:
        """Send an append without frames at the known match; while probing, send the probe once more."""
        core = self.core
        if progress.state == PROBE:
            self._probe(progress)
            return
        log = core.log
        if progress.state == SNAPSHOT:
            if core.now - progress.chunk_asked_ns > core.config.replication_timeout_ms * MS:
                self._load_chunk(progress)
            previous = 0
        else:
            previous = progress.match if progress.match >= log.purged_index else 0
        progress.sent_commit = core.commit_index
        core.send(progress.peer, Append(
            core.group, self.term, progress.session, progress.stamp(core.now), previous, log.term_at(previous),
            core.commit_index, self.reads.round))

    def _to_probe(self, progress: Progress, next_index: int, reason: str) -> None:
        progress.probe_from(next_index)
        self._trace_peer(progress, reason)

    def _trace_peer(self, progress: Progress, reason: str) -> None:
        core = self.core
        if core.trace:
            core.trace(PeerState(core.now, core.node_id, core.group, core.term, progress.peer, progress.state.name,
                                 reason))

    def on_append_reply(self, peer: str, reply: AppendReply) -> None:
        core = self.core
        progress = self.peers.get(peer)
        if reply.term > core.term or reply.code in _OBJECTIONS:
            self._on_objection(peer, progress, reply)
            return
        if (progress is None or reply.session != progress.session or reply.term != core.term
                or reply.sequence > progress.sequence):
            core.dropped(peer, reply, "another term, session or sequence")  # raft-rejoin survey
            return
        self.tracker.answers[peer] = reply.code, reply.term
        progress.answered(reply.sequence, core.now)
        if reply.last_index < progress.match and reply.sequence > progress.match_sequence:
            self._forgot(progress)
            return
        progress.last_index = reply.last_index
        if reply.read_round > progress.read_round:
            progress.read_round = min(reply.read_round, self.reads.round)
            self.reads.advance()
        if reply.code == SUCCESS:
            self._on_match(progress, reply)
        elif reply.code == Code.INCONSISTENT_STATE:
            self._on_mismatch(progress, reply)
        elif reply.code == Code.DISK_FULL:
            progress.disk_full = True
            self._to_probe(progress, progress.match + 1, "its disk is full")
            progress.probe_sent = True  # the next beat tries again: no spinning (dledger F27)

    def _on_objection(self, peer: str, progress: Progress | None, reply: AppendReply) -> None:
        if progress is None or progress.session != reply.session or progress.departing_until_ns:
            self.core.dropped(peer, reply, "an objection of a non-member")
            return
        if reply.code == Code.EXPIRED_TERM and reply.term <= self.core.term:
            self.core.dropped(peer, reply, "an objection to an earlier leadership")
            return
        self.tracker.answers[peer] = reply.code, reply.term
        self._judge()

    def _on_match(self, progress: Progress, reply: AppendReply) -> None:
        core = self.core
        if reply.match > core.log.last_index:
            core.dropped(progress.peer, reply, "a match beyond the log")
            return
        if reply.hint_index or progress.lapsed:
            self._note_lapse(progress, reply)
        if reply.sequence > progress.resolved_sequence:
            progress.resolved_sequence = reply.sequence
        moved = progress.acknowledge(reply.match)
        if progress.owed and progress.match >= progress.owed:
            progress.owed = 0
            self._counts_again(progress)
        if moved or progress.match == core.log.last_index:
            progress.disk_full = False
        if progress.state == PROBE:
            progress.replicate()  # from the durable match: what is on its way to the peer's disk is sent again
            self._trace_peer(progress, "logs agree")
        elif progress.state == REPLICATE and self._lost_some(progress, reply):
            self._to_probe(progress, progress.match + 1, "appends were lost")
        if moved:
            if progress.match > core.commit_index:  # else it adds nothing to a quorum
                self._count()
            if core.leadership is not self:
                return
            self.transfer.advance()
            if self.changes.waiting:
                self.changes.advance()
        self.feed(progress)

    def _lost_some(self, progress: Progress, reply: AppendReply) -> bool:
        """Return whether appends were lost: the peer answers later messages, but its log ends before what was sent
        long ago."""
        inflight = progress.inflight
        return (bool(inflight) and reply.last_index < inflight[0][0]
                and self.core.now - inflight[0][2] > 2 * self.heartbeat_ns)

    def _on_mismatch(self, progress: Progress, reply: AppendReply) -> None:
        """Move ``next`` back after a mismatch: each answer skips a whole run of one term, in either log (openraft
        6d53aa12)."""
        core = self.core
        if reply.sequence <= progress.resolved_sequence or progress.state == SNAPSHOT:
            core.dropped(progress.peer, reply, "a refusal from the past")
            return
        progress.resolved_sequence = progress.sequence
        index, term = core.log.last_with_term_up_to(min(reply.hint_index, progress.next), reply.hint_term)
        if reply.hint_index < core.log.purged_index:
            index = reply.hint_index
        elif term > reply.hint_term:
            index -= 1  # the logs differ below what this log still holds: only a snapshot helps
        if index < progress.match and reply.sequence > progress.match_sequence:
            self._forgot(progress)
            return
        self._to_probe(progress, index + 1, "logs differ")
        self.feed(progress)

    def _forgot(self, progress: Progress) -> None:
        """Handle a peer that lost entries which it had acknowledged, as its answer shows.

        Its last block rotted, or an older copy of its directory was put back. That acknowledgement counts no longer; a
        new session begins, which finds the real end of its log.
        """
        owed = max(progress.owed, progress.match)
        assert owed > 0, "who acknowledged nothing forgets nothing"
        fresh = self.tracker.add(progress.peer)
        fresh.owed, fresh.lapsed = owed, progress.lapsed
        fresh.contact_ns = progress.contact_ns
        fresh.departing_until_ns = progress.departing_until_ns
        self.tracker.recount()
        self._trace_peer(fresh, f"lost what it had acknowledged, up to {owed}")
        self.feed(fresh)

    def _note_lapse(self, progress: Progress, reply: AppendReply) -> None:
        """Note from a success whether the peer knows that it lost what it had acknowledged: its hint is set then."""
        if reply.hint_index:
            progress.lapsed, progress.lapse_sequence = True, progress.sequence
            self.tracker.recount()
        elif reply.sequence > progress.lapse_sequence:
            progress.lapsed = False
            self._counts_again(progress)
            self._count()

    def _counts_again(self, progress: Progress) -> None:
        """Count the peer again, since it holds what it had acknowledged. What it said meanwhile still counts for
        nothing."""
        progress.read_round, progress.counted_ns = 0, self.core.now
        self.tracker.recount()

    def on_loaded(self, peer: str, session: int, first: int, frames: list[Frame]) -> None:
        progress = self.peers.get(peer)
        if progress is None or progress.session != session or not progress.load_pending:
            return
        progress.load_pending = False
        if progress.state != REPLICATE or progress.next != first:
            self.feed(progress)
        elif not frames or frames[0].first - 1 < self.core.log.purged_index:
            self._start_snapshot(progress)
        else:
            assert frames[0].first <= first <= frames[-1].last, "storage gives the frame that holds it"
            self._send_frames(progress, frames)
            self.feed(progress)

    def on_unreachable(self, peer: str) -> None:
        progress = self.peers.get(peer)
        if progress and progress.state == REPLICATE and progress.inflight:
            self._to_probe(progress, progress.match + 1, "unreachable")
            progress.probe_sent = True

    # --- snapshots

    def _start_snapshot(self, progress: Progress) -> None:
        """Send the newest snapshot, since entries that the peer needs were purged."""
        if progress.state != SNAPSHOT:
            progress.send_snapshot()
            self._trace_peer(progress, "needs purged entries")
            self._load_chunk(progress)

    def _load_chunk(self, progress: Progress) -> None:
        core = self.core
        progress.chunk_asked_ns = core.now
        core.output(LoadChunk(progress.peer, progress.session, progress.snapshot_index, progress.chunk_offset,
                              core.config.snapshot_chunk_bytes))

    def on_chunk_loaded(
        self, peer: str, session: int, meta: SnapshotMeta | None, offset: int, data: bytes | None
    ) -> None:
        core = self.core
        progress = self.peers.get(peer)
        if progress is None or progress.session != session or progress.state != SNAPSHOT:
            return
        if meta is None or data is None:
            gone = progress.snapshot_index != 0
            progress.snapshot_index = progress.chunk_offset = 0
            if gone:  # a newer snapshot replaced it
                self._load_chunk(progress)
            return
        if progress.snapshot_index in (0, meta.index) and progress.chunk_offset == offset:
            progress.snapshot_index = meta.index
            core.send(peer, SnapshotChunk(
                core.group, self.term, session, progress.stamp(core.now), encode_meta(meta), offset, data))

    def on_snapshot_reply(self, peer: str, reply: SnapshotReply) -> None:
        core = self.core
        progress = self.peers.get(peer)
        if reply.term > core.term:
            if progress and progress.session == reply.session and not progress.departing_until_ns:
                self.tracker.answers[peer] = reply.code, reply.term
                self._judge()
            return
        if (progress is None or reply.session != progress.session or reply.term != core.term
                or reply.sequence > progress.sequence):
            core.dropped(peer, reply, "another term, session or sequence")
            return
        progress.answered(reply.sequence, core.now)
        if progress.state != SNAPSHOT or reply.code != SUCCESS or reply.index != progress.snapshot_index:
            return
        if reply.done:
            assert reply.index <= core.log.last_index, "the snapshot is this leader's own"
            progress.acknowledge(reply.index)
            self._to_probe(progress, reply.index + 1, "snapshot installed")
            self._count()
            if core.leadership is self:
                self.feed(progress)
        elif reply.offset != progress.chunk_offset or reply.offset == 0:
            progress.chunk_offset = reply.offset
            self._load_chunk(progress)

    # --- counting

    @property
    def own_term_committed(self) -> bool:
        """True once this leadership's no-op is committed. Before that, the leader does not know what is committed
        (paper §8)."""
        return self.core.commit_index >= self.own_first

    def _count(self) -> None:
        """Advance the commit index to what a quorum holds durably, if that entry is of this term (paper §5.4.2)."""
        core = self.core
        membership = core.membership
        index = self.tracker.quorum_match()
        if index <= core.commit_index or core.log.term_at(index) != self.term:
            return
        core.advance_commit(index, counted=True)
        core.gave_way = 0
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= index:
            self.uncommitted_bytes -= uncommitted.popleft()[1]
        assert (self.uncommitted_bytes > 0) == bool(uncommitted), self.uncommitted_bytes
        if self._notice_at == NEVER and self.peers:
            self._notice_at = core.now + COMMIT_NOTICE_NS
        self.reads.on_commit()
        if core.log.membership_index <= index and not membership.votes(core.node_id):
            self._resign_removed()
        else:
            self.changes.advance()

    def _resign_removed(self) -> None:
        """Step down once the membership without this node is committed. Until then it led without counting itself
        (paper §6)."""
        core = self.core
        assert core.log.membership_index <= core.commit_index
        self.changes.advance()  # answers the caller of the change
        self.beat()
        successor = self.tracker.best_successor()
        if successor and self.peers[successor].match == core.log.last_index:
            core.send(successor, TimeoutNow(core.group, core.term, core.log.last_index, core.log.last_term))
        core.step_down("removed from the group")

    def on_durable(self) -> None:
        self._count()
        if self.core.leadership is self:
            self.transfer.advance()

    # --- contact

    def _judge(self) -> None:
        """Ask the rules whether this leadership may go on."""
        core = self.core
        decision = core.rules.judge_heartbeats(HeartbeatTally(
            core.membership, core.node_id, self.term, self.tracker.answers, core.now - self.tracker.quorum_contact()))
        if decision.step_down:
            self.resign(decision)
        elif decision.beat_now:
            self._next_beat = min(self._next_beat, max(core.now, self._beaten_at + BEAT_AGAIN_NS))

    def resign(self, decision: LeaderDecision) -> None:
        """Step down because the rules say so. Under DLedger's rules it asks for votes again at once.

        A leader that handed over gives the target time first.
        """
        core = self.core
        assert core.leadership is self, "a leadership ends once"
        if core.rules.one_step or self.transfer.told or not core.campaign.allowed:
            core.become_follower(None, decision.reason)
        else:
            core.become_candidate(decision.reason)
        core.campaign.learn_term(decision.known_term)

    def read(self, ticket: int, level: Read) -> None:
        self.reads.read(ticket, level)

    def lease_valid(self) -> bool:
        """Return whether the lease holds: a quorum promised to ignore other candidates, counted from when the messages
        that it answered were *sent*."""
        core = self.core
        if not core.rules.lease_ns or self.lease_dead or not self.own_term_committed or self.transfer.busy:
            return False
        if not core.membership.votes(core.node_id):
            return False  # it leads until its removal is committed, but a single remaining voter need not wait for it
        length = core.rules.lease_ns * (100 - core.config.clock_drift_percent) // 100
        start = self.tracker.quorum_contact(counted=True)
        return start >= self.lease_floor and core.now < start + length

    def void_lease(self, now: int) -> None:
        """Void the lease, since the node stood still: only messages that are sent from now on count."""
        assert now + 1 >= self.lease_floor, (now, self.lease_floor)
        self.lease_floor = now + 1
