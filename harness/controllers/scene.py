"""One seed: controllers and brokers in one world, everything that befalls them, then healing and a demand for progress.

Controllers suffer what ``raft.sim.campaign`` does to replicas; brokers, their channels and their groups suffer the acts
here. Each act is one decision on the tape, whose boring value is to do nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from controller.metadata.groups import BrokerGroup, GroupKey
from harness.controllers.broker import Broker
from harness.controllers.host import Host
from harness.controllers.messages import Ask, Channel, Closed, Notify, Told
from harness.controllers.metadata import SimMetadata
from harness.controllers.plan import BROKER_FAULTS, OWN_PROFILES, ControllerPlan, draw
from harness.controllers.process import Process
from harness.controllers.replication import Disk
from harness.controllers.watch import PREDICATES, Watch
from raft.config import MS
from raft.invariants import require
from raft.sim.campaign import Healing, Program, Scene
from raft.sim.cluster import Cluster
from raft.sim.links import Link, LinkProfile, Network, Receiver
from raft.sim.tape import Chance, Tape, Value
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.header import Header
from remoting.headers.controller import CleanBrokerDataRequest, ElectMasterRequest

FAULTS: Final = (
    *BROKER_FAULTS[:-1], "crash before temp file", "crash after temp file", "crash before identity file",
    "crash after identity file", "crash after temp file is gone", "crash after registration", "id refused",
    "identity given up", "broker loss", "broker duplicate", "broker reorder", "broker delay", "broker cut",
    "close unseen", "late close", "channel reset", "notification lost", "notified", "active controller changed",
    "changed while masters beat", "lost by a close", "lost by silence", "alter", "truncated", "gate held",
    "gate lowered", "acknowledged at once", "deadline passed", "crash", "restart", "wipe", "pause", "partition",
    "install", "transfer", "reconfigure", "snapshot", "clock rate", "clock step", "master replaced after a close",
    "master replaced after silence",
)
"""Faults and events that must have happened at least once in a campaign."""
SETTLE_MS: Final = 30_000
LOOK_MS: Final = 50


class ControllerCluster(Cluster):
    """Replicas whose processes are controllers."""

    def __init__(self, scene: ControllerScene, tape: Tape) -> None:
        self.scene = scene
        self.processes: dict[str, Process] = {}
        plan = scene.plan
        super().__init__(
            plan.size, partial(SimMetadata, scene.watch), tape=tape, config=plan.config(), learners=plan.learners,
            links=plan.links, codec=plan.codec, disk=plan.disk)

    @property
    def names(self) -> list[str]:
        return list(self.nodes)

    def start(self, name: str) -> None:
        super().start(name)
        life = self.nodes[name].life
        if life is not None:
            self.processes[name] = Process(self.scene, name, life)

    def crash(self, name: str | None) -> None:
        super().crash(name)
        assert name is not None
        self.scene.bury(self.processes.pop(name))

    def skew(self, name: str, *, rate_ppm: int | None = None, step_ms: int = 0) -> None:
        super().skew(name, rate_ppm=rate_ppm, step_ms=step_ms)
        process = self.processes.get(name)
        if process is not None:
            process.rearm()


class ControllerScene(Scene):
    """A cluster of controllers, hosts of brokers, and what happens."""

    plan: ControllerPlan
    cluster: ControllerCluster

    def __init__(self, tape: Tape, plan: ControllerPlan) -> None:
        self.plan = plan
        self.hosts: dict[str, Host] = {}
        self._serials = 0
        self._disks = 0
        self.watch = Watch(self)
        super().__init__(tape, plan)
        self.world, self.counts = self.cluster.world, self.cluster.counts
        self.outer = Network(self.world, tape, self._outer_receiver, plan.outer)
        self.puts = tape.stream("puts")
        self._harms = tape.stream("broker nemesis")
        self._sites, self._closes, self._told = tape.stream("sites"), tape.stream("closes"), tape.stream("told")
        self.keys = [GroupKey("c", f"g{number}") for number in range(plan.groups)]
        self._make_hosts()
        self.healed = False

    def _make_cluster(self, tape: Tape) -> Cluster:
        return ControllerCluster(self, tape)

    @property
    def controllers(self) -> ControllerCluster:
        return self.cluster

    def _make_hosts(self) -> None:
        plan = self.plan
        for number in range(plan.brokers if plan.container else plan.brokers * plan.groups):
            self._add_host(f"b{number}", 100 + number)
        self.admin = self._add_host("admin", 99)
        for each, key in enumerate(self.keys):
            for number in range(plan.brokers):
                host = self.hosts[f"b{number if plan.container else each * plan.brokers + number}"]
                host.brokers[key] = Broker(host, key, self._new_disk())
        for number, host in enumerate(self.hosts.values()):
            self.world.at(number * 7 * MS, _start, host)

    def _add_host(self, name: str, number: int) -> Host:
        host = self.hosts[name] = Host(self, name, number)
        return host

    def _new_disk(self) -> Disk:
        self._disks += 1
        return Disk(self._disks)

    # --- looking ---------------------------------------------------------------------------------------------

    def brokers(self) -> Iterator[Broker]:
        for host in self.hosts.values():
            yield from host.brokers.values()

    def broker_of(self, key: GroupKey, broker_id: int | None) -> Broker | None:
        """Who has this id now."""
        for host in self.hosts.values():
            broker = host.brokers.get(key)
            if broker is not None and broker.disk.broker_id == broker_id is not None:
                return broker
        return None

    def group(self, key: GroupKey) -> BrokerGroup | None:
        """As the active controller has it."""
        process = self.active()
        return process.machine.group(key) if process is not None else None

    def active(self) -> Process | None:
        best: Process | None = None
        for process in self.cluster.processes.values():
            if process.active.active and process.life.paused is None and (
                    best is None or process.active.term > best.active.term):
                best = process
        return best

    @property
    def reads_are_sound(self) -> bool:
        return self.plan.true_clocks or self.plan.read.value == "index"

    @property
    def evaluated(self) -> Counter[str]:
        return self.watch.counts

    @property
    def happened(self) -> Counter[str]:
        return self.cluster.counts + Counter({f"broker {name}": n for name, n in self.outer.counts.items()})

    def serial(self) -> int:
        """A number that nothing else has."""
        self._serials += 1
        return self._serials

    # --- the outer network -----------------------------------------------------------------------------------

    def send(self, source: str, target: str, kind: str, message: object) -> None:
        self.outer.link(source, target, kind).send(message)

    def _outer_receiver(self, link: Link) -> Receiver:
        target = link.target
        host = self.hosts.get(target)
        if host is not None:
            return host.receive

        def to_controller(message: Ask | Closed | Told) -> None:
            process = message.process if isinstance(message, Told) else message.channel.process
            process.receive(message)

        return to_controller

    def notify(self, notify: Notify) -> None:
        """By a connection that the controller makes for it."""
        host = notify.address.partition(":")[0]
        if self._told.chance(0.0 if self.healed and self.plan.lost_notifications < 1 else self.plan.lost_notifications):
            self.counts["notification lost"] += 1
        else:
            self.counts["notified"] += 1
            self.send(notify.process.name, host, "notify", notify)

    def send_closed(self, channel: Channel) -> None:
        """The host's end is closed; its controller hears of it sooner or later."""
        late = self._closes.between(0, self.plan.late_close_ms, 0)
        if late:
            self.counts["late close"] += 1
        self.world.at(self.world.now + late * MS, self._send_closed, channel)

    def _send_closed(self, channel: Channel) -> None:
        self.send(channel.host, channel.process.name, channel.kind, Closed(channel))

    def reset(self, channel: Channel) -> None:
        """Something came for a controller's process that is no more."""
        self.send(channel.process.name, channel.host, channel.kind, Closed(channel))

    def bury(self, process: Process) -> None:
        """A controller died: hosts learn of it when they next send, or now."""
        for host in self.hosts.values():
            channel = host.channels.get(process.name)
            if channel is not None and channel.process is process and self._closes.chance(0.5):
                self.reset(channel)

    def _seen(self) -> bool:
        """Whether a close is heard of."""
        if self._closes.chance(1 - self.plan.close_seen):
            self.counts["close unseen"] += 1
            return False
        return True

    # --- acts ------------------------------------------------------------------------------------------------

    def crash_site(self, host: Host) -> bool:
        """Whether this write of a registration is a process's last."""
        if self.healed or not host.up or not self._sites.chance(self.plan.site_chance):
            return False
        self.counts["site"] += 1
        host.crash(self._seen)
        self._restart(host, 50 + 13 * host.number % 900)
        return True

    def _restart(self, host: Host, span_ms: int) -> None:
        """Later, unless somebody else starts it meanwhile."""
        life = host.life
        self._after(span_ms, lambda: self.start_host(host) if host.life == life else None)

    def start_host(self, host: Host) -> None:
        if not host.up:
            host.port += self.counts["broker crash"] % 3 == 0
            host.start()

    def _client(self, _: None) -> None:
        """In place of raft's clients: one act on brokers, or none."""
        world = self.world if hasattr(self, "world") else self.cluster.world
        if world.now >= self._ends:
            return
        world.at(world.now + self.plan.op_ns, self._client)
        act = self._harms.draw(None, self._a_harm)
        if act is not None:
            what, name, span_ms, number = act
            host = self.hosts.get(self._master_host(number) if name == "master" else name)
            if host is not None:
                getattr(self, f"_do_{what.replace(' ', '_')}")(host, span_ms, number)

    def _a_harm(self, chance: Chance) -> list[Value] | None:
        plan = self.plan
        harms = [harm for harm in plan.harms if harm != "site"]
        if not harms or chance() >= plan.harm_chance:
            return None
        what = harms[int(chance() * len(harms))]
        names = [name for name in self.hosts if name != "admin"]
        who = "master" if chance() < 0.4 else names[int(chance() * len(names))]
        return [what, who, int(20 + chance() ** 2 * 2.5 * plan.timeout_ms), int(chance() * 1_000)]

    def _master_host(self, number: int) -> str:
        group = self.group(self.keys[number % len(self.keys)])
        broker = self.broker_of(self.keys[number % len(self.keys)], group.master) if group is not None else None
        return broker.host.name if broker is not None else ""

    def _do_broker_crash(self, host: Host, span_ms: int, number: int) -> None:
        if host.up:
            self.counts["broker crash"] += 1
            host.crash(self._seen)
            self._restart(host, span_ms)

    def _do_broker_silence(self, host: Host, span_ms: int, number: int) -> None:
        """As SIGSTOP."""
        if host.up and host.paused is None:
            self.counts["broker silence"] += 1
            host.pause()
            life = host.life
            self._after(span_ms, lambda: host.resume() if host.life == life else None)

    def _do_reset(self, host: Host, span_ms: int, number: int) -> None:
        names = self.cluster.names
        if host.up and host.paused is None:
            self.counts["reset"] += 1
            host.close(names[number % len(names)])

    def _do_severed(self, host: Host, span_ms: int, number: int) -> None:
        """Cut off from some controllers, or from all; brokers still hear each other."""
        names = self.cluster.names
        cut = names if number % 3 == 0 else names[: 1 + number % len(names)]
        self.counts["severed"] += 1
        for name in cut:
            self._cut(host.name, name, span_ms)
            self._cut(name, host.name, span_ms)

    def _do_one_way(self, host: Host, span_ms: int, number: int) -> None:
        name = self.cluster.names[number % len(self.cluster.names)]
        self.counts["one way"] += 1
        self._cut(*((host.name, name) if number % 2 else (name, host.name)), span_ms)

    def _cut(self, source: str, target: str, span_ms: int) -> None:
        self.outer.cut(source, target)
        self._after(span_ms, partial(self.outer.heal, source, target))

    def _do_wiped_broker(self, host: Host, span_ms: int, number: int) -> None:
        """A lost disk, where others in sync still have theirs."""
        for key in host.brokers:
            group = self.group(key)
            if group is None or group.master == host.brokers[key].disk.broker_id or len(group.sync_state_set) < 2:
                return
        if host.up:
            host.crash(self._seen)
        self.counts["wiped broker"] += 1
        for key, broker in host.brokers.items():
            broker.disk = self._new_disk()
            broker.stop()
            assert broker.key == key
        self._restart(host, span_ms)

    def _do_gate(self, host: Host, span_ms: int, number: int) -> None:
        """Its operator announces another ``minInSyncReplicas``; a higher one is kept at once."""
        self.counts["gate"] += 1
        for broker in host.brokers.values():
            broker.gate = 1 + number % 3
            broker.enforced = max(broker.enforced, broker.gate)

    def _administer(self, code: int, header: Header) -> None:
        process = self.active()
        if process is not None:
            self.admin.ask(process.name, request(code, header), _ignore)

    def _member(self, host: Host) -> Broker | None:
        return next((broker for broker in host.brokers.values() if broker.disk.broker_id is not None), None)

    def _do_designate(self, host: Host, span_ms: int, number: int) -> None:
        broker = self._member(host)
        if broker is not None:
            self.counts["designate"] += 1
            self._administer(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
                broker.key.cluster, broker.key.name, broker.disk.broker_id, True))

    def _do_clean(self, host: Host, span_ms: int, number: int, force: bool = False) -> None:
        """An id of this group, with luck of somebody who is no more."""
        broker = self._member(host)
        group = self.group(broker.key) if broker is not None else None
        if broker is not None and group is not None:
            ids = list(group.replicas)
            self.counts["force clean" if force else "clean"] += 1
            self._administer(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequest(
                broker.key.name, broker.key.cluster, str(ids[number % len(ids)]), force))

    def _do_force_clean(self, host: Host, span_ms: int, number: int) -> None:
        self._do_clean(host, span_ms, number, force=True)

    def _do_both(self, host: Host, span_ms: int, number: int) -> None:
        leader = self.cluster.leader
        if host.up and leader is not None and self.plan.size > 2:
            self.counts["both"] += 1
            self.cluster.crash(leader)
            self._after(span_ms, partial(self.start, leader))
            self._do_broker_crash(host, span_ms, number)

    # --- phases ----------------------------------------------------------------------------------------------

    def play(self, until_ns: int | None) -> None:
        """Faults; then none, and brokers and controllers agree; then masters are lost again, in calm."""
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
        self.outer.shape(LinkProfile(latency_ns=self.plan.outer.latency_ns))
        for host in self.hosts.values():
            if host.paused is not None:
                host.resume()
            self.start_host(host)


