"""Faults of members, name servers and what lies between them, one act of chance at a time.

Each is undone after a while. It knows no property.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.simulation.brokers.acting.plan import TIMEOUT_MS
from harness.simulation.brokers.host import SIGSTOP
from raft.config import MS
from raft.sim.tape import Chance, Stream, Value

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.group import ActingGroup
    from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
    from harness.simulation.brokers.acting.scene import ActingScene


class MemberNemesis:
    """Brings faults to one scene until its clients stop."""

    def __init__(self, town: ActingScene, draws: Stream) -> None:
        self._town, self._draws, self._counts = town, draws, town.counts
        self._swaps: set[ActingGroup] = set()
        """Groups whose slaves are cut off as the master registers."""
        self._alone_until_ns = 0
        """Until when no other fault begins."""
        town.after(town.plan.harm_ns, self._act)

    def _act(self) -> None:
        town = self._town
        if town.over:
            return
        town.after(town.plan.harm_ns, self._act)
        if town.world.now < self._alone_until_ns:
            return
        harm = self._draws.draw(None, self._a_harm)
        if harm is not None:
            what, place, who, span_ms, number = harm
            group = town.groups[place % len(town.groups) if town.plan.beside_harmed else 0]
            host = group.members[who % len(group.members)]
            self._counts[what] += 1
            getattr(self, f"_do_{what.replace(' ', '_')}")(host, span_ms, number)

    def _a_harm(self, chance: Chance) -> list[Value] | None:
        plan = self._town.plan
        if not plan.harms or chance() >= plan.harm_chance:
            return None
        what = plan.harms[int(chance() * len(plan.harms))]
        who = 0 if chance() < 0.5 else int(chance() * 12)
        return [what, int(chance() * 12) if chance() < 0.3 else 0, who, int(10 + chance() ** 2 * 3 * TIMEOUT_MS),
                int(chance() * 1_000)]

    # --- members -------------------------------------------------------------------------------------------------

    def _crash(self, host: MemberHost, span_ms: int, *, power: bool) -> None:
        if host.process is not None:
            host.crash(power=power)
            host.scene.restart(host, span_ms)

    def _do_kill(self, host: MemberHost, span_ms: int, number: int) -> None:
        self._crash(host, span_ms, power=False)

    def _do_power_cut(self, host: MemberHost, span_ms: int, number: int) -> None:
        self._crash(host, span_ms, power=True)

    def _do_away(self, host: MemberHost, span_ms: int, number: int) -> None:
        self._crash(host.scene.members[0], 2 * TIMEOUT_MS + span_ms, power=False)

    def _do_both(self, host: MemberHost, span_ms: int, number: int) -> None:
        """Crash a slave soon after its master, when it may act already."""
        group, wait_ms = host.scene, TIMEOUT_MS + number * 3
        self._crash(group.members[0], 3 * TIMEOUT_MS + span_ms, power=False)
        self._town.after(wait_ms * MS, lambda: None if self._town.healed else self._crash(
            group.members[-1 if number % 3 == 0 else 1 % len(group.members)], span_ms, power=False))

    def _do_relieved(self, host: MemberHost, span_ms: int, number: int) -> None:
        """Crash the master; as it comes back cut the slaves off, which may act."""
        master, *slaves = host.scene.members
        self._crash(master, 2 * TIMEOUT_MS, power=False)

        def cut_off() -> None:
            for slave in () if self._town.healed else slaves:
                self._do_lonely(slave, 2 * TIMEOUT_MS + span_ms, number)

        self._town.after((2 * TIMEOUT_MS - number) * MS, cut_off)

    def _do_pause(self, host: MemberHost, span_ms: int, number: int) -> None:
        if host.process is not None and host.paused is None:
            life = host.life
            host.pause()
            self._town.after(span_ms * MS, lambda: host.resume(SIGSTOP) if host.life == life else None)

    # --- name servers --------------------------------------------------------------------------------------------

    def _do_server_kill(self, host: MemberHost, span_ms: int, number: int) -> None:
        server = self._town.servers[number % len(self._town.servers)]
        if server.core is not None:
            server.crash(noticed=number % 3 > 0)
            self._town.after((span_ms // 2) * MS, server.start)

    def _do_server_pause(self, host: MemberHost, span_ms: int, number: int) -> None:
        server = self._town.servers[number % len(self._town.servers)]
        server.pause()
        self._town.after(span_ms * MS, server.resume)

    def _do_closed(self, host: MemberHost, span_ms: int, number: int) -> None:
        """End a connection by which a member is registered; for a while it may not come back."""
        server = self._town.servers[number % len(self._town.servers)]
        process = host.member
        channel = None if process is None else process.servers.get(server.address)
        if channel is None or not channel.open_there or server.core is None:
            return
        server.do(lambda: server.close(channel))
        if number % 2:
            self._apart(host.name, server.name, span_ms)

    # --- the network ---------------------------------------------------------------------------------------------

    def _apart(self, one: str, other: str, span_ms: int, *, both: bool = True) -> None:
        network = self._town.network
        for source, target in ((one, other), (other, one)) if both else ((one, other),):
            network.cut(source, target)
            self._town.after(span_ms * MS, lambda source=source, target=target: network.heal(  # type: ignore[misc]
                source, target))

    def _do_cut(self, host: MemberHost, span_ms: int, number: int) -> None:
        others = [other for other in host.scene.members if other is not host]
        if others:
            self._apart(host.name, others[number % len(others)].name, span_ms)

    def _do_apart(self, host: MemberHost, span_ms: int, number: int) -> None:
        """Cut the member off from some or all name servers."""
        for place, server in enumerate(self._town.servers):
            if number % 3 == 0 or (number >> place) % 2:
                self._apart(host.name, server.name, span_ms)

    def _do_split(self, host: MemberHost, span_ms: int, number: int) -> None:
        """Give master and slaves different name servers beyond the timeout, sometimes one to the master; sometimes cut
        them from each other, too."""
        master, *slaves = host.scene.members
        lasts_ms = 2 * TIMEOUT_MS + span_ms
        self._leave_alone(lasts_ms, number)
        alone = number // 2 % len(self._town.servers) if number % 2 else -1
        for place, server in enumerate(self._town.servers):
            keeps = place == alone if number % 2 else (number >> place) % 2 == 0
            for member in slaves if keeps else [master]:
                self._apart(member.name, server.name, lasts_ms)
        for slave in slaves if number % 3 else ():
            self._apart(master.name, slave.name, lasts_ms)

    def _leave_alone(self, span_ms: int, number: int) -> None:
        """Let no other fault begin for a while, sometimes."""
        if number // 16 % 2:
            self._alone_until_ns = self._town.world.now + span_ms * MS

    def _do_swapped(self, host: MemberHost, span_ms: int, number: int) -> None:
        """Cut the master off from all name servers until a slave acts; as it registers again cut the slaves off."""
        master, *slaves = host.scene.members
        lasts_ms = 2 * TIMEOUT_MS + span_ms
        self._leave_alone(lasts_ms + 2 * TIMEOUT_MS, number)
        for server in self._town.servers:
            self._apart(master.name, server.name, lasts_ms)
        for slave in slaves if number % 3 else ():
            self._apart(master.name, slave.name, lasts_ms + TIMEOUT_MS)
        self._town.after(lasts_ms * MS, lambda: self._swaps.add(host.scene))

    def registers(self, process: MemberProcess) -> None:
        """A name server is about to list a member."""
        group = process.host.scene
        if process.is_master and group in self._swaps:
            self._swaps.discard(group)
            for slave in () if self._town.healed else group.members[1:]:
                for server in self._town.servers:
                    self._apart(slave.name, server.name, TIMEOUT_MS)

    def _do_one_way_apart(self, host: MemberHost, span_ms: int, number: int) -> None:
        server = self._town.servers[number % len(self._town.servers)]
        pair = (host.name, server.name) if number % 2 else (server.name, host.name)
        self._apart(*pair, span_ms, both=False)

    def _do_lonely(self, host: MemberHost, span_ms: int, number: int) -> None:
        """Cut the member off from all servers and members; clients still reach it."""
        for name in (*(member.name for member in host.scene.members), *(server.name for server in self._town.servers)):
            if name != host.name:
                self._apart(host.name, name, span_ms)
