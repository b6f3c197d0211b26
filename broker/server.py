"""A whole broker: its store, parts that serve clients, replication, name servers and controllers.

Everything that is not a part of it comes in as a parameter, so it also runs on virtual time, memory streams and a disk
in a dict. It joins the parts, starts and stops them in order, and decides nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import attrs
import trio
from trio.abc import Listener, Stream

from broker import settings
from broker.acting.members import Group, Members
from broker.admin import Administration
from broker.boot import boot_id
from broker.config import MASTER_ID, BrokerConfig, check, pick
from broker.errands.part import ErrandsPart
from broker.escape.part import EscapePart
from broker.fellows import GroupFellows
from broker.ha.acks import BrokerRole
from broker.ha.autoswitch import AutoSwitch
from broker.ha.epochfile import EpochFile
from broker.ha.mark import ConfirmMark
from broker.haaddress import HaAddresses, MasterAddress
from broker.journal import FlushDiskType, Journal
from broker.ledger.part import HANDED_OVER, LedgerPart
from broker.nameservers import known, lookups
from broker.overload.part import OverloadPart
from broker.part import Part, PartClass, Parts, Shared
from broker.parts import PARTS, parts_of, passed_on
from broker.plain.roles import Lender, PlainMaster, PlainSlave
from broker.preonline.levelling import Levelling
from broker.puts import Puts, Rightful
from broker.queueends.part import QueueEndsPart
from broker.registration import Registration, RegistrationConfig
from broker.relay.finding import Listed, MasterFinder
from broker.relay.forwarding import Forwarder
from broker.relay.succession import SuccessionPart
from broker.replicas.shell import GroupMember
from broker.roles import ControlledRole, PlainMasterRole, PlainSlaveRole, Roles
from broker.siblings.part import SiblingsPart
from broker.siblings.sockets import Siblings
from broker.standin.part import ActingConfig, ActingPart
from broker.standing import Role, Standing
from broker.store.disk import Disk
from broker.store.errors import StoreFailed
from broker.store.files import Files as StoreFiles
from broker.store.files import with_spare
from broker.store.flush import Flusher
from broker.store.lives import StoreLives
from broker.store.retention import RetentionConfig
from broker.store.store import MessageStore
from broker.tablecopies import TableCopies, offering, saying_the_end
from broker.tablefile import RunSync
from broker.topics.part import TopicsPart
from broker.transactions.part import TransactionsPart
from remoting.bodies.broker import HARuntimeInfo
from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicConfigSerializeWrapper, TopicRouteData
from remoting.client import Client, open_client
from remoting.config import ServerConfig, TLSMode
from remoting.connection import Connection
from remoting.daemon.exporter import Way
from remoting.daemon.exports import start_exports
from remoting.daemon.files import Files
from remoting.endpoint import Handler
from remoting.server import Server
from remoting.streams import Connector, TLSContext, connect_tcp

logger = logging.getLogger("broker")

Listeners = Sequence[Listener[Stream]]
STOP_GRACE_MS: Final = 1_000
CONNECTIONS_MAX: Final = 100_000
REQUESTS_IN_FLIGHT_MAX: Final = 1_000_000
"""Most requests in flight; held pulls count, and each consumer has some."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def _in_thread(work: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(work)


@attrs.frozen
class World:
    """The broker's access to the world; the defaults are this machine's."""

    files: Files
    """For small files outside the store: the identity, the configuration."""
    store_files: StoreFiles
    """The store's directory."""
    now_ns: Callable[[], int] = time.monotonic_ns
    """Monotonic."""
    wall_ms: Callable[[], int] = _wall_ms
    connector: Connector = connect_tcp
    rng: Random = attrs.field(factory=Random)
    tls: TLSContext | None = None
    """For connections from others."""
    client_tls: TLSContext | None = None
    """For connections to others."""
    disk: Disk | None = None
    """Runs syncs; None: a thread of its own."""
    run_sync: RunSync = _in_thread
    """Runs the writing of tables."""
    disk_used: Callable[[], float] = lambda: 0.0
    """Share of the store's disk that is in use, 0 to 1."""
    log_used: Callable[[], Mapping[str, float]] = dict
    """Share of the log's disks that is in use, by directory; {} where the log is in the store's."""
    siblings: Siblings | None = None
    """The other brokers of the container; None: this broker is in none."""
    boot: str = attrs.field(factory=boot_id)
    """The machine's boot: another text after each time that the machine went down; "" if that is not known."""
    ram_bytes: int = 1 << 62
    """Memory of the whole machine, in bytes. By this measure messages far behind the log's end count as on the disk."""


