"""The acting ledger of a member: what it learns without its master is kept, copied to other slaves, and handed over.

A slave notes what clients commit here and how far it delivers; a commit is answered when it is synced. While there is
no master each slave asks the others for what they noted. A master that comes back reads all of it last: then the slave
commits nothing more for a while, and forgets what the master's tables have. What was decided and acknowledged each of
them keeps until it is on its own disk as a part of the log. Java's members answer 3, and have none.
It knows offsets, levels and timers as far as they are joined, and nothing of who acts.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from broker.abroad.tickets import Acked
from broker.ledger.codes import (
    LEDGER_IS_KEPT,
    READ_LEDGER,
    LedgerIsKeptRequest,
    ReadLedgerRequest,
    ReadLedgerResponse,
)
from broker.ledger.entries import FIRST, LASTING, Entry, Ledger, Mark, Subject, Thing, decode
from broker.ledger.file import LedgerFile
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.pop.part import PopPart
from broker.pop.reviving import RevivePart
from broker.schedule.part import DelaysPart
from broker.standing import COMES_BACK, MASTER_ID
from broker.timer.part import TimersPart
from broker.transactions.part import TransactionsPart
from remoting.client import Client, checked
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, HeaderError, RemotingError

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker.ledger")

HAND_OVER_MS: Final = 10_000
"""A master that read all of it registers within that time, or its slave goes on."""
HANDED_OVER: Final = (RequestCode.END_TRANSACTION, RequestCode.LOCK_BATCH_MQ)
"""Codes that a slave refuses then, beside commits of offsets."""
COPY_S: Final = 1.0
"""Between two questions to another slave, while there is no master."""
TIMEOUT_MS: Final = 3_000
ANSWER_BYTES: Final = 1 << 20
ENTRIES_MAX: Final = 1_000_000
"""Of things that are known: beyond it nothing more is acknowledged here by POP."""
LOOK_NS: Final = 1_000_000_000
FORGET_NS: Final = 30_000_000_000
"""A slave that has followed a master for so long forgets what it noted: it was read, or would set the master back. But
for what is decided and acknowledged, unless the master is Java's, which never asks for it."""
LATE_READ_S: Final = 10.0
"""Between two questions of a master to a slave for what that decided before it heard of this master."""


