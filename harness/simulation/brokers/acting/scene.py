"""One seed of groups without controllers: faults, then healing, with the master away at first in half of the seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from harness.simulation.brokers.acting.answers import COPIED_MS, Answers
from harness.simulation.brokers.acting.clients import (
    Contradicter,
    Decided,
    Delayed,
    DelayedSender,
    OffsetClient,
    TransactionDecider,
)
from harness.simulation.brokers.acting.decisions import Decisions
from harness.simulation.brokers.acting.group import ActingGroup
from harness.simulation.brokers.acting.holders import LockClients
from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
from harness.simulation.brokers.acting.nameserver import ServerHost
from harness.simulation.brokers.acting.nemesis import MemberNemesis
from harness.simulation.brokers.acting.plan import ActingPlan
from harness.simulation.brokers.acting.rights import LOOK_NS, Rights
from harness.simulation.brokers.acting.watch import ActingWatch, MessageJudge, Offsets
from harness.simulation.brokers.acting.wire import ask_broker
from harness.simulation.brokers.group import WALL_MS, WholeScene, calls
from raft.config import MS
from raft.invariants import require
from raft.sim.links import LinkProfile, Network
from raft.sim.tape import Tape
from raft.sim.world import World
from remoting.command import Command
from remoting.record import COMMIT, Outline

ACTING_FAULTS: Final = (
    "away", "apart", "one way apart", "split", "server kill", "server pause", "closed", "min id notice",
    "master came back", "master came back to a slave", "end of the log copied", "delayed acknowledged",
    "delayed delivered",
    "delayed escaped", "delayed delivered again", "transaction committed elsewhere", "decided in the master's place",
    "producer asked in the master's place", "a living member was forgotten", "two may deliver, and the table says why",
    "queue locked", "healed without a master", "strict locks",
)
"""Faults and events of groups without controllers that must have happened at least once in a campaign."""
ACT_MS: Final = 60_000
"""From healing without the master until all that is due must have come: name servers forget it, the slave gets its
right, a message waits for the longest delay, and is tried again 10 s after nobody took it, some times."""
SETTLE_MS: Final = 90_000


class ActingScene(WholeScene):
    """A broker group without controllers, its name servers and clients, and another group beside it."""

    def __init__(self, tape: Tape, plan: ActingPlan) -> None:
        self.tape, self.plan, self.world = tape, plan, World()
        self.counts = Counter[str]()
        self.outcomes: Counter[str] = Counter()
        self.network = Network(self.world, tape, calls, plan.links)
        self.healed = False
        self.delayed: list[Delayed] = []
        self.decided: list[Decided] = []
        self.judge = MessageJudge(self)
        self.offsets = Offsets(self.judge.counts)
        self.offsets.begin(lambda: self.world.now)
        self.decisions = Decisions(self, self.judge.counts)
        self.answers = Answers(self, self.judge.counts)
        self.groups: list[ActingGroup] = []
        self.servers = [ServerHost(self, number) for number in range(plan.servers)]
        self.rights = Rights(self, self.judge.counts)
        self._closes, self._routes = tape.stream("acting closes"), tape.stream("acting routes")
        self._ends = plan.duration_ms * MS
        self.counts["strict locks"] += plan.strict
        for server in self.servers:
            server.start()
        for place, size in enumerate((1 + plan.slaves, plan.beside)):
            group = ActingGroup(self, place, size)
            group.watch = ActingWatch(group)
            self.groups.append(group)
        self._machines = {address: host for group in self.groups for host in group.members
                          for address in (host.address, host.ha_address)}
        self._servers = {server.address: server for server in self.servers}
        for number, host in enumerate(self.machines):
            self.after(number * 7 * MS, host.start)
        self._clients()
        self.after(LOOK_NS, self._look)
        self.nemesis = MemberNemesis(self, tape.stream("acting nemesis"))

    def _clients(self) -> None:
        tape = self.tape
        DelayedSender(self, tape.stream("acting delays"))
        TransactionDecider(self, tape.stream("acting transactions"))
        Contradicter(self, tape.stream("acting contradictions"))
        self.committer = OffsetClient(
            self, tape.stream("acting offsets"), tape.stream("acting hurried offsets"), self.offsets)
        LockClients(self, tape.stream("acting locks"), self.judge.counts)

    @property
    def evaluated(self) -> Counter[str]:
        return self.judge.counts

    # --- looking -----------------------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.world.now // MS

    @property
    def over(self) -> bool:
        """True once clients and faults have stopped for good."""
        return self.healed or self.world.now >= self._ends

    @property
    def machines(self) -> list[MemberHost]:
        return [host for group in self.groups for host in group.members]

    @property
    def lost(self) -> bool:
        """True once a power cut took what was not synced."""
        return any(not group.watch.lossless for group in self.groups)

    def machine_at(self, address: str) -> MemberHost:
        return self._machines[address]

    def server_at(self, address: str) -> ServerHost | None:
        return self._servers.get(address)

    def watch_of(self, process: MemberProcess) -> ActingWatch:
        return process.host.scene.watch

    def seen(self) -> bool:
        """Draw whether a name server learns that a connection ended."""
        return not self._closes.chance(1 - self.plan.close_seen)

    def listed(self, group: ActingGroup) -> MemberHost | None:
        """Return the member that clients take for the group's master, by the route of one name server."""
        up = [server for server in self.servers if server.core is not None and server.paused is None]
        if not up:
            return None
        core = up[self._routes.between(0, len(up) - 1, 0)].core
        route = None if core is None else core.routes.assemble("T")
        for broker in route.broker_datas if route is not None else ():
            if broker.broker_name == group.key.name and 0 in broker.broker_addrs:
                return self.machine_at(broker.broker_addrs[0])
        return None

    def arrived(self, process: MemberProcess, queue_id: int, queue_offset: int, outline: Outline) -> None:
        self.judge.arrived(process, queue_offset, outline)

    def _look(self) -> None:
        self.after(LOOK_NS, self._look)
        self.rights.look()
        for host in self.groups[0].members[1:]:
            if host.member is not None and host.member.opened:
                self.answers.look(host.member)

    # --- the network ---------------------------------------------------------------------------------------------

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self.world.at(self.world.now + delay_ns, _call, call)

    def to_broker(self, host: MemberHost, call: Callable[[], None]) -> None:
        self.network.link("client", host.name, "client").send(call)

    def reply(self, host: MemberHost, call: Callable[[], None]) -> None:
        self.network.link(host.name, "client", "client").send(call)

    def ask(self, group: ActingGroup, command: Command, answered: Callable[[Any], None]) -> None:
        """Send a client's request to the member that is listed as master."""
        host = self.listed(group)
        if host is not None:
            self.to_broker(host, lambda: ask_broker(host, "10.8.0.1:1", command, lambda result: self.reply(
                host, lambda: answered(result))))

    # --- phases ----------------------------------------------------------------------------------------------

    def play(self, until_ns: int | None) -> None:
        """Plays faults; then none, at first without the master, perhaps; then all must settle."""
        limit = self._ends if until_ns is None else min(until_ns, self._ends)
        self.world.run(limit)
        if until_ns is not None and until_ns <= self._ends:
            return
        self._heal()
        if self.plan.stays_away:
            self._without_master()
        master = self.groups[0].members[0]
        master.away = False
        for host in self.machines:
            host.start()
        end = self.world.now + SETTLE_MS * MS
        while self.world.now < end and not self._settled():
            self.world.run(self.world.now + 200 * MS)
        if self.groups[0].leader is None and self.groups[0].watch.is_parted():
            self.counts["logs apart after a power cut"] += 1
            return
        require(self.groups[0].leader is not None, "INV_B36", "the master did not come back",
                _words(master.member))
        self.judge.settled()

    def _heal(self) -> None:
        self.healed = True
        self.network.heal()
        self.network.shape(LinkProfile(latency_ns=self.plan.links.latency_ns))
        for server in self.servers:
            server.resume()
            server.start()
        for host in self.machines:
            host.disk.mend()
            host.resume()
        master = self.groups[0].members[0]
        if self.plan.stays_away:
            master.away = True
            master.crash(power=False)
        for host in self.machines:
            if not host.away:
                host.start()

    def _without_master(self) -> None:
        """Check INV_B55: the slave that acts delivers what comes due."""
        self.counts["healed without a master"] += 1
        group = self.groups[0]
        since_ms, end = self.wall_ms, self.world.now + ACT_MS * MS
        while self.world.now < end and (group.actor is None or self._waiting(group)):
            self.world.run(self.world.now + 200 * MS)
        actor = group.actor
        require(actor is not None, "INV_B55", "nobody acts", [_words(host.member) for host in group.members[1:]])
        assert actor is not None
        left = self._waiting(group)
        self._copied(group, since_ms)
        if self.lost:
            return
        self.judge.counts["INV_B55"] += bool(self.delayed)
        require(not left, "INV_B55", "the slave that acts did not deliver", actor.host.name,
                actor.acting.waits_for, actor.runtime().get("escapeWaitsFor"), left[:3])

    def _copied(self, group: ActingGroup, since_ms: int) -> None:
        """Check INV_B63: each slave has what the others noted without a master."""
        if len(group.members) < 3:
            return
        self.world.run(self.world.now + 2 * COPIED_MS * MS)
        uncopied = self.answers.uncopied(group, since_ms)
        self.judge.counts["INV_B63"] += 1
        require(not uncopied, "INV_B63", "a slave does not copy what another one notes", uncopied[:3])

    def _waiting(self, group: ActingGroup) -> list[Delayed]:
        actor = group.actor
        return [] if actor is None else self.judge.undelivered(actor)

    def _settled(self) -> bool:
        leader = self.groups[0].leader
        return (leader is not None and leader.may_deliver and not any(
            not sent.copies and sent.waits for sent in self.delayed) and not self._undecided())

    def _undecided(self) -> bool:
        return any(begun.in_place and not begun.apart and bool(begun.finals) != (COMMIT in begun.done)
                   for begun in self.decided)


def _words(process: MemberProcess | None) -> str:
    if process is None or not process.opened:
        return "it does not run"
    levelling = process.levelling
    return f"{process.host.name}: {levelling.phase.name}, {levelling.problem or 'well'}, {process.members.ids}"


def _call(action: Callable[[], None]) -> None:
    action()

