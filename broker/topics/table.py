"""The table of topics, its version, and how topics come to be: at the start, by a send, by an administrator.

It does no I/O: ``on_change`` says, in the turn of the change, that disk and name servers must be told.
Source: ``TopicConfigManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import attrs

from broker.moments import Moment
from broker.store.tables import Topics
from broker.topics import attributes, names
from remoting.bodies.namesrv import DataVersion, TopicConfig, TopicConfigSerializeWrapper

READ, WRITE, INHERIT = 4, 2, 1
"""Bits of ``perm``."""
UNIT, UNIT_SUB = 1, 2
"""Bits of ``topic_sys_flag``."""
SCHEDULE_QUEUES = 18


@attrs.frozen(kw_only=True)
class TopicsConfig:
    """Keys of ``BrokerConfig`` and their defaults."""

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = "DEFAULT_BROKER"
    auto_create_topic_enable: bool = True
    """A send to an unknown topic makes it, with the settings of ``TBW102``."""
    default_topic_queue_nums: int = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = names.TRACE
    revive_queue_num: int = 8
    validate_system_topic_when_update_topic: bool = True
    clear_retry_topic_when_delete_topic: bool = True
    enable_mixed_message_type: bool = False
    enable_split_metadata: bool = True
    split_metadata_size: int = 2_000
    clients_topics_max: int = 100_000
    """Ours: number of topics from which on clients make no more; administrators may."""


class TopicTable:
    """The table. ``now_ms`` is the wall clock: it stamps versions, and decides nothing."""

    def __init__(self, config: TopicsConfig, now_ms: Callable[[], int], kept: Topics | None = None) -> None:
        """``kept``: what was on disk."""
        self.config = config
        self._now_ms = now_ms
        self.state_version = 0
        """The master epoch, under a controller."""
        made = {topic.topic_name: topic for topic in system_topics(config)}
        self.system = names.SYSTEM | made.keys()
        """Topics that administrators may not touch."""
        self.on_change: Moment[[]] = Moment("TopicTable.on_change")
        """Called after each change of a topic: the version has moved."""
        self.queues_kept: Callable[[str], int] = lambda name: 0
        """Returns how many queues of a topic have messages in the log: a master may be elected before it heard of the
        topic."""
        self.on_delete: Moment[[str]] = Moment("TopicTable.on_delete")
        """Called with the topic's name before ``on_change``: its queues and offsets are to go."""
        self.narrowed: Moment[[Collection[str]]] = Moment("TopicTable.narrowed")
        """Called after ``on_change`` with names of topics that are no more, or of which less can be read."""
        kept = kept or Topics()
        self._version = kept.data_version
        self._topics = made | kept.topic_config_table
        if not config.auto_create_topic_enable and names.AUTO_CREATE in self._topics:
            self._topics[names.AUTO_CREATE] = attrs.evolve(self._topics[names.AUTO_CREATE], perm=READ | WRITE)

    # --- reading ---------------------------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        return self._topics

    @property
    def version(self) -> DataVersion:
        return self._version

    def snapshot(self) -> Topics:
        """The content of ``topics.json``, as it is now."""
        return Topics(dict(self._topics), self._version)

    def is_system(self, name: str) -> bool:
        return name in self.system or name.startswith(names.SYSTEM_PREFIX)

    def is_ordered(self, name: str) -> bool:
        topic = self._topics.get(name)
        return topic is not None and topic.order

    # --- changing --------------------------------------------------------------------------------------------

    def update(self, topics: Iterable[TopicConfig]) -> bool:
        """Make or change topics. Returns whether anything changed. Their attributes are final ones."""
        moved = [topic for topic in topics if self._topics.get(topic.topic_name) != topic]
        if moved:
            self._put(*moved)
        return bool(moved)

    def with_attributes(self, topic: TopicConfig) -> TopicConfig:
        """Return ``topic``, whose attributes are changes, with the attributes that follow from the present ones.

        Raises:
            AttributesIllegal: they cannot be made.
        """
        present = self._topics.get(topic.topic_name)
        return attrs.evolve(topic, attributes=attributes.changed(
            present.attributes if present is not None else None, topic.attributes))

    def delete(self, name: str) -> bool:
        """Delete a topic. Returns whether it was there. Listeners are told in any case: its queues may be there."""
        found = self._topics.pop(name, None) is not None
        self.on_delete(name)
        if found:
            self._step()
            self.narrowed((name,))
        return found

    def create_for_send(self, name: str, default: str, queues: int, sys_flag: int = 0) -> TopicConfig | None:
        """Make a topic that a client sends to, with the settings of ``default``. None: these may not be inherited, or
        there are too many topics.

        Retry topics need no other topic, and have one queue.
        """
        if len(self._topics) >= self.config.clients_topics_max:
            return self._topics.get(name)
        model = self._topics.get(default)
        if model is not None and model.perm & INHERIT:
            count = max(0, min(queues, model.write_queue_nums), self.queues_kept(name))
            return self._put(TopicConfig(name, count, count, model.perm & ~INHERIT, model.topic_filter_type, sys_flag))
        if name.startswith(names.RETRY_PREFIX):
            return self.create_if_absent(name, 1, sys_flag)
        return None

    def create_if_absent(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """Return a retry or dead letter topic, and make it if it is missing."""
        return self._topics.get(name) or self._put(
            TopicConfig(name, queues, queues, READ | WRITE, topic_sys_flag=sys_flag))

    def create_for_retry(self, group: str, queues: int = 1, *, unit: bool = False) -> TopicConfig:
        """Make the topic where messages of ``group`` wait for their next try."""
        return self.create_if_absent(names.retry_topic(group), queues, UNIT_SUB if unit else 0)

    def create_for_dead_letters(self, group: str) -> TopicConfig:
        return self.create_if_absent(names.dlq_topic(group), 1)

    def set_ordered(self, ordered: Iterable[str]) -> None:
        """Mark topics as ordered that the name server's configuration calls so; none is unmarked."""
        moved = [attrs.evolve(topic, order=True) for name in ordered
                 if (topic := self._topics.get(name)) is not None and not topic.order]
        if moved:
            self._put(*moved)

    def replace(self, table: Topics) -> None:
        """Take over another broker's table, with its version: a slave follows its master."""
        gone = [name for name, before in self._topics.items()
                if _is_narrower(table.topic_config_table.get(name), before)]
        self._topics = dict(table.topic_config_table)
        self._version = table.data_version
        self.on_change()
        if gone:
            self.narrowed(gone)

    def copy(self, answer: bytes) -> None:
        """Take over a master's answer to 21. Raises ``BodyError``.

        An answer without topics is ignored: every master has some, and this one has not loaded its own yet."""
        told = TopicConfigSerializeWrapper.from_json(answer)
        if told.data_version != self._version and told.topic_config_table:
            self.replace(Topics(told.topic_config_table, told.data_version))

    def join(self, answer: bytes) -> None:
        """Take what a member knows better, from its answer to 21: topics that are missing here, all of a newer version.

        No topic is deleted, since its messages would be. Raises ``BodyError``."""
        told = TopicConfigSerializeWrapper.from_json(answer)
        newer = self._version.precedes(told.data_version)
        taken = [topic for name, topic in told.topic_config_table.items()
                 if name not in self._topics or (newer and topic != self._topics[name])]
        if taken:
            self._version = max(self._version, told.data_version, key=lambda version: version.counter)
            self._put(*taken)

    def touch(self) -> None:
        """Move the version: the registration of every topic has changed, for example by the broker's permission."""
        self._step()

    def _put(self, *topics: TopicConfig) -> TopicConfig:
        narrowed = [topic.topic_name for topic in topics if _is_narrower(topic, self._topics.get(topic.topic_name))]
        self._topics |= {topic.topic_name: topic for topic in topics}
        self._step()
        if narrowed:
            self.narrowed(narrowed)
        return topics[0]

    def _step(self) -> None:
        self._version = DataVersion(self.state_version, self._now_ms(), self._version.counter + 1)
        self.on_change()


def _is_narrower(topic: TopicConfig | None, before: TopicConfig | None) -> bool:
    """Return whether something could be read ``before`` that cannot be read now."""
    return before is not None and (topic is None or topic.read_queue_nums < before.read_queue_nums
                                   or bool(before.perm & ~topic.perm & READ))


def system_topics(config: TopicsConfig) -> list[TopicConfig]:
    """Return the topics that every broker has from its start."""
    def topic(name: str, queues: int = 1, perm: int = READ | WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm)

    cluster, broker = config.broker_cluster_name, config.broker_name
    found = [
        topic(names.SELF_TEST),
        topic(names.BENCHMARK, 1_024),
        topic(cluster, 16, INHERIT | (READ | WRITE if config.cluster_topic_enable else 0)),
        topic(broker, 1, INHERIT | (READ | WRITE if config.broker_topic_enable else 0)),
        topic(names.OFFSET_MOVED_EVENT),
        topic(names.SCHEDULE, SCHEDULE_QUEUES),
        topic(f"{cluster}_REPLY_TOPIC"),
        topic(names.revive_topic(cluster), config.revive_queue_num),
        topic(f"{names.SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{broker}", 1, INHERIT),
        topic(names.HALF),
        topic(names.OP_HALF),
        topic(names.TIMER),
        topic(names.TIMER_DEAD),
        topic(names.POP_RESETS),
    ]
    if config.auto_create_topic_enable:
        found.append(topic(names.AUTO_CREATE, config.default_topic_queue_nums, INHERIT | READ | WRITE))
    if config.trace_topic_enable:
        found.append(topic(config.msg_trace_topic_name))
    return found
