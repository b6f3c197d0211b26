"""Lists of topics, and what operators change about topics by hand: write permission, adding, deleting.

Rules over the tables; knows no request. Sans-IO.

Source: ``RouteInfoManager`` of Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controller.namesrv.tables import READ, WRITE, Tables
from remoting.bodies.namesrv import QueueData

UNIT = 1
"""Bit of ``topic_sys_flag``: the topic belongs to a unit."""
UNIT_SUB = 2
"""Bit of ``topic_sys_flag``: units subscribe to it."""


def all_topics(tables: Tables) -> list[str]:
    """Answers code 206: every topic, sorted."""
    return sorted(tables.topics)


def topics_of_cluster(tables: Tables, cluster: str) -> list[str]:
    """Code 224; nothing for an unknown cluster, as in Java."""
    names = tables.clusters().get(cluster, ())
    return sorted({topic for name in names for topic in tables.groups[name].queues})


def system_topics(tables: Tables) -> tuple[list[str], str | None]:
    """Code 304: names of clusters and groups, for each is a topic too; and the address of some broker."""
    clusters = tables.clusters()
    names = dict.fromkeys(name for cluster, groups in clusters.items() for name in (cluster, *groups))
    some = next((address for group in tables.groups.values() for address in group.addresses().values()), None)
    return list(names), some


def _flagged(tables: Tables, wanted: Callable[[int], bool]) -> list[str]:
    return sorted(
        topic for topic, queues in tables.topics.items() if wanted(queues[min(queues)].topic_sys_flag))


def unit_topics(tables: Tables) -> list[str]:
    """Answers code 311: topics with the flag of a unit."""
    return _flagged(tables, lambda flag: bool(flag & UNIT))


def unit_sub_topics(tables: Tables) -> list[str]:
    """Answers code 312: topics with the flag of a unit's subscription."""
    return _flagged(tables, lambda flag: bool(flag & UNIT_SUB))


def unit_sub_ununit_topics(tables: Tables) -> list[str]:
    """Answers code 313: topics with the flag of a unit's subscription and not of a unit."""
    return _flagged(tables, lambda flag: flag & (UNIT | UNIT_SUB) == UNIT_SUB)


def wipe_write_permission(tables: Tables, group_name: str) -> int:
    """Code 205: how many topics the group has. Lasts until its topics are registered anew."""
    group = tables.groups.get(group_name)
    return 0 if group is None else tables.change_permission(group, lambda perm: perm & ~WRITE)


def add_write_permission(tables: Tables, group_name: str) -> int:
    """Code 327: read and write, and no other bit, as in Java."""
    group = tables.groups.get(group_name)
    return 0 if group is None else tables.change_permission(group, lambda _: READ | WRITE)


def register_topic(tables: Tables, topic: str, queues: Iterable[QueueData]) -> bool:
    """Code 217. All of its groups must be registered, else nothing changes; returns whether it did."""
    queues = list(queues)
    if not queues or any(queue.broker_name not in tables.groups for queue in queues):
        return False
    for queue in queues:
        tables.put_queue(topic, tables.groups[queue.broker_name], queue)
    return True


def delete_topic(tables: Tables, topic: str, cluster: str | None = None) -> int:
    """Code 216, everywhere or in one cluster; returns from how many groups."""
    within = None if not cluster else tables.clusters().get(cluster, ())
    groups = [group for group in tables.groups_of(topic) if within is None or group.name in within]
    for group in groups:
        tables.drop_queue(topic, group)
    return len(groups)