class Progress:
    """After healing: every group that has somebody to elect has a master that all follow, and loses it twice."""

    def __init__(self, scene: ControllerScene) -> None:
        self.scene, self.cluster = scene, scene.cluster

    def demand(self) -> None:
        """Raises ``InvariantViolation`` for INV_C17 or INV_C20."""
        scene = self.scene
        keys = [key for key in scene.keys if self._electable(key)]
        self._run_until(lambda: all(map(self._agrees, keys)), SETTLE_MS + 6 * scene.plan.poll_ms)
        for key in keys:
            scene.watch.counts["INV_C17"] += 1
            require(self._agrees(key), "INV_C17", "healed, and the fleet does not agree", key, scene.group(key),
                    [(broker.disk.broker_id, broker.master, broker.disk.epoch, broker.running, broker.registered)
                     for broker in scene.brokers() if broker.key == key])
        if keys:
            self._lose(keys[0], closes=True)
            self._lose(keys[-1], closes=False)

    def _run_until(self, holds: Callable[[], bool], timeout_ms: float) -> None:
        """Asks now and then: asking after every event costs more than the events."""
        end = self.cluster.now_ms + timeout_ms
        while self.cluster.now_ms < end and not holds():
            self.cluster.run_ms(min(LOOK_MS, end - self.cluster.now_ms))

    def _electable(self, key: GroupKey) -> bool:
        """Somebody who may be elected still has its disk."""
        self._run_until(lambda: self.scene.active() is not None, SETTLE_MS)
        group = self.scene.group(key)
        return group is None or not group.sync_state_set or any(
            self.scene.broker_of(key, each) is not None for each in group.electable)

    def _agrees(self, key: GroupKey) -> bool:
        group = self.scene.group(key)
        return group is not None and group.master is not None and all(
            broker.running and broker.disk.epoch == group.master_epoch and broker.master == group.master
            for broker in self.scene.brokers() if broker.key == key)

    def _lose(self, key: GroupKey, *, closes: bool) -> None:
        """A master dies while another is in sync. INV_C20: it is replaced at once, or within a heartbeat's timeout."""
        scene, plan = self.scene, self.scene.plan

        def ready() -> bool:
            group, active = scene.group(key), scene.active()
            return group is not None and active is not None and self._agrees(key) and len(
                [each for each in group.sync_state_set if scene.broker_of(key, each) is not None]) > 1 and all(
                    scene.watch.hears(active, key, each) for each in group.sync_state_set)

        self._run_until(ready, SETTLE_MS)
        group = scene.group(key)
        former = scene.broker_of(key, group.master) if group is not None else None
        if not ready() or group is None or former is None:
            return
        active = scene.active()
        former.host.crash(lambda: closes)
        # Channels close as late as the seed says; a lease may have to be waited for.
        bound_ms = 500 + plan.late_close_ms + plan.lease_ms if closes else 500 + plan.timeout_ms
        self._run_until(lambda: self._led_by_another(key, group), bound_ms)
        if scene.active() is not active:
            return  # a restart that the first phase had in store: this controller saw nothing close
        scene.watch.counts["INV_C20"] += 1
        require(self._led_by_another(key, group), "INV_C20", "a lost master is not replaced in time", key,
                f"{bound_ms} ms", scene.group(key))
        scene.counts[f"master replaced after {'a close' if closes else 'silence'}"] += 1
        scene.start_host(former.host)

    def _led_by_another(self, key: GroupKey, before: BrokerGroup) -> bool:
        now = self.scene.group(key)
        return now is not None and now.master not in (None, before.master)


def _start(host: Host) -> None:
    host.start()


def _ignore(answer: Command | None) -> None:
    """An operator reads it, or does not."""


def make(tape: Tape, profile: str) -> ControllerScene:
    """The scene of one tape."""
    return ControllerScene(tape, draw(tape, profile))


CONTROLLERS: Final = Program(
    "harness.controllers", make, OWN_PROFILES, PREDICATES, FAULTS, frozenset({"INV_R30", "INV_C17", "INV_C20"}))
