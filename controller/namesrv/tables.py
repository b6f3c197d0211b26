"""Tables of registered broker groups and replicas, the queues that each group gives each topic, and encoded answers.

State and its indices, no decisions. A ``RegisteredBroker`` is a row of Java's address table and of its live table in
one, so neither can outlive the other: Java's ``RouteInfoManager`` keeps the live row for ever when a broker's address
was taken over before its channel closed, keeps groups without addresses after a refused registration, and queue
mappings of topics that are gone.

Sans-IO: time is a number (ns), a connection any hashable object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping

import attrs

from remoting.bodies.namesrv import DataVersion, QueueData, TopicQueueMappingInfo

MASTER_ID = 0
"""The broker id of a group's master."""
READ = 4
"""Bit of a topic's ``perm``."""
WRITE = 2
"""Bit of a topic's ``perm``."""

REPLICAS_MAX = 100_000
ROWS_MAX = 2_000_000
"""Queues of all groups and topics: what strangers can make this process hold."""
CHARS_MAX = 256 << 20
"""Size of all names, addresses and mappings together."""


@attrs.define(eq=False)
class RegisteredBroker:
    """A broker process that registered and has not left."""

    cluster: str
    address: str
    group: Group
    broker_id: int
    data_version: DataVersion
    ha_address: str | None
    connection: Hashable
    timeout_ns: int
    heard_ns: int
    filter_servers: tuple[str, ...] = ()
    chars: int = 0
    """Its part of ``Tables.chars``."""
    beat: Mapping[str, str] | None = None
    """Fields of its latest heartbeat, which were good."""
    queued_ns: int = -1
    """Deadline under which it stands in the queue of the silent; -1: none."""
    settled: tuple[object, ...] | None = None
    """Content of its latest registration, and the ``revision`` of its group after it."""


@attrs.define(eq=False)
class Group:
    """A broker group, which RocketMQ calls by its broker name. Has a replica, or is not in the tables."""

    name: str
    cluster: str
    """Cluster of the replica that registered last."""
    acting_master: bool = False
    """Its smallest slave stands in for a master that is gone (``enableSlaveActingMaster``)."""
    zone: str | None = None
    replicas: dict[int, RegisteredBroker] = attrs.field(factory=dict)
    queues: dict[str, QueueData] = attrs.field(factory=dict)
    """Numbers and permissions of its queues, by topic."""
    bereft: bool = False
    """Its master vanished without a farewell, and none has registered since."""
    revision: int = 0
    """Grows with every change of what routes show of it."""

    @property
    def master(self) -> RegisteredBroker | None:
        return self.replicas.get(MASTER_ID)

    @property
    def least_id(self) -> int:
        return min(self.replicas)

    def addresses(self) -> dict[int, str]:
        """Return addresses by broker id, in the order of ids."""
        return {broker_id: self.replicas[broker_id].address for broker_id in sorted(self.replicas)}


