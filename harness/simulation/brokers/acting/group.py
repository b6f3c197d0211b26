"""One broker group without controllers: its machines, and those who read and write in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import attrs

from controller.metadata.groups import GroupKey
from harness.simulation.brokers.acting.machine import MemberHost, MemberProcess
from harness.simulation.brokers.acting.plan import GROUPS
from harness.simulation.brokers.group import Group
from harness.simulation.brokers.host import Host
from harness.simulation.brokers.plan import CLUSTER
from raft.config import MS
from remoting.command import Command

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.scene import ActingScene
    from harness.simulation.brokers.acting.watch import ActingWatch
    from harness.simulation.brokers.controller import BrokerChannel
    from harness.simulation.brokers.process import BrokerProcess


class ActingGroup(Group):
    """``place``: which of the cluster's groups it is."""

    watch: ActingWatch

    def __init__(self, town: ActingScene, place: int, size: int) -> None:
        self.town, self.place, self.size = town, place, size
        plan = attrs.evolve(town.plan, brokers=size)
        super().__init__(
            town.tape, plan, town.world, town.network, town.counts, key=GroupKey(CLUSTER, GROUPS[place]),
            controllers=(), ends_ns=plan.duration_ms * MS, name=GROUPS[place])

    def _make_host(self, number: int) -> Host:
        return MemberHost(self, number)

    def _traits(self) -> None:
        """Do nothing: traits of the whole cluster are its scene's."""

    @property
    def members(self) -> list[MemberHost]:
        """Its machines, the master's first."""
        return [host for host in self.hosts if isinstance(host, MemberHost)]

    @property
    def leader(self) -> MemberProcess | None:
        """Its master, if that leads."""
        process = self.members[0].member
        return process if process is not None and process.opened and process.leads_since is not None else None

    @property
    def actor(self) -> MemberProcess | None:
        """The slave that acts now."""
        for host in self.members[1:]:
            process = host.member
            if process is not None and process.opened and process.standing.role.acts:
                return process
        return None

    # --- there are no controllers ------------------------------------------------------------------------------

    def group(self) -> None:
        """Return None: no controller knows the group."""
        return

    def ask(self, process: BrokerProcess, address: str, command: Command, timeout_ms: int,
            then: Callable[[Command | None], None]) -> NoReturn:
        raise AssertionError("no member asks a controller")

    def channel_closed(self, host: Host, channel: BrokerChannel) -> NoReturn:
        raise AssertionError("no member has a connection to a controller")

    # --- machines ----------------------------------------------------------------------------------------------

    def restart(self, host: Host, span_ms: int) -> None:
        assert isinstance(host, MemberHost)
        life, member = host.life, host

        def again() -> None:
            if member.life == life and not member.away:
                member.start()

        self.after(span_ms * MS, again)

    def host_at(self, address: str) -> Host:
        return self.town.machine_at(address)

    def guess_master(self, tried: int) -> int:
        """Return the place of the master: always 0, since no other member takes messages."""
        return 0
