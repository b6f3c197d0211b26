"""Simulated twins of shells that await more than requests, files and time. Each names the shell it stands for.

All that a shell decides, asks and answers is the shipped code: these are its loops, nurseries and scopes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from broker.escape.letters import Parcel
from broker.escape.part import EscapePart
from broker.ledger.codes import ReadLedgerRequest
from broker.ledger.entries import OF_TIMERS, Entry, Mark, Thing
from broker.ledger.file import LedgerFile
from broker.ledger.part import LedgerPart
from broker.locks.part import LocksPart, Vote
from broker.part import Parts, Shared
from broker.preonline.levelling import Levelling
from broker.preonline.steps import Tail
from broker.preonline.tail import TailCore
from broker.registration import RETRY_S, NameServer, Registration
from broker.tablecopies import TIMEOUT_MS, TableCopies
from harness.simulation.brokers.acting.replication import SlaveEnd
from harness.simulation.brokers.tasks import TurnBell
from raft.config import MS
from remoting.client import checked
from remoting.codes import ResponseCode
from remoting.command import Command, request
from remoting.connection import Connection
from remoting.errors import BodyError, RemotingError
from remoting.record import COMMIT, ROLLBACK

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.answers import Answers
    from harness.simulation.brokers.acting.machine import MemberProcess, MemberShared
    from remoting.bodies.consumers import LockBatchRequestBody

COPY_S: Final = 1.0


class LateLedgerFile(LedgerFile):
    """Twin of ``broker.ledger.file``: its task, which writes nothing when it ends."""

    process: MemberProcess

    def begin(self, process: MemberProcess) -> None:
        self.process = process
        self._bell = TurnBell(process)

    async def kept(self) -> None:
        await self.process.tasks.later(self.when_kept)

    async def synced(self) -> None:
        await self.kept()

    async def write_all(self) -> None:
        while True:
            await self._bell.wait()
            while self._kept < self._noted:
                await self._write()


class SimulatedLedger(LedgerPart):
    """Repeats the loops of ``broker.ledger.part`` in turns."""

    process: MemberProcess

    def _file_of(self, shared: Shared) -> LedgerFile:
        made = LateLedgerFile(shared.files, shared.run_sync, self.ledger.whole)
        self.process = cast("MemberShared", shared).process
        made.begin(self.process)
        return made

    def begin(self) -> None:
        assert isinstance(self.file, LateLedgerFile)
        self.process.tasks.start_soon(self.file.write_all)
        self.process.tasks.start_soon(self._exchange)
        self.bell, self._ask_listed = TurnBell(self.process), self._listed
        self._listed = self._who_is_listed
        self.process.tasks.start_soon(self.learn)

    async def _exchange(self) -> None:
        while True:
            await self.process.tasks.sleep(COPY_S)
            await self._copy()

    async def collect(self, members: Iterable[str]) -> None:
        """Collect ledgers; the watch forgets first what members had before."""
        self.process.town.watch_of(self.process).collects(self.process)
        await super().collect(members)

    def _forget(self, upto: Mark, but: Collection[int] = ()) -> None:
        before = list(self.ledger.of(*OF_TIMERS))
        self.process.town.watch_of(self.process).keeps(self.process, upto)
        super()._forget(upto, but)
        gone = [entry for entry in before if self.ledger.get(entry.thing) is None]
        for entry in gone:
            self.process.town.watch_of(self.process).gives_up_timers(entry.thing, entry.value)
        if self._answers is not None:
            self._answers.forgets(self.process, timers=bool(gone))

    async def _who_is_listed(self) -> Mapping[int, str] | None:
        asked_ns = self._now_ns()
        listed = await self._ask_listed()
        self.process.town.decisions.found(self.process, asked_ns, listed)
        return listed

    async def _pages_of(self, address: str, *, whole: bool = False,
                        hand_over: bool = False) -> AsyncIterator[list[Entry]]:
        async for page in super()._pages_of(address, whole=whole, hand_over=hand_over):
            yield page
        if whole:
            self.process.town.decisions.read(self.process, address)

    def note(self, thing: Thing, value: int, *, again: bool = False) -> None:
        answers = self._answers
        if answers is not None:
            answers.notes(self.process, thing)
        super().note(thing, value, again=again)
        if answers is not None:
            answers.has(self.process, thing)

    def _take(self, entry: Entry) -> None:
        super()._take(entry)
        if self._answers is not None:
            self._answers.has(self.process, entry.thing)

    @property
    def _answers(self) -> Answers | None:
        """Who judges the answers of this slave; None: nobody does."""
        return None if self.process.is_master or self.process.host.scene.place else self.process.town.answers

    def decide(self, offset: int, *, committed: bool) -> None:
        self.process.town.judge.decides(self.process, offset, COMMIT if committed else ROLLBACK)
        super().decide(offset, committed=committed)

    async def _all_decided(self) -> None:
        await self.process.tasks.later(self._transactions.when_all_decided)

    def _read(self, connection: Connection, command: Command) -> Command | Coroutine[Any, Any, Command]:
        if not self.is_handed_over:
            self.process.town.answers.is_asked(self.process)
        return super()._read(connection, command)

    def _page(self, command: Command, asked: ReadLedgerRequest) -> Any:
        if self.is_handed_over and asked.hand_over:
            self.process.town.watch_of(self.process).hands_over(self.process)
            self.process.town.answers.handed_over(self.process)
        return super()._page(command, asked)


class SimulatedLevelling(Levelling):
    """Twin of ``broker.preonline.levelling``: how it sleeps, and the connection that copies the end of a log."""

    process: MemberProcess

    async def _sleep(self, seconds: float) -> None:
        await self.process.tasks.sleep(seconds)

    async def _others(self) -> dict[int, str]:
        found = await super()._others()
        self.process.town.watch_of(self.process).levels_with(self.process, found.values())
        return found

    async def _follow(self, core: TailCore, ha_address: str, todo: Tail) -> None:
        self.process.town.counts["end of the log copied"] += 1
        following = SlaveEnd(self.process, self._ha, core)
        self.process.copying = following
        following.follow(ha_address)
        try:
            await self._until_copied(core, todo)
        finally:
            if not self.process.dead:
                following.over()
                self.process.copying = None


class SimulatedRegistration(Registration):
    """Twin of ``broker.registration``: the loops that register and send heartbeats."""

    process: MemberProcess

    def begin(self) -> None:
        for server in self._servers:
            server.bell = TurnBell(self.process)
            self.process.tasks.start_soon(self._registers, server)
            self.process.tasks.start_soon(self._beats, server)

    async def _registers(self, server: NameServer) -> None:
        due_ns, bell = 0, server.bell
        assert isinstance(bell, TurnBell)
        while True:
            now_ns = self._now_ns()
            if not self._open or (not server.changed and now_ns < due_ns):
                if self._open:
                    await bell.wait_for(due_ns - now_ns)
                else:
                    await bell.wait()
                continue
            server.changed = False
            try:
                server.taken = False
                await self._register_once(server)
            except (RemotingError, BodyError):
                pass
            else:
                server.taken = True
            wait_ms = self._config.register_name_server_period if server.taken else RETRY_S * 1e3
            due_ns = self._now_ns() + round(wait_ms * MS)

    async def _beats(self, server: NameServer) -> None:
        while True:
            await self.process.tasks.sleep(self._config.broker_heartbeat_interval / 1e3)
            if not (self._open and server.taken):
                continue
            try:
                await self._sign_of_life(server)
            except RemotingError:
                continue
            if self._client.connection(server.address) is not server.connection:
                server.tell()


class SimulatedCopies(TableCopies):
    """Repeats the loop of ``broker.tablecopies`` in turns."""

    process: MemberProcess
    _round_number = 0

    def begin(self) -> None:
        self._bell = TurnBell(self.process)
        self.process.tasks.start_soon(self._copies)

    def follow(self, master_address: str | None) -> None:
        if master_address != self._master:
            self._master = master_address
            self._round_number += 1
            self._bell.ring()

    async def _copies(self) -> None:
        bell = self._bell
        assert isinstance(bell, TurnBell)
        while True:
            await bell.wait_for(round(self._period_s * 1e9))
            if self._master is not None:
                await self._round(self._master)

    async def _ask(self, master: str, code: int) -> Command | None:
        number = self._round_number
        answer = await self._client.call(master, request(code), timeout_ms=TIMEOUT_MS // 10)
        if number != self._round_number:
            raise BodyError("another master is followed")
        if code in self._missing and answer.code != ResponseCode.SUCCESS:
            return None
        return checked(answer, master)


class SimulatedEscape(EscapePart):
    """Twin of ``broker.escape.part``: queues are sent one after the other."""

    process: MemberProcess

    def begin(self) -> None:
        self._nursery = cast(Any, self.process.tasks)

    def _now_s(self) -> float:
        return self.process.now / 1e9

    async def _each(self, send_all: Callable[[list[Parcel]], Awaitable[None]], queues: Iterable[list[Parcel]]) -> None:
        for of_queue in queues:
            await send_all(of_queue)


class SimulatedLocks(LocksPart):
    """Twin of ``broker.locks.part``: members are asked one after the other, and told in tasks of their own."""

    process: MemberProcess

    def __init__(self, shared: Shared, before: Parts) -> None:
        super().__init__(shared, before)
        self.process = cast("MemberShared", shared).process

    async def _ask_all(self, asked: LockBatchRequestBody, answers: dict[str, Vote]) -> None:
        for address in (await self._fellows.living()).values():
            await self._ask(address, asked, answers)

    def _tell_later(self, address: str | None, command: Command) -> None:
        self.process.tasks.start_soon(self._tell_it, address, command)

    async def _tell_it(self, member: str | None, command: Command) -> None:
        for address in [member] if member is not None else (await self._fellows.living()).values():
            await self._fellows.tell(address, command)


class SimulatedFellows:
    """Twin of ``broker.fellows``: a fellow counts as alive as this member knows it. Implements ``Fellows``."""

    def __init__(self, process: MemberProcess) -> None:
        self._process = process

    async def living(self) -> Mapping[int, str]:
        known = self._process.members.addresses or await self._process.registration.ask_all() or {}
        return {number: address for number, address in known.items() if address != self._process.host.address}

    async def ask(self, address: str, command: Command, timeout_ms: int) -> Command:
        return checked(await self._process.client.call(address, command, timeout_ms), address)

    async def tell(self, address: str, command: Command) -> None:
        await self._process.client.send_oneway(address, command)
