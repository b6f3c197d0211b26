"""The parts of a broker that serve clients, joined over one journal: tables and their files, sends, pulls, delays.

What each part does is its own business, and who is master is others'. Here is only which parts there are, what each is
given, and which tasks they need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final

import attrs
import trio

from broker import settings
from broker.config import BrokerConfig
from broker.consumers.assignment import Assignments, QueuesOf
from broker.consumers.heartbeats import Heartbeats
from broker.consumers.listings import Listings
from broker.consumers.locks import Locks
from broker.consumers.members import ClientsConfig, Consumers, Producers
from broker.consumers.relay import Relay
from broker.groups.admin import GroupAdmin
from broker.groups.table import GroupsConfig, GroupTable
from broker.journal import Journal
from broker.offsets.requests import OffsetRequests
from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig, memory_bytes
from broker.pulling.requests import Pulling
from broker.puts import Puts
from broker.query.cleaning import Cleaning
from broker.query.messages import MessageQueries, QueryConfig
from broker.query.positions import Positions
from broker.query.progress import Progress
from broker.query.stats import SAMPLE_INTERVAL_MS, Stats
from broker.schedule.delivery import DelayedDelivery, ScheduleConfig
from broker.sending.sendback import SendBack
from broker.sending.sending import Sending, SendingConfig
from broker.standing import Role, Standing
from broker.store.files import Files
from broker.store.messages import store_time_ms
from broker.store.retention import RetentionConfig
from broker.store.tables import ConsumerOffsets, DelayOffsets, SubscriptionGroups, Topics, load
from broker.tablefile import RunSync, TableFile
from broker.topics.admin import TopicAdmin
from broker.topics.table import TopicsConfig, TopicTable
from broker.topics.unheard import unheard
from remoting.bodies.consumers import MessageRequestModes
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.record import packed_host

logger = logging.getLogger("broker")

WRITABLE: Final = 2


@attrs.define
class Given:
    """To consumers. They only ever rise."""

    pulls: int = 0
    """Those that found something."""
    messages: int = 0
    bytes: int = 0


class Services:
    """``run`` them; ``closed`` is to be told of every connection that ends."""

    def __init__(
        self, config: BrokerConfig, files: Files, journal: Journal, puts: Puts, standing: Standing, rng: Random, *,
        now_ns: Callable[[], int], wall_ms: Callable[[], int], run_sync: RunSync, queues_of: QueuesOf,
        ram_bytes: int = 1 << 62,
    ) -> None:
        """Raises ``WrongStore`` for a table that cannot be read, ``ConfigError``."""
        self.config, self.journal, self.puts, self.standing = config, journal, puts, standing
        self._serves = False
        journal.veil.lifted.append(self._unveiled)
        self.given = Given()
        self.stats = Stats(config.broker_cluster_name, self._put_by_topic, now_ns)
        self._files: list[TableFile] = []
        self._keep_tables(files, now_ns, wall_ms, run_sync, queues_of)
        self._take_messages(files, rng, now_ns, wall_ms, run_sync)
        self._give_messages(now_ns, wall_ms, ram_bytes)
        self.follow(config)

    def _keep_tables(
        self, files: Files, now_ns: Callable[[], int], wall_ms: Callable[[], int], run_sync: RunSync,
        queues_of: QueuesOf,
    ) -> None:
        config, standing = self.config, self.standing
        self.topics = TopicTable(settings.part(config, TopicsConfig), wall_ms, load(files, Topics))
        self.groups = GroupTable(settings.part(config, GroupsConfig), wall_ms, load(files, SubscriptionGroups))
        self.offsets = OffsetTable(settings.part(config, OffsetsConfig), wall_ms, load(files, ConsumerOffsets))
        self.consumers = Consumers(settings.part(config, ClientsConfig))
        self.producers = Producers(self.consumers.config)
        self.locks = Locks(now_ns)
        self.heartbeats = Heartbeats(self.consumers, self.producers, self.locks, groups=self.groups,
                                     topics=self.topics, standing=standing, now_ns=now_ns)
        self._topics_file = TableFile(files, self.topics.snapshot, run_sync)
        groups_file = TableFile(files, self.groups.snapshot, run_sync)
        offsets_file = TableFile(
            files, self.offsets.snapshot, run_sync, pause_ms=config.flush_consumer_offset_interval)
        modes_file = TableFile(files, self._modes, run_sync)
        self._files += (self._topics_file, groups_file, offsets_file, modes_file)
        self.topic_admin = TopicAdmin(self.topics, self._topics_file.saved)
        self.group_admin = GroupAdmin(self.groups, groups_file.saved)
        self.assignments = Assignments(
            self.consumers, self.groups, self.topics, queues_of, modes_file.saved, load(files, MessageRequestModes))

        self.topics.queues_kept = self._queues_kept
        self.topics.on_change.append(self._topics_file.changed)
        self.topics.on_delete.append(lambda name: self.journal.delete_topics([name.encode()]))
        self.topics.on_delete.append(self.offsets.forget_topic)
        self.groups.on_change.append(groups_file.changed)
        self.group_admin.on_clean.append(self.offsets.forget_group)
        self.offsets.on_change = offsets_file.changed
        self.assignments.on_change.append(modes_file.changed)

    def _take_messages(
        self, files: Files, rng: Random, now_ns: Callable[[], int], wall_ms: Callable[[], int], run_sync: RunSync,
    ) -> None:
        config, standing, puts, store = self.config, self.standing, self.puts, self.journal.store
        host = packed_host(config.broker_ip1, config.listen_port)
        self.sending = Sending(
            settings.part(config, SendingConfig), self.topics, self._topics_file, self.groups, self.locks, puts, host,
            rng, lambda: standing.role.takes_puts)
        self.send_back = SendBack(
            self.sending, self.topics, self._topics_file, self.groups, puts, store.get_by_id, host, rng)
        self.delays = DelayedDelivery(
            ScheduleConfig(message_delay_level=config.message_delay_level,
                           flush_delay_offset_interval_ms=config.flush_delay_offset_interval),
            store, puts, load(files, DelayOffsets), now_ns=now_ns, wall_ms=wall_ms)
        delays_file = TableFile(files, self.delays.offsets, run_sync)
        self._files.append(delays_file)
        self.delays.changed.append(delays_file.changed)
        self.journal.ticks.append(self.delays.tick)

    def _give_messages(self, now_ns: Callable[[], int], wall_ms: Callable[[], int], ram_bytes: int) -> None:
        config, standing, journal, store = self.config, self.standing, self.journal, self.journal.store
        self.pulling = Pulling(
            settings.part(config, PullConfig), settings.part(config, ReadConfig), journal=journal, topics=self.topics,
            groups=self.groups, offsets=self.offsets, consumers=self.consumers, standing=standing, now_ns=now_ns,
            memory=memory_bytes(settings.part(config, ReadConfig), ram_bytes))
        self.pulling.on_found = self._found
        self.queries = MessageQueries(settings.part(config, QueryConfig), store)
        relay = Relay(self.consumers, groups=self.groups, topics=self.topics, store=store, standing=standing)
        self._parts = (
            self.sending, self.send_back, self.delays, self.pulling, self.topic_admin, self.group_admin,
            self.heartbeats, self.locks, self.assignments, relay, self.queries,
            OffsetRequests(self.offsets, groups=self.groups, topics=self.topics, store=store, standing=standing,
                           subscribers=relay, veil=journal.veil, memory=self.pulling.memory),
            Listings(self.consumers, self.producers, self.offsets, standing, now_ns=now_ns, wall_ms=wall_ms),
            Positions(store, self.consumers, journal.veil),
            Progress(store, topics=self.topics, groups=self.groups, offsets=self.offsets, consumers=self.consumers,
                     stats=self.stats, standing=standing, wall_ms=wall_ms),
            Cleaning(expired_queues=lambda: store.clean(len(store.queues())), unused_topics=self._delete_unused,
                     expired_log=journal.delete_old_files))

    def handlers(self) -> dict[int, Handler]:
        """Each code has one part."""
        found: dict[int, Handler] = {}
        for part in self._parts:
            handlers = part.handlers()
            assert not found.keys() & handlers.keys(), "one part for each code"
            found |= handlers
        return found

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; then what the tables' files lack is written."""
        async with trio.open_nursery() as nursery:
            for file in self._files:
                await nursery.start(file.run)
            await nursery.start(self.heartbeats.run)
            await nursery.start(self.pulling.run)
            nursery.start_soon(self._sample)
            task_status.started()

    async def _sample(self) -> None:
        while True:
            self.stats.sample()
            await trio.sleep(SAMPLE_INTERVAL_MS / 1e3)

    def closed(self, connection: Connection, reason: str) -> None:
        self.heartbeats.closed(connection, reason)

    def _found(self, group: str, topic: str, messages: int, size: int) -> None:
        given = self.given
        given.pulls += 1
        given.messages += messages
        given.bytes += size
        self.stats.got(group, topic, messages, size)

    def _modes(self) -> MessageRequestModes:
        return self.assignments.snapshot()

    def _put_by_topic(self) -> dict[str, int]:
        """How many messages each topic has ever had."""
        found: dict[str, int] = {}
        for topic, queue_id in self.journal.store.queues():
            name = topic.decode()
            found[name] = found.get(name, 0) + self.journal.store.max_offset(topic, queue_id)
        return found

    def _delete_unused(self) -> None:
        self.journal.delete_topics({
            topic for topic, _ in self.journal.store.queues() if self.topics.get(topic.decode()) is None})

    # --- what changes ----------------------------------------------------------------------------------------

    def begin_serving(self) -> None:
        """Writes are open: what is due by its delay is delivered here."""
        self._serves = True
        if not self.journal.veil.on:  # else what is due may have been delivered, though its place is not seen yet
            self._deliver()

    def end_serving(self) -> None:
        self._serves = False
        self.delays.stop()

    def _unveiled(self) -> None:
        """All that this broker held as it became master is seen."""
        if self.standing.role.leads:
            self.find_topics()
        if self._serves:
            self._deliver()

    def _deliver(self) -> None:
        if self.standing.role.delivers:
            self.delays.start()

    def find_topics(self) -> None:
        """Make those that this broker, a master from now on, has messages of and was never told of."""
        store = self.journal.store
        found = unheard(self.topics, store.queues(),
                        lambda topic, queue_id: store_time_ms(store, topic, queue_id,
                                                              store.max_offset(topic, queue_id) - 1))
        if self.topics.update(found):
            logger.warning("topics made again: the master before was lost before this broker heard of them", extra={
                "topics": ", ".join(f"{topic.topic_name} ({topic.read_queue_nums} queues)" for topic in found)})

    def _queues_kept(self, name: str) -> int:
        queues = self.journal.store.queues()
        return max((queue_id + 1 for topic, queue_id in queues if topic.decode() == name), default=0)

    def role_changed(self, role: Role) -> None:
        """Held pulls find out, too."""
        self.standing.role = role
        for table in (self.topics, self.groups, self.offsets, self.delays.machine):
            table.state_version = role.epoch
        if role.leads:
            self.find_topics()
            self.heartbeats.now_master()
            self.topics.touch()  # name servers take a master's word by this version
        self.pulling.role_changed()

    def follow(self, config: BrokerConfig) -> None:
        """Live keys have these values now."""
        permission = config.broker_permission
        moved = permission != self.sending.permission
        self.config = config
        self.topics.config = settings.part(config, TopicsConfig)
        self.groups.config = settings.part(config, GroupsConfig)
        self.offsets.config = settings.part(config, OffsetsConfig)
        self.consumers.config = self.producers.config = settings.part(config, ClientsConfig)
        self.pulling.config = settings.part(config, PullConfig)
        self.pulling.reads = settings.part(config, ReadConfig)
        self.queries.config = settings.part(config, QueryConfig)
        self.journal.retention = settings.part(config, RetentionConfig)
        self.sending.config = settings.part(config, SendingConfig)
        self.sending.permission = permission
        if moved:
            self.topics.touch()

    def registered_topics(self) -> Topics:
        """As name servers are to know them: no topic allows more than the broker does."""
        permission, table = self.config.broker_permission, self.topics.snapshot()
        if permission & 6 == 6:
            return table
        return Topics({name: attrs.evolve(topic, perm=topic.perm & permission)
                       for name, topic in table.topic_config_table.items()}, table.data_version)
