"""Keeps which brokers are registered: they come (103), say that they live (904, 322), leave (104), lose their channel,
fall silent.

A registration is decided before anything changes; Java changes its tables on the way to a refusal. Whatever ends a
replica takes all of it out of the tables within the same call, so no route shows it afterwards. What stays is decided
here too: while any replica of a group is registered, the group keeps its queues, whichever replica brought them. So
after the loss of a master, routes show its queues and the slaves without id 0, and a producer that fetched such a route
asks again on every send; only a group without any replica is gone and answered with TOPIC_NOT_EXIST, on which a
producer keeps the route it has. There is no timer in this: the slaves' registrations are the memory, and the next
master's registration ends it.

Source: ``RouteInfoManager`` of Apache RocketMQ 5.5.0, whose rules hold unless said otherwise. Sans-IO: time is a number
(ns), a connection any hashable object.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping

import attrs

from controller.liveness import SWEPT_FROM, Attention
from controller.namesrv.config import NamesrvConfig
from controller.namesrv.counters import Counters
from controller.namesrv.effects import MinIdChanged
from controller.namesrv.tables import MASTER_ID, WRITE, Group, RegisteredBroker, Tables, mapping_chars
from controller.namesrv.verdict import Verdict
from remoting.bodies.namesrv import DataVersion, QueueData, TopicConfig, TopicQueueMappingInfo
from remoting.headers.controller import HEARTBEAT_TIMEOUT_MS_MAX

MS = 1_000_000
DEFAULT_TIMEOUT_MS = 120_000
"""Time that a broker may be silent if it announces no timeout."""
BEAT_CHARS_MAX = 4_096
"""A larger heartbeat is not remembered, and read anew each time."""
PARDON_NS = 5_000 * MS
"""Time that a broker has to be heard once this process goes on after a pause, or its whole timeout if that is less."""


@attrs.frozen(kw_only=True)
class Registration:
    """A broker's registration. ``acting_master`` None: a broker from before slave acting master."""

    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str | None = None
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    data_version: DataVersion = DataVersion()
    topics: Mapping[str, TopicConfig] = attrs.field(factory=dict)
    mappings: Mapping[str, TopicQueueMappingInfo] = attrs.field(factory=dict)
    filter_servers: tuple[str, ...] | None = None
    looks: object = None
    """Equal for registrations that are equal in everything: ``repeat`` knows it again."""

    @property
    def own_chars(self) -> int:
        """Size of what is kept of the replica itself."""
        texts = (self.cluster, self.address, self.broker_name, self.ha_address or "", self.zone or "",
                 *(self.filter_servers or ()))
        return sum(map(len, texts))

    @property
    def chars(self) -> int:
        """Size of all that may be kept, as ``Tables.chars`` counts."""
        return (self.own_chars + sum(len(config.topic_name) for config in self.topics.values())
                + sum(map(mapping_chars, self.mappings.values())))


@attrs.frozen
class RegistrationResult:
    """The outcome. ``master_address`` and ``ha_address`` are for a slave whose master is registered."""

    verdict: Verdict
    master_address: str | None = None
    ha_address: str | None = None
    notices: tuple[MinIdChanged, ...] = ()
    came: bool = False
    """Nobody was registered at this address under this id before."""


@attrs.frozen
class Departed:
    """Replicas that left, whom to tell, and connections over which nobody is registered any longer (silence only)."""

    replicas: tuple[RegisteredBroker, ...] = ()
    notices: tuple[MinIdChanged, ...] = ()
    close: tuple[Hashable, ...] = ()


