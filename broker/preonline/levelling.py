"""The shell of pre-online: carries out the steps by which a starting member catches up with the living ones.

A master that comes back copies the end of the log from a member that holds more, sends each member its HA address,
waits for its connection, and reads its tables and progress: offsets, delay levels, timers, topics, groups. A slave
waits until it is connected to its master and has its tables. A failed attempt is logged, and tried again every second
with the members of that time. Codes and headers are RocketMQ's: 901, 28, 26, 906, 43, 45, 60 and those of the tables.
``steps`` decides. Source: ``BrokerPreOnlineService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, Protocol

import trio

from broker.ha.config import HaConfig
from broker.ha.following import Following
from broker.ha.tail import undispatched
from broker.ha.wire import Block, Blocks
from broker.haaddress import MasterAddress
from broker.journal import Journal
from broker.part import OWN_CODES, Part
from broker.preonline import steps
from broker.preonline.steps import LogEnds, Phase, Tail
from broker.preonline.tail import COMPARED_BYTES, TailCore
from broker.store.errors import StoreError
from broker.tablecopies import offered, ours_last
from remoting import properties
from remoting.address import join_address
from remoting.bodies.namesrv import KVTable
from remoting.client import Client, checked
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import BodyError, DamagedRecord, HeaderError, RemotingError
from remoting.header import Header
from remoting.headers.broker import ExchangeHAInfoRequest, ExchangeHAInfoResponse
from remoting.streams import Connector

logger = logging.getLogger("broker.preonline")

ASK_TIMEOUT_MS: Final = 3_000
TABLE_TIMEOUT_MS: Final = 30_000
PAUSE_S: Final = 1.0
"""Pause between two attempts."""
LINK_S: Final = 10.0
"""Longest wait for a connection of the HA protocol, as in RocketMQ, whose slaves report 5 s after they connect."""
SILENCE_S: Final = 20.0
"""Longest silence of a member that sends the end of the log."""
LOOK_S: Final = 0.05
NEEDED: Final = (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET)
"""Every member must answer these; a member that refuses others, such as timers that it lacks, is not asked again."""
REFUSED: Final = frozenset({RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.CLONE_GROUP_OFFSET})
"""Requests of clients that a master refuses until it is online, beside those of who would copy its tables."""
ANSWER_S: Final = 5.0
"""Time in which a question for a position (14) may be answered. RocketMQ's consumers wait so long, and ask again."""

Collect = Callable[[Collection[str]], Awaitable[None]]
AskMembers = Callable[[], Awaitable[Mapping[int, str] | None]]
"""Returns addresses of the living members by id; None: no name server answers."""


class Linked(Protocol):
    """A master's replication, as far as it lists its slaves."""

    @property
    def linked(self) -> list[str]:
        """Hosts of the slaves that are connected and have reported."""
        ...


class Copies(Protocol):
    """A slave's copies of its master's tables."""

    done: int
    """Number of complete rounds of copies."""


class Hindered(Exception):
    """The attempt failed; the message says why."""


