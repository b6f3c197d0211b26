"""Guests: checkpoints that an acting slave of another broker group sends here, and whether this master takes them.

Messages that are not acknowledged come back on this broker, and their consumers must look for them here. They do so
only if this broker has the topic and the group. Else the checkpoint is refused, and its sender tries another master.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.groups.part import GroupsPart
from broker.groups.table import GroupTable
from broker.part import Part, Parts, Shared
from broker.pop.records import CHECKPOINT, named
from broker.properties import UNIQ_KEY
from broker.rules import Draft, Refusal, Rule, rule
from broker.timer.admission import DELIVER_MS
from broker.topics.names import popped_from, revive_topic
from broker.topics.part import TopicsPart
from broker.topics.table import READ, TopicTable
from remoting.codes import ResponseCode


class Guests:
    """The rule for guests. A checkpoint of ``broker_name``'s own messages is none."""

    def __init__(self, topic: str, broker_name: str, topics: TopicTable, groups: GroupTable) -> None:
        self._topic, self._broker_name, self._topics, self._groups = topic, broker_name, topics, groups
        self.rule = rule(self.guests, DELIVER_MS)

    def guests(self, draft: Draft) -> Refusal | None:
        """Refuse a guest whose topic or group is missing here, or may not be read."""
        if draft.topic != self._topic or draft.properties.get("TAGS") != CHECKPOINT:
            return None
        of = named(draft.properties.get(UNIQ_KEY, ""))
        if of is None or of.broker_name in ("", self._broker_name):
            return None
        name = popped_from(of.topic, of.group)
        topic = self._topics.get(name)
        if topic is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist here")
        if not topic.perm & READ:
            return Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] cannot be read here")
        group = self._groups.find(of.group)
        if group is None:
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{of.group}] does not exist")
        if not group.consume_enable:
            return Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {of.group}")
        return None


class GuestsPart(Part):
    """Refuses guests. Its rule runs before those that delay messages, since checkpoints are delayed."""

    def __init__(self, shared: Shared, before: Parts) -> None:
        config = shared.config
        self._guests = Guests(revive_topic(config.broker_cluster_name), config.broker_name, before[TopicsPart].table,
                              before[GroupsPart].table)

    def rules(self) -> Sequence[Rule]:
        return (self._guests.rule,)
