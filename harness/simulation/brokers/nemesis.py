"""Faults of brokers, their machines and the controllers, one act of chance at a time.

Each act is one decision on the tape, whose boring value is to do nothing. Each fault is undone after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from harness.simulation.brokers.controller import BrokerChannel
from harness.simulation.brokers.host import SIGSTOP
from harness.simulation.brokers.plan import CLUSTER, GROUP
from harness.simulation.brokers.process import E_TOLD
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.headers.controller import ElectMasterRequest, NotifyBrokerRoleChangedRequest

if TYPE_CHECKING:
    from harness.simulation.brokers.host import Host
    from harness.simulation.brokers.scene import BrokerScene

TOLD_OF: Final = frozenset({"notify late"})
"""Faults of single messages, which ``_act`` does not draw."""


class Nemesis:
    """Applies faults to one scene until ``ends_ns``."""

    def __init__(self, scene: BrokerScene, draws: Stream, ends_ns: int) -> None:
        self._scene, self._draws, self._ends = scene, draws, ends_ns
        self._counts = scene.counts
        scene.after(scene.plan.harm_ns, self._act)

    def _act(self) -> None:
        scene = self._scene
        if scene.world.now >= self._ends:
            return
        scene.after(scene.plan.harm_ns, self._act)
        harm = self._draws.draw(None, self._a_harm)
        if harm is not None:
            what, who, span_ms, number = harm
            group = scene.group()
            host = scene.host_of(group.master) if who < 0 and group is not None else scene.hosts[who % len(scene.hosts)]
            if host is not None:
                getattr(self, f"_do_{what.replace(' ', '_')}")(host, span_ms, number)

    def _a_harm(self, chance: Chance) -> list[Value] | None:
        plan = self._scene.plan
        harms = [harm for harm in plan.harms if harm not in TOLD_OF]
        if not harms or chance() >= plan.harm_chance:
            return None
        what = harms[int(chance() * len(harms))]
        who = -1 if chance() < 0.45 else int(chance() * len(self._scene.hosts))
        return [what, who, int(10 + chance() ** 2 * 2 * plan.timeout_ms), int(chance() * 1_000)]

    # --- processes and machines ------------------------------------------------------------------------------

    def _do_kill(self, host: Host, span_ms: int, number: int) -> None:
        if host.process is not None:
            self._counts["kill"] += 1
            host.crash(power=False)
            self._scene.restart(host, span_ms)

    def _do_older_copy(self, host: Host, span_ms: int, number: int) -> None:
        """Kill a broker and copy its directory, or put the copy of an earlier time back.

        That is often the first to come back of a group that is down as a whole.
        """
        if host.process is None:
            return
        host.crash(power=False)
        put_back = host.put_back() if number % 4 else False
        self._counts["older copy" if put_back else "copy of a directory"] += 1
        if not put_back:
            host.copy()
        elif number % 2:
            for other in self._scene.hosts:
                self._do_kill(other, 1_000 + 2 * span_ms, number)
        self._scene.restart(host, span_ms)

    def _do_power_cut(self, host: Host, span_ms: int, number: int) -> None:
        """Cut the power of this machine, or of all."""
        for each in self._scene.hosts if number % 4 == 0 else [host]:
            if each.process is not None:
                each.crash(power=True)
                self._scene.restart(each, span_ms if each is host else 10 + number)

    def _do_blink(self, host: Host, span_ms: int, number: int) -> None:
        """Cut a machine's power and start it at once, so that controllers do not notice.

        It is cut off for a while from another broker, which may hold bytes that this one lost.
        """
        if host.process is None:
            return
        self._counts["blink"] += 1
        host.crash(power=True, noticed=False)
        self._scene.restart(host, 1 + number % 20)
        other = self._scene.hosts[number % len(self._scene.hosts)]
        self._cut(host.name, other.name, span_ms)
        self._cut(other.name, host.name, span_ms)

    def _do_pause(self, host: Host, span_ms: int, number: int) -> None:
        """Pause the event loop: timers are late, and messages wait.

        Some masters pause right after a put, for longer than their lease, and answer when they resume.
        """
        plan, group = self._scene.plan, self._scene.group()
        behind = plan.lease_ms > 0 and not plan.features and number % 3 == 0
        if behind and group is not None:
            host, span_ms = self._scene.host_of(group.master) or host, span_ms + plan.lease_ms
        process, life = host.process, host.life

        def stop() -> None:
            if host.process is process and host.paused is None:
                self._counts["pause"] += 1
                host.pause()
                self._scene.after(span_ms * MS, lambda: host.resume(SIGSTOP) if host.life == life else None)

        if behind and process is not None and process.opened:
            self._counts["pause behind a put"] += 1
            process.behind_a_put = stop
        elif process is not None:
            stop()

    def _do_both(self, host: Host, span_ms: int, number: int) -> None:
        self._counts["both"] += 1
        self._do_kill(host, span_ms, number)
        self._do_failover(host, span_ms, number)

    def _do_alone(self, host: Host, span_ms: int, number: int) -> None:
        """Kill all others; the operator lets this one go on alone for a while."""
        self._counts["alone"] += 1
        for other in self._scene.hosts:
            if other is not host:
                self._do_kill(other, 2_000 + span_ms, number)
        before = host.min_in_sync
        self._scene.after(number * MS, lambda: host.demand(1))
        self._scene.after((4_000 + span_ms) * MS, lambda: self._scene.demand_again(host, before))

    # --- disks -----------------------------------------------------------------------------------------------

    def _do_slow_disk(self, host: Host, span_ms: int, number: int) -> None:
        def slow(each: Host) -> None:
            each.disk.late_ns = (50 + number % 500) * MS

        self._harm_disk("slow disk", host, span_ms, number, slow)

    def _do_stalled_disk(self, host: Host, span_ms: int, number: int) -> None:
        """Let no sync end for a while."""
        def stall(each: Host) -> None:
            each.disk.stalled = True

        self._harm_disk("stalled disk", host, span_ms, number, stall)

    def _do_hanging_disk(self, host: Host, span_ms: int, number: int) -> None:
        """Let no operation on files return for a while: a broker that writes is paused."""
        def hang(each: Host) -> None:
            each.disk.stalled = each.disk.hangs = True

        self._harm_disk("hanging disk", host, span_ms, number, hang)

    def _do_full_disk(self, host: Host, span_ms: int, number: int) -> None:
        def fill(each: Host) -> None:
            each.disk.fill(to_the_brim=number % 3 > 0, told=number % 3 < 2)

        self._harm_disk("full disk", host, span_ms, number, fill)

    def _harm_disk(self, what: str, host: Host, span_ms: int, number: int, harm: Callable[[Host], None]) -> None:
        """Harm the disk of this machine, or of all, as if they shared one."""
        shared = number % 5 == 0
        self._counts[what] += 1
        self._counts["shared disk"] += shared
        for each in self._scene.hosts if shared else [host]:
            each.disk.harms += 1
            harm(each)
            self._scene.after(2 * span_ms * MS, lambda each=each, mine=each.disk.harms: (  # type: ignore[misc]
                each.disk.mend() if each.disk.harms == mine else None))

    # --- the network -----------------------------------------------------------------------------------------

    def _cut(self, source: str, target: str, span_ms: int) -> None:
        self._scene.network.cut(source, target)
        self._scene.after(span_ms * MS, lambda: self._scene.network.heal(source, target))

    def _others(self, host: Host) -> list[str]:
        return [other.name for other in self._scene.hosts if other is not host]

    def _controllers(self) -> list[str]:
        return [controller.name for controller in self._scene.controllers]

    def _do_cut(self, host: Host, span_ms: int, number: int) -> None:
        """Cut it off from another broker, both ways."""
        other = self._scene.hosts[number % len(self._scene.hosts)]
        self._cut(host.name, other.name, span_ms)
        self._cut(other.name, host.name, span_ms)

    def _do_one_way(self, host: Host, span_ms: int, number: int) -> None:
        """Cut one way between it and another broker or a controller."""
        self._counts["one way"] += 1
        others = [other.name for other in self._scene.hosts] if number % 2 else self._controllers()
        other = others[number // 2 % len(others)]
        pair = (host.name, other) if number % 3 else (other, host.name)
        self._cut(*pair, span_ms)

    def _do_severed(self, host: Host, span_ms: int, number: int) -> None:
        """Cut it off from all controllers; brokers and clients still hear it."""
        self._counts["severed"] += 1
        for name in self._controllers():
            self._cut(host.name, name, span_ms)
            self._cut(name, host.name, span_ms)

    def _do_lonely(self, host: Host, span_ms: int, number: int) -> None:
        """Cut it off from all other brokers, one way or both; controllers and clients still hear it."""
        self._counts["lonely"] += 1
        for name in self._others(host):
            if number % 4 != 1:
                self._cut(host.name, name, span_ms)
            if number % 4 != 2:
                self._cut(name, host.name, span_ms)

    def _do_deaf(self, host: Host, span_ms: int, number: int) -> None:
        """Let it hear no server, while all hear it."""
        self._counts["deaf"] += 1
        for name in (*self._others(host), *self._controllers()):
            self._cut(name, host.name, span_ms)

    def _do_mute(self, host: Host, span_ms: int, number: int) -> None:
        """Let no server hear it, while it hears all."""
        self._counts["mute"] += 1
        for name in (*self._others(host), *self._controllers()):
            self._cut(host.name, name, span_ms)

    def _do_reset(self, host: Host, span_ms: int, number: int) -> None:
        """Break a connection to a controller or between brokers."""
        process = host.process
        if process is None or host.paused is not None:
            return
        self._counts["reset"] += 1
        if number % 2 and process.channels:
            channel = process.channels[sorted(process.channels)[number % len(process.channels)]]
            channel.open_here = False
            if self._scene.seen():
                self._scene.channel_closed(host, channel)
        elif process.switch.following is not None and process.switch.following.end_ is not None:
            end = process.switch.following.end_
            host.do(process, E_TOLD, end.lost)

    # --- controllers, and forged notifications -----------------------------------------------------------------

    def _do_failover(self, host: Host, span_ms: int, number: int) -> None:
        self._counts["failover"] += 1
        self._scene.fail_over()

    def _do_controller_pause(self, host: Host, span_ms: int, number: int) -> None:
        """Pause a controller; if it is the active one, another soon takes over."""
        controller = self._scene.controllers[number % len(self._scene.controllers)]
        if controller.paused is not None:
            return
        self._counts["controller pause"] += 1
        controller.pause()
        self._scene.after(span_ms * MS, controller.resume)
        patience_ms = 200 + number % 400
        if controller is self._scene.leader and span_ms > patience_ms:
            self._scene.after(patience_ms * MS, lambda: (
                self._scene.fail_over() if controller is self._scene.leader else None))

    def _do_designate(self, host: Host, span_ms: int, number: int) -> None:
        """Let an operator designate another master."""
        group, leader = self._scene.group(), self._scene.leader
        if group is None or leader is None or not group.replicas:
            return
        self._counts["designate"] += 1
        ids = list(group.replicas)
        process = host.process
        if process is not None and host.paused is None:
            channel = BrokerChannel(process, leader)
            leader.asked(channel, request(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
                CLUSTER, GROUP, ids[number % len(ids)], True)), _ignore)

    def _do_forged(self, host: Host, span_ms: int, number: int) -> None:
        """Notify a broker of a master in an epoch that no controller gave."""
        process, other = host.process, self._scene.hosts[number % len(self._scene.hosts)]
        if process is None or process.member.manager.role is None:
            return
        self._counts["forged"] += 1
        command = request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, NotifyBrokerRoleChangedRequest(
            other.address, 1_000_000 + number, 1_000_000 + number, 1 + number % len(self._scene.hosts)))
        command.body = SyncStateSet(frozenset({1}), 1_000_000 + number).to_json()
        host.do(process, E_TOLD, lambda: process.member.notified(command, known=False))


def _ignore(answer: Command) -> None:
    """Ignore the answer to an operator's request."""
