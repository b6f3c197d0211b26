"""The parts of a broker that serve clients, joined over one journal: tables and their files, sends, pulls, delays.

What each part does is its own business, and who is master is others'. Here is only which parts there are, what each is
given, and which tasks they need.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import attrs
import trio

from broker import settings
from broker.clients.heartbeats import Heartbeats
from broker.clients.locks import Locks
from broker.clients.members import ClientsConfig, Consumers, Producers
from broker.config import BrokerConfig
from broker.groups.admin import GroupAdmin
from broker.groups.table import GroupsConfig, GroupTable
from broker.journal import Journal
from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.pulling.checks import PullConfig
from broker.pulling.reading import ReadConfig
from broker.pulling.requests import Pulling
from broker.puts import Puts
from broker.schedule.delivery import DelayedDelivery, ScheduleConfig
from broker.sending.sendback import SendBack
from broker.sending.sending import Sending, SendingConfig
from broker.standing import Standing
from broker.store.files import Files
from broker.store.record import packed_host
from broker.store.tables import ConsumerOffsets, DelayOffsets, SubscriptionGroups, Topics, load
from broker.tablefile import RunSync, TableFile
from broker.topics.admin import TopicAdmin
from broker.topics.table import TopicsConfig, TopicTable
from remoting.connection import Connection
from remoting.endpoint import Handler

WRITABLE: Final = 2


class Services:
    """``run`` them; ``closed`` is to be told of every connection that ends."""

    def __init__(
        self, config: BrokerConfig, files: Files, journal: Journal, puts: Puts, standing: Standing, rng: Random, *,
        now_ns: Callable[[], int], wall_ms: Callable[[], int], run_sync: RunSync,
    ) -> None:
        """Raises ``WrongStore`` for a table that cannot be read, ``ConfigError``."""
        self.config, self.journal, self.puts, self.standing = config, journal, puts, standing
        store = journal.store
        host = packed_host(config.broker_ip1, config.listen_port)

        self.topics = TopicTable(settings.part(config, TopicsConfig), wall_ms, load(files, Topics))
        self.groups = GroupTable(settings.part(config, GroupsConfig), wall_ms, load(files, SubscriptionGroups))
        self.offsets = OffsetTable(settings.part(config, OffsetsConfig), wall_ms, load(files, ConsumerOffsets))
        self.consumers = Consumers(settings.part(config, ClientsConfig))
        self.producers = Producers(self.consumers.config)
        self.locks = Locks(now_ns)
        self.heartbeats = Heartbeats(self.consumers, self.producers, self.locks, groups=self.groups,
                                     topics=self.topics, standing=standing, now_ns=now_ns)

        topics_file = TableFile(files, self.topics.snapshot, run_sync)
        groups_file = TableFile(files, self.groups.snapshot, run_sync)
        offsets_file = TableFile(
            files, self.offsets.snapshot, run_sync, pause_ms=config.flush_consumer_offset_interval)
        self.sending = Sending(
            settings.part(config, SendingConfig), self.topics, topics_file, self.groups, self.locks, puts, host, rng,
            lambda: standing.slave)
        self.send_back = SendBack(
            self.sending, self.topics, topics_file, self.groups, puts, store.get_by_id, host, rng)
        self.delays = DelayedDelivery(
            ScheduleConfig(message_delay_level=config.message_delay_level,
                           flush_delay_offset_interval_ms=config.flush_delay_offset_interval),
            store, puts, load(files, DelayOffsets), now_ns=now_ns, wall_ms=wall_ms)
        delays_file = TableFile(files, self.delays.offsets, run_sync)
        self.pulling = Pulling(
            settings.part(config, PullConfig), settings.part(config, ReadConfig), journal=journal, topics=self.topics,
            groups=self.groups, offsets=self.offsets, consumers=self.consumers, standing=standing, now_ns=now_ns)
        self.topic_admin = TopicAdmin(self.topics, topics_file.saved)
        self.group_admin = GroupAdmin(self.groups, groups_file.saved)

        self.topics.on_change.append(topics_file.changed)
        self.topics.on_delete.append(lambda name: journal.delete_topics([name.encode()]))
        self.topics.on_delete.append(self.offsets.forget_topic)
        self.groups.on_change.append(groups_file.changed)
        self.group_admin.on_clean.append(self.offsets.forget_group)
        self.offsets.on_change = offsets_file.changed
        self.delays.changed.append(delays_file.changed)
        journal.ticks.append(self.delays.tick)
        self._files = (topics_file, groups_file, offsets_file, delays_file)
        self.follow(config)

    def handlers(self) -> dict[int, Handler]:
        """Each code has one part."""
        found: dict[int, Handler] = {}
        for part in (self.sending, self.send_back, self.delays, self.pulling, self.topic_admin, self.group_admin,
                     self.heartbeats, self.locks):
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
            task_status.started()

    def closed(self, connection: Connection, reason: str) -> None:
        self.heartbeats.closed(connection, reason)

    # --- what changes ----------------------------------------------------------------------------------------

    def begin_serving(self) -> None:
        """Writes are open: what is due by its delay is delivered here."""
        self.delays.start()

    def end_serving(self) -> None:
        self.delays.stop()

    def role_changed(self, epoch: int) -> None:
        """This broker is master or slave now, as ``standing`` says; held pulls find out."""
        for table in (self.topics, self.groups, self.offsets):
            table.state_version = epoch
        if not self.standing.slave:
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
