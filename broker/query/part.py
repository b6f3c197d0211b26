"""The part that looks at messages, queues, progress and clients. It cleans up when an administrator says so."""

from __future__ import annotations

from collections.abc import Mapping

from broker.config import BrokerConfig, pick
from broker.consumers.part import ClientsPart
from broker.groups.part import GroupsPart
from broker.offsets.part import OffsetsPart
from broker.part import Part, Parts, Shared
from broker.pop.part import PopPart
from broker.pulling.part import PullingPart
from broker.query.cleaning import Cleaning
from broker.query.colddata import ColdData
from broker.query.listings import Listings
from broker.query.messages import MessageQueries, QueryConfig
from broker.query.positions import PositionRequests
from broker.query.progress import Progress
from broker.query.stats import (
    BROKER_ACK_NUMS,
    BROKER_CK_NUMS,
    SAMPLE_INTERVAL_MS,
    SNDBCK_PUT_NUMS,
    TOPIC_PUT_SIZE,
    Counted,
    Stats,
)
from broker.sending.part import SendingPart
from broker.topics.part import TopicsPart
from remoting.endpoint import Handler


class QueriesPart(Part):
    def __init__(self, shared: Shared, before: Parts) -> None:
        topics, groups, offsets = before[TopicsPart].table, before[GroupsPart].table, before[OffsetsPart].table
        clients, standing, journal = before[ClientsPart], shared.standing, shared.journal
        self._topics, self._journal, self._messages = topics, journal, journal.messages
        self._by_key = MessageQueries(pick(shared.config, QueryConfig), self._messages, journal.visible)
        self._cluster, self._sent, self._pop = (
            shared.config.broker_cluster_name, before[SendingPart].sending.counters, before[PopPart])
        self._stats = Stats(self._cluster, self._put_by_topic, shared.now_ns, is_system=topics.is_system,
                            more=self._counted)
        self._sample_due_ns = 0
        before[PullingPart].pulling.on_found = self._stats.got
        self._handlers = {
            **self._by_key.handlers(),
            **PositionRequests(self._messages, clients.consumers, journal.veil).handlers(),
            **Progress(self._messages, topics=topics, groups=groups, offsets=offsets, consumers=clients.consumers,
                       stats=self._stats, standing=standing, wall_ms=shared.wall_ms).handlers(),
            **Listings(clients.consumers, clients.producers, offsets, standing, now_ns=shared.now_ns,
                       wall_ms=shared.wall_ms).handlers(),
            **Cleaning(expired_queues=journal.clean_queues, unused_topics=self._delete_unused,
                       expired_log=journal.delete_old_files).handlers(),
            **ColdData(journal.log.read_ahead).handlers()}

    def handlers(self) -> Mapping[int, Handler]:
        return self._handlers

    def configure(self, config: BrokerConfig) -> None:
        self._by_key.config = pick(config, QueryConfig)

    def due_ns(self) -> int:
        return self._sample_due_ns

    def tick(self, now_ns: int) -> None:
        self._sample_due_ns = now_ns + SAMPLE_INTERVAL_MS * 1_000_000
        self._stats.sample()

    def _counted(self) -> tuple[Counted, ...]:
        """Return the counters that other parts keep, by name and key."""
        return (
            (TOPIC_PUT_SIZE, self._sent.topic_bytes), (SNDBCK_PUT_NUMS, self._sent.sent_back_of),
            (BROKER_CK_NUMS, {self._cluster: self._pop.stored_checkpoints}),
            (BROKER_ACK_NUMS, {self._cluster: self._pop.stored_acks}))

    def _put_by_topic(self) -> dict[str, int]:
        """Return how many messages each topic has ever had."""
        found: dict[str, int] = {}
        for topic, queue_id in self._messages.queues():
            name = topic.decode()
            found[name] = found.get(name, 0) + self._messages.max_offset(topic, queue_id)
        return found

    def _delete_unused(self) -> None:
        self._journal.delete_topics({
            topic for topic, _ in self._messages.queues() if self._topics.get(topic.decode()) is None})
