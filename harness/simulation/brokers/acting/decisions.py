"""INV_B59: who decides a transaction, and what it knows of those that decided before.

Two brokers may decide otherwise in the cases that the page has, and in no more: the second one lacks the first one's
mark, as its log was not copied so far; or the ledger, as its owner is listed nowhere, or did not answer for so long.
A slave that commits has decided when it sends the message: what it hears from then on cannot call that back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from broker.config import MASTER_ID
from broker.ledger.part import LEARN_NS
from raft.config import MS
from raft.invariants import require
from remoting.record import COMMIT, ROLLBACK

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.clients import Decided
    from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
    from harness.simulation.brokers.acting.scene import ActingScene


@attrs.frozen
class _Decision:
    process: MemberProcess
    end: int
    at_ns: int
    log_end: int
    """Where the log of a master ended as its mark was put."""

    @property
    def host(self) -> MemberHost:
        return self.process.host

    @property
    def is_void(self) -> bool:
        """Return whether a master ended before its mark was in a file."""
        process = self.process
        return process.is_master and process.dead and process.journal.log.written_offset <= self.log_end


class Decisions:
    """Judges the decisions in the first group."""

    def __init__(self, town: ActingScene, counts: Counter[str]) -> None:
        self._town, self._counts = town, counts
        self._made: dict[int, list[_Decision]] = {}
        """Number of a transaction -> its decisions."""
        self._shown: set[tuple[MemberHost, int]] = set()
        """Machines whose logs show a decision's mark, and the transaction's number."""
        self._in_flight: dict[int, dict[MemberProcess, int]] = {}
        """Number of a transaction -> slaves that send its message to another group, and since when. Those whose put
        failed, too."""
        self._read: dict[tuple[MemberHost, str], int] = {}
        """(reader, address) -> when the reader last had all of that member's ledger."""
        self._read_by: dict[tuple[MemberProcess, str], int] = {}
        """(run, address) -> the same, in the run's own time."""
        self._found: dict[MemberProcess, tuple[int, Mapping[int, str]]] = {}
        """Run -> when it last asked, and whom name servers listed."""

    # --- what members know -------------------------------------------------------------------------------------

    def found(self, process: MemberProcess, asked_ns: int, listed: Mapping[int, str] | None) -> None:
        """Note which members live by the word of name servers; None: none answered."""
        if listed is not None:
            self._found[process] = asked_ns, listed

    def read(self, process: MemberProcess, address: str) -> None:
        """Note that the process has all of that member's ledger."""
        self._read[process.host, address] = self._town.world.now
        self._read_by[process, address] = process.now

    def shown(self, process: MemberProcess, begun: Decided) -> None:
        """Note that the process's log shows the end of a transaction."""
        self._shown.add((process.host, begun.number))

    def is_shown(self, process: MemberProcess, begun: Decided) -> bool:
        return (process.host, begun.number) in self._shown

    # --- decisions ---------------------------------------------------------------------------------------------

    def begins(self, process: MemberProcess, begun: Decided) -> None:
        """Check INV_B59 before a process with the right decides."""
        since_ns = process.right.since_ns(process.now)
        asked_ns, listed = self._found.get(process, (-1, {}))
        self._counts["INV_B59"] += 1
        if since_ns is None or process.now - since_ns >= LEARN_NS:
            return
        unread = [address for member, address in listed.items() if member not in (MASTER_ID, process.host.number)
                  and self._read_by.get((process, address), -1) < since_ns]
        require(asked_ns >= since_ns and not unread, "INV_B59", "decides before it has read what others decided",
                process.host.name, unread, begun, f"at {self._town.world.now / MS:.1f} ms")

    def sends(self, process: MemberProcess, begun: Decided) -> None:
        """Note that a slave sends the message of a commit to another group's master."""
        self.begins(process, begun)
        self._in_flight.setdefault(begun.number, {})[process] = self._town.world.now
        self._compare(process, begun, COMMIT)  # others may see the message first

    def decides(self, process: MemberProcess, begun: Decided, end: int) -> None:
        """Check INV_B59 when a member's log or ledger has a decision."""
        in_flight = self._in_flight.get(begun.number, {})
        sent_ns = in_flight.pop(process, None)
        self._compare(process, begun, end, sent_ns if end == COMMIT else None)
        if end == ROLLBACK and any(each.dead for each in in_flight):
            begun.apart = True
        self._town.counts["decided otherwise by who could not know"] += begun.apart
        self._made[begun.number].append(
            _Decision(process, end, self._town.world.now, process.journal.log.max_offset))

    def _compare(self, process: MemberProcess, begun: Decided, end: int, sent_ns: int | None = None) -> None:
        """Check INV_B59 against what others decided before.

        ``sent_ns``: when it sent the message of a commit, and what it knew by then was compared; None: it has not."""
        host = process.host
        since_ns = self._town.world.now if sent_ns is None else sent_ns
        for other in self._made.setdefault(begun.number, []):
            if other.end == end or other.is_void:
                continue
            knows = host is other.host or (sent_ns is None and (
                self._read.get((host, other.host.address), -1) > other.at_ns or (
                    other.host.number == MASTER_ID and (host, begun.number) in self._shown)))
            told = since_ns < self._read.get((other.host, host.address), -1) < other.at_ns
            require(not knows and not told, "INV_B59", "decides otherwise than it knows, or others could know",
                    host.name, other.host.name, begun, f"at {self._town.world.now / MS:.1f} ms")
            begun.apart = True
