"""The route of a topic: which queues it has, and at which addresses their brokers are.

Pure values, made from what a name server answers. Source: ``MessageQueue`` and
``MQClientInstance.topicRouteData2TopicPublishInfo`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from remoting.bodies.consumers import MessageQueue
from remoting.bodies.namesrv import TopicRouteData
from remoting.fields import decimal

MASTER: Final = 0
READ: Final = 4
WRITE: Final = 2
_QUEUES_MAX: Final = 1 << 16
"""Most queues of one topic that are believed, whatever a name server says."""


def words(queue: MessageQueue) -> str:
    """The queue's name for a person."""
    return f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name}"


@attrs.frozen
class Route:
    """One answer of a name server, as clients read it."""

    topic: str
    brokers: Mapping[str, Mapping[int, str]]
    """Addresses by broker id, by name of the group; 0 is the master."""
    readable: tuple[MessageQueue, ...]
    writable: tuple[MessageQueue, ...]
    """Queues that can be written, also of groups that have no master now: choices by key must not change in a
    failover."""

    sendable: tuple[MessageQueue, ...] = attrs.field(init=False)
    """Queues that can be written and whose groups have a master."""

    @sendable.default
    def _of_groups_with_a_master(self) -> tuple[MessageQueue, ...]:
        return tuple(queue for queue in self.writable if MASTER in self.brokers[queue.broker_name])

    def master(self, broker: str) -> str | None:
        """Its address, if the group has one now."""
        return self.brokers.get(broker, {}).get(MASTER)

    def address(self, broker: str, broker_id: int = MASTER) -> tuple[str, int] | None:
        """The address of that member, else of the master, else of any; and its id. None: the group is not here."""
        members = self.brokers.get(broker)
        if not members:
            return None
        for wanted in (broker_id, MASTER, min(members)):
            if wanted in members:
                return members[wanted], wanted
        return None


def route_of(topic: str, data: TopicRouteData, *, queues_max: int | None = None) -> Route:
    """The route of ``topic``. ``queues_max``: of each group, as for a topic that is yet to be made after a template."""
    brokers = {each.broker_name: dict(each.broker_addrs) for each in data.broker_datas}
    readable: list[MessageQueue] = []
    writable: list[MessageQueue] = []
    for each in sorted(data.queue_datas, key=lambda each: each.broker_name):
        if each.broker_name not in brokers:
            continue
        reads, writes = each.read_queue_nums, each.write_queue_nums
        if queues_max is not None:
            reads = writes = min(queues_max, reads)
        if each.perm & READ:
            readable += (MessageQueue(topic, each.broker_name, number) for number in range(min(reads, _QUEUES_MAX)))
        if each.perm & WRITE:
            writable += (MessageQueue(topic, each.broker_name, number) for number in range(min(writes, _QUEUES_MAX)))
    return Route(topic, brokers, tuple(readable), tuple(_ordered(topic, data.order_topic_conf, brokers) or writable))


def _ordered(topic: str, config: str | None, brokers: Mapping[str, object]) -> list[MessageQueue]:
    """``broker:count;broker:count``: the queues of an ordered topic, fixed by hand."""
    found = []
    for part in (config or "").split(";"):
        name, _, count = part.partition(":")
        if name in brokers:
            found += [MessageQueue(topic, name, number) for number in range(min(decimal(count) or 0, _QUEUES_MAX))]
    return found
