"""A machine of brokers: its process, shared by its brokers, and its channels to controllers.

One machine may hold a broker of several groups (a container), which then share its process and its channels. Knows no
rules of replication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from controller.metadata.groups import GroupKey
from harness.simulation.brokers.process import E_TOLD
from harness.simulation.controllers.messages import Answer, Answered, Ask, Channel, Closed, Notify, Told
from raft.config import MS
from remoting.command import Command

if TYPE_CHECKING:
    from harness.simulation.controllers.fleet import FleetHost
    from harness.simulation.controllers.scene import ControllerScene

E_DELIVER = 48
Incoming = Answer | Closed | Notify


class Machine:
    """One machine of brokers. ``life`` rises with each start of its process; older callbacks are void."""

    def __init__(self, scene: ControllerScene, name: str, number: int) -> None:
        self.scene, self.name, self.number = scene, name, number
        self.brokers: dict[GroupKey, FleetHost] = {}
        self.life = 0
        self.up = False
        self.port = 1
        self.channels: dict[str, Channel] = {}
        self._channels_made = 0
        self.trouble = False
        """True while its brokers report that its disk takes no writes."""
        self._sent = 0
        """Requests of all lives so far: the watch orders heartbeats by it."""

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}"

    # --- process ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.up:
            return
        self.life += 1
        life = self.life
        self.up = True
        self.channels = {}
        for host in self.brokers.values():
            if self.life == life:  # a broker that died at its start ended the shared process
                host.start()

    def crash(self, seen: Callable[[], bool], *, power: bool = False) -> None:
        """Kill the process; ``seen`` decides for each channel whether its controller hears of the close."""
        self.up = False
        self.life += 1
        for channel in self.channels.values():
            if channel.open_here:
                channel.open_here = False
                if seen():
                    self.scene.send_closed(channel)
        for host in self.brokers.values():
            host.crash(power=power)

    def pause(self) -> None:
        for host in self.brokers.values():
            host.pause()

    def resume(self) -> None:
        for host in self.brokers.values():
            host.resume()

    @property
    def paused(self) -> bool:
        return any(host.paused is not None for host in self.brokers.values())

    # --- messages --------------------------------------------------------------------------------------------

    def ask(self, controller: str, command: Command, then: Answered | None,
            known: tuple[int, int] | None = None) -> Channel | None:
        """Send a request, by a new channel if need be; returns the channel. ``then`` None: one-way."""
        channel = self.channels.get(controller)
        if channel is None or not channel.open_here:
            channel = self._connect(controller)
        if channel is None:
            if then is not None:
                self.scene.world.at(self.scene.world.now + MS, _unanswered, then)
            return None
        channel.asked += 1
        self._sent += 1
        if then is not None:
            channel.waiting[channel.asked] = then
        self.scene.send(self.name, controller, channel.kind, Ask(channel, channel.asked, command, self._sent, known))
        return channel

    def _connect(self, controller: str) -> Channel | None:
        process = self.scene.controllers.processes.get(controller)
        if process is None or not self.scene.outer.open(self.name, controller, "net0") or (
                not self.scene.outer.open(controller, self.name, "net0")):
            return None
        self._channels_made += 1
        process.accepted += 1
        channel = self.channels[controller] = Channel(self.name, process, process.accepted, self._channels_made)
        self.scene.counts["channel"] += 1
        return channel

    def close(self, channel: Channel | None) -> None:
        """Close a channel at this end; the next request makes another."""
        if channel is not None and channel.open_here:
            channel.open_here = False
            self.scene.counts["channel reset"] += 1
            self.scene.send_closed(channel)

    def receive(self, message: Incoming) -> None:
        if not self.up:
            return
        self.scene.world.fold(self.number, E_DELIVER, self.life, 0, 0, 0)
        if isinstance(message, Answer):
            channel = message.channel
            then = channel.waiting.pop(message.number, None) if channel.open_here else None
            if then is not None:
                then(message.command)
        elif isinstance(message, Closed):
            if message.channel.open_here:
                channel = message.channel
                channel.open_here = False
                waiting, channel.waiting = channel.waiting, {}
                for then in waiting.values():
                    then(None)
        else:
            host = self.brokers.get(message.key)
            if host is not None and message.address == self.address:
                host.do(host.process, E_TOLD, lambda: self._hears(host, message))

    def _hears(self, host: FleetHost, notify: Notify) -> None:
        assert host.process is not None
        self.scene.send(self.name, notify.process.name, "notify", Told(notify.process, notify.number))
        self.scene.watch.learned(notify.key, int(notify.command.ext["masterEpoch"]))
        host.process.member.notified(notify.command)


def _unanswered(then: Answered) -> None:
    """Tell the caller that the controller cannot be reached."""
    then(None)
