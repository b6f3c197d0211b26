"""A broker group in a simulated world: its machines, their chance faults, and its clients; and the base of scenes.

It knows no controllers: a subclass reports their decisions and carries brokers' requests to them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from controller.metadata.groups import BrokerGroup, GroupKey
from harness.simulation.brokers.client import Consumer, Producer
from harness.simulation.brokers.delays import DelayClient
from harness.simulation.brokers.deletions import DeletionClient
from harness.simulation.brokers.host import Host
from harness.simulation.brokers.plan import BrokerPlan
from harness.simulation.brokers.popping import PopClient
from harness.simulation.brokers.timers import TimerClient
from harness.simulation.brokers.transactions import TransactionClient
from raft.config import MS
from raft.sim.links import Link, Network, Receiver
from raft.sim.tape import Chance, Tape, Value
from raft.sim.world import World
from remoting.codes import ResponseCode
from remoting.command import Command

if TYPE_CHECKING:
    from harness.simulation.brokers.controller import BrokerChannel
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch

logging.getLogger("broker").addHandler(logging.NullHandler())  # it warns of the disk faults that we inject


E_PROBE: Final = 28
SELDOM_FIRST_NS: Final = 300 * MS
WALL_MS: Final = 1_700_000_000_000
"""The wall clock when a seed begins."""


class WholeScene(ABC):
    """A whole scene, as ``raft.sim.campaign`` plays it: it is its own cluster."""

    world: World
    network: Network
    counts: Counter[str]

    @property
    def cluster(self) -> Self:
        return self

    @property
    def fingerprint(self) -> str:
        return self.world.fingerprint

    @property
    @abstractmethod
    def evaluated(self) -> Counter[str]:
        """Return how often each property was evaluated."""

    @property
    def happened(self) -> Counter[str]:
        return self.counts + self.network.counts


class Group(ABC):
    """One group. ``controllers``: addresses in the brokers' configuration; ``name``: prefix of its streams."""

    watch: BrokerWatch

    def __init__(
        self, tape: Tape, plan: BrokerPlan, world: World, network: Network, counts: Counter[str], *,
        key: GroupKey, controllers: tuple[str, ...], ends_ns: int, name: str = "",
    ) -> None:
        self.plan, self.world, self.network, self.counts = plan, world, network, counts
        self.key, self.controller_addresses = key, controllers
        self.outcomes: Counter[str] = Counter()
        (self.pieces, self.syncs, self.turns, self.bodies) = (
            tape.stream(name + what) for what in ("pieces", "syncs", "turns", "bodies"))
        self._sites, self._luck, self._closes, self._acts, self._guesses, self._resumes = (
            tape.stream(name + what) for what in ("sites", "luck", "closes", "client", "guesses", "resumes"))
        self.healed = False
        self._demands = tape.stream(name + "demands")
        self._ends = ends_ns
        self.hosts = [self._make_host(number) for number in range(plan.brokers)]
        self._lives = 0
        self.copies: list[Host] = []
        """Machines that run with a copy of another machine's disk."""
        self.lost: set[int] = set()
        """Ids whose data may be lost: their disk is gone, or they were cleaned away."""
        self.producers = [Producer(self, number, number % plan.queues) for number in range(plan.producers)]
        self._seldom = Producer(self, plan.producers, plan.queues)
        self.consumer = Consumer(self)
        if "delays" in plan.features:
            DelayClient(self, tape.stream(name + "delays"))
        if "timers" in plan.features:
            TimerClient(self, tape.stream(name + "timers"))
        if "transactions" in plan.features:
            TransactionClient(self, tape.stream(name + "transactions"))
        if "pops" in plan.features:
            PopClient(self, tape.stream(name + "pops"))
        if "deletions" in plan.features:
            DeletionClient(self, tape.stream(name + "deletions"))
        self._traits()
        self.after(plan.op_ns, self._client)
        if plan.seldom_ms:
            self.after(SELDOM_FIRST_NS, self._write_seldom)
        if plan.demand_chance:
            self.after(plan.demand_ns, self._operator)

    def _make_host(self, number: int) -> Host:
        return Host(self, number)

    def _traits(self) -> None:
        plan = self.plan
        for name, has in (("learner", plan.learners), ("sync flush", plan.sync_flush),
                          ("async flush", not plan.sync_flush), ("fewer acknowledgements", not plan.all_ack),
                          ("flow control", plan.flow_bytes), ("pieces", plan.pieces),
                          ("java controllers", plan.java_controllers)):
            self.counts[name] += bool(has)

    # --- controllers -----------------------------------------------------------------------------------------

    @abstractmethod
    def group(self) -> BrokerGroup | None:
        """The group as controllers have committed it."""

    @abstractmethod
    def ask(self, process: BrokerProcess, address: str, command: Command, timeout_ms: int,
            then: Callable[[Command | None], None]) -> None:
        """Sends a request to a controller."""

    @abstractmethod
    def channel_closed(self, host: Host, channel: BrokerChannel) -> None:
        """The controller hears of a closed connection sooner or later."""

    @abstractmethod
    def restart(self, host: Host, span_ms: int) -> None:
        """Starts the machine's broker later, unless it was started meanwhile."""

    def reported(self, process: BrokerProcess, problem: str) -> None:
        """Count a problem that a broker reports to its operator."""
        self.counts["report"] += 1
        self.counts["second life refused"] += "not registered, and asked again" in problem
        self.counts["resigned"] += "asks for another election" in problem
        self.counts["asked for a successor"] += "asks for a successor" in problem

    # --- brokers among themselves ----------------------------------------------------------------------------

    def probe(self, process: BrokerProcess, address: str, command: Command, timeout_ms: int,
              then: Callable[[Command | None], None]) -> None:
        """Carry a probe from one broker to another. A broker that is down or paused does not answer."""
        host, other = process.host, self.host_at(address)

        def asked() -> None:
            there = other.process
            if there is not None and there.opened:
                answer = there.member.probed(command)
                self.counts["member reached"] += answer.code == ResponseCode.SUCCESS
                self.network.link(other.name, host.name, "probe").send(
                    lambda: host.do(process, E_PROBE, lambda: then(answer)))

        self.network.link(host.name, other.name, "probe").send(lambda: other.do(other.process, E_PROBE, asked))
        process.later(timeout_ms * MS, E_PROBE, lambda: then(None))

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        """The wall clock, which all machines share."""
        return WALL_MS + self.world.now // MS

    @property
    def over(self) -> bool:
        """True once clients have stopped for good."""
        return self.world.now >= self._ends

    def host_at(self, address: str) -> Host:
        name = address.partition(":")[0]
        return next(host for host in (*self.hosts, *self.copies) if host.name == name)

    def host_of(self, broker_id: int | None) -> Host | None:
        group = self.group()
        address = group.address_of(broker_id) if group is not None else None
        return self.host_at(address) if address else None

    def new_life(self) -> int:
        """A unique number for a process's life; real ones are random."""
        self._lives += 1
        return self._lives

    def guess_master(self, tried: int) -> int:
        """The broker that a producer turns to next: mostly the master on record."""
        host = self.host_of(group.master) if (group := self.group()) is not None else None
        if host is None or self._guesses.chance(0.25):
            return tried + 1
        return host.number

    # --- chance ----------------------------------------------------------------------------------------------

    def site(self, what: str) -> bool:
        """Draw whether a process dies right before this operation on files."""
        return not self.healed and self._sites.chance(self.plan.site_chance)

    def powerless(self) -> bool:
        """Draw whether a crash takes the machine with it."""
        return self._luck.chance(0.5 if "power cut" in self.plan.harms else 0.0)

    def survivors(self) -> Callable[[int], int]:
        """Draw which unsynced changes of each sector survive a power cut: none, all, or any part of them."""
        kind = self._luck.between(0, 3, 0)
        if kind < 2:
            return lambda size: size * kind
        return lambda size: self._luck.between(0, size, 0)

    def first_found(self) -> bool | None:
        """Draw what a resumed loop takes first: True: overdue timers; False: arrivals; None: both in their order."""
        return (None, True, False)[self._resumes.between(0, 2, 0)]

    def seen(self) -> bool:
        """Draw whether a controller hears that a connection ended."""
        if self._closes.chance(1 - self.plan.close_seen):
            self.counts["close unseen"] += 1
            return False
        return True

    def found(self, error: Exception) -> None:
        """Raise a violation after this event, since the code that found it would be caught now."""
        self.world.at(self.world.now, _throw, error, tie=-1)

    # --- the network -----------------------------------------------------------------------------------------

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self.world.at(self.world.now + delay_ns, _call, call)

    def send(self, source: Host, target: Host, kind: str, call: Callable[[], None]) -> None:
        self.network.link(source.name, target.name, kind).send(call)

    def to_broker(self, host: Host, call: Callable[[], None]) -> None:
        self.network.link("client", host.name, "client").send(call)

    def reply(self, host: Host, call: Callable[[], None]) -> None:
        self.network.link(host.name, "client", "client").send(call)

    # --- an operator -----------------------------------------------------------------------------------------

    def _operator(self) -> None:
        """Change a broker's ``minInSyncReplicas`` now and then, for good or for a while.

        Masters are changed more often than others, and more often while puts wait.
        """
        if self.world.now >= self._ends:
            return
        self.after(self.plan.demand_ns, self._operator)
        act = self._demands.draw(None, self._a_demand)
        if act is None:
            return
        who, least, span_ms, behind_a_beat = act
        group = self.group()
        host = self.host_of(group.master) if who < 0 and group is not None else self.hosts[who % len(self.hosts)]
        if host is not None:
            before = host.min_in_sync
            host.demand(least, behind_a_beat=bool(behind_a_beat))
            if span_ms:
                self.after(span_ms * MS, lambda: self.demand_again(host, before))

    def _a_demand(self, chance: Chance) -> list[int] | None:
        waits = any(host.process is not None and host.process.puts.waiting for host in self.hosts)
        if chance() >= self.plan.demand_chance * (8 if waits else 1):
            return None
        who = -1 if chance() < 0.6 else int(chance() * len(self.hosts))
        span_ms = int(chance() * 2_000) if chance() < 0.7 else 0
        return [who, 1 + int(chance() ** 1.5 * (self.able + 1)), span_ms, int(chance() < 0.4)]

    def demand_again(self, host: Host, least: int) -> None:
        """Undo a temporary demand, perhaps after healing."""
        host.demand(min(least, self.able) if self.healed else least)

    def demand_what_can_be(self) -> None:
        """Lower demands above the number of members, after healing."""
        for host in self.hosts if self.plan.demand_chance else ():
            if host.min_in_sync > self.able:
                host.demand(self.able)

    @property
    def able(self) -> int:
        """Number of members that can be in sync."""
        return self.plan.brokers - self.plan.learners

    # --- clients ---------------------------------------------------------------------------------------------

    def _client(self) -> None:
        if self.world.now >= self._ends:
            return
        self.after(self.plan.op_ns, self._client)
        act = self._acts.draw(None, self._an_act)
        if act is not None:
            what, number, queue = act
            if what == "put":
                self.producers[number % len(self.producers)].act()
            else:
                self.consumer.act(self.hosts[number % len(self.hosts)], queue % self.plan.queues_read)

    def _write_seldom(self) -> None:
        if self.world.now < self._ends:
            self.after(self.plan.seldom_ms * MS, self._write_seldom)
            self._seldom.act()

    def _an_act(self, chance: Chance) -> list[Value] | None:
        luck = chance()
        if luck < self.plan.put_chance:
            return ["put", int(chance() * 12), 0]
        return ["read", int(chance() * 12), int(chance() * 12)] if luck < self.plan.put_chance + 0.2 else None


def calls(link: Link) -> Receiver:
    """The receiver of a link whose messages are functions: it calls them."""
    return _call


def _call(action: Callable[[], None]) -> None:
    action()


def _throw(error: Exception) -> None:
    raise error
