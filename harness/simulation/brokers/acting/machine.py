"""A machine of a group without controllers, and one run of its broker: the parts of ``broker.server``, in its order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from broker import settings
from broker.acting.members import Group as MemberGroup
from broker.acting.members import Members
from broker.config import MASTER_ID, BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.filters.part import FiltersPart
from broker.groups.part import GroupsPart
from broker.haaddress import HaAddresses, MasterAddress
from broker.ledger.part import HANDED_OVER
from broker.offsets.part import OffsetsPart
from broker.part import PartClass, Parts, Shared
from broker.parts import configuration, parts_of
from broker.plain.roles import PlainMaster, PlainSlave
from broker.plain.slave import SlaveCore
from broker.pop.guests import GuestsPart
from broker.pop.orderlog import OrderPart
from broker.pop.part import PopPart
from broker.pop.reviving import RevivePart
from broker.properties import DELAY
from broker.pulling.part import PullingPart
from broker.puts import Done, Outlet, Rightful
from broker.registration import RegistrationConfig
from broker.roles import PlainMasterRole, PlainSlaveRole
from broker.rules import Chain, rule
from broker.schedule.part import DelaysPart
from broker.sending.chains import delay_level_is_read
from broker.sending.part import SendingPart
from broker.standin.part import ActingConfig, ActingPart
from broker.standing import Role, Standing
from broker.tablecopies import offering, saying_the_end
from broker.tablefile import TableFile
from broker.topics.part import TopicsPart
from broker.transactions.part import HalvesPart, TransactionsPart
from harness.simulation.brokers.acting.clients import CheckedProducer
from harness.simulation.brokers.acting.plan import PERIOD_MS, RIGHT_MS, TIMEOUT_MS, ActingPlan
from harness.simulation.brokers.acting.replication import MasterEnd, SlaveEnd
from harness.simulation.brokers.acting.shells import (
    SimulatedCopies,
    SimulatedEscape,
    SimulatedFellows,
    SimulatedLedger,
    SimulatedLevelling,
    SimulatedLocks,
    SimulatedRegistration,
)
from harness.simulation.brokers.acting.wire import Requester, ServerLink, SimulatedClient
from harness.simulation.brokers.features import KEYS, SmallWheel, TurnedFlush, TurnedTable
from harness.simulation.brokers.host import Host
from harness.simulation.brokers.plan import DELAYS_MS, FLUSH_TIMEOUT_MS
from harness.simulation.brokers.process import E_TICK, TICK_NS, BrokerProcess, WatchedPuts
from harness.simulation.brokers.replication import SimulatedPort
from harness.simulation.brokers.tasks import Tasks, TurnBell
from remoting.bodies.namesrv import KVTable, TopicConfigSerializeWrapper, TopicRouteData
from remoting.body import Body
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import RemotingError
from remoting.record import Message

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.group import ActingGroup
    from harness.simulation.brokers.acting.scene import ActingScene

KINDS: Final[tuple[PartClass, ...]] = (
    TopicsPart, GroupsPart, FiltersPart, ClientsPart, SimulatedLocks, OffsetsPart, HalvesPart, GuestsPart, SmallWheel,
    DelaysPart, SendingPart, TransactionsPart, PullingPart, OrderPart, PopPart, RevivePart)
"""The parts of ``broker.parts``, except those that answer questions alone."""
TOPICS: Final = ("T", "D", "X")
GROUPS: Final = ("G", "p")


@attrs.frozen(kw_only=True)
class MemberShared(Shared):
    """The facilities that parts share, with the run that they belong to."""

    process: MemberProcess

    def table_file(self, table: Callable[[], Body], *, path: str = "", pause_ms: int = 0) -> TableFile:
        made = TurnedTable(self.files, table, self.run_sync, path=path, pause_ms=pause_ms)
        made.begin(self.process)
        return made


@attrs.frozen(eq=False)
class _Delivering:
    """An outlet for due messages that is watched. Implements ``broker.puts.Outlet``."""

    process: MemberProcess
    outlet: Outlet

    def put(self, messages: Sequence[Message], done: Done) -> None:
        self.process.town.rights.delivers(self.process)
        self.process.town.judge.sends(self.process, messages)
        self.outlet.put(messages, done)


class MemberHost(Host):
    """A machine of one group; ``number`` 0 is the master's."""

    scene: ActingGroup

    def __init__(self, scene: ActingGroup, number: int) -> None:
        super().__init__(scene, number)
        self.name = f"{scene.key.name}{number}"
        self.away = False
        """True while it must stay down."""

    @property
    def ip(self) -> str:
        return f"10.{1 + self.scene.place}.0.{self.number + 1}"

    @property
    def member(self) -> MemberProcess | None:
        """The run of its broker, if one is under way."""
        assert self.process is None or isinstance(self.process, MemberProcess)
        return self.process

    def _made(self) -> BrokerProcess:
        return MemberProcess(self)


