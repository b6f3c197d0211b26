"""The part of the topics: their table, its file, what administrators do with them, and what name servers are told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from broker.config import BrokerConfig, pick
from broker.part import Part, Parts, Shared, Table
from broker.standing import Role
from broker.store.queues import Queue
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
        self._told_ms: int | None = None
        """On a master: when another master told it of topics last, or its table changed before its start."""
        self._deleted: set[str] = set()
        """Topics that were deleted since then."""
        self.table = TopicTable(
            pick(shared.config, TopicsConfig), shared.wall_ms, load(shared.files, Topics))
        self.file = shared.table_file(self.table.snapshot)
        self.admin = TopicAdmin(self.table, self.file.saved)
        self.table.queues_kept = self._queues_kept
        self.table.on_change.join("file", self.file.changed)
        self.table.on_delete.join("queues", lambda name: shared.journal.delete_topics([name.encode()]))
        self.table.on_delete.join("parts", self._deleted.add)

    def handlers(self) -> Mapping[int, Handler]:
        return self.admin.handlers()

    def tables(self) -> Sequence[Table]:
        return (Table(self.file, RequestCode.GET_ALL_TOPIC_CONFIG, self.table.copy, self.table.join),)

    def runtime_info(self) -> Mapping[str, str]:
        return {"brokerPermission": str(self._permission)}

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("rocketmq_broker_permission", "4 to read, 2 to write.", [((), self._permission)])
        yield page.gauge("rocketmq_topic_number", "Topics.", [((), len(self.table.topics))])

    def registered(self) -> Topics:
        """Return the topics as name servers are to know them: no topic allows more than the broker does."""
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
        if not role.leads:
            self._told_ms = None
            self._deleted.clear()
        else:
            if self._told_ms is None:
                self._told_ms = self.table.version.timestamp
            self.find()
            if role.epoch:
                self.table.touch()  # name servers believe a newly elected master by its version

    def writes_opened(self) -> None:
        self.find()

    def all_seen(self) -> None:
        if self._standing.role.leads:
            self.find()

    def find(self) -> None:
        """Make topics that this broker, a new master, has messages of and was never told of."""
        messages = self._messages
        self._find(messages.queues(), lambda topic, queue_id: messages.store_time_ms(
            topic, queue_id, messages.max_offset(topic, queue_id) - 1))

    def expects(self, topic: str, queue_id: int, stored_ms: int) -> None:
        """Note that a message stored then is yet to be delivered there: it may be the only trace of its topic."""
        if self.table.get(topic) is None:
            self._find([(topic.encode(), queue_id)], lambda *_: stored_ms)

    def _find(self, queues: Iterable[Queue], newest_ms: Callable[[bytes, int], int]) -> None:
        found = [] if self._told_ms is None else [
            topic for topic in unheard(self.table, queues, newest_ms, self._told_ms)
            if topic.topic_name not in self._deleted]
        if self.table.update(found):
            logger.warning("topics made again: the master before was lost before this broker heard of them", extra={
                "topics": ", ".join(f"{topic.topic_name} ({topic.read_queue_nums} queues)" for topic in found)})

    def _queues_kept(self, name: str) -> int:
        queues = self._messages.queues()
        return max((queue_id + 1 for topic, queue_id in queues if topic.decode() == name), default=0)
