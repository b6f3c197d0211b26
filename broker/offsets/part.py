"""The part of the consumers' offsets: their table, its file, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.groups.part import GroupsPart
from broker.groups.table import SYSTEM_PREFIX
from broker.offsets.inflight import Inflight
from broker.offsets.requests import OffsetRequests
from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.part import Part, Parts, Shared, Table
from broker.standing import MASTER_ID, Role
from broker.store.tables import ConsumerOffsets, load
from broker.topics.names import RETRY_PREFIX
from broker.topics.part import TopicsPart
from remoting.codes import RequestCode
from remoting.endpoint import Handler

if TYPE_CHECKING:
    from remoting.daemon.page import Metric, Page


class OffsetsPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        config, topics, groups = shared.config, before[TopicsPart], before[GroupsPart]
        self._groups, self._topics, self._messages = groups.table, topics.table, shared.journal.messages
        self.table = OffsetTable(
            pick(config, OffsetsConfig), shared.wall_ms, load(shared.files, ConsumerOffsets))
        self.table.frozen = config.is_isolated_first and shared.standing.role.broker_id == MASTER_ID
        self._file = shared.table_file(self.table.snapshot, pause_ms=config.flush_consumer_offset_interval)
        self.requests = OffsetRequests(
            self.table, groups=groups.table, topics=topics.table, messages=self._messages,
            queue_end=shared.journal.queue_end, standing=shared.standing, subscribers=before[ClientsPart].calls,
            veil=shared.journal.veil, memory=shared.memory_bytes)
        self._number, self._queue_end = shared.journal.number, shared.journal.queue_end
        self.table.on_change = self._file.changed
        self.saved = self._file.saved
        """Returns when the table is on disk. Raises ``OSError``."""
        self.when_written = self._file.when_written
        topics.admin.groups_of = self.table.groups_of
        self.inflight = Inflight()
        self._wall_ms, self._serves = shared.wall_ms, False
        topics.table.on_delete.join("parts", self._forget_topic)
        groups.admin.on_clean = self._forget_group
        topics.admin.cleaned = groups.admin.cleaned = self.requests.cleaned = self._file.saved

    def _forget_topic(self, topic: str) -> None:
        self.table.forget_topic(topic)
        self.inflight.forget_topic(topic)

    def _forget_group(self, group: str) -> None:
        self.table.forget_group(group)
        self.inflight.forget_group(group)

    def heard_gone(self, topic: str, group: str) -> None:
        """Forget the topic, or the group, that the master has forgotten: the other one is ""."""
        if topic and not group:
            self._forget_topic(topic)
        elif group and not topic:
            self._forget_group(group)
        self.table.drop_copied(topic, group)

    def heard_reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """A master before, or this slave's, reset the group."""
        self.table.heard_reset(group, topic, queue_id, offset)
        if self._serves:
            self.table.serves()

    def handlers(self) -> Mapping[int, Handler]:
        return self.requests.handlers()

    def tables(self) -> Sequence[Table]:
        return (Table(self._file, RequestCode.GET_ALL_CONSUMER_OFFSET, self.table.copy, self._join),)

    def _join(self, answer: bytes) -> None:
        """Join the offsets of another broker. None is taken beyond the end of its queue here. Raises ``BodyError``."""
        self.table.join(answer, lambda topic, queue_id: self._messages.max_offset(topic.encode(), queue_id))

    def metrics(self, page: Page) -> Iterator[Metric]:
        found, out = dict(self._behind()), self.inflight.of
        labels = ("consumer_group", "topic", "is_retry", "is_system")
        named = {one: (*one, *self._kind(*one)) for one in (*found, *out)}
        yield page.gauge("rocketmq_consumer_lag_messages", "Messages that a group has not consumed.", [
            (named[one], lag + out.get(one, 0)) for one, (lag, _) in found.items()], *labels)
        yield page.gauge("rocketmq_consumer_lag_latency_milliseconds",
                         "Since when the first that it was not given waits.",
                         [(named[one], waits_ms) for one, (_, waits_ms) in found.items()], *labels)
        yield page.gauge("rocketmq_consumer_inflight_messages", "Messages that a group has popped, and that are out.",
                         [(named[one], count) for one, count in out.items()], *labels)
        yield page.gauge("rocketmq_consumer_ready_messages", "Messages that a group that pops was not given.", [
            (named[one], found[one][0] if one in found else 0) for one in out], *labels)
        yield page.gauge("rocketmq_consumer_queueing_latency_milliseconds", "Since when the first of them waits.", [
            (named[one], found[one][1] if one in found else 0) for one in out], *labels)

    def _kind(self, group: str, topic: str) -> tuple[str, str]:
        """The labels ``is_retry`` and ``is_system`` of RocketMQ's page."""
        is_system = self._topics.is_system(topic) or group.startswith(SYSTEM_PREFIX)
        return str(topic.startswith(RETRY_PREFIX)).lower(), str(is_system).lower()

    def _behind(self) -> Iterator[tuple[tuple[str, str], tuple[int, int]]]:
        """Yield by group and topic how many messages the group was not given, and since when the first waits."""
        now_ms = self._wall_ms()
        for group in sorted(self._groups.groups):
            for topic in self.table.topics_of(group):
                count, since_ms, raw = 0, now_ms, topic.encode()
                for queue_id, offset in self.table.of(group, topic).items():
                    behind = self._messages.max_offset(raw, queue_id) - offset
                    if behind > 0:
                        count += behind
                        stored_ms = self._messages.store_time_ms(raw, queue_id, offset)
                        since_ms = min(since_ms, stored_ms) if stored_ms >= 0 else since_ms
                yield (group, topic), (count, now_ms - since_ms)

    def configure(self, config: BrokerConfig) -> None:
        self.table.config = pick(config, OffsetsConfig)

    def writes_opened(self) -> None:
        self._number()  # else none is known where consumers do not see all of the log yet
        self.table.end_at(self._queue_end)

    def role_changed(self, role: Role) -> None:
        self.table.state_version = role.epoch
        if role.leads:
            self.table.frozen = False
        self._serves = role.serves_pulls
        if self._serves:
            self.table.serves()
