"""Linearizable reads on a leader, by numbered rounds, by leases and through the log.

*The idea* (Raft thesis, §6.4). A read needs no entry of its own. It needs to know that at some moment after it was
asked this node was still the leader: then the commit index of that moment covers every write that was answered before.
So a *round* takes the next number and the present commit index; messages to the followers carry the number, and their
answers echo it. When a quorum has echoed it, all reads of the round may be done as soon as the state machine has
applied that index. Reads that come while a round is under way wait for the next one, together: however many callers
read, only one round at a time is under way. A follower asks its leader for an index in the same way.

*Rejected.*

- To let a read join the round that is under way. Its index may be older than a write that was answered since.
- To count any answer of a follower. An answer to a message that was sent before the read proves nothing about now, and
  it may be late or come twice (etcd 20418). Numbers are never reused, so an old answer completes nothing.
- A round for each read. Its cost would be that of a write without the disk.
- Leases alone. They trust clocks. They are a level of their own (``Read.LEASE``), and a read for which the lease does
  not hold any more takes a round instead.

*Why it is right.*

- *When the round began this node was the last leader.* Had a later leader been elected before the round began, one of
  those voters would have voted for it, and would not have answered in this term. So when the round began no later
  leader had committed anything.
- *The index is not too low.* A new leader may hold committed entries that it does not know to be committed. So no round
  begins before an entry of its own term is committed (thesis §6.4, step 1).
- *A node that does not count for a commit does not count here*: a voter whose directory was lost, and a node that lacks
  what it once acknowledged. While the group is joint both halves must have echoed.
- *A lease* counts from when the messages were sent that a quorum answered, less the drift that clocks may have; those
  voters elect nobody before it is over. It ends as a hand-over begins, and when this node stood still.
- *Through the log* (``Read.LOG``) an empty entry is committed, so the argument for writes holds.

All reads end with the leadership. Knows no entries and no state machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.config import Read
from raft.errors import Busy, Rejected, RejectReason
from raft.frame import Kind
from raft.messages import Code, ReadReady, ReadReply
from raft.trace import ReadGranted

if TYPE_CHECKING:
    from raft.leadership import Leadership


class Reads:
    """Reads that wait on one leadership; all of them end with it."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self.round = 0
        """Number of the latest round; appends carry it and replies echo it."""
        self._round_index = 0
        self._waiting: list[tuple[int, str | None]] = []
        self._asked: list[tuple[int, str | None]] = []
        self._logged: list[tuple[int, int]] = []
        """(index, ticket) of reads through the log, rising."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._asked) + len(self._logged)

    def read(self, ticket: int, level: Read) -> None:
        """Begin a local read. Raises ``Rejected`` or ``Busy``."""
        leadership = self.leadership
        core = leadership.core
        if leadership.transfer.busy:
            raise Rejected(RejectReason.TRANSFERRING)
        if len(self) >= core.config.reads_pending_max:
            raise Busy("too many reads wait")
        if level is Read.LEASE and leadership.lease_valid():
            core.output(ReadReady(ticket, core.commit_index, lease=True))
            if core.trace:
                core.trace(ReadGranted(core.now, core.node_id, core.group, core.term, ticket, core.commit_index, True))
        elif level is Read.LOG:
            frame = leadership.append_own(Kind.NOOP, b"")
            assert not self._logged or self._logged[-1][0] < frame.first
            self._logged.append((frame.first, ticket))
            leadership.broadcast()
        else:
            self.ask(ticket, None)

    def ask(self, ticket: int, origin: str | None) -> None:
        """Ask for a read index for ``origin`` (None: this node), in the next round."""
        leadership = self.leadership
        if origin is not None and (leadership.transfer.busy or len(self) >= leadership.core.config.reads_pending_max):
            self._answer(ticket, origin, Code.LEADER_TRANSFERRING, 0)
            return
        self._waiting.append((ticket, origin))
        self.advance()

    def advance(self) -> None:
        """Complete the round if a quorum answered it, and start the next if reads wait."""
        leadership = self.leadership
        core = leadership.core
        if self._asked and leadership.tracker.round_confirmed(self.round):
            asked, self._asked = self._asked, []
            assert self._round_index >= leadership.own_first, "before, it did not know what is committed"
            for ticket, origin in asked:
                self._answer(ticket, origin, Code.SUCCESS, self._round_index)
        if self._waiting and not self._asked and leadership.own_term_committed:
            self.round += 1
            assert self._round_index <= core.commit_index
            self._round_index = core.commit_index
            self._asked, self._waiting = self._waiting, []
            if leadership.tracker.round_confirmed(self.round):
                self.advance()
            else:
                leadership.beat()

    def on_commit(self) -> None:
        """Answer reads through the log whose entry is committed."""
        core = self.leadership.core
        ready = 0
        for index, ticket in self._logged:
            if index > core.commit_index:
                break
            ready += 1
            self._answer(ticket, None, Code.SUCCESS, index)
        del self._logged[:ready]
        assert not self._logged or self._logged[0][0] > core.commit_index
        if self._waiting:
            self.advance()

    def _answer(self, ticket: int, origin: str | None, code: Code, index: int) -> None:
        core = self.leadership.core
        assert index <= core.commit_index, (index, core.commit_index)
        if origin is not None:
            core.send(origin, ReadReply(core.group, core.term, ticket, code, index))
        elif code == Code.SUCCESS:
            core.output(ReadReady(ticket, index))
        else:
            core.output(ReadReady(ticket, 0, RejectReason.LEADER_LOST))
        if core.trace and code == Code.SUCCESS:
            core.trace(ReadGranted(core.now, core.node_id, core.group, core.term, ticket, index, False))

    def refuse_all(self) -> None:
        """Refuse all reads, since leadership ends."""
        assert self.leadership.core.leadership is not self.leadership, "nobody asks it any more"
        for ticket, origin in (*self._asked, *self._waiting, *((ticket, None) for _, ticket in self._logged)):
            self._answer(ticket, origin, Code.NOT_LEADER, 0)
        self._asked, self._waiting, self._logged = [], [], []