@attrs.define(eq=False)
class Tables:
    """All that a name server knows of brokers. Every change of what a route shows drops that topic's ``answers``."""

    groups: dict[str, Group] = attrs.field(factory=dict)
    live: dict[tuple[str, str], RegisteredBroker] = attrs.field(factory=dict)
    """Living brokers, by cluster and address."""
    topics: dict[str, dict[str, QueueData]] = attrs.field(factory=dict)
    """Queues by topic, then by group. The same objects as in ``Group.queues``."""
    mappings: dict[str, dict[str, TopicQueueMappingInfo]] = attrs.field(factory=dict)
    """Mappings of static topics: by topic, then by the group that has it."""
    answers: dict[str, dict[object, bytes]] = attrs.field(factory=dict)
    """Encoded routes, by topic and kind: ``routes`` fills it."""
    rows: int = 0
    """Queues of all groups and topics together."""
    chars: int = 0
    """Size of what replicas, topics and mappings are called and hold: each is counted where it is entered."""
    _by_connection: dict[Hashable, set[RegisteredBroker]] = attrs.field(factory=dict)

    # --- replicas --------------------------------------------------------------------------------------------

    def put_replica(self, replica: RegisteredBroker) -> None:
        """Enter it, in the place of whatever has its id in its group or its address in its cluster."""
        group = replica.group
        self.groups[group.name] = group
        for other in (group.replicas.get(replica.broker_id), self.live.get((replica.cluster, replica.address))):
            if other is not None and other.group.replicas.get(other.broker_id) is other:
                self._detach(other)
                if not other.group.replicas and other.group is not group:
                    self._drop_group(other.group)
        group.replicas[replica.broker_id] = replica
        self.live[replica.cluster, replica.address] = replica
        self.chars += replica.chars
        self._by_connection.setdefault(replica.connection, set()).add(replica)
        self.forget_answers(group)

    def weigh(self, replica: RegisteredBroker, chars: int) -> None:
        """It is told of in so many characters from now on."""
        self.chars += chars - replica.chars
        replica.chars = chars

    def reconnect(self, replica: RegisteredBroker, connection: Hashable) -> None:
        """It speaks over another channel now: the old one's end is none of its business."""
        if replica.connection != connection:
            self._disconnect(replica)
            replica.connection = connection
            self._by_connection.setdefault(connection, set()).add(replica)

    def drop_replica(self, replica: RegisteredBroker) -> None:
        """It leaves; the last of its group takes the group and its queues along."""
        self._detach(replica)
        if not replica.group.replicas:
            self._drop_group(replica.group)

    def _detach(self, replica: RegisteredBroker) -> None:
        self.forget_answers(replica.group)
        del replica.group.replicas[replica.broker_id]
        del self.live[replica.cluster, replica.address]
        self.chars -= replica.chars
        self._disconnect(replica)

    def _disconnect(self, replica: RegisteredBroker) -> None:
        carried = self._by_connection[replica.connection]
        carried.discard(replica)
        if not carried:
            del self._by_connection[replica.connection]

    def _drop_group(self, group: Group) -> None:
        del self.groups[group.name]
        for topic in list(group.queues):
            self.drop_queue(topic, group)

    def carried_by(self, connection: Hashable) -> list[RegisteredBroker]:
        """Replicas whose latest registration came over it, in an order that no set decides."""
        return sorted(self._by_connection.get(connection, ()), key=lambda each: (each.group.name, each.broker_id))

    def clusters(self) -> dict[str, list[str]]:
        """Names of groups by cluster, both sorted."""
        names: dict[str, set[str]] = {}
        for group in self.groups.values():
            for replica in group.replicas.values():
                names.setdefault(replica.cluster, set()).add(group.name)
        return {cluster: sorted(names[cluster]) for cluster in sorted(names)}

    # --- queues ----------------------------------------------------------------------------------------------

    def put_queue(self, topic: str, group: Group, queue: QueueData) -> None:
        old = group.queues.get(topic)
        if old != queue:
            self.rows += old is None
            self.chars += len(topic) if old is None else 0
            group.revision += 1
            group.queues[topic] = queue
            self.topics.setdefault(topic, {})[group.name] = queue
            self.answers.pop(topic, None)

    def drop_queue(self, topic: str, group: Group) -> bool:
        """Remove a group's queues of the topic. Returns whether it had any."""
        if group.queues.pop(topic, None) is None:
            return False
        self.rows -= 1
        self.chars -= len(topic)
        mapping = self.mappings.get(topic, {}).get(group.name)
        self.chars -= mapping_chars(mapping) if mapping is not None else 0
        group.revision += 1
        self.answers.pop(topic, None)
        for table in (self.topics, self.mappings):
            holders = table.get(topic)
            if holders is not None:
                holders.pop(group.name, None)
                if not holders:
                    del table[topic]
        return True

    def change_permission(self, group: Group, change: Callable[[int], int]) -> int:
        """Give every topic of the group another ``perm``; returns how many it has."""
        for topic, queue in group.queues.items():
            self.put_queue(topic, group, attrs.evolve(queue, perm=change(queue.perm)))
        return len(group.queues)

    def put_mapping(self, topic: str, group: Group, mapping: TopicQueueMappingInfo) -> None:
        """Set the mapping of a topic that the group has."""
        if topic in group.queues:
            holders = self.mappings.setdefault(topic, {})
            old = holders.get(group.name)
            self.chars += mapping_chars(mapping) - (mapping_chars(old) if old is not None else 0)
            holders[group.name] = mapping
            self.answers.pop(topic, None)

    def full(self, *, replicas: int = 0, rows: int = 0, chars: int = 0) -> bool:
        """Return whether the tables lack room for so many more replicas, rows and characters."""
        return (len(self.live) + replicas > REPLICAS_MAX or self.rows + rows > ROWS_MAX
                or self.chars + chars > CHARS_MAX)

    # --- answers ---------------------------------------------------------------------------------------------

    def forget_answers(self, group: Group) -> None:
        """Something about the group changed that routes show."""
        group.revision += 1
        for topic in group.queues:
            self.answers.pop(topic, None)

    def groups_of(self, topic: str) -> Iterator[Group]:
        """Groups that hold the topic, by name."""
        for name in sorted(self.topics.get(topic, ())):
            yield self.groups[name]


def mapping_chars(mapping: TopicQueueMappingInfo) -> int:
    """Return what a mapping counts in ``Tables.chars``: its texts, and sixteen for each queue."""
    texts = (mapping.topic, mapping.scope, mapping.bname)
    return sum(len(text or "") for text in texts) + 16 * len(mapping.curr_id_map)
