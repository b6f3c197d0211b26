"""The registry against a naive model of it: lists that are searched, no index, no cache, each rule once."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from remoting.bodies.namesrv import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode
from tests.controller.namesrv.fleet import SYSTEM, Fleet, config, topic

GROUPS = st.sampled_from(["a", "b"])
IDS = st.integers(0, 3)
ADDRESSES = st.sampled_from([f"x{number}:1" for number in range(6)])
TOPICS = st.lists(st.sampled_from(["T", "U", "V"]), max_size=3, unique=True)
CONNECTIONS = st.sampled_from(["c0", "c1", "c2", "c3"])


@attrs.define
class Member:
    group: str
    broker_id: int
    address: str
    epoch: int
    version: tuple[int, int]
    connection: str
    timeout_ms: int
    heard_ms: int


@attrs.define
class Naive:
    """What Java does, less its leaks: members in a list, topics per group."""

    support: bool
    delete: bool
    members: list[Member] = attrs.field(factory=list)
    queues: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """Permission by topic and group."""
    acting: dict[str, bool] = attrs.field(factory=dict)
    bereft: set[str] = attrs.field(factory=set)

    def of(self, group: str) -> dict[int, Member]:
        return {member.broker_id: member for member in self.members if member.group == group}

    def at(self, address: str) -> Member | None:
        return next((member for member in self.members if member.address == address), None)

    def remove(self, member: Member) -> None:
        self.members.remove(member)
        if not self.of(member.group):
            self.queues = {key: perm for key, perm in self.queues.items() if key[1] != member.group}
            self.bereft.discard(member.group)

    def register(self, new: Member, names: list[str], perm: int, acting: bool | None) -> None:
        group = new.group
        holder, known = self.of(group).get(new.broker_id), self.at(new.address)
        if holder is not None and holder.address != new.address and holder.epoch > new.epoch:
            if known is not None:
                self.remove(known)
            return
        if holder is None and len(names) == 1:
            return
        changed = known is None or known.version != new.version
        kept = dict(self.queues) if known is not None and known.group == group else None
        self.members = [
            member for member in self.members
            if member.address != new.address and (member.group, member.broker_id) != (group, new.broker_id)]
        self.members.append(new)
        for gone in {"a", "b"} - {member.group for member in self.members}:
            self.queues = {key: perm for key, perm in self.queues.items() if key[1] != gone}
            self.bereft.discard(gone)
        assert kept is None or all(key in self.queues for key in kept if key[1] == group)
        self.acting[group] = acting is True
        master = new.broker_id == 0
        if master:
            self.bereft.discard(group)
        prime = not master and acting is not None and new.broker_id == min(self.of(group))
        if not master and not prime:
            return
        if self.delete and (master or group not in self.bereft):
            self.queues = {key: perm for key, perm in self.queues.items() if key[1] != group or key[0] in names}
        for name in names:
            if holder is None or changed or (name, group) not in self.queues:
                self.queues[name, group] = perm & ~2 if prime and acting else perm

    def leave(self, leaving: list[Member], *, orderly: bool) -> None:
        for member in leaving:
            if member.broker_id == 0:
                (self.bereft.discard if orderly else self.bereft.add)(member.group)
            self.remove(member)
        for group in {member.group for member in leaving}:
            if self.of(group) and self.acting[group] and 0 not in self.of(group):
                for key in self.queues:
                    if key[1] == group:
                        self.queues[key] &= ~2

    def route(self, name: str) -> TopicRouteData | None:
        groups = sorted(group for found, group in self.queues if found == name)
        if not groups:
            return None
        brokers = []
        for group in groups:
            addresses = {broker_id: member.address for broker_id, member in sorted(self.of(group).items())}
            if self.support and self.acting[group] and 0 not in addresses and not self.queues[name, group] & 2:
                addresses[0] = addresses.pop(min(addresses))
            brokers.append(BrokerData(group, "C", addresses, self.acting[group]))
        queues = [QueueData(group, 4, 4, self.queues[name, group], 0) for group in groups]
        return TopicRouteData(queues, brokers)


class Compared(RuleBasedStateMachine):
    """Every rule goes to both; every answer must be the same after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0

    @initialize(support=st.booleans(), delete=st.booleans())
    def start(self, support: bool, delete: bool) -> None:
        self.fleet = Fleet(config(supportActingMaster=support, deleteTopicWithBrokerRegistration=delete))
        self.naive = Naive(support, delete)

    @rule(group=GROUPS, broker_id=IDS, address=ADDRESSES, names=TOPICS, perm=st.sampled_from([4, 6, 7]),
          acting=st.sampled_from([True, False, None]), epoch=st.integers(0, 2), version=st.integers(0, 2),
          connection=CONNECTIONS, timeout_ms=st.sampled_from([1_000, 5_000]))
    def register(
        self, group: str, broker_id: int, address: str, names: list[str], perm: int, acting: bool | None, epoch: int,
        version: int, connection: str, timeout_ms: int,
    ) -> None:
        self.fleet.register(
            group, broker_id, address=address, topics=[topic(name, perm) for name in names], acting=acting,
            epoch=epoch, version=version, connection=connection, timeout_ms=timeout_ms, system=False)
        self.naive.register(
            Member(group, broker_id, address, epoch, (epoch, version), connection, timeout_ms, self.now_ms),
            names, perm, acting)

    @rule(address=ADDRESSES)
    def heartbeat(self, address: str) -> None:
        self.fleet.heartbeat(address)
        member = self.naive.at(address)
        if member is not None:
            member.heard_ms = self.now_ms

    @rule(group=GROUPS, address=ADDRESSES)
    def unregister(self, group: str, address: str) -> None:
        self.fleet.unregister(group, 0, address)
        member = self.naive.at(address)
        if member is not None and member.group == group:
            self.naive.leave([member], orderly=True)

    @rule(connection=CONNECTIONS)
    def close(self, connection: str) -> None:
        self.fleet.close(connection)
        leaving = [member for member in self.naive.members if member.connection == connection]
        self.naive.leave(sorted(leaving, key=lambda each: (each.group, each.broker_id)), orderly=False)

    @rule(by_ms=st.sampled_from([1, 500, 1_000]))
    def wait(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.fleet.pass_to(self.now_ms)
        silent = [member for member in self.naive.members if member.heard_ms + member.timeout_ms <= self.now_ms]
        for member in sorted(silent, key=lambda each: each.heard_ms + each.timeout_ms):
            self.naive.leave([member], orderly=False)

    @rule(group=GROUPS, name=st.sampled_from(["T", "U", "V"]))
    def delete(self, group: str, name: str) -> None:
        self.fleet.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=name)
        self.naive.queues = {key: perm for key, perm in self.naive.queues.items() if key[0] != name}

    @rule(group=GROUPS)
    def wipe(self, group: str) -> None:
        self.fleet.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName=group)
        for key in self.naive.queues:
            if key[1] == group:
                self.naive.queues[key] &= ~2

    @invariant()
    def answers_agree(self) -> None:
        if not hasattr(self, "fleet"):
            return
        for name in ("T", "U", "V", SYSTEM):
            assert self.fleet.route(name) == self.naive.route(name)
        for group in ("a", "b"):
            found = {broker_id: member.address for broker_id, member in sorted(self.naive.of(group).items())}
            assert self.fleet.members(group) == found
        assert {name for name, group in self.fleet.tables.groups.items() if group.bereft} == self.naive.bereft

    @invariant()
    def nothing_is_empty_while_a_replica_lives(self) -> None:
        if not hasattr(self, "fleet"):
            return
        for broker in self.fleet.cluster().broker_addr_table.values():
            assert broker.broker_addrs


Compared.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestCompared = Compared.TestCase
