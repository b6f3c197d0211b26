"""Checks the properties of groups without controllers: INV_B36 to INV_B38, INV_B55, INV_B57 to INV_B60.

It reads what brokers hold from journals and disks, and what clients were told from the clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

import attrs

from broker.ha.acks import PutStatus
from broker.ledger.entries import OF_TABLES, OF_TIMERS, Entry, Mark, Subject, Thing
from broker.ledger.part import timers_done
from broker.offsets.part import OffsetsPart
from broker.properties import UNIQ_KEY
from broker.puts import PutResult
from broker.schedule.levels import SCHEDULE_TOPIC
from broker.timer.part import TimersPart
from broker.topics.names import TIMER
from broker.transactions import records
from harness.simulation.brokers.acting.clients import CONSUMERS, Decided, Delayed
from harness.simulation.brokers.acting.plan import TIMEOUT_MS
from harness.simulation.brokers.client import KNOWN
from harness.simulation.brokers.runs import Runs
from harness.simulation.brokers.watch import BrokerWatch
from raft.config import MS
from raft.invariants import require
from remoting.bodies.namesrv import DataVersion
from remoting.record import COMMIT, ROLLBACK, Message, Outline, Record, decode_properties

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.group import ActingGroup
    from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
    from harness.simulation.brokers.acting.scene import ActingScene
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.process import BrokerProcess

UNANSWERED_NS: Final = 4 * TIMEOUT_MS * MS
"""A request that is unanswered for so long is not carried out any more. If it was, its effect stays."""


class ActingRuns(Runs):
    """Notes what power cuts take; what a start must hold where there are no epochs is the store's tests' business."""

    def ended(self, process: BrokerProcess, *, power: bool) -> None:
        """Check nothing: ``ActingWatch`` checks these groups."""

    def ended_in_its_start(self, host: Host) -> None:
        """Check nothing of a run that never opened."""

    def doubted(self, host: Host) -> None:
        """A log in doubt is copied again, which INV_B60 asks."""

    def lost_by_power(self, host: Host) -> None:
        super().lost_by_power(host)
        if isinstance(host.scene.watch, ActingWatch):
            host.scene.watch.lossless = False


class Offsets:
    """INV_B58: what clients were told of one group's offsets."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._told: dict[int, tuple[int, MemberProcess, bool]] = {}
        """Queue -> the last offset that was answered, by whom, and whether no master led then. Beside a master that
        leads, a slave's word is given up, as the page says."""
        self._asked: dict[int, list[tuple[int, int]]] = {}
        """Queue -> offsets that were asked for and not answered, and when."""
        self._now: Callable[[], int] = lambda: 0

    def begin(self, now: Callable[[], int]) -> None:
        self._now = now

    def last(self, queue: int) -> int:
        return self._told[queue][0] if queue in self._told else 0

    def asks(self, queue: int, offset: int) -> None:
        self._asked.setdefault(queue, []).append((offset, self._now()))

    def committed(self, queue: int, offset: int, process: MemberProcess, *, alone: bool) -> None:
        self._told[queue] = offset, process, alone
        asked = self._asked[queue]
        place, began = next((place, at) for place, (each, at) in enumerate(asked) if each == offset)
        del asked[place]
        self._asked[queue] = [(each, at) for each, at in asked if began - at < UNANSWERED_NS]

    def comes_back(self, master: MemberProcess, read: set[MemberHost]) -> None:
        """Check offsets that a slave served while it acted, once this master has read that slave's ledger."""
        table, now = master.parts[OffsetsPart].table, self._now()
        for queue, (offset, process, alone) in self._told.items():
            if process.is_master or not alone or process.host not in read or (
                    offset > master.journal.messages.max_offset(b"T", queue)):
                continue
            possible = {offset, *(each for each, _ in self._asked.get(queue, ()))}
            found = table.query(CONSUMERS, "T", queue)
            self._counts["INV_B58"] += 1
            require(found in possible, "INV_B58", "the returned master has another offset than a slave answered for",
                    master.host.name, process.host.name, queue, found, possible, f"at {now / MS:.1f} ms")


