"""One seed: controllers and brokers in one world under faults, then healing and a demand for progress.

Controllers get the faults of ``raft.sim.campaign``; brokers, their channels and groups get the acts here. Each act is
one decision on the tape, whose boring value is to do nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

from controller.metadata.groups import BrokerGroup, GroupKey
from harness.simulation.brokers.demands import DEMANDED
from harness.simulation.brokers.group import calls
from harness.simulation.controllers.depositions import HAPPENED, Depositions, Onlooker
from harness.simulation.controllers.fleet import FleetGroup, FleetHost
from harness.simulation.controllers.machine import Machine
from harness.simulation.controllers.messages import Ask, Channel, Closed, Notify, Told
from harness.simulation.controllers.metadata import SimMetadata
from harness.simulation.controllers.plan import BROKER_FAULTS, OWN_PROFILES, ControllerPlan, draw
from harness.simulation.controllers.process import ControllerProcess
from harness.simulation.controllers.releases import Releases
from harness.simulation.controllers.watch import PREDICATES, ControllerWatch
from raft.config import MS, Read
from raft.invariants import require
from raft.sim.campaign import Healing, Program, Scene
from raft.sim.cluster import Cluster
from raft.sim.links import Link, LinkProfile, Network, Receiver
from raft.sim.node import Life
from raft.sim.tape import Chance, Tape, Value
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.header import Header
from remoting.headers.controller import CleanBrokerDataRequest, ElectMasterRequest

FAULTS: Final = (
    *BROKER_FAULTS[:-2], "crash at a file operation", "power cut", "identity given up", "broker loss",
    "broker duplicate", "broker reorder", "broker delay", "broker cut", "close unseen", "late close", "channel reset",
    "notification lost", "notified", "active controller changed", "changed while masters beat", "lost by a close",
    "lost by silence", "alter asked", "truncated", "writes open", "lease over", "put refused by the gate",
    "set shrunk", "set grown", "learner", "fewer acknowledgements", "deadline passed", "crash", "restart", "wipe",
    "pause", "partition", "install", "transfer", "reconfigure", "snapshot", "clock rate", "clock step",
    "master replaced after a close", "master replaced after silence", "format raised", "stray raise", "upgrade",
    "downgrade", "left behind",
    "copied directory started elsewhere",
    "master said to be silent", "asked to be replaced for silence", "asked to be replaced for disk",
    "told to ask again", "living master replaced, asked", "living master replaced, unasked",
    "a copy came in", "gave way to another life", "second life refused", *DEMANDED, *HAPPENED,
)
"""Faults and events that must have happened at least once in a campaign."""
SETTLE_MS: Final = 30_000
COPIES_MAX: Final = 4
"""Most copied disks that one seed may have."""
LOOK_MS: Final = 50
BREAK_MS: Final = 10
"""Time in which controllers may see that channels broke, before messages are cut."""
OPERATOR_PATIENCE_MS: Final = 2_000
"""Time after which an operator asks again: a controller answers before that, if it does at all."""
PATIENCE_MS: Final = 8_000
"""Longest backoff of a controller that INV_C30 waits for."""


class ControllerCluster(Cluster):
    """A raft cluster whose processes are controllers."""

    def __init__(self, scene: ControllerScene, tape: Tape) -> None:
        self.scene = scene
        self.processes: dict[str, ControllerProcess] = {}
        self._starting = ""
        plan = scene.plan
        super().__init__(
            plan.size, self._machine_of, tape=tape, config=plan.config(), learners=plan.learners,
            links=plan.links, codec=plan.codec, disk=plan.disk)

    @property
    def names(self) -> list[str]:
        return list(self.nodes)

    def _machine_of(self) -> SimMetadata:
        """Make the metadata of the controller that starts."""
        return SimMetadata(self.scene.watch, self._starting, self.scene.releases.starts(self._starting))

    def start(self, name: str) -> None:
        self._starting = name
        super().start(name)
        life = self.nodes[name].life
        if life is not None:
            self.processes[name] = ControllerProcess(self.scene, name, life)

    def crash(self, name: str | None) -> None:
        super().crash(name)
        assert name is not None
        self.scene.bury(self.processes.pop(name))

    def pause(self, name: str) -> None:
        super().pause(name)
        if name in self.processes:
            self.scene.watch.hindered.paused(self.processes[name])

    def resume(self, name: str) -> None:
        process = self.processes.get(name)
        if process is not None:
            self.scene.watch.hindered.resumed(process)
            waiting = process.life.paused
            if waiting and self.tape.stream("late timers").chance(0.5):
                waiting.sort(key=lambda each: each[0] != process._tick)  # before what waits in its sockets
        super().resume(name)

    def skew(self, name: str, *, rate_ppm: int | None = None, step_ms: int = 0) -> None:
        super().skew(name, rate_ppm=rate_ppm, step_ms=step_ms)
        process = self.processes.get(name)
        if process is not None:
            process.rearm()


class ControllerScene(Scene):
    """A cluster of controllers, the machines of brokers, and their faults."""

    plan: ControllerPlan
    cluster: ControllerCluster

    def __init__(self, tape: Tape, plan: ControllerPlan) -> None:
        self.plan = plan
        self.tape = tape
        self.machines: dict[str, Machine] = {}
        self.copies: dict[str, Machine] = {}
        """Machines that run a copy of another one's disk."""
        self.fleets: dict[GroupKey, FleetGroup] = {}
        self.watch = ControllerWatch(self)
        self.releases = Releases(self)
        self.healed = False
        super().__init__(tape, plan)
        self.world, self.counts = self.cluster.world, self.cluster.counts
        self.outer = Network(self.world, tape, self._outer_receiver, plan.outer)
        """The network between brokers and controllers."""
        self.inner = Network(self.world, tape, calls, LinkProfile(latency_ns=plan.outer.latency_ns))
        """The network between brokers, and to their clients."""
        self._harms = tape.stream("broker nemesis")
        self._closes, self._told = tape.stream("closes"), tape.stream("told")
        self._make_machines()
        self.releases.roll()
        if plan.deposed:
            Depositions(self, self._ends)
            Onlooker(self, self._ends)

    def _make_cluster(self, tape: Tape) -> Cluster:
        return ControllerCluster(self, tape)

    @property
    def controllers(self) -> ControllerCluster:
        return self.cluster

    def _make_machines(self) -> None:
        plan = self.plan
        for number in range(plan.brokers if plan.container else plan.brokers * plan.groups):
            self.machines[f"b{number}"] = Machine(self, f"b{number}", 100 + number)
        self.admin = Machine(self, "admin", 99)
        self.admin.start()
        for number in range(plan.groups):
            key = GroupKey("c", f"g{number}")
            self.fleets[key] = FleetGroup(self, key, number)
        for number, machine in enumerate(self.machines.values()):
            self.world.at(number * 7 * MS, _start, machine)

    def machines_of(self, number: int) -> list[Machine]:
        """The machines of this group's brokers."""
        machines, size = list(self.machines.values()), self.plan.brokers
        return machines if self.plan.container else machines[number * size : (number + 1) * size]

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[GroupKey]:
        return list(self.fleets)

    def hosts(self) -> Iterator[FleetHost]:
        for fleet in self.fleets.values():
            yield from fleet.hosts

    def host_of(self, key: GroupKey, broker_id: int | None) -> FleetHost | None:
        """The host whose broker has this id now."""
        group = self.fleets[key].group()
        address = (group.address_of(broker_id) or "") if group is not None else ""
        for host in self.fleets[key].copies:
            if host.broker_id == broker_id is not None and host.name == address.partition(":")[0]:
                return host
        return next((host for host in self.fleets[key].hosts if host.broker_id == broker_id is not None), None)

    def group(self, key: GroupKey) -> BrokerGroup | None:
        """The group in the active controller's metadata."""
        process = self.active()
        return process.machine.group(key) if process is not None else None

    def active(self) -> ControllerProcess | None:
        best: ControllerProcess | None = None
        for process in self.cluster.processes.values():
            if process.active.active and process.life.paused is None and (
                    best is None or process.active.term > best.active.term):
                best = process
        return best

    @property
    def reads_are_sound(self) -> bool:
        return self.plan.sound_clocks or self.plan.read.value == "index"

    @property
    def evaluated(self) -> Counter[str]:
        return self.watch.counts

    @property
    def happened(self) -> Counter[str]:
        return self.cluster.counts + Counter({f"broker {name}": n for name, n in self.outer.counts.items()})

    def put(self, name: str) -> None:
        """Do nothing: brokers cause the writes of controllers."""

    def ask(self, life: Life, level: Read) -> None:
        self._open.append(life.read(level, lambda machine: None))

    # --- the outer network -----------------------------------------------------------------------------------

    def send(self, source: str, target: str, kind: str, message: object) -> None:
        self.outer.link(source, target, kind).send(message)

    def _outer_receiver(self, link: Link) -> Receiver:
        target = link.target
        machine = self.admin if target == "admin" else self.machines.get(target) or self.copies.get(target)
        if machine is not None:
            return machine.receive

        def to_controller(message: Ask | Closed | Told) -> None:
            process = message.process if isinstance(message, Told) else message.channel.process
            process.receive(message)

        return to_controller

    def notify(self, notify: Notify) -> None:
        """Send a 1008 over a connection that the controller makes for it."""
        host = notify.address.partition(":")[0]
        if self._told.chance(0.0 if self.healed and self.plan.lost_notifications < 1 else self.plan.lost_notifications):
            self.counts["notification lost"] += 1
        else:
            self.counts["notified"] += 1
            self.send(notify.process.name, host, "notify", notify)

    def send_closed(self, channel: Channel) -> None:
        """Tell the controller that the broker closed a channel, perhaps late."""
        late = self._closes.between(0, self.plan.late_close_ms, 0)
        if late:
            self.counts["late close"] += 1
        self.world.at(self.world.now + late * MS, self._send_closed, channel)

    def _send_closed(self, channel: Channel) -> None:
        self.send(channel.host, channel.process.name, channel.kind, Closed(channel))

    def reset(self, channel: Channel) -> None:
        """Answer a message to a dead controller process with a close."""
        self.send(channel.process.name, channel.host, channel.kind, Closed(channel))

    def bury(self, process: ControllerProcess) -> None:
        """Close the channels of a dead controller. Brokers learn of it at their next request, or now."""
        for machine in (*self.machines.values(), *self.copies.values(), self.admin):
            channel = machine.channels.get(process.name)
            if channel is not None and channel.process is process and self._closes.chance(0.5):
                self.reset(channel)

    def _seen(self) -> bool:
        """Draw whether a controller hears of a close."""
        if self._closes.chance(1 - self.plan.close_seen):
            self.counts["close unseen"] += 1
            return False
        return True

    # --- acts ------------------------------------------------------------------------------------------------

    def restart(self, machine: Machine, span_ms: int) -> None:
        """Start a machine later, unless it was started meanwhile."""
        life = machine.life
        self.after(span_ms, lambda: self.start_machine(machine) if machine.life == life else None)

    def start_machine(self, machine: Machine) -> None:
        if not machine.up:
            machine.port += self.counts["broker crash"] % 3 == 0
            machine.start()

    def _client_acts(self, _: None) -> None:
        """Do one act on brokers, or none, in place of raft's clients."""
        world = self.world if hasattr(self, "world") else self.cluster.world
        if world.now >= self._ends:
            return
        world.at(world.now + self.plan.op_ns, self._client_acts)
        act = self._harms.draw(None, self._a_harm)
        if act is not None:
            what, name, span_ms, number = act
            machine = self._master_machine(number) if name == "master" else self.machines.get(name)
            if machine is not None:
                getattr(self, f"_do_{what.replace(' ', '_')}")(machine, span_ms, number)

    def _a_harm(self, chance: Chance) -> list[Value] | None:
        plan = self.plan
        harms = [harm for harm in plan.harms if harm != "site"]
        if not harms or chance() >= plan.harm_chance:
            return None
        what = harms[int(chance() * len(harms))]
        names = list(self.machines)
        who = "master" if chance() < 0.4 else names[int(chance() * len(names))]
        return [what, who, int(20 + chance() ** 2 * 2.5 * plan.fleet.timeout_ms), int(chance() * 1_000)]

    def _master_machine(self, number: int) -> Machine | None:
        key = self.keys[number % len(self.keys)]
        group = self.group(key)
        host = self.host_of(key, group.master) if group is not None else None
        return host.machine if host is not None else None

    def _do_broker_crash(self, machine: Machine, span_ms: int, number: int) -> None:
        if machine.up:
            self.counts["broker crash"] += 1
            machine.crash(self._seen, power="power cut" in self.plan.fleet.harms and number % 2 == 0)
            self.restart(machine, span_ms)

    def _do_successor(self, machine: Machine, span_ms: int, number: int) -> None:
        """Kill a master, and cut all brokers off from each other until its successor has died, too."""
        if machine.up:
            self.counts["successor"] += 1
            self._do_broker_crash(machine, 3_000 + span_ms, number)
            for one in self.machines:
                for other in self.machines:
                    self.inner.cut(one, other)
            self.after(2_800, self.inner.heal)
            self.after(1_400 + number, lambda: self._crash_master(number, 1_500 + span_ms))

    def _crash_master(self, number: int, span_ms: int) -> None:
        machine = self._master_machine(number)
        if machine is not None and not self.healed:
            self._do_broker_crash(machine, span_ms, number)

    def _do_broker_silence(self, machine: Machine, span_ms: int, number: int) -> None:
        """Stop the process for a while, as SIGSTOP does."""
        if machine.up and not machine.paused:
            self.counts["broker silence"] += 1
            machine.pause()
            life = machine.life
            healed = self.healed
            # Healing resumes all. Later it may be stopped again, by who looks at its successors.
            self.after(span_ms, lambda: machine.resume() if (machine.life, self.healed) == (life, healed) else None)

    def _do_lonely(self, machine: Machine, span_ms: int, number: int) -> None:
        """Cut a broker off from all other brokers, not from controllers.

        In half of the cases two others are cut off from each other, too, or in one direction.
        """
        self.counts["lonely"] += 1
        others = [other for other in self.machines if other != machine.name]
        cuts = [pair for other in others for pair in ((machine.name, other), (other, machine.name))]
        if number % 2 and len(others) > 1:
            one, two = others[number % len(others)], others[(number + 1) % len(others)]
            cuts += [(one, two)] if number % 4 == 1 else [(one, two), (two, one)]
        for one, two in cuts:
            self.inner.cut(one, two)
            self.after(span_ms, partial(self.inner.heal, one, two))

    def _do_bad_disk(self, machine: Machine, span_ms: int, number: int) -> None:
        """Let brokers of one machine report a bad disk; in one case of four, of all machines."""
        self.counts["bad disk"] += 1
        for each in [*self.machines.values()] if number % 4 == 0 else [machine]:
            each.trouble = True
            self.after(2 * span_ms, partial(setattr, each, "trouble", False))

    def _do_reset(self, machine: Machine, span_ms: int, number: int) -> None:
        names = self.cluster.names
        if machine.up and not machine.paused:
            self.counts["reset"] += 1
            machine.close(machine.channels.get(names[number % len(names)]))

    def _do_severed(self, machine: Machine, span_ms: int, number: int) -> None:
        """Cut a machine off from some controllers or all, not from other brokers.

        If from all: its channels may break before.
        """
        names = self.cluster.names
        cut = names if number % 3 == 0 else names[: 1 + number % len(names)]
        self.counts["severed"] += 1
        breaks = number % 3 == 0 and machine.up and not machine.paused
        for channel in [*machine.channels.values()] if breaks else ():
            machine.close(channel)
        for name in cut:
            for way in ((machine.name, name), (name, machine.name)):
                if breaks:
                    self.after(BREAK_MS, partial(self._cut, *way, span_ms))
                else:
                    self._cut(*way, span_ms)

    def _do_one_way(self, machine: Machine, span_ms: int, number: int) -> None:
        name = self.cluster.names[number % len(self.cluster.names)]
        self.counts["one way"] += 1
        self._cut(*((machine.name, name) if number % 2 else (name, machine.name)), span_ms)

    def _cut(self, source: str, target: str, span_ms: int) -> None:
        self.outer.cut(source, target)
        self.after(span_ms, partial(self.outer.heal, source, target))

    def _do_wiped_broker(self, machine: Machine, span_ms: int, number: int) -> None:
        """Lose a disk, if another member in sync still has its own."""
        for key, host in machine.brokers.items():
            group = self.group(key)
            there = group.sync_state_set - self.fleets[key].lost if group is not None else frozenset()
            if group is None or group.master in (None, host.broker_id) or not there - {host.broker_id}:
                return
        if machine.up:
            machine.crash(self._seen)
        self.counts["wiped broker"] += 1
        for key, host in list(machine.brokers.items()):
            self.fleets[key].wipe(host)
        self.restart(machine, span_ms)

    def _do_gate(self, machine: Machine, span_ms: int, number: int) -> None:
        """Restart it with another ``minInSyncReplicas``."""
        if machine.up:
            self.counts["gate"] += 1
            for host in machine.brokers.values():
                host.min_in_sync = 1 + number % 3
            machine.crash(self._seen)
            self.restart(machine, 5 + number % 50)

    def _administer(self, code: int, header: Header) -> None:
        process = self.active()
        if process is not None:
            self.admin.ask(process.name, request(code, header), _ignore)

    @staticmethod
    def _member(machine: Machine) -> FleetHost | None:
        return next((host for host in machine.brokers.values() if host.broker_id is not None), None)

    def _do_designate(self, machine: Machine, span_ms: int, number: int) -> None:
        host = self._member(machine)
        if host is not None:
            self.designate(host.scene.key, host.broker_id)

    def designate(self, key: GroupKey, broker_id: int | None) -> None:
        """Let an operator designate this master."""
        self.counts["designate"] += 1
        self._administer(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
            key.cluster, key.name, broker_id, True))

    def _do_clean(self, machine: Machine, span_ms: int, number: int, force: bool = False) -> None:
        """Clean one of this group's ids, as an operator does."""
        host = self._member(machine)
        group = self.group(host.scene.key) if host is not None else None
        if host is not None and group is not None:
            key, ids = host.scene.key, list(group.replicas)
            self.counts["force clean" if force else "clean"] += 1
            self._administer(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequest(
                key.name, key.cluster, str(ids[number % len(ids)]), force))

    def _do_force_clean(self, machine: Machine, span_ms: int, number: int) -> None:
        self._do_clean(machine, span_ms, number, force=True)

    def _do_copied_disk(self, machine: Machine, span_ms: int, number: int) -> None:
        """Start a copy of this machine's disks elsewhere for a while.

        ``number`` decides whether the original soon crashes, stops or loses a channel.
        """
        if len(self.copies) >= COPIES_MAX or not all(host.broker_id is not None for host in machine.brokers.values()):
            return
        self.counts["copied directory started elsewhere"] += 1
        name = f"k{len(self.copies)}"
        copy = self.copies[name] = Machine(self, name, 200 + len(self.copies))
        for key, host in machine.brokers.items():
            self.fleets[key].copy(host, copy)
        copy.start()
        self.after(4 * span_ms, lambda: copy.crash(self._seen) if copy.up else None)
        harm = (None, self._do_broker_crash, self._do_reset, self._do_broker_silence)[number % 4]
        if harm is not None:
            self.after(span_ms, partial(harm, machine, 2 * span_ms, number))

    def _do_both(self, machine: Machine, span_ms: int, number: int) -> None:
        leader = self.cluster.leader
        if machine.up and leader is not None and self.plan.size > 2:
            self.counts["both"] += 1
            self.cluster.crash(leader)
            self.after(span_ms, partial(self.start, leader))
            self._do_broker_crash(machine, span_ms, number)

    # --- phases ----------------------------------------------------------------------------------------------

    def play(self, until_ns: int | None) -> None:
        """Play faults; heal until brokers and controllers agree; then lose masters without other faults."""
        cluster = self.cluster
        limit = self._ends if until_ns is None else min(until_ns, self._ends)
        cluster.run_ms(limit / MS)
        if until_ns is not None and until_ns <= self._ends:
            return
        self._heal()
        Healing(self).demand()
        self._settle()
        Progress(self).demand()

    def _heal(self) -> None:
        self.healed = True
        self.outer.heal()
        self.inner.heal()
        self.outer.shape(LinkProfile(latency_ns=self.plan.outer.latency_ns))
        for fleet in self.fleets.values():
            fleet.healed = True
        for copy in self.copies.values():
            copy.resume()
            copy.crash(self._seen)  # also where it is down: nobody starts it again
        for machine in self.machines.values():
            machine.trouble = False
            machine.resume()
            self.start_machine(machine)
        for fleet in self.fleets.values():
            fleet.demand_what_can_be()


