"""Asks a master for the ends of queues, as ``broker.queueends.part`` does with a client and a task.

The shipped code makes the answer and stores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.ha.taking import Become, BecomeSlave
from broker.queueends.ends import QueueEnds, ends_before
from raft.config import MS

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess

E_ENDS: Final = 70
LOOK_NS: Final = 100 * MS


class QueueEndsAsked:
    """The requests of one run. The host remembers whether they were answered, as its files do."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process, self.host, self.scene = process, process.host, process.scene
        self._round = 0
        """Number of the role: answers to requests of an earlier role are ignored."""
        process.journal.was_cut.join("parts", self._was_cut)

    def _was_cut(self, end: int) -> None:
        if not end:
            self.host.ends_told = False

    @property
    def unknown(self) -> bool:
        """Whether queues that are empty here may have had messages before the log's begin."""
        return self.process.journal.begin > 0 and not self.host.ends_told

    def taken(self, role: Become) -> None:
        self._round += 1
        if isinstance(role, BecomeSlave):
            self._look(self._round, role.master_address)

    def left(self) -> None:
        self._round += 1

    def _look(self, asked: int, master: str) -> None:
        if asked != self._round:
            return
        self.process.later(LOOK_NS, E_ENDS, lambda: self._look(asked, master))
        if self.unknown:
            self._ask(asked, master, self.process.journal.begin)

    def _ask(self, asked: int, master: str, begin: int) -> None:
        other = self.scene.host_at(master)

        def answer() -> None:
            assert other.process is not None
            body = ends_before(other.process.journal.messages, begin).to_json()
            self.scene.send(other, self.host, "ends", lambda: self.host.do(
                self.process, E_ENDS, lambda: self._answered(asked, begin, body)))

        self.scene.send(self.host, other, "ends", lambda: other.do(other.process, E_ENDS, answer))

    def _answered(self, asked: int, begin: int, body: bytes) -> None:
        journal = self.process.journal
        if asked == self._round and self.unknown and journal.begin == begin:
            journal.begin_queues(QueueEnds.from_json(body).by_queue())
            self.host.ends_told = True
            self.scene.counts["queue ends told"] += 1
