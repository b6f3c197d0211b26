"""A name server's machine: the shipped core, what its shell does around it, and a table that a kill empties."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from controller.namesrv.config import NamesrvConfig
from controller.namesrv.effects import Close, MinIdChanged
from controller.namesrv.kvconfig import KVConfig
from controller.namesrv.requests import NameServer
from harness.simulation.brokers.acting.wire import E_LOST, ServerLink
from raft.sim.world import Clock
from remoting.codes import RequestCode
from remoting.command import Command

if TYPE_CHECKING:
    from harness.simulation.brokers.acting.scene import ActingScene

E_NOTICE: Final = 75
E_SERVER: Final = 80


class ServerHost:
    """``core`` is None while it is down."""

    def __init__(self, town: ActingScene, number: int) -> None:
        self.town, self.number, self.name = town, number, f"n{number}"
        self.address = f"10.9.0.{number + 1}:9876"
        self.clock = Clock((number + 1) * 3_000_000_000)
        rates = town.plan.server_rates_ppm
        if rates:
            self.clock.set_rate(0, rates[number % len(rates)])
        self.core: NameServer | None = None
        self.life = 0
        self.channels: list[ServerLink] = []
        """Connections that somebody has registered by."""
        self.paused: list[Callable[[], None]] | None = None
        self._due = -1

    @property
    def now(self) -> int:
        return self.clock.local(self.town.world.now)

    def start(self) -> None:
        if self.core is None:
            self.life += 1
            self.core = NameServer(NamesrvConfig(
                support_acting_master=True, notify_min_broker_id_changed=self.town.plan.notices), KVConfig(), self.now)

    def crash(self, *, noticed: bool) -> None:
        """Crash the server, which loses its table; ``noticed``: brokers hear that their connections end."""
        self.core, self._due, self.paused = None, -1, None
        channels, self.channels = self.channels, []
        for channel in channels:
            channel.open_there = False
            self.town.rights.dropped(channel)
            if noticed:
                self._tell_of_the_end(channel)

    def pause(self) -> None:
        if self.core is not None and self.paused is None:
            self.paused = []

    def resume(self) -> None:
        waiting, self.paused = self.paused or [], None
        for call in waiting:
            call()

    def do(self, call: Callable[[], None]) -> None:
        """Run an event of this run: later if the server is paused, never once the run is over."""
        life = self.life

        def still() -> None:
            if self.core is not None and self.life == life:
                self.do(call)

        if self.paused is not None:
            self.paused.append(still)
        elif self.core is not None:
            self.town.world.fold(E_SERVER + self.number, E_SERVER, self.life, 0, 0, 0)
            call()

    # --- as its shell ----------------------------------------------------------------------------------------

    def handle(self, channel: ServerLink, command: Command) -> Command:
        assert self.core is not None, "only a running server is asked"
        if channel not in self.channels:
            self.channels.append(channel)
        if command.code == RequestCode.REGISTER_BROKER:
            self.town.nemesis.registers(channel.process)
        answer = self.core.handle(self.now, channel, command)
        self._carry_out()
        return answer

    def closed(self, channel: ServerLink, *, silent: bool = False) -> None:
        """Tell the server that a connection ended."""
        if self.core is not None and channel in self.channels and channel.life == self.life:
            self.channels.remove(channel)
            channel.open_there = False
            if not silent:
                self.town.rights.dropped(channel)
            self.core.closed(channel, "closed")
            self._carry_out()

    def close(self, channel: ServerLink, *, silent: bool = False) -> None:
        """End a connection for both ends, as the server or the network does."""
        self.closed(channel, silent=silent)
        self._tell_of_the_end(channel)

    def _tell_of_the_end(self, channel: ServerLink) -> None:
        process, town = channel.process, self.town
        town.network.link(self.name, process.host.name, "rpc").send(
            lambda: process.host.do(process, E_LOST, channel.ends))

    def _carry_out(self, *, silent: bool = False) -> None:
        """``silent``: brokers were silent for too long, so that their rights ended, too."""
        core = self.core
        assert core is not None, "it runs"
        while core.outbox:
            effect = core.outbox.pop(0)
            if isinstance(effect, Close):
                assert isinstance(effect.connection, ServerLink)
                self.close(effect.connection, silent=silent)
            elif isinstance(effect, MinIdChanged):
                for address in effect.recipients:
                    self._notify(address)
        due = core.next_deadline()
        if due is not None and due != self._due:
            self._due = due
            self.town.world.at(self.clock.world(due), _call, lambda: self.do(lambda: self._expire(due)))

    def _expire(self, due: int) -> None:
        if due == self._due and self.core is not None:
            self._due = -1
            self.core.expire(self.now)
            self._carry_out(silent=True)

    def _notify(self, address: str) -> None:
        """Tells a broker of another smallest id (905)."""
        host = self.town.machine_at(address)

        def arrives() -> None:
            there = host.member
            if there is not None and there.opened:
                self.town.counts["min id notice"] += 1
                host.do(there, E_NOTICE, there.acting.least_id_changed)

        self.town.network.link(self.name, host.name, "rpc").send(arrives)


def _call(action: Callable[[], None]) -> None:
    action()
