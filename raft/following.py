"""The follower's part: takes entries and commit index from a leader, asks it for reads, and carries out a hand-over.

Truncation happens only here, only at the first frame that conflicts, never at or below the commit index
(dledger F3, F4). An acknowledgement is made when the disk reports, up to what is durable and proven equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import NEVER
from raft.errors import RejectReason
from raft.messages import (
    FOLLOWER,
    SUCCESS,
    Append,
    AppendReply,
    Code,
    ReadReady,
    ReadReply,
    ReadRequest,
    Resolved,
    TimeoutNow,
)

if TYPE_CHECKING:
    from raft.replica import Replica


class Following:
    """A follower's state towards the present leader, and a hand-over from its own leadership that is still open."""

    def __init__(self, core: Replica) -> None:
        self.core = core
        self.verified = 0
        """Entries up to here are proven equal to the present leader's, in its present session."""
        self._session = 0
        self._sequence = 0
        self._read_round = 0
        self._ack_due = False
        self._acked = -1
        """Last entry that an early acknowledgement covers; -1: none was sent."""
        self._timeout_now: TimeoutNow | None = None
        self._asked = core.life
        """Number of the latest question to a leader. Starts at a random number, as answers to questions of an earlier
        life may be under way."""
        self._questions: dict[int, tuple[int, int]] = {}
        """Number of a read asked of the leader -> (the caller's ticket, deadline)."""
        self.handed_over: tuple[int, str, int] | None = None
        """A hand-over whose outcome is open, since this node stepped down: (ticket, target, deadline)."""
        self.members_only = False
        """True if ``hears`` may refuse strangers; False: everybody's messages count."""

    def reset(self) -> None:
        """Begin anew with another leader or none: nothing is verified, and questions to the old leader are void."""
        self.verified = 0
        self._session = self._sequence = self._read_round = 0
        self._acked = -1
        self._ack_due = False
        self._timeout_now = None
        self.refuse_reads(RejectReason.LEADER_LOST)

    # --- hearing a leader

    def hears(self, peer: str) -> bool:
        """Return whether messages of ``peer`` count.

        Messages count from members, and from nodes that are being told of their removal. While this node knows no
        member or hears no leader, they count from anybody: its membership may be old, and an unknown node may be its
        leader (thesis §4.1). Votes have rules of their own.
        """
        core = self.core
        if not self.members_only or peer in core.membership.members or not core.membership.members:
            return True
        if core.leadership:
            return peer in core.leadership.peers
        return peer == core.leader or core.leader is None or core.now >= core.election_deadline

    def judge_leader(self, peer: str, term: int) -> Code:
        """Judge a message that only a leader sends. SUCCESS: this node follows it, and its deadline is moved."""
        core = self.core
        if term == core.term and core.leader == peer and core.role == FOLLOWER:
            core.heard_leader_at = core.now
            return SUCCESS
        decision = core.rules.decide_heartbeat(core.voter(), peer, term)
        if decision.become_candidate:
            core.become_candidate(f"{peer} leads term {term}")
            core.campaign.learn_term(decision.known_term)
            core.campaign.increase_term()
        if decision.follow:
            if decision.adopt_term > core.term:
                core.set_hard_state(decision.adopt_term, None)
            core.heard_leader_at = core.now
            core.become_follower(peer, f"{peer} leads term {term}")
        assert decision.code != SUCCESS or (core.leader, core.term) == (peer, term), decision
        return decision.code

    def rearm(self) -> None:
        """Move the election deadline, since the leader was heard. The timeout is drawn once, not for each message."""
        core = self.core
        core.election_deadline = core.now + core.silence_ns

    def wait_for_leader(self) -> None:
        """Draw a new timeout after which this node asks for votes itself."""
        core = self.core
        core.silence_ns = core.rules.follower_timeout_ns(core.rng, core.membership, core.node_id)
        assert core.silence_ns > 0
        core.election_deadline = core.now + core.silence_ns

    def patience_deadline(self) -> int:
        """Return when this follower asks for votes if it does not hear its leader; ``NEVER`` if it may not ask."""
        core = self.core
        return core.election_deadline if core.campaign.allowed else NEVER

    def on_append(self, peer: str, message: Append) -> None:
        core = self.core
        code = self.judge_leader(peer, message.term)
        if code != SUCCESS:
            self._reply(peer, message, code)
            return
        self.rearm()
        if message.session != self._session:
            self._session, self._sequence, self.verified, self._acked = message.session, 0, 0, -1
        if message.sequence > self._sequence:
            self._sequence = message.sequence
            if message.read_round > self._read_round:
                self._read_round = message.read_round
        if core.installing or (core.writes.disk_full and message.frames):
            self._reply(peer, message, Code.DISK_FULL if core.writes.disk_full else SUCCESS)
            return
        if not self._matches(message):
            hint, hint_term = core.log.last_with_term_up_to(message.prev_index, message.prev_term)
            self._reply(peer, message, Code.INCONSISTENT_STATE, hint, hint_term)
            return
        appended = self._take(peer, message)
        if appended is None:
            return
        commit = message.commit
        if commit > self.verified:
            commit = self.verified
        core.advance_commit(commit, counted=False)
        if appended:
            self._ack_due = True
        else:
            self._reply(peer, message, SUCCESS)

    def _matches(self, message: Append) -> bool:
        """Return whether the log has the entry (prev_index, prev_term), as paper §5.3 asks. Purged entries are
        committed, so they match."""
        log, prev = self.core.log, message.prev_index
        if prev > log.last_index or (prev and not message.prev_term):
            return False
        return prev < log.purged_index or log.term_at(prev) == message.prev_term

    def _take(self, peer: str, message: Append) -> bool | None:
        """Append what is missing and truncate what conflicts. Return None if the message contradicts what is certain,
        and was refused."""
        core, log = self.core, self.core.log
        expected, appended = message.prev_index + 1, False
        for frame in message.frames:
            if frame.first != expected or frame.term > message.term or frame.group != core.group:
                core.dropped(peer, message, "frames do not follow each other")
                return None
            expected = frame.first + frame.count
            if expected - 1 <= log.purged_index:
                continue
            if frame.first <= log.last_index:
                if log.term_at(frame.first) == frame.term:
                    if expected - 1 > log.last_index:
                        core.dropped(peer, message, "a frame that is here in part")
                        return None
                    continue
                if frame.first <= max(core.commit_index, log.purged_index):
                    core.dropped(peer, message, f"contradicts committed entry {frame.first}")
                    return None
            if core.writes.disk_lags:  # the answer shows the leader that this node lives; it sends the frames again
                expected = frame.first
                break
            if frame.first <= log.last_index:
                core.truncate(frame.first)
            if frame.term < log.last_term:
                core.dropped(peer, message, "a term that falls")
                return None
            assert frame.term <= core.term and frame.first > core.commit_index
            core.append(frame)
            appended = True
        proven = expected - 1 if expected <= log.last_index else log.last_index
        if proven > self.verified:
            self.verified = proven
        return appended

    def _reply(self, peer: str, message: Append, code: Code, hint: int = 0, hint_term: int = 0) -> None:
        core = self.core
        match = min(self.verified, core.log.durable_index) if code == SUCCESS else 0
        read_round = message.read_round
        if core.lapse is not None:
            core.regaining.look()
            if code == SUCCESS and core.lapse is not None:
                hint, hint_term, read_round = core.lapse.index, core.lapse.term, 0
        core.send(peer, AppendReply(core.group, core.term, message.session, message.sequence, code, match,
                                    core.log.last_index, hint, hint_term, read_round))

    def on_durable(self) -> None:
        """Send one cumulative acknowledgement for each sync."""
        core = self.core
        if core.lapse is not None:
            core.regaining.look()
        if self._ack_due and core.leader is not None and core.role == FOLLOWER:
            match = min(self.verified, core.log.durable_index)
            self._ack_due = match < self.verified
            if match > self._acked:
                core.send(core.leader, self._acknowledgement(match))
        core.snapshots.answer_installed()
        if self._timeout_now:
            self._take_over()

    def _acknowledgement(self, match: int) -> AppendReply:
        core, lapse = self.core, self.core.lapse
        assert match <= core.log.last_index, (match, core.log.last_index)
        if lapse is not None:
            return AppendReply(core.group, core.term, self._session, self._sequence, SUCCESS, match,
                               core.log.last_index, lapse.index, lapse.term, 0)
        return AppendReply(core.group, core.term, self._session, self._sequence, SUCCESS, match,
                           core.log.last_index, 0, 0, self._read_round)

    def early_ack(self) -> tuple[str, AppendReply] | None:
        """Return the peer and the acknowledgement to send once all that is appended so far is durable.

        It may leave as soon as that write is durable, whatever else came in since: it then equals a reply that was made
        in time and arrives late. ``early_ack_sent`` tells that it left.
        """
        core = self.core
        if not self._ack_due or core.leader is None or core.role != FOLLOWER or core.writes.disk_full:
            return None
        return core.leader, self._acknowledgement(min(self.verified, core.log.last_index))

    @property
    def needs_disk(self) -> bool:
        """Return whether a hand-over or a snapshot waits for the disk."""
        return self._timeout_now is not None or self.core.snapshots.answer_due is not None

    def early_ack_sent(self, reply: AppendReply) -> None:
        """Note that this acknowledgement left early, so that it is not sent again."""
        if reply.term == self.core.term and reply.session == self._session:
            self._acked = max(self._acked, reply.match)

    # --- reads through the leader

    def ask_leader(self, ticket: int) -> None:
        core = self.core
        assert core.leader is not None
        number = self.next_question()
        assert core.leader != core.node_id, "a leader knows by itself"
        self._questions[number] = ticket, core.now + 2 * core.silence_ns
        core.send(core.leader, ReadRequest(core.group, core.term, number))

    def next_question(self) -> int:
        """Return a new number for a question to a leader."""
        self._asked += 1
        assert 0 < self._asked < 1 << 63, "it travels in 63 bits"
        return self._asked

    def on_read_reply(self, peer: str, reply: ReadReply) -> None:
        core = self.core
        if core.lapse is not None and core.regaining.answered(peer, reply):
            return
        if reply.ticket not in self._questions or peer != core.leader or reply.term != core.term:
            core.dropped(peer, reply, "no such read")
            return
        ticket, _ = self._questions.pop(reply.ticket)
        if reply.code == SUCCESS:
            core.advance_commit(min(reply.index, self.verified), counted=False)
            core.output(ReadReady(ticket, reply.index))
        else:
            moving = reply.code == Code.LEADER_TRANSFERRING
            core.output(ReadReady(ticket, 0, RejectReason.TRANSFERRING if moving else RejectReason.LEADER_LOST))

    def refuse_reads(self, reason: RejectReason) -> None:
        for ticket, _ in self._questions.values():
            self.core.output(ReadReady(ticket, 0, reason))
        self._questions.clear()

    def tick(self) -> None:
        core = self.core
        if self.handed_over and core.now >= self.handed_over[2]:
            ticket, self.handed_over = self.handed_over[0], None
            core.output(Resolved(ticket, None, "leadership was given up; no new leader seen yet", True))
        expired = [number for number, (_, until) in self._questions.items() if core.now >= until]
        for number in expired:
            ticket, _ = self._questions.pop(number)
            core.output(ReadReady(ticket, 0, RejectReason.TIMED_OUT))

    def deadline(self) -> int:
        """Time (ns) when the oldest read, or an open hand-over, is given up."""
        read = next(iter(self._questions.values()))[1] if self._questions else NEVER
        return min(read, self.handed_over[2]) if self.handed_over else read

    # --- a hand-over, given and taken

    def settle_hand_over(self) -> None:
        """Answer an open hand-over once a leader is known: the target, or another node."""
        leader = self.core.leader
        if self.handed_over and leader:
            ticket, target, _ = self.handed_over
            self.handed_over = None
            refused = None if leader == target else RejectReason.NOT_CAUGHT_UP
            self.core.output(Resolved(ticket, refused, "" if refused is None else f"{leader} leads instead"))

    def on_timeout_now(self, peer: str, message: TimeoutNow) -> None:
        """Take a hand-over from the leader: ask for votes once all its entries are durable here (openraft 1805)."""
        core = self.core
        if peer != core.leader or message.term != core.term or not core.campaign.allowed:
            core.dropped(peer, message, "not from my leader, or not a voter")
            return
        self._timeout_now = message
        self._take_over()

    def _take_over(self) -> None:
        core, message = self.core, self._timeout_now
        assert message is not None
        if message.last_index > core.log.durable_index:
            return
        self._timeout_now = None
        if core.log.term_at(message.last_index) == message.last_term and core.campaign.allowed:
            core.campaign.take_over("the leader handed over")
