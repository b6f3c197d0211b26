"""INV_B63: what slaves answered in their master's place, and what their ledgers keep of it.

The files of machines are read, not what a broker believes of them. An entry is owed until the broker may forget it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from broker.config import MASTER_ID
from broker.ledger.entries import FIRST, Subject, Thing, decode
from broker.ledger.file import PATH
from broker.ledger.part import FORGET_NS
from harness.simulation.brokers.acting.plan import TIMEOUT_MS
from raft.config import MS
from raft.invariants import InvariantViolation, require
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.pulling import UpdateConsumerOffsetRequest
from remoting.headers.transactions import EndTransactionRequest
from remoting.record import COMMIT

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.group import ActingGroup
    from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
    from harness.simulation.brokers.acting.scene import ActingScene

COPIED_MS: Final = 2 * TIMEOUT_MS
"""Without a master, and with nothing else broken, a slave has what another one noted so long ago."""
UNNOTICED_NS: Final = 8_000 * MS
"""A slave may not notice that a master is away for so long."""
KINDS: Final = (Subject.OFFSET, Subject.DECIDED)
"""Things that clients are answered for."""


class Answers:
    """Judges the ledgers of the first group's slaves."""

    def __init__(self, town: ActingScene, counts: Counter[str]) -> None:
        self._town, self._counts = town, counts
        self._noted: dict[MemberHost, dict[Thing, list[int | None]]] = {}
        """Machine -> the value that was answered last, None at first, and those that its slave had since."""
        self._owed: dict[MemberHost, set[Thing]] = {}
        """Machine -> what its slave answered for and may not forget yet."""
        self._forgot_ns: dict[MemberHost, int] = {}
        """Machine -> when it last forgot something."""
        self._read: set[MemberProcess] = set()
        """Slaves whose ledgers a master that comes back has read."""
        self._led: dict[MemberProcess, tuple[int, int]] = {}
        """Run -> since when it knows a master, and when it last did, by its own clock."""

    # --- what a slave does -------------------------------------------------------------------------------------

    def look(self, process: MemberProcess) -> None:
        """Note whether the process knows a master."""
        if MASTER_ID in process.members.addresses:
            since_ns, last_ns = self._led.get(process, (process.now, process.now))
            self._led[process] = process.now if process.now - last_ns > UNNOTICED_NS else since_ns, process.now

    def is_asked(self, process: MemberProcess) -> None:
        """A member asks for its ledger; no hand-over is under way."""
        self._read.discard(process)

    def handed_over(self, process: MemberProcess) -> None:
        """A master that comes back has read its ledger."""
        self._read.add(process)

    def notes(self, process: MemberProcess, thing: Thing) -> None:
        """Check that a slave may note this."""
        if thing.kind in KINDS:
            self._counts["INV_B63"] += 1
            require(process not in self._read or not process.ledger.is_handed_over, "INV_B63",
                    "a slave notes what its master will not hear of", process.host.name, thing,
                    f"at {self._town.world.now / MS:.1f} ms")

    def has(self, process: MemberProcess, thing: Thing) -> None:
        """Note the value that a slave has now, and may soon have on disk."""
        value = process.ledger.ledger.get(thing)
        if thing.kind in KINDS and value is not None:
            self._noted.setdefault(process.host, {}).setdefault(thing, [None]).append(value)

    def forgets(self, process: MemberProcess, *, timers: bool) -> None:
        """Check that a slave does not forget too early; ``timers``: it forgot their time, too."""
        host, ledger = process.host, process.ledger.ledger
        self._forgot_ns[host] = self._town.world.now
        self._owed[host] = {thing for thing in self._owed.get(host, ()) if ledger.get(thing) is not None}
        if timers:
            led_ns = process.now - self._led.get(process, (process.now, 0))[0]
            self._counts["INV_B63"] += 1
            require(led_ns >= FORGET_NS * 9 // 10, "INV_B63", "the time of the timers is forgotten too early",
                    host.name, f"with a master for {led_ns / MS:.1f} ms")

    # --- answers -----------------------------------------------------------------------------------------------

    def answered(self, process: MemberProcess, command: Command, answer: Command, asked_ns: int) -> None:
        """Check that the ledger on disk has what this answers."""
        if process.is_master or answer.code != ResponseCode.SUCCESS or process.host.scene.place > 0 or (
                asked_ns <= self._forgot_ns.get(process.host, -1)):
            return
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            offset = UpdateConsumerOffsetRequest.from_ext(command.ext)
            self._owes(process, Thing(Subject.OFFSET, f"{offset.topic}@{offset.consumer_group}", offset.queue_id),
                       offset.commit_offset)
        elif command.code == RequestCode.END_TRANSACTION:
            asked = EndTransactionRequest.from_ext(command.ext)
            found = self._town.judge.kept_as(process, asked.commit_log_offset)
            if found is not None:
                self._owes(process, Thing(Subject.DECIDED, str(found), 0), int(asked.commit_or_rollback == COMMIT))

    def _owes(self, process: MemberProcess, thing: Thing, value: int) -> None:
        noted = self._noted.setdefault(process.host, {})
        former, *later = noted.get(thing, [None])
        if value in later:  # answers come in the order of notes, of which several may have one value
            noted[thing] = later[later.index(value):]
        elif value != former:
            noted[thing] = [value]
        self._owed.setdefault(process.host, set()).add(thing)
        try:
            self._keeps(process.host, thing, "a slave answers what its ledger on disk does not say")
        except InvariantViolation as broken:
            process.scene.found(broken)

    def begins(self, process: MemberProcess) -> None:
        """Check that a run knows what former ones answered."""
        for thing in sorted(self._owed.get(process.host, ())):
            self._keeps(process.host, thing, "a slave starts without what it answered")
            found = process.ledger.ledger.get(thing)
            require(found in self._noted[process.host][thing], "INV_B63",
                    "a slave starts, and does not know what it answered", process.host.name, thing, found)

    def _keeps(self, host: MemberHost, thing: Thing, problem: str) -> None:
        file = host.files.content.get(PATH)
        found = [entry for entry in decode(b"" if file is None else bytes(file.synced))[0] if entry.thing == thing]
        last = max(found, key=lambda entry: (entry.mark, entry.value)).value if found else None
        self._counts["INV_B63"] += 1
        require(last in self._noted[host][thing], "INV_B63", problem, host.name, thing, last,
                self._noted[host][thing][:3], f"at {self._town.world.now / MS:.1f} ms")

    # --- copies ------------------------------------------------------------------------------------------------

    def uncopied(self, group: ActingGroup, since_ms: int) -> list[tuple[str, str, Thing]]:
        """Return what one slave noted after ``since_ms``, ``COPIED_MS`` ago or earlier, and another one lacks."""
        slaves = [process for host in group.members[1:] if (process := host.member) is not None and process.opened]
        marks = {process: {entry.thing: entry.mark for entry in process.ledger.ledger.after()} for process in slaves}
        return [(one.host.name, other.host.name, thing) for one in slaves for other in slaves
                for thing, mark in marks[one].items()
                if since_ms <= mark.term < self._town.wall_ms - COPIED_MS and marks[other].get(thing, FIRST) < mark]