class MemberProcess(BrokerProcess):
    """One run of a member."""

    host: MemberHost
    parts: Parts
    ledger: SimulatedLedger

    def __init__(self, host: MemberHost) -> None:
        super().__init__(host)
        self.town: ActingScene = host.scene.town
        self.plan: ActingPlan = self.town.plan
        self.servers: dict[str, ServerLink] = {}
        self.tasks = Tasks(self)
        self.client = cast(Client, SimulatedClient(self))
        self.is_master = host.number == MASTER_ID
        self.copying: SlaveEnd | None = None
        """The end of a member's log."""
        self.leads_since: int | None = None

    # --- made as ``broker.server.Broker`` makes it -----------------------------------------------------------

    def open(self) -> None:
        host, journal = self.host, self.journal
        journal.open()
        self._began_at = journal.end
        config = self.config = self._config()
        self.standing = Standing(config.broker_cluster_name, config.broker_name, host.address,
                                 Role.vacant(host.number))
        self.puts = WatchedPuts(journal, settings.quorum(config), sync_flush_timeout_ms=FLUSH_TIMEOUT_MS)
        self.puts.process = self
        self.behind_a_put: Callable[[], None] | None = None
        self.features = None
        self.group = MemberGroup(host.number)
        self.right = settings.right(config, lambda: self.hears_master, lambda: self.ledger.is_handed_over)
        self.escape = None if self.is_master else SimulatedEscape(
            config, self.client, self.standing, self._route_of, journal.stir)
        outlet = Rightful(_Delivering(self, self.escape or self.puts), self.right.why_not, lambda: host.now)
        shared = MemberShared(
            config=config, files=host.files, journal=journal, puts=self.puts, standing=self.standing,
            rng=Random(f"{host.name}.{host.life}"), now_ns=lambda: host.now, wall_ms=lambda: self.town.wall_ms,
            run_sync=self._run_sync, queues_of=self._no_queues, fellows=SimulatedFellows(self), group=self.group,
            right=self.right, deliver_to=outlet, process=self)
        self.parts = parts_of(shared, KINDS)
        self.rules = Chain(rule(delay_level_is_read, DELAY), *(each for part in self.parts for each in part.rules()))
        topics = self.parts[TopicsPart]
        self.registration = SimulatedRegistration(
            pick(config, RegistrationConfig), config.name_servers, self.client, self.standing,
            ha_address=host.ha_address, topics=self._registered, found=self._told, ordered=topics.table.set_ordered,
            now_ns=lambda: host.now)
        self.registration.process = self
        topics.table.on_change.join("name servers", self.registration.changed)
        self.copies = SimulatedCopies.of(self.parts, journal, self.client, period_s=self.plan.copy_ms / 1e3)
        self.copies.process = self
        self.ledger = SimulatedLedger(
            shared, self.parts, self.client, lambda: self.members.addresses, self.registration.ask_all)
        self.levelling = SimulatedLevelling(
            self.client, journal, self.plan.ha(), cast(Any, None), broker_id=host.number, address=host.address,
            members=self.registration.ask_all, collect=self.ledger.collect, registers_s=settings.registers_s(config))
        self.levelling.process = self
        self._take_role(config)
        self.group.changed.join("role", self._grouped)
        self.acting = ActingPart(
            pick(config, ActingConfig), self.group, self.right, self.registration, self.client, self.standing,
            self.parts.right_changed, lambda: host.now)
        addresses = HaAddresses(self.client, self._itself, self._told)
        for part in (self.levelling, self.copies, self.registration, addresses, self.acting, self.escape, self.ledger):
            if part is not None:
                self.parts.add(part)
        self._serve()
        if not self.is_master and not self.host.scene.place:
            self.town.answers.begins(self)
        self._begin()

    def _config(self) -> BrokerConfig:
        plan, host, scene = self.plan, self.host, self.host.scene
        keys = {name: value for kind in KINDS for name, value in KEYS.get(kind, {}).items()}
        keys["lock_in_strict_mode"] = plan.strict and scene.size > 2
        return configuration(KINDS)(
            broker_cluster_name=scene.key.cluster, broker_name=scene.key.name, broker_ip1=host.ip,
            broker_id=host.number, broker_role="SYNC_MASTER" if self.is_master else "SLAVE",
            namesrv_addr=";".join(server.address for server in self.town.servers),
            enable_slave_acting_master=True, enable_remote_escape=True, acting_right_ms=RIGHT_MS,
            total_replicas=len(scene.hosts) or scene.size, in_sync_replicas=min(plan.in_sync_replicas, scene.size),
            min_in_sync_replicas=1, enable_auto_in_sync_replicas=True, slave_timeout=plan.slave_timeout_ms,
            broker_not_active_timeout_millis=TIMEOUT_MS, broker_heartbeat_interval=PERIOD_MS,
            send_heartbeat_timeout_millis=PERIOD_MS, sync_broker_member_group_period=PERIOD_MS,
            register_name_server_period=10_000,
            flush_consumer_offset_interval=plan.save_ms, flush_delay_offset_interval=plan.save_ms,
            message_delay_level=" ".join(f"{delay // 1_000}s" for delay in DELAYS_MS), **keys)

    def _take_role(self, config: BrokerConfig) -> None:
        """Take the role as ``broker.roles`` does before it runs."""
        host, ha = self.host, self.plan.ha()
        quorum, mode = settings.quorum(config), settings.mode(config)
        self.end_ = MasterEnd(self, ha, quorum, mode)
        self.following: SlaveEnd | None = None
        self.roles: PlainMasterRole | PlainSlaveRole
        if self.is_master:
            self.roles = PlainMasterRole(
                self.parts, self.standing, self.puts, cast(PlainMaster, self.end_), self.levelling,
                MasterAddress(host.address, host.ha_address))
        else:
            self.following = SlaveEnd(self, ha, SlaveCore(ha, self.journal.end, self.journal.trust.trusted_end))
            self.roles = PlainSlaveRole(
                self.parts, self.standing, cast(PlainSlave, self.following), "", None, self.levelling, self.copies,
                may_act=True)

    def _serve(self) -> None:
        handlers: dict[int, Handler] = {
            **self.parts.handlers(), RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._told_config}
        handlers = saying_the_end(offering(handlers), self.parts.tells_progress(), lambda: self.journal.end)
        if self.is_master:
            handlers = self.levelling.gated(handlers, {*self.parts.all_joins(), *self.parts.copies()})
        self.handlers = handlers | {
            code: self.ledger.gate(handlers[code]) for code in HANDED_OVER}

    def _begin(self) -> None:
        host, journal = self.host, self.journal
        self.opened = True
        journal.begin_turns(self.wake)
        journal.arrived.call = lambda topic, queue_id, offset, tags, outline: self.town.arrived(
            self, queue_id, offset, outline)
        self.later(TICK_NS, E_TICK, self._tick)
        self.registration.begin()
        self.copies.begin()
        self.ledger.begin()
        if self.escape is not None:
            self.escape.process = self
            self.escape.begin()
        TurnedFlush(self, self.parts[SmallWheel])
        self.parts.tick(host.now)
        bell = self.acting._bell = TurnBell(self)
        self.tasks.start_soon(self._ask_who_lives, bell)
        if self.is_master:
            self._create_topics()
        CheckedProducer(self)
        if self.is_master:
            self.tasks.run(self.levelling.master(
                cast(Any, self.end_), self._serve_slaves, MasterAddress(host.address, host.ha_address),
                self.parts.all_joins()), self._lead)
        else:
            assert self.following is not None and isinstance(self.roles, PlainSlaveRole)
            self.end_.begin()
            self.roles._be(self.standing.role)
            journal.confirm(journal.durable_end)
            self.tasks.run(self.levelling.slave(self.roles.told, lambda: self.hears_master, self.copies), self._listed)

    def _create_topics(self) -> None:
        for topic in TOPICS:
            self.parts[TopicsPart].table.create_if_absent(topic, self.plan.queues)
        for group in GROUPS:
            self.parts[GroupsPart].table.find(group)

    async def _ask_who_lives(self, bell: TurnBell) -> None:
        while True:
            self.acting._ask_all(cast(Any, self.tasks))
            await bell.wait_for(PERIOD_MS * 1_000_000)

    async def _serve_slaves(self) -> None:
        self.end_.advanced = self.puts.advanced
        self.end_.begin()

    def _lead(self, _: object) -> None:
        assert isinstance(self.roles, PlainMasterRole)
        self.town.watch_of(self).comes_back(self)
        self.leads_since = self.town.world.now
        self.roles._lead()

    def _listed(self, _: object) -> None:
        assert isinstance(self.roles, PlainSlaveRole)
        self.roles._fit(listed=True)

    # --- what a broker joins ---------------------------------------------------------------------------------

    @property
    def members(self) -> Members:
        return self.group.members

    @property
    def hears_master(self) -> bool:
        return self.following is not None and self.following.connected

    @property
    def port(self) -> SimulatedPort:
        return self.end_.port

    def _grouped(self, members: Members) -> None:
        role = self.standing.role
        if members.master is not None and not role.leads and not role.master_address:
            self.registration.changed()
        if isinstance(self.roles, PlainMasterRole):
            self.end_.alive = max(1, len(members.ids))
            self.puts.advanced()
        else:
            self.roles.members_changed(members)

    def _told(self, master: MasterAddress) -> None:
        self.roles.told(master)

    def _itself(self) -> MasterAddress | None:
        if not self.standing.role.leads:
            return None
        return MasterAddress(self.host.address, self.host.ha_address, self._began_at)

    def _registered(self) -> TopicConfigSerializeWrapper:
        table = self.parts[TopicsPart].registered()
        return TopicConfigSerializeWrapper(table.topic_config_table, table.data_version)

    async def _route_of(self, topic: str) -> TopicRouteData | None:
        return await self.registration.route_of(topic)

    async def _no_queues(self, topic: str) -> None:
        """Give no assignment: nobody asks for one here."""

    async def _run_sync(self, work: Callable[[], None]) -> None:
        await self.tasks.sleep((1_000_000 + self.host.disk.late_ns) / 1e9)
        work()

    def _runtime_info(self, _: Connection, command: Command) -> Command:
        log = self.journal
        return response(command, body=KVTable({
            "commitLogMinOffset": str(log.begin), "commitLogMaxOffset": str(log.end)}).to_json())

    def _told_config(self, _: Connection, command: Command) -> Command:
        return response(command, body=b"haListenPort=10912\nbrokerIP2=" + self.host.ip.encode() + b"\n")

    # --- requests --------------------------------------------------------------------------------------------

    def handle(self, caller: Requester, command: Command) -> None:
        """Handle a request as ``remoting.endpoint`` does: an answer at once, later, or by the handler itself."""
        handler = self.handlers.get(command.code)
        if handler is None:
            caller.reply(command, response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
            return
        try:
            answer = handler(caller.as_connection(), command)
        except RemotingError as error:
            answer = response(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        if isinstance(answer, Command):
            caller.reply(command, answer)
        elif isinstance(answer, Coroutine):
            self.tasks.run(answer, partial(_reply, caller, command))

    # --- turns -----------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self.later(TICK_NS, E_TICK, self._tick)
        self.journal.tick()

    def after(self) -> None:
        if not self.opened:
            return
        self.end_.port.after()
        for end in (self.following, self.copying):
            if end is not None:
                end.after()

    def gone(self, *, noticed: bool) -> None:
        if not self.opened:
            return
        for link in [*self.end_.port.links.values()]:
            link.stream.close()
        for end in (self.following, self.copying):
            if end is not None:
                end.drop()
        for channel in self.servers.values():
            channel.open_here = False
            if noticed and self.town.seen():
                self.town.network.link(self.host.name, channel.server.name, "rpc").send(
                    partial(channel.server.closed, channel))

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def may_deliver(self) -> bool:
        """True if its next step may deliver."""
        return (not self.dead and self.opened and self.host.paused is None and self.standing.role.delivers
                and not self.right.why_not(self.now))

    def runtime(self) -> Mapping[str, str]:
        return self.parts.runtime_info()


def _reply(caller: Requester, command: Command, answer: object) -> None:
    if isinstance(answer, Command):
        caller.reply(command, answer)