@attrs.define
class _Known:
    """Contents of a slave's ledger when it was handed over."""

    things: dict[Thing, tuple[Mark, int]]
    version: DataVersion
    offsets: dict[int, int]
    """Of the table, by queue."""


class ActingWatch(BrokerWatch):
    """The watch of one group. It asks nothing of controllers, since there are none."""

    scene: ActingGroup

    def __init__(self, scene: ActingGroup) -> None:
        super().__init__(scene)
        self.counts = scene.town.judge.counts
        self.runs = ActingRuns(self)
        self.lossless = True
        self._handed: dict[MemberHost, _Known] = {}
        self._taken: dict[Thing, tuple[Mark, int]] = {}
        """Offsets and levels that a master read, and that a slave was told to forget, before any master leads again."""
        self._past = Mark()
        """What was noted up to here counts no more: all members were told that their master has it, or it led."""
        self._passed_over: set[MemberHost] = set()
        """Members that no name server listed when the master came back after a power cut that took something. They may
        hold what it lost, and wrote anew."""
        self._living: set[MemberHost] = set()
        """Members, as name servers told the master that comes back."""
        self._timers_read: dict[Thing, int] = {}
        self._timers_kept: dict[Thing, int] = {}
        """Delivered timers by ledgers that were given up since, as far as a master had read them."""

    # --- what ``BrokerWatch`` asks of groups with controllers ---------------------------------------------------

    def puts(self, process: BrokerProcess, messages: Sequence[Message]) -> None:
        """Hear of a put: marks are decisions. Other messages are checked where they arrive."""
        for message in messages if self.scene.place == 0 else ():
            if message.topic == records.OP_TOPIC:
                self.scene.town.judge.marks(cast("MemberProcess", process), message)

    def put(self, process: BrokerProcess, call: Callable[[], None]) -> None:
        """Check INV_B60: only a master that leads writes."""
        log, before = process.journal.log, process.journal.log.max_offset
        call()
        if log.max_offset != before:
            self.counts["INV_B60"] += 1
            leader = self.scene.leader
            require(leader is process, "INV_B60", "a member that does not lead writes", process.host.name)

    def answered_put(self, process: BrokerProcess, messages: Sequence[Message], result: PutResult) -> None:
        """Check nothing: the clients judge the answers."""

    def consumed(self, process: BrokerProcess, queue: int, record: Record) -> None:
        self.scene.town.counts["message read"] += 1

    # --- a master comes back -----------------------------------------------------------------------------------

    def levels_with(self, process: MemberProcess, members: Iterable[str]) -> None:
        """Note the members that live by the word of name servers."""
        if process.is_master:
            self._living = {self.scene.town.machine_at(address) for address in members}

    def collects(self, process: MemberProcess) -> None:
        """Note that a master begins to read its members' ledgers."""
        self._handed.clear()

    def hands_over(self, process: MemberProcess) -> None:
        """Note what a slave's ledger says when it is read: its master has to be as far."""
        table = process.parts[OffsetsPart].table
        self._handed[process.host] = _Known({
            entry.thing: (entry.mark, entry.value) for entry in process.ledger.ledger.after()},
            table.version, dict(table.of(CONSUMERS, "T")))
        if self.scene.place == 0:
            self.scene.town.committer.hurry()
        for entry in process.ledger.ledger.of(*OF_TIMERS):
            self._timers_read[entry.thing] = max(entry.value, self._timers_read.get(entry.thing, 0))

    def comes_back(self, master: MemberProcess) -> None:
        """Check INV_B57, INV_B58 and INV_B60 right before a returned master leads."""
        self.scene.town.counts["master came back"] += 1
        self.scene.town.counts["master came back to a slave"] += bool(self._living)
        self._is_as_far(master)
        self._taken.clear()
        if self.scene.place == 0:
            self.scene.town.offsets.comes_back(master, self._living)
        if not self.lossless:
            self._passed_over |= {*self.scene.members[1:]} - self._living
        for host in self._living:
            slave = host.member
            if slave is not None and slave.opened:
                self._holds(master, slave)

    def _is_as_far(self, master: MemberProcess) -> None:
        latest = self._last_read()
        for thing, value in self._timers_kept.items() if self.lossless else ():
            self._asks(master, self._passes(master, thing, value), "timers behind", "of a life before", thing, value)
        runtime, messages = master.runtime(), master.journal.messages
        for thing, (_, value) in latest.items():
            if thing.kind == Subject.OFFSET:
                topic, _, group = thing.name.partition("@")
                if value > messages.max_offset(topic.encode(), thing.queue):
                    continue
                found = master.parts[OffsetsPart].table.query(group, topic, thing.queue)
                self._asks(master, found == value, "another offset", thing, value, found)
            elif thing.kind == Subject.LEVEL:
                text, end = runtime.get(f"scheduleMessageOffset_{thing.queue}", "0,0").split(",")
                self._asks(master, int(text) >= min(value, int(end)), "a level behind", thing, value, text, end)
            elif thing.kind in OF_TIMERS:
                self._asks(master, self._passes(master, thing, value), "timers behind", thing, value)
            elif thing.kind == Subject.DECIDED:
                found = master.ledger.ledger.get(thing)
                self._asks(master, found == value, "a decision is not known", thing, value, found)
        for known in self._handed.values():
            self._goes_not_back(master, known, latest)

    def _last_read(self) -> dict[Thing, tuple[Mark, int]]:
        """Return of each thing the last entry that was read, unless a master that led before had a later one."""
        latest = dict(self._taken)
        for known in self._handed.values():
            for thing, (mark, value) in known.things.items():
                if thing.kind in OF_TABLES and mark <= self._past:
                    continue
                if thing not in latest or latest[thing][0] < mark:
                    latest[thing] = mark, value
        return latest

    def keeps(self, process: MemberProcess, upto: Mark) -> None:
        """A slave is told to forget offsets and levels up to there, or the master that comes back has told all."""
        if process.is_master:
            self._past = max(self._past, upto)
        else:
            self._taken.update((thing, entry) for thing, entry in self._last_read().items()
                               if thing.kind in OF_TABLES and entry[0] <= upto)

    def _goes_not_back(self, master: MemberProcess, known: _Known, noted: Collection[Thing]) -> None:
        """Check offsets of a member's table of which no ledger says anything."""
        table = master.parts[OffsetsPart].table
        for queue, offset in known.offsets.items() if known.version == table.version else ():
            thing = Thing(Subject.OFFSET, f"T@{CONSUMERS}", queue)
            if thing not in noted and offset <= master.journal.messages.max_offset(b"T", queue):
                found = table.query(CONSUMERS, "T", queue)
                self._asks(master, found is not None and found >= offset, "an offset behind", queue, offset, found)

    @staticmethod
    def _passes(master: MemberProcess, thing: Thing, value: int) -> bool:
        """Return whether the master takes as delivered the timers that a ledger says were."""
        part = master.parts[TimersPart]
        return part.done_before_ms >= value or part.elsewhere.has(
            value - 1, timers_done(Entry(Mark(), thing, value)).below - 1)

    def gives_up_timers(self, thing: Thing, value: int) -> None:
        """A slave forgets what its ledger said of the timers. What no master read counts for nothing."""
        read = min(value, self._timers_read.get(thing, 0))
        self._timers_kept[thing] = max(read, self._timers_kept.get(thing, 0))

    def _asks(self, master: MemberProcess, holds: bool, what: str, *facts: object) -> None:
        self.counts["INV_B57"] += 1
        require(holds, "INV_B57", f"a master came back with {what} than its members' ledgers say", master.host.name,
                *facts, f"at {self.scene.world.now / MS:.1f} ms")

    def _holds(self, master: MemberProcess, slave: MemberProcess) -> None:
        mine, theirs = master.journal, slave.journal
        begin, end = max(mine.begin, theirs.begin), theirs.log.max_offset
        self.counts["INV_B60"] += end > begin
        require(self.log(master, begin, end) == self.log(slave, begin, end) or slave.host in self._passed_over,
                "INV_B60", "a master came back without what a member holds", master.host.name, slave.host.name, begin,
                end, mine.log.max_offset)

    def is_parted(self) -> bool:
        """Return whether the master waits for a passed-over member whose log differs from its own."""
        master = self.scene.members[0].member
        for host in self._passed_over & self._living if master is not None and master.opened else ():
            slave = host.member
            if master is not None and slave is not None and slave.opened:
                begin = max(master.journal.begin, slave.journal.begin)
                end = min(master.journal.log.max_offset, slave.journal.log.max_offset)
                if begin > end or self.log(master, begin, end) != self.log(slave, begin, end):
                    return True
        return False