class Registry:
    """The rules over the tables. ``config`` may be replaced at any time."""

    def __init__(self, tables: Tables, config: NamesrvConfig, counters: Counters) -> None:
        self.tables, self.config, self.counters = tables, config, counters
        self._silence: list[tuple[int, int, RegisteredBroker]] = []
        self._pushes = 0
        self._attention = Attention()

    # --- coming ----------------------------------------------------------------------------------------------

    def register(self, now: int, new: Registration, connection: Hashable) -> RegistrationResult:
        """Decides a registration (code 103)."""
        group = self.tables.groups.get(new.broker_name)
        if group is None:
            group = Group(new.broker_name, new.cluster)
        holder = group.replicas.get(new.broker_id)
        known = self.tables.live.get((new.cluster, new.address))
        if holder is not None and holder.address != new.address:
            if holder.data_version.state_version > new.data_version.state_version:
                if known is not None:
                    self.tables.drop_replica(known)
                return RegistrationResult(Verdict.OUTRANKED)
        if holder is None and len(new.topics) == 1:
            return RegistrationResult(Verdict.TOO_EARLY)

        if self._full(new, known):
            return RegistrationResult(Verdict.FULL)

        min_changed = new.broker_id < min(group.replicas, default=MASTER_ID)
        changed = known is None or known.data_version != new.data_version
        replica = self._enter(now, new, group, connection, known)
        self._absorb(new, group, first=holder is None, changed=changed)

        notices: tuple[MinIdChanged, ...] = ()
        if min_changed and self.config.notify_min_broker_id_changed:
            notices = (_joined(group, new.ha_address),)
        replica.settled = None if new.looks is None else (new.looks, group.revision, self.config)
        return self._accepted(replica, notices, came=holder is None or holder.address != new.address)

    def repeat(
        self, now: int, cluster: str, address: str, looks: object, connection: Hashable,
    ) -> RegistrationResult | None:
        """A registration that looks as this replica's latest one: what it would come to, for a tenth of the work.

        None: something has changed since, so it must be read and registered. Brokers register every 30 s, and nearly
        always there is nothing new in it.
        """
        replica = self.tables.live.get((cluster, address))
        if replica is None or replica.settled != (looks, replica.group.revision, self.config):
            return None
        self.tables.reconnect(replica, connection)
        replica.heard_ns = now
        return self._accepted(replica, (), came=False)

    def _accepted(
        self, replica: RegisteredBroker, notices: tuple[MinIdChanged, ...], *, came: bool,
    ) -> RegistrationResult:
        master = replica.group.master
        if master is None or master is replica:
            return RegistrationResult(Verdict.ACCEPTED, None, None, notices, came)
        return RegistrationResult(Verdict.ACCEPTED, master.address, master.ha_address, notices, came)

    def _full(self, new: Registration, known: RegisteredBroker | None) -> bool:
        return self.tables.full(replicas=known is None, rows=len(new.topics), chars=new.chars)

    def _enter(
        self, now: int, new: Registration, group: Group, connection: Hashable, known: RegisteredBroker | None,
    ) -> RegisteredBroker:
        shown = group.cluster, group.zone, group.acting_master
        group.cluster, group.zone, group.acting_master = new.cluster, new.zone, new.acting_master is True
        timeout_ms = DEFAULT_TIMEOUT_MS if new.timeout_ms is None else min(
            max(new.timeout_ms, 0), HEARTBEAT_TIMEOUT_MS_MAX)
        filters = new.filter_servers
        if filters is None:
            filters = known.filter_servers if known is not None else ()
        if known is not None and known.group is group and known.broker_id == new.broker_id:
            replica = known
            if shown != (group.cluster, group.zone, group.acting_master) or filters != replica.filter_servers:
                self.tables.forget_answers(group)
            self.tables.reconnect(replica, connection)
            replica.data_version, replica.ha_address, replica.filter_servers = new.data_version, new.ha_address, filters
            replica.timeout_ns, replica.heard_ns = timeout_ms * MS, now
            self.tables.weigh(replica, new.own_chars)
        else:
            replica = RegisteredBroker(
                new.cluster, new.address, group, new.broker_id, new.data_version, new.ha_address, connection,
                timeout_ms * MS, now, filters, chars=new.own_chars)
            self.tables.put_replica(replica)
        if new.broker_id == MASTER_ID:
            group.bereft = False
        self._await_silence(replica)
        return replica

    def _absorb(self, new: Registration, group: Group, *, first: bool, changed: bool) -> None:
        """Take over queues, from a master or from the slave that would act for it."""
        master = new.broker_id == MASTER_ID
        prime = not master and new.acting_master is not None and new.broker_id == group.least_id
        if not (master or prime):
            return
        tables = self.tables
        names = {config.topic_name for config in new.topics.values()}
        if self.config.delete_topic_with_broker_registration and not new.mappings and not (prime and group.bereft):
            # A slave may lag: keep the topics of the lost master that the slave does not know yet.
            for topic in group.queues.keys() - names:
                tables.drop_queue(topic, group)
        strip = WRITE if prime and group.acting_master else 0
        for config in new.topics.values():
            topic = config.topic_name
            if first or changed or topic not in group.queues:
                tables.put_queue(topic, group, QueueData(
                    broker_name=group.name, read_queue_nums=config.read_queue_nums,
                    write_queue_nums=config.write_queue_nums, perm=config.perm & ~strip,
                    topic_sys_flag=config.topic_sys_flag))
        if first or changed:
            for topic, mapping in new.mappings.items():
                tables.put_mapping(topic, group, mapping)

    # --- being there -----------------------------------------------------------------------------------------

    def heartbeat(self, now: int, cluster: str, address: str, fields: Mapping[str, str]) -> bool:
        """Code 904, ``fields`` are good. A replica that has left is not brought back: it must register. Whether it was
        there."""
        replica = self.tables.live.get((cluster, address))
        if replica is None:
            return False
        replica.heard_ns = now
        replica.beat = fields if sum(map(len, fields.values())) + sum(map(len, fields)) <= BEAT_CHARS_MAX else None
        return True

    def heartbeat_again(self, now: int, fields: Mapping[str, str]) -> bool:
        """Code 904 with the fields of the replica's last one, which are not read again. False: it has others."""
        replica = self.tables.live.get((fields.get("clusterName", ""), fields.get("brokerAddr", "")))
        if replica is None or replica.beat != fields:
            return False
        replica.heard_ns = now
        return True

    def data_version(self, now: int, cluster: str, address: str) -> DataVersion | None:
        """Code 322: what this replica registered with; it counts as a heartbeat."""
        replica = self.tables.live.get((cluster, address))
        if replica is None:
            return None
        replica.heard_ns = now
        return replica.data_version

    # --- leaving ---------------------------------------------------------------------------------------------

    def unregister(self, farewells: Iterable[tuple[str, str, str]]) -> Departed:
        """Code 104, for any number of brokers: (cluster, address, broker name) each."""
        leaving = []
        for cluster, address, broker_name in farewells:
            replica = self.tables.live.get((cluster, address))
            if replica is not None and replica.group.name == broker_name:
                leaving.append(replica)
        return self._leave(leaving, orderly=True)

    def closed(self, connection: Hashable) -> Departed:
        """A channel is gone: whoever registered over it last is gone too."""
        return self._leave(self.tables.carried_by(connection), orderly=False)

    def expire(self, now: int) -> Departed:
        """Judge silence. Call it at ``next_deadline``; calling earlier or later does no harm."""
        queue = self._silence
        if self._attention.look(now):
            for replica in self.tables.live.values():
                if self._attention.since(replica.timeout_ns) == now:
                    replica.heard_ns = max(replica.heard_ns, now - max(replica.timeout_ns - PARDON_NS, 0))
        silent = []
        while queue and queue[0][0] <= now:
            place = heapq.heappop(queue)
            if not self._counts(place):
                continue
            replica = place[2]
            replica.queued_ns = -1
            if replica.heard_ns + replica.timeout_ns <= now:
                silent.append(replica)
            else:
                self._await_silence(replica)
        if not silent:
            return Departed()
        left = self._leave(silent, orderly=False)
        connections = dict.fromkeys(replica.connection for replica in silent)
        return attrs.evolve(left, close=tuple(each for each in connections if not self.tables.carried_by(each)))

    def next_deadline(self) -> int | None:
        """Return when ``expire`` is to be called; perhaps too early. None: nobody is registered."""
        return self._attention.plan(self._silence[0][0]) if self._silence else None

    def _await_silence(self, replica: RegisteredBroker) -> None:
        due = replica.heard_ns + replica.timeout_ns
        if 0 <= replica.queued_ns <= due:
            return  # its earlier place in the queue will put it in again
        replica.queued_ns = due
        self._pushes += 1
        heapq.heappush(self._silence, (replica.queued_ns, self._pushes, replica))
        if len(self._silence) > 2 * len(self.tables.live) + SWEPT_FROM:
            self._silence = [place for place in self._silence if self._counts(place)]
            heapq.heapify(self._silence)

    def _counts(self, place: tuple[int, int, RegisteredBroker]) -> bool:
        """Return whether a place in the queue is the latest one of a registered replica."""
        due, _, replica = place
        return due == replica.queued_ns and self.tables.live.get((replica.cluster, replica.address)) is replica

    def _leave(self, leaving: Iterable[RegisteredBroker], *, orderly: bool) -> Departed:
        offline: dict[Group, str | None] = {}
        left = []
        for replica in leaving:
            group = replica.group
            if group.replicas.get(replica.broker_id) is not replica:
                continue  # the list names it twice
            was_least = replica.broker_id == group.least_id
            offline[group] = replica.address if was_least else offline.get(group)
            self.tables.drop_replica(replica)
            left.append(replica)
            if replica.broker_id == MASTER_ID:
                group.bereft = not orderly
        notices = []
        for group, address in offline.items():
            if not group.replicas:
                continue
            if group.acting_master:
                if group.master is None:
                    self.tables.change_permission(group, lambda perm: perm & ~WRITE)
                if address is not None and self.config.notify_min_broker_id_changed:
                    notices.append(_departed(group, address))
        return Departed(tuple(left), tuple(notices))


def _joined(group: Group, ha_address: str | None) -> MinIdChanged:
    """A broker with a smaller id than all others came: tell the others, or itself where it is alone."""
    least = group.replicas[group.least_id]
    others = tuple(address for broker_id, address in group.addresses().items() if broker_id != least.broker_id)
    return MinIdChanged(others or (least.address,), least.broker_id, least.address, ha_address=ha_address)


def _departed(group: Group, offline_address: str) -> MinIdChanged:
    """The broker with the smallest id left: tell all that remain."""
    least = group.replicas[group.least_id]
    return MinIdChanged(
        tuple(group.addresses().values()), least.broker_id, least.address, offline_address=offline_address)
