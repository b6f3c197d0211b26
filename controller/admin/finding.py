"""Where brokers are, as the name server has it: masters of a cluster, whom to ask about a topic.

Raises ``AdminError`` where the name server knows nothing of the kind, and ``RemotingError``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import attrs

from controller.admin.asking import Admin
from controller.admin.command import AdminError
from remoting.bodies.namesrv import BrokerData

MASTER_ID = 0


@attrs.frozen
class Found:
    """One broker of a group."""

    name: str
    address: str


async def of_cluster(admin: Admin, cluster: str, *, slaves: bool = False) -> list[Found]:
    """The masters of a cluster, with their slaves if wanted."""
    clusters = await admin.clusters()
    names = clusters.cluster_addr_table.get(cluster)
    if names is None:
        known = ", ".join(sorted(clusters.cluster_addr_table)) or "none"
        raise AdminError(f"the name server knows no cluster {cluster}; it knows {known}")
    groups = [clusters.broker_addr_table[name] for name in sorted(names) if name in clusters.broker_addr_table]
    found = [Found(group.broker_name, address) for group in groups
             for broker_id, address in sorted(group.broker_addrs.items()) if slaves or broker_id == MASTER_ID]
    if not found:
        raise AdminError(f"no group of cluster {cluster} has a master at the moment")
    return found


async def of_topic(admin: Admin, topic: str, *, cluster: str | None = None) -> list[Found]:
    """Of each group with queues of the topic, or of those of one cluster, its master, or whoever there is."""
    route = await admin.route(topic)
    return [Found(group.broker_name, whom(group))
            for group in sorted(route.broker_datas, key=lambda each: each.broker_name)
            if group.broker_addrs and cluster in (None, group.cluster)]


def whom(group: BrokerData) -> str:
    """The master's address, or that of the least id."""
    return group.broker_addrs[min(group.broker_addrs)]


def local_time(time_ms: int, millis: bool = True) -> str:
    """As the original prints times: in this machine's zone."""
    when = datetime.fromtimestamp(time_ms / 1e3, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S") + (f",{time_ms % 1000:03}" if millis else "")


def yes(text: str) -> bool:
    """``true`` as Java parses it: anything else is false."""
    return text.strip().lower() == "true"


def in_java(value: object) -> str:
    """As Java prints a value."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={in_java(each)}" for key, each in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)
