"""One seed: brokers of a group, controllers and clients in one world, what befalls them, then healing and progress.

Each act is one decision on the tape, whose boring value is to do nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from controller.metadata.codec import FORMAT, encode
from controller.metadata.commands import RaiseFormat
from controller.metadata.groups import BrokerGroup
from controller.metadata.machine import MetadataMachine
from harness.simulation.brokers.controller import NAMES, BrokerChannel, Controller
from harness.simulation.brokers.demands import DEMANDED
from harness.simulation.brokers.group import Group, calls
from harness.simulation.brokers.host import Host
from harness.simulation.brokers.plan import CLUSTER, GROUP, PROFILES, BrokerPlan, draw
from harness.simulation.brokers.process import E_ANSWER, E_TIMEOUT, E_TOLD, BrokerProcess
from harness.simulation.brokers.statements import PREDICATES
from harness.simulation.brokers.watch import KEY, BrokerWatch
from raft.config import MS
from raft.sim.campaign import Program
from raft.sim.links import LinkProfile, Network
from raft.sim.tape import Chance, Tape, Value
from raft.sim.world import World
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.headers.controller import ElectMasterRequest, NotifyBrokerRoleChangedRequest

FAULTS: Final = (
    "kill", "power cut", "crash at a file operation", "pause", "cut", "one way", "severed", "failover", "reset",
    "designate", "both", "blink", "forged", "stream broken", "loss", "delay", "close unseen", "late close",
    "notification lost", "notified", "notified late", "proposal lost", "elected by the controller", "writes open",
    "lease over", "truncated", "bytes lost by power", "put refused by the gate", "put without a master",
    "put in doubt", "alter asked", "set shrunk", "set grown", "learner", "sync flush", "async flush",
    "fewer acknowledgements", "flow control", "pieces", "same epoch again", "became master with a longer log",
    "java controllers", "resigned", "led by who lost something", "log in doubt no longer", "alone",
    "acknowledged, and more had been demanded", *DEMANDED,
)
"""Faults and events that must have happened at least once in a campaign."""
SETTLE_MS: Final = 20_000


class BrokerScene(Group):
    """All of it. Implements what ``raft.sim.campaign`` plays."""

    def __init__(self, tape: Tape, plan: BrokerPlan) -> None:
        world, counts = World(), Counter[str]()
        self.term = 0
        self.pending: list[Callable[..., None]] = []
        """Proposals of controllers that are not committed yet."""
        self.leader: Controller | None = None
        super().__init__(tape, plan, world, Network(world, tape, calls, plan.links), counts, key=KEY,
                         controllers=NAMES, ends_ns=plan.duration_ms * MS)
        self.watch = BrokerWatch(self)
        self.machine = MetadataMachine()
        for following in range(2, FORMAT + 1):
            self.machine.apply_at(encode(RaiseFormat(term=0, format=following), self.machine.format), 0)
        self.machine.observer = self.watch.applied
        self.commits, self._told, self._harms = map(tape.stream, ("commits", "told", "nemesis"))
        self.controllers = [Controller(self, number) for number in range(len(NAMES))]
        self._lead(0)
        for number, host in enumerate(self.hosts):
            self.after(number * 7 * MS, host.start)
        self.after(plan.harm_ns, self._nemesis)

    # --- what a campaign asks --------------------------------------------------------------------------------

    @property
    def cluster(self) -> BrokerScene:
        return self

    @property
    def fingerprint(self) -> str:
        return self.world.fingerprint

    @property
    def evaluated(self) -> Counter[str]:
        return self.watch.counts

    @property
    def happened(self) -> Counter[str]:
        return self.counts + self.network.counts

    # --- controllers -----------------------------------------------------------------------------------------

    def group(self) -> BrokerGroup | None:
        return self.machine.group(KEY)

    def ask(self, process: BrokerProcess, address: str, command: Command, timeout_ms: int,
            then: Callable[[Command | None], None]) -> None:
        """A request to a controller, by the channel that is open or a new one."""
        controller = next(each for each in self.controllers if each.address == address)
        host = process.host
        channel = process.channels.get(address)
        if channel is None or not channel.open_here or not channel.open_there:
            channel = process.channels[address] = BrokerChannel(process, controller)
        done = [False]

        def once(answer: Command | None) -> None:
            if not done[0]:
                done[0] = True
                then(answer)

        def reply(answer: Command) -> None:
            self.network.link(controller.name, host.name, "controller").send(
                lambda: host.do(process, E_ANSWER, lambda: once(answer)))

        self.network.link(host.name, controller.name, "controller").send(
            lambda: controller.asked(channel, command, reply))
        process.later(timeout_ms * MS, E_TIMEOUT, lambda: once(None))

    def channel_closed(self, host: Host, channel: BrokerChannel) -> None:
        """A controller hears of it sooner or later."""
        late = self._closes.between(0, self.plan.late_close_ms, 0)
        self.counts["late close"] += bool(late)
        self.after(late * MS, lambda: self.network.link(host.name, channel.controller.name, "controller").send(
            lambda: channel.controller.closed(channel)))

    def notify(self, controller: Controller, address: str, command: Command, told: Callable[[], None]) -> None:
        """1008, by a connection that the controller makes for it."""
        host = self.host_at(address)
        if self._told.chance(self.plan.lost_notifications):
            self.counts["notification lost"] += 1
            return
        late = self._told.between(0, 1_500, 0) if "notify late" in self.plan.harms and not self.healed else 0
        self.counts["notified late"] += late > 0

        def arrives() -> None:
            def hears() -> None:
                self.counts["notified"] += 1
                assert host.process is not None
                host.process.member.notified(command, known=not self.plan.controllers_by_name)
                self.network.link(host.name, controller.name, "controller").send(told)

            host.do(host.process, E_TOLD, hears)

        self.after(late * MS, lambda: self.network.link(controller.name, host.name, "notify").send(arrives))

    def _lead(self, number: int) -> None:
        """This controller is the active one from now on."""
        for commit in [*self.pending]:
            commit(self.commits.chance(0.5))
        if self.leader is not None:
            self.leader.active.deactivate()
        self.term += 1
        self.leader = self.controllers[number]
        self.leader.activate(self.term)

    # --- acts ------------------------------------------------------------------------------------------------

    def _nemesis(self) -> None:
        if self.world.now >= self._ends:
            return
        self.after(self.plan.harm_ns, self._nemesis)
        harm = self._harms.draw(None, self._a_harm)
        if harm is not None:
            what, who, span_ms, number = harm
            group = self.group()
            host = self.host_of(group.master) if who < 0 and group is not None else self.hosts[who % len(self.hosts)]
            if host is not None:
                getattr(self, f"_do_{what.replace(' ', '_')}")(host, span_ms, number)

    def _a_harm(self, chance: Chance) -> list[Value] | None:
        plan = self.plan
        harms = [harm for harm in plan.harms if harm != "notify late"]
        if not harms or chance() >= plan.harm_chance:
            return None
        what = harms[int(chance() * len(harms))]
        who = -1 if chance() < 0.45 else int(chance() * len(self.hosts))
        return [what, who, int(10 + chance() ** 2 * 2 * plan.timeout_ms), int(chance() * 1_000)]

    def restart(self, host: Host, span_ms: int) -> None:
        life = host.life
        self.after(span_ms * MS, lambda: host.start() if host.life == life else None)

    def _do_kill(self, host: Host, span_ms: int, number: int) -> None:
        if host.process is not None:
            self.counts["kill"] += 1
            host.crash(power=False)
            self.restart(host, span_ms)

    def _do_power_cut(self, host: Host, span_ms: int, number: int) -> None:
        """Of this machine, or of all."""
        for each in self.hosts if number % 4 == 0 else [host]:
            if each.process is not None:
                each.crash(power=True)
                self.restart(each, span_ms if each is host else 10 + number)

    def _do_blink(self, host: Host, span_ms: int, number: int) -> None:
        """Its machine loses power and is back at once: controllers go on with it as they knew it. What it sent before
        is on machines that it does not hear from for a while, or has written anything since."""
        if host.process is None:
            return
        self.counts["blink"] += 1
        host.crash(power=True, noticed=False)
        self.restart(host, 1 + number % 20)
        other = self.hosts[number % len(self.hosts)]
        self._cut(host.name, other.name, span_ms)
        self._cut(other.name, host.name, span_ms)

    def _do_pause(self, host: Host, span_ms: int, number: int) -> None:
        if host.process is not None and host.paused is None:
            self.counts["pause"] += 1
            host.pause()
            life = host.life
            self.after(span_ms * MS, lambda: host.resume() if host.life == life else None)

    def _cut(self, source: str, target: str, span_ms: int) -> None:
        self.network.cut(source, target)
        self.after(span_ms * MS, lambda: self.network.heal(source, target))

    def _do_cut(self, host: Host, span_ms: int, number: int) -> None:
        """From another broker, both ways."""
        other = self.hosts[number % len(self.hosts)]
        self._cut(host.name, other.name, span_ms)
        self._cut(other.name, host.name, span_ms)

    def _do_one_way(self, host: Host, span_ms: int, number: int) -> None:
        self.counts["one way"] += 1
        other = self.hosts[number % len(self.hosts)].name if number % 2 else NAMES[0].partition(":")[0]
        pair = (host.name, other) if number % 3 else (other, host.name)
        self._cut(*pair, span_ms)

    def _do_severed(self, host: Host, span_ms: int, number: int) -> None:
        """From all controllers; brokers and clients still hear it."""
        self.counts["severed"] += 1
        for controller in self.controllers:
            self._cut(host.name, controller.name, span_ms)
            self._cut(controller.name, host.name, span_ms)

    def _do_failover(self, host: Host, span_ms: int, number: int) -> None:
        self.counts["failover"] += 1
        self._lead(self.term % len(self.controllers))

    def _do_forged(self, host: Host, span_ms: int, number: int) -> None:
        """Somebody tells a broker who is master, in an epoch that nobody gave."""
        process, other = host.process, self.hosts[number % len(self.hosts)]
        if process is None or process.member.manager.role is None:
            return
        self.counts["forged"] += 1
        command = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChangedRequest(
            other.address, 1_000_000 + number, 1_000_000 + number, 1 + number % len(self.hosts)))
        command.body = SyncStateSet(frozenset({1}), 1_000_000 + number).to_json()
        host.do(process, E_TOLD, lambda: process.member.notified(command, known=False))

    def _do_reset(self, host: Host, span_ms: int, number: int) -> None:
        """A channel to a controller, or a connection between brokers, breaks."""
        process = host.process
        if process is None or host.paused is not None:
            return
        self.counts["reset"] += 1
        if number % 2 and process.channels:
            channel = process.channels[sorted(process.channels)[number % len(process.channels)]]
            channel.open_here = False
            if self.seen():
                self.channel_closed(host, channel)
        elif process.switch.following is not None and process.switch.following.end_ is not None:
            end = process.switch.following.end_
            host.do(process, E_TOLD, end.lost)

    def _do_designate(self, host: Host, span_ms: int, number: int) -> None:
        """An operator asks for another master."""
        group, leader = self.group(), self.leader
        if group is None or leader is None or not group.replicas:
            return
        self.counts["designate"] += 1
        ids = list(group.replicas)
        process = host.process
        if process is not None and host.paused is None:
            channel = BrokerChannel(process, leader)
            leader.asked(channel, request(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
                CLUSTER, GROUP, ids[number % len(ids)], True)), _ignore)

    def _do_alone(self, host: Host, span_ms: int, number: int) -> None:
        """All others die, and its operator has it go on alone for a while."""
        self.counts["alone"] += 1
        for other in self.hosts:
            if other is not host:
                self._do_kill(other, 2_000 + span_ms, number)
        before = host.min_in_sync
        self.after(number * MS, lambda: host.demand(1))
        self.after((4_000 + span_ms) * MS, lambda: host.demand(before))

    def _do_both(self, host: Host, span_ms: int, number: int) -> None:
        self.counts["both"] += 1
        self._do_kill(host, span_ms, number)
        self._do_failover(host, span_ms, number)

    # --- phases ----------------------------------------------------------------------------------------------

    def play(self, until_ns: int | None) -> None:
        """Faults; then none, and all replicas are level and in sync."""
        limit = self._ends if until_ns is None else min(until_ns, self._ends)
        self.world.run(limit)
        if until_ns is not None and until_ns <= self._ends:
            return
        self.healed = True
        self.network.heal()
        self.network.shape(LinkProfile(latency_ns=self.plan.links.latency_ns))
        for host in self.hosts:
            if host.paused is not None:
                host.resume()
            host.start()
        self.demand_what_can_be()
        end = self.world.now + SETTLE_MS * MS
        while self.world.now < end and not self.watch.level():
            self.world.run(min(self.world.now + 50 * MS, end))
        if self._stranded():
            self.counts["copy to be made anew"] += 1
        else:
            self.watch.settled()

    def _stranded(self) -> bool:
        """With ``syncFromLastFile`` a master's log may begin behind the end of one that lost more to a power cut. That
        master says that the copy must be made anew, and there is no operator here who removes the store. Nor does
        its broker: what lies before the master's first byte nobody else may have."""
        group = self.group()
        master = None if group is None else self.host_of(group.master)
        return (self.plan.from_last_file and master is not None and master.process is not None and any(
            host.process is not None and host.process.journal.end < master.process.journal.begin
            for host in self.hosts))


def _ignore(answer: Command) -> None:
    """An operator reads it, or does not."""


def make(tape: Tape, profile: str) -> BrokerScene:
    """The scene of one tape."""
    return BrokerScene(tape, draw(tape, profile))


BROKERS: Final = Program(
    "harness.simulation.brokers", make, PROFILES, PREDICATES, FAULTS, frozenset({"INV_B22", "INV_C17"}))
