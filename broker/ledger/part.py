"""The part of the ledger: keeps what a slave learns without its master, copies it to other slaves, and hands it over.

- *Keep.* A slave notes which offsets clients commit to it and how far it delivers. It answers a commit when the entry
  is synced. While there is no master, each slave reads the other slaves' entries.
- *Hand over.* A master that comes back reads all ledgers before it leads. From that on the slave takes no more entries
  for ``HAND_OVER_MS``, so nothing is learned that the master does not read. The slaves forget the entries when the
  master has them in its tables on disk. A slave that was not told may still have older ones: the master keeps what it
  took until all are told, and from then on it takes none that is older. The time of the timers they keep for
  ``FORGET_NS`` of its lead, since no master waits until it is on its disk.
- *Learn.* A broker that begins to have the right to deliver decides no transaction before it has read the others'
  decisions.
- *Lasting entries* (decisions, acknowledgements) belong to no table. The master takes them into its own ledger, and
  writes them into its log when it leads. Each member keeps them until its own log has that part on disk.

A RocketMQ member answers 3 (unknown request) and has no ledger.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from broker.abroad.tickets import Acked
from broker.ledger.codes import (
    LEDGER_IS_KEPT,
    READ_LEDGER,
    LedgerIsKeptRequest,
    ReadLedgerRequest,
    ReadLedgerResponse,
)
from broker.ledger.entries import (
    FIRST,
    LASTING,
    OF_TABLES,
    OF_TIMERS,
    Entry,
    Ledger,
    Mark,
    Subject,
    Thing,
    decode,
    is_place,
)
from broker.ledger.file import LedgerFile
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.pop.part import PopPart
from broker.pop.reviving import RevivePart
from broker.schedule.part import DelaysPart
from broker.standing import COMES_BACK, MASTER_ID, Role
from broker.timer.elsewhere import EVERY, TimersDone
from broker.timer.part import TimersPart
from broker.topics.names import HALF
from broker.transactions.asking import PROGRESS_GROUP
from broker.transactions.part import TransactionsPart
from broker.transactions.records import QUEUE
from remoting.client import Client, checked
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.fields import decimal
from remoting.wakeup import Bell

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker.ledger")

HAND_OVER_MS: Final = 10_000
"""If the master that read the ledger does not register within this time, the slave goes on."""
HANDED_OVER: Final = (RequestCode.END_TRANSACTION, RequestCode.LOCK_BATCH_MQ)
"""Codes that a slave refuses during a hand-over, beside commits of offsets."""
COPY_S: Final = 1.0
"""Pause between two questions to another member."""
TIMEOUT_MS: Final = 3_000
ANSWER_BYTES: Final = 1 << 20
ENTRIES_MAX: Final = 1_000_000
"""Entries of a full ledger, which takes no more acknowledgements of POP."""
BUT_TABLES: Final = (*OF_TIMERS, *LASTING)
LOOK_NS: Final = 1_000_000_000
FORGET_NS: Final = 30_000_000_000
"""A slave that follows a master for this long forgets its entries: the master has read them, or they are outdated. It
keeps lasting entries, unless the master is a RocketMQ broker, which never reads them."""
LEARN_NS: Final = 30_000_000_000
"""From when a broker has the right to deliver, longest wait for the ledgers of others. Then it decides without them."""
LATE_READ_NS: Final = 10_000_000_000
"""Pause between two questions of a master for lasting entries that a slave wrote before it heard of this master."""


NOT_READ: Final = "what other members of the group decided meanwhile is read first"


class LedgerPart(Part):
    """The ledger of one member of a group without controllers, where slaves may act."""

    def __init__(self, shared: Shared, parts: Parts, client: Client, members: Callable[[], Mapping[int, str]],
                 listed: Callable[[], Awaitable[Mapping[int, str] | None]]) -> None:
        """``members`` returns the addresses of living members by id; ``listed`` asks all name servers for every member
        that any of them lists, None if none answers. Raises ``OSError``."""
        self.ledger = Ledger()
        self._client, self._members, self._standing, self._now_ns = client, members, shared.standing, shared.now_ns
        self._listed, self._right, self._wall_ms = listed, shared.right, shared.wall_ms
        self._offsets, self._delays, self._timers = parts[OffsetsPart], parts[DelaysPart], parts[TimersPart]
        self._journal, self._transactions = shared.journal, parts[TransactionsPart]
        self._log, self._messages = self._journal.log, self._journal.messages
        self.file = self._file_of(shared)
        self._pops, self._acks = parts[PopPart].lending, parts[RevivePart].reviving
        for entry in self._legible(self.file.load(), "this broker"):
            self.ledger.take(entry)
        self._gaps: dict[tuple[str, int], dict[int, int]] = {}
        """By ``topic@group`` and queue: where that begins at a slave -> what the group wanted in front of it."""
        for entry in self.ledger.of(Subject.ACKED):
            self._join(entry)
        self._find_gaps()
        self._heard: dict[str, Mark] = {}
        """By address, the mark up to which that member's ledger was read."""
        self._told: dict[str, Mark] = {}
        """By address, the mark up to which that slave was told to forget lasting entries."""
        self._in_log: dict[Thing, int] = {}
        """Lasting things that this master has put, with an end of the log that includes them."""
        self._settled_end: int | None = None
        """An end of the log that includes all lasting entries; None: some are not in the log."""
        self._late_at_ns: dict[str, int] = {}
        """By address, when that slave is asked for lasting entries again."""
        self._handed_over_ns = 0
        """Until when the hand-over to a master lasts; 0: there is none."""
        self._was_led = False
        """True: the master's former process was still listed when the hand-over began."""
        self._led_ns = 0
        """Since when there is a master; 0: there is none."""
        self._looked_ns = self.joined = 0
        self._acts, self._acts_since_ms = False, 0
        """``_acts``: this slave acts; ``_acts_since_ms``: when it began to, by its clock."""
        self._unread = NOT_READ
        self._learnt_ns: int | None = None
        """Begin of the last right for which all ledgers were read, or waited for long enough."""
        self._read_of: dict[str, int] = {}
        """By address, beginning of the last right for which that member's ledger was read."""
        self.bell = Bell()
        """Rings when others' decisions are to be read."""
        self._transactions.use(self)
        self._pops.ledger = self
        self._offsets.table.on_commit = self._committed
        self._offsets.table.on_moved = self._moved
        self._offsets.requests.when_kept = self._when_kept

    def _file_of(self, shared: Shared) -> LedgerFile:
        return LedgerFile(shared.files, shared.run_sync, self.ledger.whole)

    # --- noting ------------------------------------------------------------------------------------------------

    @property
    def _notes(self) -> bool:
        role = self._standing.role
        return role.broker_id != MASTER_ID and not role.leads

    @property
    def is_handed_over(self) -> bool:
        """Return whether a master that comes back has read the ledger, so that no entry may be added."""
        return bool(self._handed_over_ns)

    def note(self, thing: Thing, value: int, *, again: bool = False) -> None:
        """Add an entry, unless it says nothing new and not ``again``; it is on disk when ``file.kept`` returns."""
        entry = self.ledger.note(thing, value, self._wall_ms(), self._acts_since_ms, again=again)
        if entry is not None:
            self.file.append(entry)

    def _note_timers(self, done: TimersDone) -> None:
        """Note what this slave delivered. A time is never set back, since it says that timers are done."""
        thing = _of_timers(done)
        if done.below > done.begin and done.time_ms > (self.ledger.get(thing) or 0):
            self.note(thing, done.time_ms)

    def decide(self, offset: int, *, committed: bool) -> None:
        """Note a decision about the half at that offset of the log; on disk when ``file.kept`` returns."""
        self.note(_decided(offset), int(committed))

    def decision(self, offset: int) -> bool | None:
        """Return whether an acting slave committed the half at that offset; None: it decided nothing."""
        value = self.ledger.get(_decided(offset))
        return None if value is None else bool(value)

    def sends_on(self) -> bool:
        """Return whether a slave sends the halves of a RocketMQ master on: it notes up to where in their queue."""
        return self.ledger.get(Thing(Subject.OFFSET, f"{HALF}@{PROGRESS_GROUP}", QUEUE)) is not None

    def acked(self, each: Acked) -> bool:
        """Note an acknowledgement of a checkpoint of the master's; ``when_kept`` tells when it is on disk. False: the
        ledger is full."""
        if len(self.ledger) >= ENTRIES_MAX:
            return False
        self.note(Thing(Subject.ACKED, *each.thing), 1)
        self._acks.acked_here(each)
        return True

    def when_kept(self, call: Callable[[], None]) -> None:
        self.file.when_kept(call)

    def _settle(self) -> None:
        """Put a master's lasting entries into the log, and drop those whose part of the log is on disk."""
        durable = self._durable_end
        gone = [thing for thing, end in self._in_log.items() if end <= durable]
        for thing in gone:
            del self._in_log[thing]
            self.ledger.drop(thing)
        if gone:
            self.file.dropped(len(self.ledger))
        if self._settled_end is None and next(self.ledger.of(*LASTING), None) is None:
            self._settled_end = self._journal.end

        def in_log(thing: Thing) -> None:
            self._in_log[thing] = self._journal.end

        def acked(each: Acked) -> None:
            in_log(Thing(Subject.ACKED, *each.thing))
            self._acks.acked.drop(each)

        self._pops.settle((each for entry in self.ledger.of(Subject.ACKED) if entry.thing not in self._in_log
                           and (each := self._acked_by(entry)) is not None), acked)
        for entry in self.ledger.of(Subject.DECIDED):
            if entry.thing not in self._in_log:
                self._transactions.settle(
                    int(entry.thing.name), committed=bool(entry.value), done=partial(in_log, entry.thing))

    @property
    def _durable_end(self) -> int:
        """End of the log that is both confirmed and on this disk."""
        return min(self._journal.confirm_offset, self._log.flushed_offset)

    def _committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self._notes:
            self.note(Thing(Subject.OFFSET, f"{topic}@{group}", queue_id), offset, again=True)

    def _moved(self, group: str, topic: str, queue_id: int, offset: int, least: int) -> None:
        """A group is sent over what this slave never had, and what its master may hold. A new one begins anywhere."""
        if not self._acts or self.is_handed_over:
            return
        known = self._offsets.table.query(group, topic, queue_id)
        if known is None:
            return
        wanted = min(offset, known)
        thing = Thing(Subject.GAP, f"{least}@{topic}@{group}", queue_id)
        before = self.ledger.get(thing)
        if wanted < (least if before is None else before):
            self.note(thing, wanted)

    def _when_kept(self, answer: Command) -> Command | Coroutine[Any, Any, Command]:
        async def later() -> Command:
            try:
                await self.file.synced()
            except OSError as error:
                return attrs.evolve(answer, code=ResponseCode.SYSTEM_ERROR, ext={}, body=b"", remark=str(error))
            return answer

        return later() if self._notes else answer

    def due_ns(self) -> int:
        return self._looked_ns

    def role_changed(self, role: Role) -> None:
        if role.acts and not self._acts:
            self._acts_since_ms = self._wall_ms()
        self._acts = role.acts
        if role.leads and next(self.ledger.of(*OF_TABLES), None) is not None:
            self._forget(self.ledger.end, BUT_TABLES)  # it leads, though not all members heard that it took them

    def right_changed(self) -> None:
        if self.unread():
            self.bell.ring()

    def tick(self, now_ns: int) -> None:
        self._looked_ns = now_ns - now_ns % LOOK_NS + LOOK_NS
        self.right_changed()
        if self._standing.role.leads:
            self._settle()
        if self._notes:
            for level, offset in self._delays.delivered().items():
                self.note(Thing(Subject.LEVEL, "", level), offset)
            if self._timers.delivers:
                self._note_timers(self._timers.done_here)
        if self._handed_over_ns:
            leads = not self._was_led and MASTER_ID in self._members()
            if not leads and now_ns >= self._handed_over_ns:
                logger.warning("the master that read the ledger has not registered: this slave takes entries again")
            if leads or now_ns >= self._handed_over_ns:
                self._handed_over_ns, self._offsets.table.frozen = 0, False

    def gate(self, handler: Handler) -> Handler:
        """Wrap a handler: during a hand-over its requests are refused, to go to the master that comes back."""
        def answer(connection: Connection, command: Command) -> Command | Coroutine[Any, Any, Command | None] | None:
            if not self.is_handed_over:
                return handler(connection, command)
            return response(command, ResponseCode.SYSTEM_ERROR, remark=COMES_BACK)

        return answer

    # --- requests of others ------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        return {READ_LEDGER: self._read, LEDGER_IS_KEPT: self._kept}

    def _read(self, _: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        """Answer 61041 with entries that are on disk here. Raises ``HeaderError``."""
        asked = ReadLedgerRequest.from_ext(command.ext)
        if asked.hand_over and self._notes:
            if not self._handed_over_ns:
                logger.info("the master comes back and reads the ledger: this slave takes no more entries")
                self.tick(self._now_ns())
                self._was_led = MASTER_ID in self._members()
            self._handed_over_ns = self._now_ns() + HAND_OVER_MS * 1_000_000
            self._offsets.table.frozen = True

        async def later() -> Command:
            await self._all_decided()
            answer = self._page(command, asked)
            return answer if isinstance(answer, Command) else await answer

        return later() if asked.decided and self._notes else self._page(command, asked)

    async def _all_decided(self) -> None:
        """Return when no decision is in flight here."""
        done = trio.Event()
        self._transactions.when_all_decided(done.set)
        await done.wait()

    def _page(self, command: Command, asked: ReadLedgerRequest) -> Command | Coroutine[Any, Any, Command]:
        end, entries = Mark(asked.term, asked.number), []
        size, more = 0, False
        for entry in self.ledger.after(end):
            more = size >= ANSWER_BYTES and entry.mark > end  # two members may have written entries of one mark
            if more:
                break
            entries.append(entry.to_bytes())
            size, end = size + len(entries[-1]), entry.mark
        answer = response(command, header=ReadLedgerResponse(*end, more=more), body=b"".join(entries))
        return self._when_kept(answer)

    def _kept(self, _: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        """Answer 61042: forget entries that the master has on disk. Raises ``HeaderError``."""
        asked = LedgerIsKeptRequest.from_ext(command.ext)
        if asked.log_end is not None and self._durable_end < asked.log_end:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=(
                f"the log is on disk here only up to {self._durable_end}, not up to {asked.log_end}"))
        self._forget(Mark(asked.term, asked.number), BUT_TABLES if asked.log_end is None else OF_TIMERS)
        return self._when_kept(response(command))

    # --- exchange with other members ---------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the file, and exchange entries with the other members, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.file.run)
            nursery.start_soon(self.learn)
            task_status.started()
            while True:
                await trio.sleep(COPY_S)
                await self._copy()

    async def _copy(self) -> None:
        members, role, now_ns = self._members(), self._standing.role, self._now_ns()
        others = {member: address for member, address in members.items()
                  if member != role.broker_id and address != self._standing.address}
        if role.leads:
            await self._each(others.values(), self._is_in_log)
        elif MASTER_ID in members:
            self._led_ns = self._led_ns or now_ns
            if now_ns - self._led_ns >= FORGET_NS and len(self.ledger):
                self._forget(self.ledger.end, LASTING)  # its tables are copied from the master by now
                await self._each([members[MASTER_ID]], self._forget_lasting)
        elif self._notes and role.listed:
            await self._each(others.values(), self._copy_of)
        if MASTER_ID not in members:
            self._led_ns = 0

    async def _each(self, addresses: Iterable[str], call: Callable[[str], Awaitable[None]]) -> None:
        for address in addresses:
            try:
                await call(address)
            except (RemotingError, BodyError, HeaderError) as error:
                logger.debug("the ledger of %s could not be exchanged: %s", address, error)

    async def _copy_of(self, address: str) -> None:
        async for entries in self._pages_of(address):
            for entry in entries:
                self._take(entry)

    async def _forget_lasting(self, master: str) -> None:
        """Forget lasting entries too, if the master is a RocketMQ broker, which never reads them."""
        answer = await self._client.call(master, request(READ_LEDGER, ReadLedgerRequest(*self.ledger.end)), TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._forget(self.ledger.end)

    # --- before this member decides ----------------------------------------------------------------------------

    def unread(self) -> str:
        """Why this member may lack what others decided before it had the right to deliver; "": it has read that."""
        return "" if self._right.since_ns(self._now_ns()) in (None, self._learnt_ns) else self._unread

    async def learn(self) -> None:
        """Read other members' ledgers whenever the right to deliver begins, until cancelled."""
        while True:
            await self.bell.wait()
            since_ns = self._right.since_ns(self._now_ns())
            if since_ns is not None and since_ns != self._learnt_ns:
                await self._learn(since_ns)

    async def _learn(self, since_ns: int) -> None:
        listed = await self._listed()
        problems = ["no name server tells the members of the group"] if listed is None else []
        for member, address in sorted((listed or {}).items()):
            if (member in (MASTER_ID, self._standing.role.broker_id) or address == self._standing.address
                    or self._read_of.get(address) == since_ns):
                continue
            try:
                await self._decisions_of(address)
            except (RemotingError, BodyError, HeaderError) as error:
                problems.append(f"member {member} at {address}: {error}")
            else:
                self._read_of[address] = since_ns
        now_ns = self._now_ns()
        if self._right.since_ns(now_ns) != since_ns:
            return
        if problems:
            self._unread = f"{NOT_READ}: {'; '.join(problems)}"
            if now_ns - since_ns < LEARN_NS:
                return
            logger.warning("transactions are decided without what members may have decided before: %s",
                           "; ".join(problems))
        self._learnt_ns, self._unread = since_ns, NOT_READ
        self._journal.stir()

    async def _decisions_of(self, address: str) -> None:
        """Take what that member decided: all of its ledger, since it may have got old entries late."""
        async for entries in self._pages_of(address, whole=True):
            if self._standing.role.leads:
                self._take_lasting(entries)
            else:
                for entry in entries:
                    self._take(entry)
        await self.file.kept()

    # --- on a master -------------------------------------------------------------------------------------------

    async def _is_in_log(self, address: str) -> None:
        """Take lasting entries that a slave wrote late, and tell it which ones the log has."""
        now_ns = self._now_ns()
        if now_ns >= self._late_at_ns.get(address, 0):
            self._late_at_ns[address] = now_ns + LATE_READ_NS
            async for entries in self._pages_of(address):
                self._take_lasting(entries)
            await self.file.kept()
        heard = self._heard.get(address, FIRST)
        if self._settled_end is not None and heard > self._told.get(address, FIRST):
            checked(await self._client.call(address, request(
                LEDGER_IS_KEPT, LedgerIsKeptRequest(*heard, self._settled_end)), TIMEOUT_MS), address)
            self._told[address] = heard

    def _take_lasting(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.thing.kind in LASTING:
                self._take(entry)
                self._settled_end = None

    def _legible(self, entries: Iterable[Entry], whose: str) -> list[Entry]:
        """Leave out lasting entries that no broker writes: no master could put them into its log."""
        found = []
        for entry in entries:
            kind, name = entry.thing.kind, entry.thing.name
            if (kind == Subject.DECIDED and not is_place(name)) or (
                    kind == Subject.ACKED and self._acked_by(entry) is None):
                logger.error("the ledger of %s says of %.60r nothing that makes sense: it is left out", whose, name)
            else:
                found.append(entry)
        return found

    def _take(self, entry: Entry) -> None:
        if self.ledger.take(entry):
            self.file.append(entry)
            self._join(entry)

    async def _pages_of(self, address: str, *, whole: bool = False,
                        hand_over: bool = False) -> AsyncIterator[list[Entry]]:
        """Read a member's new entries, page by page; none from a member without a ledger. ``whole``: all entries, once
        the member has none in flight. Raises ``RemotingError``, ``HeaderError``, ``BodyError``."""
        at = FIRST if whole else self._heard.get(address, FIRST)
        while True:
            answer = await self._client.call(address, request(READ_LEDGER, ReadLedgerRequest(
                *at, hand_over=hand_over, decided=whole)), TIMEOUT_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return
            told = ReadLedgerResponse.from_ext(checked(answer, address).ext)
            entries, end = decode(answer.body)
            if end < len(answer.body):
                raise BodyError(f"the ledger of {address} is damaged after {len(entries)} entries")
            yield self._legible(entries, address)
            before, at = at, Mark(told.term, told.number)
            self._heard[address] = max(at, self._heard.get(address, FIRST))
            if not told.more or at <= before:
                return

    def _join(self, entry: Entry) -> None:
        """Join an entry into this broker's tables."""
        thing = entry.thing
        if thing.kind == Subject.OFFSET:
            topic, _, group = thing.name.partition("@")
            if 0 <= entry.value <= self._messages.max_offset(topic.encode(), thing.queue):
                self._offsets.table.take(group, topic, thing.queue, entry.value)
                self._go_back(topic, group, thing.queue)
        elif thing.kind == Subject.GAP:
            self._find_gap(entry)
            topic, _, group = thing.name.partition("@")[2].partition("@")
            self._go_back(topic, group, thing.queue)
        elif thing.kind == Subject.LEVEL:
            self._delays.join({thing.queue: entry.value})
        elif thing.kind in OF_TIMERS:
            self._timers.join(timers_done(entry))
        elif thing.kind == Subject.ACKED and (acked := self._acked_by(entry)) is not None:
            self._acks.acked_here(acked)

    def _find_gaps(self) -> None:
        self._gaps.clear()
        for entry in self.ledger.of(Subject.GAP):
            self._find_gap(entry)

    def _find_gap(self, entry: Entry) -> None:
        begin, _, key = entry.thing.name.partition("@")
        least = decimal(begin)
        if least is not None:
            self._gaps.setdefault((key, entry.thing.queue), {})[least] = entry.value

    def _go_back(self, topic: str, group: str, queue_id: int) -> None:
        """Reset a group to what it wanted from a slave that did not have it, if that is here: its members are further.
        """
        gaps = self._gaps.get((f"{topic}@{group}", queue_id))
        if not gaps:
            return
        least = self._messages.min_offset(topic.encode(), queue_id)
        wanted = min((wanted for begin, wanted in gaps.items() if max(wanted, least) < begin), default=None)
        known = self._offsets.table.query(group, topic, queue_id)
        if wanted is not None and known is not None and 0 <= wanted < known:
            self._offsets.heard_reset(topic, group, queue_id, wanted)

    def _acked_by(self, entry: Entry) -> Acked | None:
        return Acked.read(entry.thing.name, entry.thing.queue, self._standing.broker_name)

    def _forget(self, upto: Mark, but: Collection[int] = ()) -> None:
        """Forget entries up to ``upto``, except kinds ``but``; they are off the disk when ``file.kept`` returns.

        Offsets and levels up to there count no more, whoever else has them."""
        if Subject.ACKED not in but:
            for entry in self.ledger.of(Subject.ACKED):
                if entry.mark <= upto and (acked := self._acked_by(entry)) is not None:
                    self._acks.acked.drop(acked)
        is_new = self.ledger.keeps(upto)
        if self.ledger.forget(upto, but) or is_new:
            self.file.anew()
            self._find_gaps()

    # --- a master that comes back ------------------------------------------------------------------------------

    async def collect(self, members: Iterable[str]) -> None:
        """Read the ledgers of these members, which begins the hand-over, join them, and let the members forget what is
        on disk here. Raises ``RemotingError``, ``HeaderError``, ``BodyError``, ``OSError``.

        If that fails some members may have forgotten, and others have older entries, so what was taken is kept here."""
        addresses = list(members)
        found = Ledger()
        found.keeps(self.ledger.kept)
        began_ns = self._now_ns()
        await self._take_over(addresses, found, whole=True)
        while self._now_ns() - began_ns >= HAND_OVER_MS * 1_000_000:
            logger.warning("the slaves' ledgers are read again: it took so long that slaves take entries since")
            began_ns = self._now_ns()
            await self._take_over(addresses, found)
        told = [address for address in addresses if found.end > FIRST and address in self._heard]
        for address in told:  # others have no ledger
            answer = await self._client.call(
                address, request(LEDGER_IS_KEPT, LedgerIsKeptRequest(*found.end)), TIMEOUT_MS)
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                checked(answer, address)
        self._forget(found.end, BUT_TABLES)
        await self.file.synced()
        if len(found):
            logger.info("the slaves' ledgers are read and joined", extra={"entries": len(found)})

    async def _take_over(self, addresses: Iterable[str], found: Ledger, *, whole: bool = False) -> None:
        """Read these ledgers into ``found``, what is new or all of it, and join that, which is on disk then."""
        before = len(found)
        for address in addresses:
            async for page in self._pages_of(address, whole=whole, hand_over=True):
                for entry in page:
                    found.take(entry)
        self.joined += len(found) - before
        for entry in self.ledger.of(*OF_TABLES):
            found.take(entry)
        entries = list(found.after())
        for entry in entries:
            if entry.thing.kind not in LASTING:
                self._join(entry)
            if entry.thing.kind in OF_TABLES and self.ledger.take(entry):
                self.file.append(entry)
        self._take_lasting(entries)  # into the ledger: the log takes them only when this broker leads
        await self.file.synced()
        await self._offsets.saved()
        await self._delays.saved()

    def metrics(self, page: Page) -> Iterable[Metric]:
        yield page.gauge("broker_ledger_entries", "Entries of this member that no master has kept yet. Ours.",
                         [((), len(self.ledger))])
        yield page.counter("broker_ledger_joined", "Entries of slaves that this master read. Ours.",
                           [((), self.joined)])


def _of_timers(done: TimersDone) -> Thing:
    if done.begin:
        return Thing(Subject.HELD_TIMERS, f"{done.begin}-{done.below}", 0)
    return Thing(Subject.TIMERS, str(done.below), 0)


def timers_done(entry: Entry) -> TimersDone:
    """Timers that an entry says are delivered. A slave of a former version told no offset."""
    begin, dash, told = entry.thing.name.rpartition("-")
    below = decimal(told)
    if entry.thing.kind == Subject.TIMERS:
        return TimersDone(entry.value, EVERY if below is None or dash else below)
    return TimersDone(entry.value, below or 0, EVERY if (held := decimal(begin)) is None else held)


def _decided(offset: int) -> Thing:
    return Thing(Subject.DECIDED, str(offset), 0)