class MessageJudge:
    """Judges messages and transactions, at whatever broker they arrive."""

    def __init__(self, town: ActingScene) -> None:
        self._town = town
        self.counts: Counter[str] = Counter()
        self._known: set[tuple[str, bytes, int, int, int]] = set()
        self._halves: dict[int, Decided] = {}
        """Place in the queue of halves -> the transaction."""
        self._halves_at: dict[int, Decided] = {}
        """Offset in the log -> the transaction."""

    def arrived(self, process: MemberProcess, queue_offset: int, outline: Outline) -> None:
        """Check INV_B37 and INV_B38 when a message is first seen."""
        offset, size, queue_id, _, _, _, topic, _ = outline
        if topic not in (b"D", b"X", SCHEDULE_TOPIC, TIMER.encode(), records.HALF_TOPIC, records.OP_TOPIC):
            return
        if topic in (SCHEDULE_TOPIC, TIMER.encode()):
            self._waits(process, process.journal.log.record(offset, size))
            return
        if topic == records.OP_TOPIC and process.host.scene.place == 0:
            for begun, _ in self._ends(process.journal.log.record(offset, size).message):
                self._town.decisions.shown(process, begun)
        key = process.host.scene.key.name, topic, queue_id, queue_offset, offset
        if key in self._known:
            return
        self._known.add(key)
        message = process.journal.log.record(offset, size).message
        if topic == records.OP_TOPIC:
            self._marked(message)
        elif topic == records.HALF_TOPIC:
            self._halves[queue_offset] = self._halves_at[offset] = self._transaction(message)
        elif topic == b"X":
            self._final(process, message)
        else:
            self._delivered(process, message)

    def _of(self, message: Message) -> Delayed:
        return self._town.delayed[int(message.body.partition(b".")[0])]

    def _transaction(self, message: Message) -> Decided:
        return self._town.decided[int(message.body.partition(b".")[0])]

    def _waits(self, process: MemberProcess, record: Record) -> None:
        message = record.message
        key = decode_properties(message.properties).get(UNIQ_KEY, "")
        if key.isdecimal() and process.host.scene.place == 0:
            sent = self._of(message)
            sent.waits = True
            sent.held_by.add(process.host.name)

    def _delivered(self, process: MemberProcess, message: Message) -> None:
        sent, town = self._of(message), self._town
        escaped = process.host.scene.place > 0
        town.counts["delayed delivered"] += 1
        town.counts["delayed escaped"] += escaped
        town.counts["delayed delivered again"] += sent.copies > 0
        sent.copies += 1
        self.counts["INV_B38"] += 1
        unique = decode_properties(message.properties).get(UNIQ_KEY)
        require(sent.status not in KNOWN and message.body == sent.body and unique == str(sent.number), "INV_B38",
                "delivered what nobody sent", process.host.name, sent, message)
        if sent.level == 0:
            self.counts["INV_B37"] += 1
            require(town.wall_ms >= sent.due_ms - 200, "INV_B37", "delivered early", process.host.name, sent)

    # --- transactions ------------------------------------------------------------------------------------------

    def decided(self, begun: Decided, end: int) -> None:
        """Check INV_B59 when a broker answers a decision as done."""
        begun.done.add(end)
        actor = self._town.groups[0].actor
        self._town.counts["decided in the master's place"] += actor is not None
        begun.in_place = begun.in_place or actor is not None
        self.counts["INV_B59"] += begun.in_place
        require(len(begun.done) < 2 or begun.apart or not self.lossless, "INV_B59", "brokers answer both ends as done",
                begun)

    def kept_as(self, process: MemberProcess, offset: int) -> int | None:
        """Return the offset under which a slave's ledger must have the decision of that half; None: its log has it."""
        begun = self._halves_at.get(offset)
        if begun is None or self._town.decisions.is_shown(process, begun):
            return None
        return next((at for entry in process.ledger.ledger.of(Subject.DECIDED)
                     if self._halves_at.get(at := int(entry.thing.name)) is begun), offset)

    def _ends(self, message: Message) -> list[tuple[Decided, int]]:
        """Return the transactions that a mark decides, each with its end."""
        end = {records.COMMITTED: COMMIT, records.ROLLED_BACK: ROLLBACK}.get(records.reason(message.properties))
        return [] if end is None else [
            (self._halves[place], end) for place in records.marked(message.body) if place in self._halves]

    def marks(self, process: MemberProcess, message: Message) -> None:
        """Note the decisions in a master's mark, except those that a slave made before."""
        for begun, end in self._ends(message):
            ledger = process.ledger.ledger
            known = {entry.value for entry in ledger.of(Subject.DECIDED)
                     if self._halves_at.get(int(entry.thing.name)) is begun}
            if int(end == COMMIT) not in known and self.lossless:
                self._town.decisions.begins(process, begun)
                self._town.decisions.decides(process, begun, end)

    def decides(self, process: MemberProcess, offset: int, end: int) -> None:
        """Note a slave's decision when its ledger has it."""
        begun = self._halves_at.get(offset)
        if begun is not None and self.lossless:
            if end == ROLLBACK:
                self._town.decisions.begins(process, begun)
            self._town.decisions.decides(process, begun, end)

    def sends(self, process: MemberProcess, messages: Sequence[Message]) -> None:
        """Note that a slave which commits sends the message to another group first."""
        for message in messages:
            if message.topic == b"X" and not process.is_master and self.lossless:
                self._town.decisions.sends(process, self._transaction(message))

    def _final(self, process: MemberProcess, message: Message) -> None:
        begun = self._transaction(message)
        self._town.counts["transaction committed"] += 1
        self._town.counts["transaction committed elsewhere"] += process.host.scene.place > 0
        self._town.counts["final message again"] += begun.finals > 0
        begun.finals += 1
        self.counts["INV_B59"] += 1
        require(COMMIT in begun.said and message.body == begun.body, "INV_B59", "committed, and nobody said so", begun)
        require(not (ROLLBACK in begun.done and self.lossless) or begun.apart, "INV_B59",
                "committed, and its producer was told that it is rolled back", process.host.name, begun)

    def _marked(self, message: Message) -> None:
        if records.reason(message.properties) != records.ROLLED_BACK:
            return
        for place in records.marked(message.body):
            begun = self._halves.get(place)
            if begun is not None:
                begun.rolled_back = True
                self.counts["INV_B59"] += 1
                require(not (COMMIT in begun.done and self.lossless) or begun.apart, "INV_B59",
                        "rolled back, and its producer was told that it is committed", begun)

    @property
    def lossless(self) -> bool:
        """True while no power cut took anything of the first group."""
        return not self._town.lost

    # --- the end -----------------------------------------------------------------------------------------------

    def undelivered(self, process: MemberProcess) -> list[Delayed]:
        """Return the delayed messages that this member holds and that were delivered nowhere."""
        name = process.host.name
        return [sent for sent in self._town.delayed if name in sent.held_by and not sent.copies]

    def settled(self) -> None:
        """Check INV_B36, INV_B58 and INV_B59 once the master is back and all had its time."""
        town = self._town
        lost = [sent for sent in town.delayed if not sent.copies and (sent.waits or sent.status is PutStatus.PUT_OK)]
        if self.lossless:
            self.counts["INV_B36"] += bool(town.delayed)
            require(not lost, "INV_B36", "not delivered", lost[:3])
            for begun in town.decided:
                if begun.done and begun.in_place and not begun.apart:
                    self.counts["INV_B58"] += 1
                    require(bool(begun.finals) == (COMMIT in begun.done), "INV_B58",
                            "a decision answered in the master's place did not last", begun)