class Progress:
    """Demands, after healing, that each group settles on a master and replaces a lost one; an operator helps."""

    def __init__(self, scene: ControllerScene) -> None:
        self.scene, self.cluster = scene, scene.cluster

    def demand(self) -> None:
        """Raises ``InvariantViolation`` for INV_C17, INV_C20, or what brokers demand at the end."""
        scene = self.scene
        self._run_until(lambda: scene.active() is not None, SETTLE_MS)
        keys, fleets = scene.keys, [*scene.fleets.values()]
        for key in keys:
            self._join_anew(key)
        self._settle(fleets)
        if sum(map(self._decide, keys)):
            self._settle(fleets)
        for fleet in fleets:
            fleet.watch.settled()
        self._lose(keys[0], closes=True)
        self._lose(keys[-1], closes=False)
        self._stop(keys[0])

    def _settle(self, fleets: Sequence[FleetGroup]) -> None:
        def level() -> bool:
            return all(fleet.watch.level() for fleet in fleets)

        self._run_until(level, SETTLE_MS + 6 * self.scene.plan.fleet.poll_ms)
        self._run_until(level, max(fleet.watch.waits_for_cleaned_ms() for fleet in fleets))

    def _run_until(self, holds: Callable[[], bool], timeout_ms: float) -> None:
        """Run until ``holds()``, asked every ``LOOK_MS``: after each event it would cost more than the events."""
        end = self.cluster.now_ms + timeout_ms
        while self.cluster.now_ms < end and not holds():
            self.cluster.run_ms(min(LOOK_MS, end - self.cluster.now_ms))

    def _join_anew(self, key: GroupKey) -> bool:
        """Let cleaned brokers register again; False: there was none."""
        fleet = self.scene.fleets[key]
        group = fleet.group()
        cleaned = [host for host in fleet.hosts if group is not None and host.broker_id not in {None, *group.replicas}]
        for host in cleaned:
            fleet.give_up_identity(host)
        return bool(cleaned)

    def electable(self, key: GroupKey) -> dict[int, FleetHost]:
        """Id -> broker that may be elected and still has its disk. Copies have ended by then."""
        fleet = self.scene.fleets[key]
        group = fleet.group()
        return {host.broker_id: host for host in fleet.hosts
                if group is not None and host.broker_id is not None and host.broker_id in group.electable}

    def _decide(self, key: GroupKey) -> bool:
        """Act as the operator of a group that has not settled; False: there is nothing to do.

        If the group waits for a lost disk, its broker is cleaned; if no other member may be elected, all are. An
        electable member that is here and not in doubt would have been elected: then the group does not wait.
        """
        if self._join_anew(key):
            return True
        scene, fleet = self.scene, self.scene.fleets[key]
        group = fleet.group()
        if group is None or scene.active() is None or group.master is not None or scene.plan.settings.unclean:
            return False
        here = self.electable(key)
        gone = group.electable - here.keys()
        doubts = fleet.plan.all_ack and not fleet.plan.sync_flush and not scene.plan.java
        if not gone or not all(doubts and host.unsafe for host in here.values()):
            return False
        scene.counts["an operator gave up a lost disk"] += 1
        if here and group.sync_state_set <= gone:
            self._designate(key, here.keys())  # somebody must be in sync before the others can be cleaned
        self._clean(key, gone, whole=not here)
        self._join_anew(key)
        return True

    def _clean(self, key: GroupKey, gone: frozenset[int], *, whole: bool) -> None:
        """Have these brokers cleaned, or all of their group. A request that comes to nothing is repeated.

        The connection may lead to a process that was killed since the operator last asked anything.
        """
        scene, fleet = self.scene, self.scene.fleets[key]
        header = CleanBrokerDataRequest(
            key.name, key.cluster, None if whole else ";".join(map(str, sorted(gone))), whole)
        answers: list[Command | None] = []

        def cleaned() -> bool:
            group = fleet.group()
            return group is not None and not gone & group.replicas.keys()

        end = self.cluster.now_ms + SETTLE_MS
        while self.cluster.now_ms < end and not cleaned():
            answers.clear()
            active = scene.active()
            if active is not None:
                scene.admin.ask(active.name, request(RequestCode.CLEAN_BROKER_DATA, header), answers.append)
            self._run_until(lambda: cleaned() or bool(answers), OPERATOR_PATIENCE_MS)

    def _designate(self, key: GroupKey, among: Collection[int]) -> None:
        """Make the one of these with the longest log master, as an operator who repeats what comes to nothing."""
        def led() -> bool:
            group = self.scene.fleets[key].group()
            return group is not None and group.master is not None

        end = self.cluster.now_ms + SETTLE_MS
        while self.cluster.now_ms < end and not led() and (active := self.scene.active()) is not None:
            heard = {each: beat.replica for each in among
                     if (beat := active.active.liveness.beat(key, each)) is not None}
            if heard:
                self.scene.designate(key, max(heard, key=lambda each: (heard[each].epoch, heard[each].max_offset)))
            self._run_until(led, OPERATOR_PATIENCE_MS)

    def _lose(self, key: GroupKey, *, closes: bool) -> None:
        """Kill a master while another member is in sync, and check INV_C20."""
        scene, plan = self.scene, self.scene.plan
        fleet = scene.fleets[key]

        def ready() -> bool:
            group, active = scene.group(key), scene.active()
            return group is not None and active is not None and fleet.watch.agreed() and len(
                [each for each in group.sync_state_set if scene.host_of(key, each) is not None]) > 1 and all(
                    scene.watch.hears(active, key, each) for each in group.sync_state_set
                ) and not fleet.watch.asked_for()  # a request under way may leave the master alone in its set

        self._run_until(ready, SETTLE_MS)
        group = scene.group(key)
        former = scene.host_of(key, group.master) if group is not None else None
        if not ready() or group is None or former is None:
            return
        active = scene.active()
        others = {host.machine: host.machine.life for each in group.sync_state_set
                  if (host := scene.host_of(key, each)) is not None and host is not former}
        former.machine.crash(lambda: closes)
        # The seed may delay closes, and the controller may have to wait for the lease.
        bound_ms = 500 + (plan.late_close_ms + plan.fleet.lease_ms if closes else plan.fleet.timeout_ms)
        self._run_until(lambda: self._led_by_another(key, group), bound_ms)
        if scene.active() is not active or all(machine.life != life for machine, life in others.items()):
            return  # an act of the first phase restarted the controller, which saw no close, or who could have led
        scene.watch.counts["INV_C20"] += 1
        require(self._led_by_another(key, group), "INV_C20", "a lost master is not replaced in time", key,
                f"{bound_ms} ms", scene.group(key))
        scene.counts[f"master replaced after {'a close' if closes else 'silence'}"] += 1
        scene.start_machine(former.machine)

    def _stop(self, key: GroupKey) -> None:
        """Pause a master, and check INV_C30: it is replaced once its members report it and the controller misses it."""
        scene, plan, fleet = self.scene, self.scene.plan, self.scene.fleets[key]

        def ready() -> bool:
            group, active = scene.group(key), scene.active()
            return group is not None and active is not None and fleet.watch.level() and all(
                scene.watch.hears(active, key, each) for each in group.replicas)

        self._run_until(ready, SETTLE_MS)
        group, active = scene.group(key), scene.active()
        master = scene.host_of(key, group.master) if group is not None else None
        if not ready() or group is None or active is None or master is None:
            return
        others = [host for host in fleet.hosts if host is not master and host.broker_id in group.sync_state_set]
        beat_ms, lease_ms = plan.fleet.beat_ms, 0 if plan.fleet.all_ack else plan.fleet.lease_ms
        # Two heartbeats report the silence; the controller's longest other wait comes on top.
        bound_ms = 700 + 2 * beat_ms + max(plan.silence_ms, 2 * beat_ms, lease_ms)
        if (not plan.silence_ms or bound_ms >= plan.fleet.timeout_ms or not (plan.fleet.all_ack or lease_ms)
                or scene.watch.hindered.waits_ms(active, key) > PATIENCE_MS or len(others) < max(master.min_in_sync, 1)
                or any(host.unsafe for host in others)):
            return
        self.cluster.run_ms(max(scene.watch.hindered.waits_ms(active, key), 0) + 1)
        master.machine.pause()
        self._run_until(lambda: self._led_by_another(key, group), bound_ms)
        if scene.active() is active:
            scene.watch.counts["INV_C30"] += 1
            require(self._led_by_another(key, group), "INV_C30", "a master that stands still is not replaced in time",
                    key, f"{bound_ms} ms", scene.group(key))
        master.machine.resume()

    def _led_by_another(self, key: GroupKey, before: BrokerGroup) -> bool:
        now = self.scene.group(key)
        return now is not None and now.master not in (None, before.master)


def _start(machine: Machine) -> None:
    machine.start()


def _ignore(answer: Command | None) -> None:
    """Ignore the answer to an operator's request."""


def make(tape: Tape, profile: str) -> ControllerScene:
    """The scene of one tape."""
    return ControllerScene(tape, draw(tape, profile))


CONTROLLERS: Final = Program(
    "python -m harness.simulation.controllers", make, OWN_PROFILES, PREDICATES, FAULTS,
    frozenset({"INV_R30", "INV_C17", "INV_C20", "INV_B22"}))