class Levelling(Part):
    """Pre-online of one start of one member. ``phase`` and ``problem`` tell its progress."""

    def __init__(self, client: Client, journal: Journal, ha: HaConfig, connector: Connector, *, broker_id: int,
                 address: str, members: AskMembers, collect: Collect, registers_s: float) -> None:
        """``collect`` is a master's last step: it reads these members' ledgers, and ends their acting. ``registers_s``:
        within this time living members register with a name server that has started."""
        self.phase = Phase.ASKING
        self.problem = ""
        """Reason why the last attempt failed."""
        self._client, self._journal, self._ha, self._connector = client, journal, ha, connector
        self._broker_id, self._address, self._ask_members = broker_id, address, members
        self._collect, self._registers_s = collect, registers_s
        self._unheard = False
        """True: at the last question no name server answered."""
        self._serves = False
        """True: the HA port serves slaves."""

    def runtime_info(self) -> Mapping[str, str]:
        return {"preOnline": self.phase.name.lower(), "preOnlineWaitsFor": self.problem}

    def gated(self, handlers: Mapping[int, Handler], copied: Iterable[int]) -> dict[int, Handler]:
        """Return the handlers of a master: before it knows what its group did without it, it refuses to have its tables
        copied (``copied``: their codes) and to take positions of groups, and tells none.

        A question for a position waits, and then gets no answer: by any error an older RocketMQ consumer takes its
        group for a new one, which may begin at the end of the queue."""
        codes = REFUSED.union(copied)
        made = {code: self._gate(handler) if code in codes else handler for code, handler in handlers.items()}
        return made | {code: self._waits(made[code]) for code in (RequestCode.QUERY_CONSUMER_OFFSET,) if code in made}

    def _waits(self, handler: Handler) -> Handler:
        async def later(connection: Connection, command: Command) -> Command | None:
            left = round(ANSWER_S / LOOK_S)
            while self.phase is not Phase.ONLINE and left:
                left -= 1
                await self._sleep(LOOK_S)
            answer = handler(connection, command) if self.phase is Phase.ONLINE else None
            return await answer if isinstance(answer, Coroutine) else answer

        def ask(connection: Connection, command: Command) -> Command | Coroutine[Any, Any, Command | None] | None:
            return handler(connection, command) if self.phase is Phase.ONLINE else later(connection, command)

        return ask

    def _gate(self, handler: Handler) -> Handler:
        def answer(connection: Connection, command: Command) -> Command | Coroutine[Any, Any, Command | None] | None:
            if self.phase is Phase.ONLINE:
                return handler(connection, command)
            return response(command, ResponseCode.SYSTEM_ERROR, remark=(
                f"this master is not back yet: {self.phase.value}{self.problem and ', '}{self.problem}"))

        return answer

    # --- a master that comes back ------------------------------------------------------------------------------

    async def master(self, replication: Linked, serve: Callable[[], Awaitable[None]], itself: MasterAddress,
                     joins: Mapping[int, Callable[[bytes], None]]) -> None:
        """Return when this broker may lead. ``serve`` lets slaves connect to the HA port. ``joins``: by code of a
        request to members, the function that joins the answer."""
        await self._repeat(lambda: self._master(replication, serve, itself, joins))

    async def _master(self, replication: Linked, serve: Callable[[], Awaitable[None]], itself: MasterAddress,
                      joins: Mapping[int, Callable[[bytes], None]]) -> None:
        members = await self._settled()
        self.phase = Phase.COPYING
        await self._copy_tail(members)
        await self._show()
        if not self._serves:
            await serve()
            self._serves = True
        self.phase = Phase.EXCHANGING
        hosts: dict[int, list[str]] = {}
        for member, address in members.items():
            header = ExchangeHAInfoRequest(itself.ha_address, self._journal.end, itself.address)
            await self._ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header)
            hosts[member] = [address.rpartition(":")[0]]
            await self._wait(lambda: not steps.unlinked(hosts, replication.linked), (
                f"no connection of member {member} at {address} to {itself.ha_address} in {LINK_S:.0f} s: can it reach "
                "that address?"))
            await self._join(member, address, joins)
        if await self._others() != members:
            raise Hindered("the members of the group have changed meanwhile")
        await self._collect(members.values())

    async def _join(self, member: int, address: str, joins: Mapping[int, Callable[[bytes], None]]) -> None:
        codes: frozenset[int] = frozenset()
        for code in ours_last(joins):
            if code in OWN_CODES and code not in codes:
                continue
            answer = await self._client.call(address, request(code), timeout_ms=TABLE_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS and code not in NEEDED:
                logger.info("a member refuses a table that this master may lack", extra={
                    "member": member, "code": code, "why": answer.remark})
                continue
            codes |= offered(answer)
            joins[code](checked(answer, address).body)

    # --- the end of its log ------------------------------------------------------------------------------------

    async def _copy_tail(self, members: Mapping[int, str]) -> None:
        ends = {member: await self._ends(address) for member, address in members.items()}
        journal = self._journal
        while todo := steps.tail(LogEnds(journal.begin, journal.end), ends):
            if isinstance(todo, Tail) and journal.trust.trusted_end is not None:
                trusted = journal.trust.trusted_end
                logger.warning("the log ends at %d, and is cut at %d: the rest was not synced before this machine went "
                               "down, and a member holds it", journal.end, trusted)
                journal.truncate(trusted, everything=not trusted)
                continue
            if isinstance(todo, str):
                raise Hindered(todo)
            await self._copy(todo, members[todo.member])

    async def _copy(self, todo: Tail, address: str) -> None:
        journal = self._journal
        end = journal.end
        compared = min(COMPARED_BYTES, end - journal.begin, end % journal.log.file_bytes or journal.log.file_bytes)
        core = TailCore(self._ha, end, journal.read(end - compared, compared) if compared else b"", begin=todo.begin,
                        until=todo.end)
        ha_address = await self._ha_address(address)
        logger.warning("the log ends at %d, that of member %d at %d: the difference is copied", end, todo.member,
                       todo.end)
        await self._follow(core, ha_address, todo)
        if core.refused:
            raise Hindered(core.refused)

    async def _follow(self, core: TailCore, ha_address: str, todo: Tail) -> None:
        """Copy until the copy is done, or refused."""
        following: Following[Block] = Following(self._journal, core, Blocks, self._ha, self._connector)
        following.follow(ha_address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(following.run)
            await self._until_copied(core, todo)
            nursery.cancel_scope.cancel()

    async def _until_copied(self, core: TailCore, todo: Tail) -> None:
        journal = self._journal
        began_ns = journal.now_ns()
        while not core.done and not core.refused:
            await self._sleep(LOOK_S)
            if journal.now_ns() - max(began_ns, core.moved_ns) > SILENCE_S * 1e9:
                core.refused = (f"member {todo.member} has sent nothing of its log for {SILENCE_S:.0f} s, which "
                                f"ends at {todo.end}, here at {journal.end}")

    async def _show(self) -> None:
        """Wait until the queues have all of the log, since offsets of members are compared with their ends."""
        journal = self._journal
        await self._until(lambda: journal.durable_end >= journal.end)
        journal.confirm(journal.end)
        await self._until(lambda: not undispatched(journal))

    async def _ends(self, address: str) -> LogEnds:
        answer = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = KVTable.from_json(answer.body).table
        try:
            return LogEnds(int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"]))
        except (KeyError, ValueError) as error:
            raise Hindered(f"{address} does not say where its log begins and ends: {error!r}") from None

    async def _ha_address(self, address: str) -> str:
        """Address of that member's HA port, from its configuration."""
        answer = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        try:
            told = properties.parse(answer.body.decode())
            port = int(told["haListenPort"])
        except (KeyError, ValueError) as error:
            raise Hindered(f"{address} does not say where its HA port is: {error!r}") from None
        return join_address(told.get("brokerIP2") or address.rpartition(":")[0], port)

    # --- a slave that starts -----------------------------------------------------------------------------------

    async def slave(self, told: Callable[[MasterAddress], None], is_linked: Callable[[], bool], copies: Copies) -> None:
        """Return when clients may find this slave. ``told`` is called with its master's addresses."""
        await self._repeat(lambda: self._slave(told, is_linked, copies))

    async def _slave(self, told: Callable[[MasterAddress], None], is_linked: Callable[[], bool],
                     copies: Copies) -> None:
        master = (await self._others()).get(steps.MASTER_ID)
        if master is None:
            return
        self.phase = Phase.EXCHANGING
        answer = await self._ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest())
        header = ExchangeHAInfoResponse.from_ext(answer.ext)
        if not header.master_ha_address:
            return
        done = copies.done
        told(MasterAddress(header.master_address or master, header.master_ha_address, header.master_flush_offset or 0))
        await self._wait(is_linked, f"no connection to the master's HA port at {header.master_ha_address} in "
                                    f"{LINK_S:.0f} s")
        try:
            await self._wait(lambda: copies.done > done, "")
        except Hindered:
            logger.warning("clients find this slave before it has all of its master's tables: the master does not send "
                           "them")

    # --- both --------------------------------------------------------------------------------------------------

    async def _repeat(self, attempt: Callable[[], Awaitable[None]]) -> None:
        while True:
            self.phase = Phase.ASKING
            try:
                await attempt()
            except (Hindered, RemotingError, BodyError, HeaderError, StoreError, DamagedRecord, OSError) as error:
                if str(error) != self.problem:
                    self.problem = str(error)
                    logger.warning("clients do not find this broker yet: %s", error)
                await self._sleep(PAUSE_S)
            else:
                self.phase, self.problem = Phase.ONLINE, ""
                return

    async def _settled(self) -> dict[int, str]:
        """The others, also where name servers have just started: they list nobody until members register again."""
        members = await self._others()
        if self._unheard or not members:
            await self._sleep(self._registers_s)
            members = await self._others()
        self._unheard = False
        return members

    async def _others(self) -> dict[int, str]:
        members = await self._ask_members()
        if members is None:
            self._unheard = True
            raise Hindered("no name server tells the members of the group")
        return steps.others(self._broker_id, self._address, members)

    async def _ask(self, address: str, code: int, header: Header | None = None) -> Command:
        return checked(await self._client.call(address, request(code, header), timeout_ms=ASK_TIMEOUT_MS), address)

    async def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        left = round(LINK_S / LOOK_S)
        while not condition():
            if not left:
                raise Hindered(otherwise)
            left -= 1
            await self._sleep(LOOK_S)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._sleep(LOOK_S)

    async def _sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)
