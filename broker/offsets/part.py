"""The part of the consumers' offsets: their table, its file, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.groups.part import GroupsPart
from broker.offsets.requests import OffsetRequests
from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.part import Part, Parts, Shared, Table
from broker.standing import Role
from broker.store.tables import ConsumerOffsets, load
from broker.topics.part import TopicsPart
from remoting.codes import RequestCode
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


class OffsetsPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        config, topics, groups = shared.config, before[TopicsPart], before[GroupsPart]
        self._groups, self._messages = groups.table, shared.journal.messages
        self.table = OffsetTable(
            pick(config, OffsetsConfig), shared.wall_ms, load(shared.files, ConsumerOffsets))
        self._file = shared.table_file(self.table.snapshot, pause_ms=config.flush_consumer_offset_interval)
        self.requests = OffsetRequests(
            self.table, groups=groups.table, topics=topics.table, messages=self._messages,
            queue_end=shared.journal.queue_end, standing=shared.standing, subscribers=before[ClientsPart].calls,
            veil=shared.journal.veil, memory=shared.memory_bytes)
        self.table.on_change = self._file.changed
        self.saved = self._file.saved
        """Returns when the table is on disk. Raises ``OSError``."""
        topics.table.on_delete.join("parts", self.table.forget_topic)
        topics.admin.groups_of = self.table.groups_of
        groups.admin.on_clean = self.table.forget_group

    def handlers(self) -> Mapping[int, Handler]:
        return self.requests.handlers()

    def tables(self) -> Sequence[Table]:
        return (Table(self._file, RequestCode.GET_ALL_CONSUMER_OFFSET, self.table.copy, self._join),)

    def _join(self, answer: bytes) -> None:
        """What was read here ends where the queue does. Raises ``BodyError``."""
        self.table.join(answer, lambda topic, queue_id: self._messages.max_offset(topic.encode(), queue_id))

    def metrics(self, page: Page) -> Iterator[Metric]:
        yield page.gauge("rocketmq_consumer_lag_messages", "Messages that a group has not consumed.", [
            ((group, topic), lag) for group, topic, lag in self._lags()], "consumer_group", "topic")

    def _lags(self) -> Iterator[tuple[str, str, int]]:
        for group in sorted(self._groups.groups):
            for topic in self.table.topics_of(group):
                lag = sum(max(0, self._messages.max_offset(topic.encode(), queue_id) - offset)
                          for queue_id, offset in self.table.of(group, topic).items())
                yield group, topic, lag

    def configure(self, config: BrokerConfig) -> None:
        self.table.config = pick(config, OffsetsConfig)

    def role_changed(self, role: Role) -> None:
        self.table.state_version = role.epoch
