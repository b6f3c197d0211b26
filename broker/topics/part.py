"""The part of the topics: their table, its file, what administrators do with them, and what name servers are told."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from broker.config import BrokerConfig, pick
from broker.part import Part, Parts, Shared, Table
from broker.standing import Role
from broker.store.tables import Topics, load
from broker.topics.admin import TopicAdmin
from broker.topics.table import READ, WRITE, TopicsConfig, TopicTable
from broker.topics.unheard import unheard
from remoting.codes import RequestCode
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page

logger = logging.getLogger("broker")


class TopicsPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        self._messages, self._standing = shared.journal.messages, shared.standing
        self._permission = READ | WRITE
        self.table = TopicTable(
            pick(shared.config, TopicsConfig), shared.wall_ms, load(shared.files, Topics))
        self.file = shared.table_file(self.table.snapshot)
        self._admin = TopicAdmin(self.table, self.file.saved)
        self.table.queues_kept = self._queues_kept
        self.table.on_change.join("file", self.file.changed)
        self.table.on_delete.join("queues", lambda name: shared.journal.delete_topics([name.encode()]))

    def handlers(self) -> Mapping[int, Handler]:
        return self._admin.handlers()

    def tables(self) -> Sequence[Table]:
        return (Table(self.file, RequestCode.GET_ALL_TOPIC_CONFIG, self.table.copy),)

    def runtime_info(self) -> Mapping[str, str]:
        return {"brokerPermission": str(self._permission)}

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("rocketmq_broker_permission", "4 to read, 2 to write.", [((), self._permission)])
        yield page.gauge("rocketmq_topic_number", "Topics.", [((), len(self.table.topics))])

    def registered(self) -> Topics:
        """As name servers are to know them: no topic allows more than the broker does."""
        table, most = self.table.snapshot(), self._permission
        if most & (READ | WRITE) == READ | WRITE:
            return table
        return Topics({name: attrs.evolve(topic, perm=topic.perm & most)
                       for name, topic in table.topic_config_table.items()}, table.data_version)

    # --- what changes ----------------------------------------------------------------------------------------

    def configure(self, config: BrokerConfig) -> None:
        moved = config.broker_permission != self._permission
        self._permission = config.broker_permission
        self.table.config = pick(config, TopicsConfig)
        if moved:
            self.table.touch()

    def role_changed(self, role: Role) -> None:
        self.table.state_version = role.epoch
        if role.leads:
            self.find()
            if role.epoch:
                self.table.touch()  # name servers take the word of a master that was elected by this version

    def writes_opened(self) -> None:
        self.find()

    def all_seen(self) -> None:
        if self._standing.role.leads:
            self.find()

    def find(self) -> None:
        """Make those that this broker, a master from now on, has messages of and was never told of."""
        messages = self._messages
        found = unheard(self.table, messages.queues(),
                        lambda topic, queue_id: messages.store_time_ms(
                            topic, queue_id, messages.max_offset(topic, queue_id) - 1))
        if self.table.update(found):
            logger.warning("topics made again: the master before was lost before this broker heard of them", extra={
                "topics": ", ".join(f"{topic.topic_name} ({topic.read_queue_nums} queues)" for topic in found)})

    def _queues_kept(self, name: str) -> int:
        queues = self._messages.queues()
        return max((queue_id + 1 for topic, queue_id in queues if topic.decode() == name), default=0)
