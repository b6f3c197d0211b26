"""One seed: a broker group, controllers and clients in one world under faults, then healing and a demand for progress.

``nemesis`` chooses the faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from broker.ha.epochs import consistent_point
from controller.metadata.codec import FORMAT, encode
from controller.metadata.commands import RaiseFormat
from controller.metadata.groups import BrokerGroup
from controller.metadata.machine import MetadataMachine
from harness.simulation.brokers.acting.plan import ACTING_PROFILES, draw_acting
from harness.simulation.brokers.acting.scene import ACTING_FAULTS, ActingScene
from harness.simulation.brokers.acting.statements import ACTING_STATEMENTS
from harness.simulation.brokers.controller import NAMES, BrokerChannel, Controller
from harness.simulation.brokers.delays import DELAYED
from harness.simulation.brokers.deletions import DELETED
from harness.simulation.brokers.demands import DEMANDED
from harness.simulation.brokers.group import Group, WholeScene, calls
from harness.simulation.brokers.hindrances import HINDERED, forsake
from harness.simulation.brokers.host import Host
from harness.simulation.brokers.nemesis import Nemesis
from harness.simulation.brokers.plan import PROFILES, BrokerPlan, draw
from harness.simulation.brokers.popped import POPPED
from harness.simulation.brokers.process import E_ANSWER, E_TIMEOUT, E_TOLD, BrokerProcess
from harness.simulation.brokers.sizes import KEPT
from harness.simulation.brokers.statements import PREDICATES
from harness.simulation.brokers.timers import TIMED
from harness.simulation.brokers.transactions import DECIDED
from harness.simulation.brokers.watch import KEY, BrokerWatch
from raft.config import MS
from raft.sim.campaign import Program
from raft.sim.links import LinkProfile, Network
from raft.sim.tape import Tape
from raft.sim.world import World
from remoting.command import Command

BEHIND: Final = ("log that began behind messages", "master whose log begins behind messages")
FAULTS: Final = (
    "kill", "power cut", "crash at a file operation", "pause", "cut", "one way", "severed", "failover", "reset",
    "designate", "both", "blink", "forged", "stream broken", "loss", "delay", "close unseen", "late close",
    "notification lost", "notified", "notified late", "proposal lost", "elected by the controller", "writes open",
    "lease over", "truncated", "bytes lost by power", "put refused by the gate", "put without a master",
    "put in doubt", "member reached", "asked for a successor", "alter asked", "set shrunk", "set grown", "learner",
    "sync flush", "async flush",
    "fewer acknowledgements", "flow control", "pieces", "same epoch again", "became master with a longer log",
    "lonely", "deaf", "mute",
    "controller pause", "slow disk", "stalled disk", "hanging disk", "full disk", "shared disk",
    "java controllers", "resigned", "led by who lost something", "log in doubt no longer", "alone",
    "copy of a directory", "older copy",
    "acknowledged, and more had been demanded", *BEHIND, *DEMANDED, *HINDERED, *KEPT, *DELAYED, *TIMED,
    *DECIDED, *POPPED, *DELETED,
)
"""Faults and events that must have happened at least once in a campaign."""
SETTLE_MS: Final = 20_000
DELIVER_MS: Final = 20_000
"""Extra time to settle if messages may still have to be delivered."""
ACTING_CHANCE: Final = 0.08
"""Share of the seeds of ``swarm`` whose groups have no controllers."""
FORSAKEN_CHANCE: Final = 0.5
FORSAKEN_MS: Final = 1_500
"""Longest time between two slaves that lose their master."""
LEVEL_MS: Final = 1_000
"""Extra time to see a master level between two puts, if it retries unacknowledged puts for ever."""


class BrokerScene(Group, WholeScene):
    """One broker group, its controllers and its clients."""

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
        self.commits, self._told, self._forsaken = map(tape.stream, ("commits", "told", "forsaken"))
        self.controllers = [Controller(self, number) for number in range(len(NAMES))]
        self._lead(0)
        for number, host in enumerate(self.hosts):
            late_ms = plan.late_ms if number == plan.brokers - 1 else 0
            self.after((number * 7 + late_ms) * MS, host.start)
        Nemesis(self, tape.stream("nemesis"), self._ends)

    @property
    def evaluated(self) -> Counter[str]:
        return self.watch.counts

    # --- controllers -----------------------------------------------------------------------------------------

    def group(self) -> BrokerGroup | None:
        return self.machine.group(KEY)

    def ask(self, process: BrokerProcess, address: str, command: Command, timeout_ms: int,
            then: Callable[[Command | None], None]) -> None:
        """Send a request to a controller, over the open connection or a new one."""
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
        """Tell the controller of a closed connection, perhaps late."""
        late = self._closes.between(0, self.plan.late_close_ms, 0)
        self.counts["late close"] += bool(late)
        self.after(late * MS, lambda: self.network.link(host.name, channel.controller.name, "controller").send(
            lambda: channel.controller.closed(channel)))

    def notify(self, controller: Controller, address: str, command: Command, told: Callable[[], None]) -> None:
        """Send a 1008 over a connection that the controller makes for it."""
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
        """Make this controller the active one."""
        for commit in [*self.pending]:
            commit(self.commits.chance(0.5))
        if self.leader is not None:
            self.leader.active.deactivate()
        self.term += 1
        self.leader = self.controllers[number]
        self.leader.activate(self.term)

    def restart(self, host: Host, span_ms: int) -> None:
        life = host.life
        self.after(span_ms * MS, lambda: host.start() if host.life == life else None)

    def fail_over(self) -> None:
        """Make the next controller that runs the active one."""
        numbers = [(self.term + more) % len(self.controllers) for more in range(len(self.controllers))]
        able = [number for number in numbers if self.controllers[number].paused is None]
        if able:
            self._lead(able[0])

    # --- phases ----------------------------------------------------------------------------------------------

    def play(self, until_ns: int | None) -> None:
        """Play faults; then heal, until all replicas are level and in sync."""
        limit = self._ends if until_ns is None else min(until_ns, self._ends)
        self.world.run(limit)
        if until_ns is not None and until_ns <= self._ends:
            return
        self.healed = True
        self.network.heal()
        self.network.shape(LinkProfile(latency_ns=self.plan.links.latency_ns))
        for controller in self.controllers:
            controller.resume()
        for host in self.hosts:
            host.disk.mend()
            host.resume()
            host.start()
        self.demand_what_can_be()
        end = self.world.now + (SETTLE_MS + (DELIVER_MS if self.plan.features else 0)) * MS
        while self.world.now < end and not (self.watch.level() and self.watch.idle()):
            self.world.run(min(self.world.now + 50 * MS, end))
        while self.world.now < end + LEVEL_MS * MS and not self.watch.level():
            self.world.run(self.world.now + 50 * MS)
        if self._stranded():
            self.counts["copy to be made anew"] += 1
        else:
            self.watch.settled()
            if self._forsaken.chance(FORSAKEN_CHANCE):
                forsake(self, self._forsaken.between(0, FORSAKEN_MS, 700))

    def _stranded(self) -> bool:
        """Return whether a replica's log and the master's have nothing in common, so that only an operator can help.

        With ``syncFromLastFile`` a log may end before the master's begins, after a power cut, or begin behind all that
        an unclean election left, or the master's may begin behind the epoch in which they part. The slave does not
        remove its store by itself, since its bytes may exist nowhere else, and no operator does it here.
        """
        group = self.group()
        master = None if group is None else self.host_of(group.master)
        return self.plan.from_last_file and master is not None and master.process is not None and any(
            host.process is not None and _nothing_in_common(host.process, master.process) for host in self.hosts)


def _nothing_in_common(process: BrokerProcess, master: BrokerProcess) -> bool:
    mine, theirs = process.journal, master.journal
    if mine.end < theirs.begin:
        return True
    return (mine.begin > 0 or theirs.begin > 0) and consistent_point(
        process.switch.epochs, mine.end, master.switch.epochs, theirs.end) is None


def make(tape: Tape, profile: str) -> BrokerScene:
    """The scene of one tape, with controllers."""
    return BrokerScene(tape, draw(tape, profile))


def drawn(tape: Tape, profile: str) -> BrokerScene | ActingScene:
    """The scene of one tape. A part of all seeds has groups without controllers."""
    if profile in ACTING_PROFILES or (profile == "swarm" and tape.stream("controllers").chance(ACTING_CHANCE)):
        return ActingScene(tape, draw_acting(tape, profile))
    return make(tape, profile)


BROKERS: Final = Program(
    "python -m harness.simulation.brokers", drawn, (*PROFILES, *ACTING_PROFILES), (*PREDICATES, *ACTING_STATEMENTS),
    (*FAULTS, *ACTING_FAULTS), frozenset({"INV_B22", "INV_C17", "INV_B36", "INV_B55", "INV_B58", "INV_B64"}),
    frozenset(BEHIND))
