"""Finds the topic of a send, and says whether it may be sent to. An unknown topic is made."""

from __future__ import annotations

from collections.abc import Container

import attrs

from broker.rules import NOT_YET, Refusal, Stop
from broker.sending.answers import forbidden, no_topic
from broker.sending.request import SendRequest
from broker.topics import names
from broker.topics.table import READ, UNIT, UNIT_SUB, WRITE, TopicTable
from remoting.codes import ResponseCode
from remoting.record import MULTI_TAGS, TOPIC_BYTES_MAX


@attrs.frozen
class Target:
    """A topic that was checked, with the fields that sends to it need."""

    name: bytes
    queues: int
    write_queues: int
    sys_flag: int
    group: str | None
    """The group whose retry topic this is; None: it is no retry topic."""

    def has_no(self, queue_id: int, topic: str, peer: str) -> Refusal | None:
        """Return why a message cannot go to this queue; below 0 any queue will do."""
        if queue_id >= self.queues:
            return Refusal(ResponseCode.INVALID_PARAMETER, (
                f"request queueId[{queue_id}] is illegal, topic {topic} has {self.queues} queues Producer: {peer}"))
        if queue_id < 0 and not self.write_queues:
            return Refusal(ResponseCode.INVALID_PARAMETER, f"topic {topic} has no queue to write to")
        return None


class Targets:
    """Finds topics. ``known`` are those that were checked; they are forgotten whenever a topic changes."""

    def __init__(self, topics: TopicTable, waiting: Container[str], broker_ip1: str) -> None:
        """``waiting``: topics whose sends wait until it is on disk."""
        self.permission = READ | WRITE
        """``brokerPermission``. After a change ``TopicTable.touch`` must be called."""
        self.known: dict[str, Target] = {}
        self._topics, self._waiting, self._broker_ip1 = topics, waiting, broker_ip1

    def find(self, asked: SendRequest) -> Target | Stop:
        """Return the topic, or why nothing is sent to it now: a topic that was just made must be on disk first."""
        name = asked.topic
        ordered = self._topics.is_ordered(name)
        if ordered and not self.permission & WRITE:
            return forbidden(f"broker[{self._broker_ip1}]")
        fault = names.topic_fault(name)
        if fault is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if name in names.NOT_FOR_SENDERS:
            return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        if name in self._waiting:
            return NOT_YET
        topic = self._topics.get(name)
        if topic is None:
            retry = name.startswith(names.RETRY_PREFIX)
            unit = (UNIT_SUB if retry else UNIT) if asked.unit_mode else 0
            if self._topics.create_for_send(name, asked.default_topic, asked.default_topic_queue_nums, unit) is None:
                return no_topic(name)
            return NOT_YET
        group = name.removeprefix(names.RETRY_PREFIX)
        if group == name and len(name) > TOPIC_BYTES_MAX:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(name)}")
        found = Target(
            name.encode(), max(topic.write_queue_nums, topic.read_queue_nums), topic.write_queue_nums,
            MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else 0, group if group != name else None)
        self.known[name] = found
        return found