class LedgerPart(Part):
    """Of a member of a group without controllers where slaves may act."""

    def __init__(self, shared: Shared, parts: Parts, client: Client, members: Callable[[], Mapping[int, str]]) -> None:
        """``members``: who lives in the group, by id. Raises ``OSError``."""
        self.ledger = Ledger()
        self._client, self._members, self._standing, self._now_ns = client, members, shared.standing, shared.now_ns
        self._offsets, self._delays, self._timers = parts[OffsetsPart], parts[DelaysPart], parts[TimersPart]
        self._journal, self._transactions = shared.journal, parts[TransactionsPart]
        self._log, self._messages = self._journal.log, self._journal.messages
        self.file = LedgerFile(shared.files, shared.run_sync, self.ledger.whole)
        self._pops, self._acks = parts[PopPart].lending, parts[RevivePart].reviving
        for entry in self.file.load():
            self.ledger.take(entry)
        for entry in self.ledger.of(Subject.ACKED):
            self._join(entry)
        self._heard: dict[str, Mark] = {}
        """How far each other member's was read."""
        self._told: dict[str, Mark] = {}
        """Up to where each slave was told to forget what a log has now."""
        self._in_log: dict[Thing, int] = {}
        """What is decided or acknowledged and stands in the log in front of there, which is not on disk yet perhaps."""
        self._settled_end: int | None = None
        """All that was decided or acknowledged stands in the log in front of there; None: not yet."""
        self._late_at: dict[str, float] = {}
        """When each slave is asked again."""
        self._handed_over_ns = 0
        """Until then a master is about to lead; 0: none is."""
        self._was_led = False
        """When the ledger was handed over, its former process was still listed."""
        self._led_ns = 0
        """Since then there is a master; 0: there is none."""
        self._looked_ns = self.joined = 0
        self._transactions.use(self)
        self._pops.ledger = self
        self._offsets.table.on_commit = self._committed
        self._offsets.requests.when_kept = self._when_kept

    # --- what is noted -----------------------------------------------------------------------------------------

    @property
    def _notes(self) -> bool:
        role = self._standing.role
        return role.broker_id != MASTER_ID and not role.leads

    @property
    def is_handed_over(self) -> bool:
        """A master that comes back has read all of it: nothing is to be learned here now."""
        return bool(self._handed_over_ns)

    def note(self, thing: Thing, value: int) -> None:
        """It is on disk when ``file.kept`` returns."""
        entry = self.ledger.note(thing, value)
        if entry is not None:
            self.file.append(entry)

    def decide(self, offset: int, *, committed: bool) -> None:
        """The half at that offset of the log is decided here; on disk when ``file.kept`` returns."""
        self.note(_decided(offset), int(committed))

    def decision(self, offset: int) -> bool | None:
        """Whether the half there was committed in the master's place; None: nothing was decided."""
        value = self.ledger.get(_decided(offset))
        return None if value is None else bool(value)

    def acked(self, each: Acked) -> bool:
        """A message of the master's checkpoint is done with; on disk when ``when_kept`` says so. False: it is full."""
        if len(self.ledger) >= ENTRIES_MAX:
            return False
        self.note(Thing(Subject.ACKED, *each.thing), 1)
        self._acks.acked_here(each)
        return True

    def when_kept(self, call: Callable[[], None]) -> None:
        self.file.when_kept(call)

    def _settle(self) -> None:
        """A master writes what its slaves decided, and were told is done with, into its log, and forgets it when that
        is on disk."""
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
        """The log is confirmed and on this disk up to there."""
        return min(self._journal.confirm_offset, self._log.flushed_offset)

    def _committed(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self._notes:
            self.note(Thing(Subject.OFFSET, f"{topic}@{group}", queue_id), offset)

    def _when_kept(self, answer: Command) -> Command | Coroutine[Any, Any, Command]:
        async def later() -> Command:
            await self.file.kept()
            return answer

        return later() if self._notes else answer

    def due_ns(self) -> int:
        return self._looked_ns

    def tick(self, now_ns: int) -> None:
        self._looked_ns = now_ns - now_ns % LOOK_NS + LOOK_NS
        if self._standing.role.leads:
            self._settle()
        if self._notes:
            for level, offset in self._delays.delivered().items():
                self.note(Thing(Subject.LEVEL, "", level), offset)
            if self._timers.delivers:
                self.note(Thing(Subject.TIMERS, "", 0), self._timers.done_before_ms)
        if self._handed_over_ns:
            leads = not self._was_led and MASTER_ID in self._members()
            if not leads and now_ns >= self._handed_over_ns:
                logger.warning("the master that read the ledger does not lead: this slave goes on")
            if leads or now_ns >= self._handed_over_ns:
                self._handed_over_ns, self._offsets.table.frozen = 0, False

    def gate(self, handler: Handler) -> Handler:
        """What would be learned here is for the master that comes back."""
        def answer(connection: Connection, command: Command) -> Command | Coroutine[Any, Any, Command | None] | None:
            if not self.is_handed_over:
                return handler(connection, command)
            return response(command, ResponseCode.SYSTEM_ERROR, remark=COMES_BACK)

        return answer

    # --- those who read it -------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        return {READ_LEDGER: self._read, LEDGER_IS_KEPT: self._kept}

    def _read(self, _: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        """61041. What is told is on disk here. Raises ``HeaderError``."""
        asked = ReadLedgerRequest.from_ext(command.ext)
        if asked.hand_over and self._notes:
            if not self._handed_over_ns:
                logger.info("the master comes back, and reads the ledger: nothing more is committed here")
                self.tick(self._now_ns())
                self._was_led = MASTER_ID in self._members()
            self._handed_over_ns = self._now_ns() + HAND_OVER_MS * 1_000_000
            self._offsets.table.frozen = True
        end, entries = Mark(asked.term, asked.number), []
        size = 0
        for entry in self.ledger.after(end):
            entries.append(entry.to_bytes())
            size, end = size + len(entries[-1]), entry.mark
            if size >= ANSWER_BYTES:
                break
        more = end < self.ledger.end and any(True for _ in self.ledger.after(end))
        answer = response(command, header=ReadLedgerResponse(*end, more=more), body=b"".join(entries))
        return self._when_kept(answer)

    def _kept(self, _: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        """61042: the master has what was noted up to there. Raises ``HeaderError``."""
        asked = LedgerIsKeptRequest.from_ext(command.ext)
        if asked.log_end is not None and self._durable_end < asked.log_end:
            return response(command, ResponseCode.SYSTEM_ERROR, remark=(
                f"the log is on disk here up to {self._durable_end}, not up to {asked.log_end}"))
        self._forget(Mark(asked.term, asked.number), () if asked.log_end is not None else LASTING)
        return self._when_kept(response(command))

    # --- other slaves' -----------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it, and exchange it with the other members."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.file.run)
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
                self._forget(self.ledger.end, LASTING)  # its tables came from the master by now
                await self._each([members[MASTER_ID]], self._forget_beside)
        elif self._notes and role.listed:
            await self._each(others.values(), self._copy_of)
        if MASTER_ID not in members:
            self._led_ns = 0

    async def _each(self, addresses: Iterable[str], call: Callable[[str], Awaitable[None]]) -> None:
        for address in addresses:
            try:
                await call(address)
            except (RemotingError, BodyError, HeaderError) as error:
                logger.debug("the ledger of %s is not exchanged: %s", address, error)

    async def _copy_of(self, address: str) -> None:
        async for entries in self._pages_of(address):
            for entry in entries:
                self._take(entry)

    async def _forget_beside(self, master: str) -> None:
        """If that is Java's, which never asks for what was decided."""
        answer = await self._client.call(master, request(READ_LEDGER, ReadLedgerRequest(*self.ledger.end)), TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._forget(self.ledger.end)

    # --- of a master -------------------------------------------------------------------------------------------

    async def _is_in_log(self, address: str) -> None:
        """What a slave decided late is taken; what the log says is forgotten there when its copy says it, too."""
        if trio.current_time() >= self._late_at.get(address, 0.0):
            self._late_at[address] = trio.current_time() + LATE_READ_S
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

    def _take(self, entry: Entry) -> None:
        if self.ledger.take(entry):
            self.file.append(entry)
            self._join(entry)

    async def _pages_of(self, address: str, *, hand_over: bool = False) -> AsyncIterator[list[Entry]]:
        """What is new there, some at a time; nothing where there is no ledger. Raises ``RemotingError``,
        ``HeaderError``, ``BodyError``."""
        at = FIRST if hand_over else self._heard.get(address, FIRST)
        while True:
            answer = await self._client.call(
                address, request(READ_LEDGER, ReadLedgerRequest(*at, hand_over=hand_over)), TIMEOUT_MS)
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return
            told = ReadLedgerResponse.from_ext(checked(answer, address).ext)
            entries, end = decode(answer.body)
            if end < len(answer.body):
                raise BodyError(f"the ledger of {address} is damaged behind {len(entries)} entries")
            yield entries
            before, at = at, Mark(told.term, told.number)
            self._heard[address] = at
            if not told.more or at <= before:
                return

    def _join(self, entry: Entry) -> None:
        """It is so here, too."""
        thing = entry.thing
        if thing.kind == Subject.OFFSET:
            topic, _, group = thing.name.partition("@")
            if 0 <= entry.value <= self._messages.max_offset(topic.encode(), thing.queue):
                self._offsets.table.take(group, topic, thing.queue, entry.value)
        elif thing.kind == Subject.LEVEL:
            self._delays.join({thing.queue: entry.value})
        elif thing.kind == Subject.TIMERS:
            self._timers.join(entry.value)
        elif thing.kind == Subject.ACKED and (acked := self._acked_by(entry)) is not None:
            self._acks.acked_here(acked)

    def _acked_by(self, entry: Entry) -> Acked | None:
        return Acked.read(entry.thing.name, entry.thing.queue, self._standing.broker_name)

    def _forget(self, upto: Mark, but: Collection[int] = ()) -> None:
        """It is not on disk any more when ``file.kept`` returns."""
        if Subject.ACKED not in but:
            for entry in self.ledger.of(Subject.ACKED):
                if entry.mark <= upto and (acked := self._acked_by(entry)) is not None:
                    self._acks.acked.drop(acked)
        if self.ledger.forget(upto, but):
            self.file.anew()

    # --- a master that comes back ------------------------------------------------------------------------------

    async def collect(self, members: Iterable[str]) -> None:
        """Become what these members' ledgers say, whose slaves stop acting; they forget what tables here have on disk.
        Raises ``RemotingError``, ``HeaderError``, ``BodyError``, ``OSError``."""
        addresses = list(members)
        found = Ledger()
        for address in addresses:
            async for page in self._pages_of(address, hand_over=True):
                for entry in page:
                    found.take(entry)
        entries = list(found.after())
        for entry in entries:
            if entry.thing.kind not in LASTING:
                self._join(entry)
        self._take_lasting(entries)  # what they say cannot be written before this broker leads
        self.joined += len(entries)
        await self.file.kept()
        await self._offsets.saved()
        await self._delays.saved()
        for address in addresses if entries else ():
            await self._client.call(
                address, request(LEDGER_IS_KEPT, LedgerIsKeptRequest(*found.end)), TIMEOUT_MS)
        if entries:
            logger.info("what slaves learned meanwhile is known here", extra={"entries": len(entries)})

    def metrics(self, page: Page) -> Iterable[Metric]:
        yield page.gauge("broker_ledger_entries", "What this slave learned and no master has kept. Ours.",
                         [((), len(self.ledger))])
        yield page.counter("broker_ledger_joined", "Entries of slaves that this master read. Ours.",
                           [((), self.joined)])


def _decided(offset: int) -> Thing:
    return Thing(Subject.DECIDED, str(offset), 0)
