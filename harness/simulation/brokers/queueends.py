"""Asks a master for the ends of queues, as ``broker.queueends.part`` does with a client and a task.

The shipped code decides whether a log may begin, makes the answer and stores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ha.taking import Become, BecomeSlave
from broker.queueends.beginning import Beginning
from broker.queueends.ends import QueueEnds, ends_before
from raft.config import MS

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess

E_ENDS: Final = 70
LOOK_NS: Final = 100 * MS


class QueueEndsAsked:
    """The requests of one run, and whether its empty log may begin."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process, self.host, self.scene = process, process.host, process.scene
        self._beginning = Beginning()
        self._round = 0
        """Number of the role: answers to requests of an earlier role are ignored."""
        process.journal.was_cut.join("parts", self._was_cut)

    def _was_cut(self, end: int) -> None:
        if not end:
            self._beginning.forget()

    def may_begin(self, offset: int) -> bool:
        """Return whether the empty log may begin at ``offset`` now."""
        journal = self.process.journal
        if not offset and journal.messages.queues():
            journal.truncate(0, everything=True)
        may = self._beginning.may(offset)
        self.scene.counts["log that began behind messages"] += may and offset > 0
        return may

    def taken(self, role: Become) -> None:
        self._round += 1
        master = role.master_address if isinstance(role, BecomeSlave) else ""
        self._beginning.follow(master)
        if master:
            self._beginning.offered(True)
            self._look(self._round, master)

    def left(self) -> None:
        self._round += 1
        self._beginning.follow("")

    def _look(self, asked: int, master: str) -> None:
        if asked != self._round:
            return
        self.process.later(LOOK_NS, E_ENDS, lambda: self._look(asked, master))
        if self._beginning.waits_for_disk and self.process.journal.queues_flushed:
            self._beginning.on_disk()
        begin = self._beginning.to_ask
        if begin is not None and not self.process.journal.end:
            self._ask(asked, master, begin)

    def _ask(self, asked: int, master: str, begin: int) -> None:
        other = self.scene.host_at(master)

        def answer() -> None:
            assert other.process is not None
            journal = other.process.journal
            ends = QueueEnds()
            for queue, end in ends_before(journal.messages, journal.visible.offset, begin):
                ends.note(queue, end)
            body = ends.to_json()
            self.scene.send(other, self.host, "ends", lambda: self.host.do(
                self.process, E_ENDS, lambda: self._answered(asked, begin, body)))

        self.scene.send(self.host, other, "ends", lambda: other.do(other.process, E_ENDS, answer))

    def _answered(self, asked: int, begin: int, body: bytes) -> None:
        journal = self.process.journal
        if asked != self._round or journal.end or self._beginning.to_ask != begin:
            return
        try:
            if journal.messages.queues():
                journal.truncate(0, everything=True)
            journal.begin_queues(QueueEnds.from_json(body).by_queue())
        except OSError:
            return  # the disk is full: the replica asks again
        self._beginning.told(begin)
        self.scene.counts["queue ends told"] += 1
