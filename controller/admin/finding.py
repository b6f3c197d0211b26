"""Finds brokers by the name server: the masters of a cluster, or whom to ask about a topic.

Raises ``AdminError`` where the name server knows nothing of the kind, and ``RemotingError``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
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
    found = [Found(name, address) for name, addresses in await replicas(admin, cluster)
             for broker_id, address in sorted(addresses.items()) if slaves or broker_id == MASTER_ID]
    if not found:
        raise AdminError(f"no group of cluster {cluster} has a master at the moment")
    return found


async def asked_brokers(admin: Admin, options: argparse.Namespace, *, slaves: bool = False) -> list[Found]:
    """Return the brokers that ``broker_address_or_cluster`` means: the one named, or those of the cluster."""
    if options.brokerAddr:
        return [Found("", options.brokerAddr)]
    return await of_cluster(admin, options.clusterName, slaves=slaves)


NO_MASTER = "NO_MASTER"
"""Text that the original prints as the master of slaves that have none."""


async def titled(admin: Admin, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the asked brokers, each with the line that the original puts above it; slaves behind their masters."""
    if options.brokerAddr:
        return [(f"============{options.brokerAddr}============", options.brokerAddr)]
    found: list[tuple[str, str]] = []
    for _, addresses in await replicas(admin, options.clusterName):
        master = addresses.get(MASTER_ID)
        found += [(f"============Master: {address}============" if broker_id == MASTER_ID else
                   f"============My Master: {master or NO_MASTER}=====Slave: {address}============", address)
                  for broker_id, address in sorted(addresses.items())]
    return found


async def replicas(admin: Admin, cluster: str) -> list[tuple[str, dict[int, str]]]:
    """Each group of a cluster with its brokers by id."""
    clusters = await admin.clusters()
    if cluster not in clusters.cluster_addr_table:
        known = ", ".join(sorted(clusters.cluster_addr_table)) or "none"
        raise AdminError(f"the name server knows no cluster {cluster}; it knows {known}")
    return [(name, dict(clusters.broker_addr_table[name].broker_addrs))
            for name in sorted(clusters.cluster_addr_table[cluster]) if name in clusters.broker_addr_table]


async def of_topic(admin: Admin, topic: str, *, cluster: str | None = None) -> list[Found]:
    """Return one broker of each group with queues of the topic, in one cluster or all.

    It is the master, or a slave where there is no master.
    """
    route = await admin.route(topic)
    return [Found(group.broker_name, whom(group))
            for group in sorted(route.broker_datas, key=lambda each: each.broker_name)
            if group.broker_addrs and cluster in (None, group.cluster)]


def whom(group: BrokerData) -> str:
    """The master's address, or that of the least id."""
    return group.broker_addrs[min(group.broker_addrs)]


def local_time(time_ms: int, millis: bool = True) -> str:
    """Format a time as the original does: in this machine's zone."""
    when = datetime.fromtimestamp(time_ms / 1e3, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S") + (f",{time_ms % 1000:03}" if millis else "")


def yes(text: str) -> bool:
    """``true`` as Java parses it: anything else is false."""
    return text.strip().lower() == "true"


def in_java(value: object) -> str:
    """Format a value as Java prints it."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={in_java(each)}" for key, each in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def stamp(time_ms: int) -> str:
    """A time as the original writes it without marks: yyyyMMddHHmmssSSS, in this machine's zone."""
    return datetime.fromtimestamp(time_ms / 1e3, UTC).astimezone().strftime("%Y%m%d%H%M%S") + f"{time_ms % 1000:03}"


def first_number(stats: Mapping[str, str], key: str) -> float:
    """Return the first number in a value of code 28, which may be several numbers or words; 0 where there is none."""
    try:
        return float((stats.get(key) or "0").split()[0])
    except (ValueError, IndexError):
        return 0.0