@attrs.frozen
class Spared:
    """Small files outside the store, for which its spare gives way. Implements ``remoting.daemon.files.Files``."""

    files: Files
    store: StoreFiles

    def read(self, path: str) -> bytes | None:
        return self.files.read(path)

    def replace(self, path: str, content: bytes) -> None:
        with_spare(self.store, lambda: self.files.replace(path, content))

    def remove(self, path: str) -> None:
        self.files.remove(path)


@attrs.frozen
class RunningBroker:
    """A broker that accepts connections, to look at, and ``stop``."""

    config: BrokerConfig
    server: Server
    journal: Journal
    puts: Puts
    parts: Parts
    standing: Standing
    registration: Registration
    roles: Roles
    _stopped: trio.Event

    @property
    def stopping(self) -> bool:
        return self._stopped.is_set()

    async def stop(self) -> None:
        """Let it hand mastership over, leave the name servers, answer what is under way, flush, close, and end."""
        self._stopped.set()
        await trio.lowlevel.checkpoint()


async def serve_broker(
    config: BrokerConfig, world: World, listeners: Listeners, *, ha_listeners: Listeners = (), config_path: str = "",
    parts: Sequence[PartClass] = PARTS,
    task_status: trio.TaskStatus[RunningBroker] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled or stopped; closes the listeners. Cancelled, the store is left as it is, as if killed.

    Raises ``ConfigError``, ``WrongStore``, ``IdentityError``, ``OSError`` before anything is served, and
    ``StoreFailed`` when the disk fails while it runs: the process has to be restarted.
    """
    check(config)
    beside = () if world.siblings is None else (world.siblings.listener,)
    async with _closing((*listeners, *ha_listeners, *beside)), open_client(
            connector=world.connector, tls=world.client_tls) as client:
        kept = settings.journal(config)
        store = MessageStore(world.store_files, settings.store(config), boot=world.boot,
                             synced=kept.flush_disk_type is FlushDiskType.SYNC_FLUSH)
        journal = Journal(store, kept, disk=world.disk, now_ns=world.now_ns, wall_ms=world.wall_ms)
        recovered = journal.open()
        logger.info("store opened", extra={
            "begin": journal.begin, "end": journal.end, "confirmed": journal.confirm_offset,
            "recovered": str(recovered)})
        in_order = False
        try:
            broker = Broker(config, world, client, journal, store.flusher, config_path, parts)
            await broker.run(listeners, ha_listeners, task_status)
            in_order = True
        finally:
            if in_order:
                await journal.close()
                if journal.failure is not None:
                    raise journal.failure
            else:
                await journal.abandon()


@asynccontextmanager
async def _closing(listeners: Listeners) -> AsyncGenerator[None, None]:
    """Close the listeners at the end, also if nothing served them."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            for listener in listeners:
                await trio.aclose_forcefully(listener)


class Broker:
    """The parts of one broker, joined."""

    def __init__(self, config: BrokerConfig, world: World, client: Client, journal: Journal, flusher: Flusher,
                 config_path: str, parts: Sequence[PartClass]) -> None:
        self.config, self.world, self.client, self.journal, self._flusher = config, world, client, journal, flusher
        self._began_at = journal.end
        self.standing = Standing(
            config.broker_cluster_name, config.broker_name, config.address, _first_role(config))
        self.puts = Puts(journal, settings.quorum(config), sync_flush_timeout_ms=config.sync_flush_timeout)
        self.group = Group(config.broker_id)
        self.right = settings.right(config, self._hears_master, self._hands_over)
        self.acting: ActingPart | None = None
        self.escape = self._escape()
        self.abroad = ErrandsPart(client, self.standing, self._route_of)
        shared = Shared(
            config=config, files=world.store_files, journal=journal, puts=self.puts, standing=self.standing,
            rng=world.rng, now_ns=world.now_ns, wall_ms=world.wall_ms, run_sync=world.run_sync,
            queues_of=self._queues_of, fellows=GroupFellows(client, config.address, self._ask_all),
            ram_bytes=world.ram_bytes, disk_used=world.disk_used, log_used=world.log_used,
            reigns=lambda: [each.epoch for each in self.roles.epochs() or ()], group=self.group, right=self.right,
            deliver_to=Rightful(self.escape or self.puts, self.right.why_not, world.now_ns), abroad=self.abroad)
        self.parts = made = parts_of(shared, parts)
        self.topics = made[TopicsPart]
        self.registration = Registration(
            pick(config, RegistrationConfig), known(config), client, self.standing,
            ha_address=config.ha_address, topics=self._registered, found=self._told,
            ordered=self.topics.table.set_ordered, members=self._counts_members,
            grouped=lambda members: self.roles.members_changed(Members(members)), now_ns=world.now_ns)
        self.topics.table.on_change.join("name servers", self.registration.changed)
        self.queue_ends = queue_ends = QueueEndsPart(client, journal)
        self.copies = TableCopies.of(made, journal, client)
        journal.on_new_queue.call = self._new_queue
        journal.needed.begin, journal.needed.make_way = made.keeps_from, made.make_way
        self.ha_addresses = HaAddresses(client, self._itself, self._told)
        self.forwarder = Forwarder(connector=world.connector, tls=world.client_tls, codes=passed_on(parts))
        self.ledger = None if not config.slaves_may_act else LedgerPart(
            shared, made, client, lambda: self.group.members.addresses, self.registration.ask_all)
        self.levelling = None if self.ledger is None or not config.is_isolated_first else self._levels(self.ledger)
        if self.levelling is not None:
            made.add(self.levelling)
        self.roles, more = self._roles()
        administration = Administration(
            config, config_path or config.config_store_path, world.files, self.standing, self._follow,
            self._version, made.runtime_info, self._replication, self.roles.epochs, lambda: journal.end,
            self._set_master_flushed, self._least_id_changed)
        for part in (self.copies, queue_ends, self.registration, self.abroad,
                     *lookups(config, self.registration.use), self.ha_addresses, administration,
                     *self._succession(), *self._acting(), *self._siblings(),
                     *(() if self.ledger is None else (self.ledger,))):
            made.add(part)
        handlers = saying_the_end(
            offering({**made.handlers(), **more}), made.tells_progress(), lambda: journal.end)
        if self.levelling is not None and config.role is not BrokerRole.SLAVE:
            handlers = self.levelling.gated(handlers, {*made.all_joins(), *made.copies()})
        if self.ledger is not None:
            handlers |= {code: self.ledger.gate(handlers[code]) for code in HANDED_OVER}
        self.handlers = self.forwarder.handlers(handlers)

    def _levels(self, ledger: LedgerPart) -> Levelling:
        config, world = self.config, self.world
        return Levelling(
            self.client, self.journal, settings.replication(config), world.connector,
            broker_id=self.standing.role.broker_id, address=config.address, members=self.registration.ask_all,
            collect=ledger.collect, registers_s=settings.registers_s(config))

    def _roles(self) -> tuple[Roles, dict[int, Handler]]:
        """Make the roles for this kind of group, and the handlers that they bring."""
        config, world, journal = self.config, self.world, self.journal
        ha = settings.replication(config)
        if config.enable_controller_mode:
            switch = AutoSwitch(
                journal, EpochFile(world.store_files, boot=world.boot), ha, ha_address=config.ha_address,
                connector=world.connector, learner=config.async_learner,
                sync_from_last_file=config.sync_from_last_file, least=config.min_in_sync_replicas,
                mark=ConfirmMark(world.store_files), run_sync=world.run_sync)
            switch.may_begin = self.queue_ends.may_begin
            role = ControlledRole(
                self.parts, self.puts, journal, self.standing, self.registration, self.ha_addresses, switch,
                self.forwarder, quorum=settings.quorum(config), sync_flush_timeout_ms=config.sync_flush_timeout,
                forward_ms=config.forward_ms, hand_over_ms=config.hand_over_ms)
            role.member = GroupMember(
                settings.manager(config), files=Spared(world.files, world.store_files),
                identity_path=config.identity_path,
                check_code=f"{config.address};{world.wall_ms()}", client=self.client, clock=world.now_ns,
                log_state=role.log_state, replication=switch, steps=role,
                doubtful_epoch=switch.doubtful_epoch, life=1 + world.rng.getrandbits(62),
                lives=StoreLives(world.store_files, journal.trust))
            return role, dict(role.member.handlers())
        if config.role is BrokerRole.SLAVE:
            slave = PlainSlave(journal, ha, connector=world.connector)
            lender = Lender(journal, ha) if config.enable_slave_acting_master else None
            return PlainSlaveRole(self.parts, self.standing, slave, config.ha_master_address, lender, self.levelling,
                                  self.copies, may_act=config.slaves_may_act), {}
        master = PlainMaster(
            journal, ha, settings.quorum(config), settings.mode(config), ha_address=config.ha_address)
        return PlainMasterRole(self.parts, self.standing, self.puts, master, self.levelling, MasterAddress(
            config.address, config.ha_address)), {}

    def _succession(self) -> Iterator[Part]:
        """Yield parts for a change of master, which only controllers bring about."""
        config = self.config
        if config.enable_controller_mode and config.forward_ms:
            listed = Listed(config.name_servers, config.broker_cluster_name, config.address, self._least_epoch)
            finder = MasterFinder(self.client, config.controllers, config.broker_name, listed)
            yield SuccessionPart(finder, self.forwarder, config.address)

    def _acting(self) -> Iterator[Part]:
        """Yield parts for acting slaves, which are only in groups without controllers."""
        config = self.config
        for remark in settings.acting_remarks(config):
            logger.warning(remark)
        if config.slaves_may_act:
            self.group.changed.join("role", self._grouped)
            self.acting = ActingPart(
                pick(config, ActingConfig), self.group, self.right, self.registration, self.client, self.standing,
                self.parts.right_changed, self.world.now_ns)
            yield self.acting

            if self.escape is not None:
                yield self.escape

    def _siblings(self) -> Iterator[Part]:
        if self.world.siblings is not None:
            part = SiblingsPart(self.config, self.world.siblings, self.puts, self.standing, self.topics)
            if self.escape is not None:
                self.escape.siblings = part
            yield part

    def _escape(self) -> EscapePart | None:
        """Return the part for escapes if this is a slave that may act."""
        config = self.config
        if not config.slaves_may_act or config.role is not BrokerRole.SLAVE:
            return None
        return EscapePart(config, self.client, self.standing, self._route_of, self.journal.stir)

    def _grouped(self, members: Members) -> None:
        role = self.standing.role
        if members.master is not None and not role.leads and not role.master_address:
            self.registration.changed()  # the answer tells the master's replication address
        self.roles.members_changed(members)

    def _hands_over(self) -> bool:
        return self.ledger is not None and self.ledger.is_handed_over

    def _least_id_changed(self) -> None:
        if self.acting is not None:
            self.acting.least_id_changed()

    def _hears_master(self) -> bool:
        return isinstance(self.roles, PlainSlaveRole) and self.roles.hears_master

    def _least_epoch(self) -> int | None:
        """Return the lowest epoch that a master in this broker's place can have, as far as this broker knows."""
        role, epochs = self.standing.role, self.roles.epochs()
        if role.leads:
            return role.epoch + 1
        return epochs[-1].epoch if epochs else None

    def _registered(self) -> TopicConfigSerializeWrapper:
        table = self.topics.registered()
        return TopicConfigSerializeWrapper(table.topic_config_table, table.data_version)

    async def _route_of(self, topic: str) -> TopicRouteData | None:
        return await self.registration.route_of(topic)

    async def _queues_of(self, topic: str) -> list[MessageQueue] | None:
        return await self.registration.queues_of(topic)

    async def _ask_all(self) -> Mapping[int, str] | None:
        return self.group.members.addresses or await self.registration.ask_all()

    def _version(self) -> bytes:
        return self.topics.table.version.to_json()

    def _told(self, master: MasterAddress) -> None:
        if (self.config.sync_master_flush_offset_when_startup and not self.standing.role.leads
                and not self._flusher.master_flushed_offset):
            self._set_master_flushed(master.flushed_offset)
        self.parts[TransactionsPart].master_returns()
        self.roles.told(master)

    def _new_queue(self, topic: bytes) -> None:
        if not self.standing.role.leads and self.topics.table.get(topic.decode()) is None:
            self.copies.look()

    def _set_master_flushed(self, offset: int) -> None:
        self._flusher.master_flushed_offset = offset

    def _replication(self) -> HARuntimeInfo:
        info = self.roles.runtime_info()
        return info if info.master else attrs.evolve(info, ha_client_runtime_info=attrs.evolve(
            info.ha_client_runtime_info, master_flush_offset=self._flusher.master_flushed_offset))

    def _follow(self, config: BrokerConfig) -> None:
        """Apply what a changed configuration changes without a restart."""
        self.parts.configure(config)
        self.journal.retention = pick(config, RetentionConfig)
        self.roles.configure(
            attrs.evolve(settings.quorum(config), total_replicas=self.config.total_replicas,
                         all_ack_in_sync_state_set=self.config.all_ack_in_sync_state_set),
            sync_flush_timeout_ms=config.sync_flush_timeout)

    def _itself(self) -> MasterAddress | None:
        if not self.standing.role.leads:
            return None
        return MasterAddress(self.config.address, self.config.ha_address, self._began_at)

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, listeners: Listeners, ha_listeners: Listeners,
                  task_status: trio.TaskStatus[RunningBroker]) -> None:
        """Run the broker until it is stopped or cancelled. Raises ``StoreFailed``."""
        config, stopped = self.config, trio.Event()
        server = Server(
            self.handlers, on_close=self._closed, tls=self.world.tls, late=self.parts[OverloadPart].late,
            config=ServerConfig(
                connections_max=CONNECTIONS_MAX, requests_in_flight_max=REQUESTS_IN_FLIGHT_MAX,
                idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1_000,
                outgoing_bytes_budget=config.outgoing_bytes_budget, outgoing_stall_ms=config.outgoing_stall_timeout,
                tls_mode=TLSMode(config.tls_server_mode)))
        async with trio.open_nursery() as lasting:
            await lasting.start(self.journal.run)
            async with self._failing(lasting), trio.open_nursery() as nursery:
                await nursery.start(self.parts.run)
                await nursery.start(self.forwarder.run)
                await nursery.start(server.run, listeners)
                await nursery.start(self.roles.run, ha_listeners)
                logger.info("broker serves", extra={
                    "cluster": config.broker_cluster_name, "group": config.broker_name, "address": config.address})
                running = RunningBroker(
                    config, server, self.journal, self.puts, self.parts, self.standing, self.registration,
                    self.roles, stopped)
                if config.metrics_way is not Way.DISABLE:
                    await _export(running, nursery)
                task_status.started(running)
                await stopped.wait()
                await self._stop(server)
                nursery.cancel_scope.cancel()
            lasting.cancel_scope.cancel()

    @asynccontextmanager
    async def _failing(self, nursery: trio.Nursery) -> AsyncGenerator[None, None]:
        """Fail the nursery if the store fails within this block. After the block nothing is started in it any more."""
        def fail(error: StoreFailed) -> None:
            nursery.start_soon(_fail, error)

        self.journal.on_failure.join("server", fail)
        try:
            yield
        finally:
            self.journal.on_failure.leave("server", fail)

    def _closed(self, connection: Connection, reason: str) -> None:
        self.parts.connection_closed(connection, reason)
        self.forwarder.closed(connection)

    @property
    def _counts_members(self) -> bool:
        """Return whether any part of this broker wants to know the living members of the group."""
        config = self.config
        return config.enable_controller_mode or (
            config.role is not BrokerRole.SLAVE and not config.slaves_may_act)  # a slave that may act asks all servers

    async def _stop(self, server: Server) -> None:
        config = self.config
        await self.roles.stop()
        await self.registration.leave()
        self.parts.stopping()
        await server.stop(
            config.shutdown_wait_time_seconds * 1e3 if config.enable_shutdown_gracefully else STOP_GRACE_MS)
        with trio.move_on_after(config.sync_flush_timeout / 1e3):  # a disk that hangs is not waited for
            await self.journal.sync()  # files of parts say no more than the disk has the reason for
            self.parts.tick(self.journal.now_ns())  # and now they say all


def _first_role(config: BrokerConfig) -> Role:
    if config.enable_controller_mode:
        return Role.vacant(MASTER_ID)  # until a controller gives it a role
    is_slave = config.role is BrokerRole.SLAVE
    if config.is_isolated_first:
        return Role.vacant(config.broker_id if is_slave else MASTER_ID)
    return Role.slave(config.broker_id) if is_slave else Role.master()


async def _export(running: RunningBroker, nursery: trio.Nursery) -> None:
    """Export metrics as configured. Raises ``ModuleNotFoundError``, ``OSError`` in words."""
    from broker.metrics import BrokerMetrics
    from raft.monitoring import serve_monitoring

    config = running.config
    await start_exports(BrokerMetrics(running), config, config.bind_address, serve_monitoring, nursery)


async def _fail(error: StoreFailed) -> None:
    raise error
