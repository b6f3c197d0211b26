"""Topic routes (code 105): which queues a topic has in which groups, and at which addresses these are.

An answer is encoded once and kept until something in it changes: after the loss of a master, clients ask once for every
send they attempt. Knows tables, not requests. Sans-IO.

Source: ``RouteInfoManager.pickupTopicRouteData`` and ``ZoneRouteRPCHook`` of Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

from typing import Any

import attrs

from controller.namesrv.config import NamesrvConfig
from controller.namesrv.counters import Counters
from controller.namesrv.kvconfig import ORDER_TOPIC_CONFIG, KVConfig
from controller.namesrv.tables import MASTER_ID, WRITE, Group, Tables
from remoting.bodies.namesrv import BrokerData, ClusterInfo, TopicRouteData
from remoting.fastjson import Pairs, dumps

SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Topics by which brokers find the members of their own group: never rewritten."""


class Routes:
    """``kv`` holds the order of ordered topics. When that or ``config`` changes, ``forget`` is to be called."""

    def __init__(self, tables: Tables, config: NamesrvConfig, kv: KVConfig, counters: Counters) -> None:
        self.tables, self.config, self.kv, self.counters = tables, config, kv, counters

    def answer(self, topic: str, *, strict: bool, zone: str | None = None) -> bytes | None:
        """The encoded route; None: no registered group has the topic.

        ``strict``: JSON by the book; without it ids are bare numbers as keys, which old clients expect. ``zone``: only
        groups of that zone, and those without a master.
        """
        if zone is None:
            kept = self.tables.answers.get(topic)
            if kept is not None and (body := kept.get(strict)) is not None:
                return body
        route = self.assemble(topic)
        if route is None:
            return None
        self.counters.routes_encoded += 1
        if zone is not None:
            return encode_route(in_zone(route, zone), strict=strict)
        body = encode_route(route, strict=strict)
        self.tables.answers.setdefault(topic, {})[strict] = body
        return body

    def assemble(self, topic: str) -> TopicRouteData | None:
        """The route as a value."""
        queues = self.tables.topics.get(topic)
        if not queues:
            return None
        rewrite = self.config.support_acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
        brokers, filters = [], {}
        for group in self.tables.groups_of(topic):
            addresses = group.addresses()
            if rewrite and acts(group, queues[group.name].perm):
                addresses[MASTER_ID] = addresses.pop(group.least_id)
            brokers.append(broker_data(group, addresses))
            for replica in group.replicas.values():
                if replica.filter_servers:
                    filters[replica.address] = list(replica.filter_servers)
        return TopicRouteData(
            order_topic_conf=self.kv.get(ORDER_TOPIC_CONFIG, topic) if self.config.order_message_enable else None,
            queue_datas=[queues[name] for name in sorted(queues)], broker_datas=brokers, filter_server_table=filters,
            topic_queue_mapping_by_broker=dict(self.tables.mappings.get(topic, {})) or None)

    def forget(self, topic: str | None = None) -> None:
        """Order or configuration changed, for one topic or for all."""
        if topic is None:
            self.tables.answers.clear()
        else:
            self.tables.answers.pop(topic, None)


def acts(group: Group, perm: int) -> bool:
    """Return whether the group's smallest slave is shown as its master: it has none, allows it, and takes no writes."""
    return group.acting_master and group.master is None and not perm & WRITE


def broker_data(group: Group, addresses: dict[int, str] | None = None) -> BrokerData:
    """The group as routes and cluster information show it."""
    return BrokerData(
        cluster=group.cluster, broker_name=group.name,
        broker_addrs=group.addresses() if addresses is None else addresses,
        enable_acting_master=group.acting_master, zone_name=group.zone)


def encode_route(route: TopicRouteData, *, strict: bool) -> bytes:
    """The body of a route. Not ``strict``: as Java writes it for clients before 4.9.4."""
    if strict:
        return route.to_json(ascii_only=True)
    plain = route.to_plain()
    for broker in plain["brokerDatas"]:
        broker["brokerAddrs"] = _bare(broker["brokerAddrs"])
    for mapping in plain.get("topicQueueMappingByBroker", {}).values():
        mapping["currIdMap"] = _bare(mapping["currIdMap"])
    return dumps(plain)


def encode_cluster(info: ClusterInfo, *, strict: bool) -> bytes:
    """The body of cluster information; ``strict`` as of ``encode_route``."""
    if strict:
        return info.to_json()
    plain = info.to_plain()
    for broker in plain["brokerAddrTable"].values():
        broker["brokerAddrs"] = _bare(broker["brokerAddrs"])
    return dumps(plain)


def _bare(by_number: dict[str, Any]) -> Pairs:
    """Return pairs with numbers as keys.

    Older Go clients read a key in quotes as 0, and would take any slave for the master.
    """
    return Pairs(sorted((int(number), value) for number, value in by_number.items()))


def in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Without groups of other zones that have a master: one without is kept, for consumers must read somewhere."""
    gone = {
        broker.broker_name: broker for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs and (broker.zone_name or "").lower() != zone.lower()
    }
    addresses = {address for broker in gone.values() for address in broker.broker_addrs.values()}
    return attrs.evolve(
        route,
        broker_datas=[broker for broker in route.broker_datas if broker.broker_name not in gone],
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name not in gone],
        filter_server_table={
            address: servers for address, servers in route.filter_server_table.items() if address not in addresses})
