"""A machine of model brokers: their channels to controllers, their clock, and what of them outlives a crash.

One process may hold several brokers (a container), which then share its channels. Knows no rules of replication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from controller.metadata.groups import GroupKey
from harness.controllers.messages import Answer, Ask, Channel, Closed, Notify, Pull, Push, Told
from raft.config import MS
from raft.sim.world import Clock
from remoting.command import Command

if TYPE_CHECKING:
    from harness.controllers.broker import Broker
    from harness.controllers.scene import ControllerScene

ASK_TIMEOUT_NS = 1_500 * MS
E_DELIVER, E_BEAT = 48, 49
Incoming = Answer | Closed | Notify | Pull | Push
Answered = Callable[[Command | None], None]
"""Gets the answer, or None when none came in time."""


@attrs.define(eq=False)
class Open:
    """A request without an answer yet."""

    channel: Channel
    then: Answered


class Host:
    """One machine. ``life`` rises with each start of its process; what an earlier one waited for is void."""

    def __init__(self, scene: ControllerScene, name: str, number: int) -> None:
        self.scene, self.name, self.number = scene, name, number
        self.clock = Clock((number + 1) * 7_000_000_000)
        self.brokers: dict[GroupKey, Broker] = {}
        self.life = 0
        self.up = False
        self.paused: list[Incoming] | None = None
        self.port = 1
        self.channels: dict[str, Channel] = {}
        self._asks: dict[int, Open] = {}
        self._channels_made = 0

    @property
    def now(self) -> int:
        return self.clock.local(self.scene.world.now)

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}"

    # --- process ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.life += 1
        self.up, self.paused = True, None
        self.channels, self._asks = {}, {}
        for broker in self.brokers.values():
            broker.start()
        self._beat(self.life)
        self._tick(self.life)

    def crash(self, seen: Callable[[], bool]) -> None:
        """The process dies; ``seen`` says of each channel whether its controller hears of it."""
        self.up = False
        self.life += 1
        for channel in self.channels.values():
            channel.open_here = False
            if seen():
                self.scene.send_closed(channel)
        for broker in self.brokers.values():
            broker.stop()

    def pause(self) -> None:
        if self.up and self.paused is None:
            self.paused = []

    def resume(self) -> None:
        waiting, self.paused = self.paused or [], None
        for message in waiting:
            if self.up:
                self.receive(message)

    # --- timers ----------------------------------------------------------------------------------------------

    def _beat(self, life: int) -> None:
        """Heartbeats of all brokers to all controllers."""
        if life != self.life:
            return
        scene = self.scene
        scene.world.at(self.clock.world(self.now + scene.plan.beat_ms * MS), self._beat, life)
        if self.paused is not None:
            return
        scene.world.fold(self.number, E_BEAT, life, 0, 0, 0)
        for broker in self.brokers.values():
            broker.beat()

    def _tick(self, life: int) -> None:
        if life != self.life:
            return
        scene = self.scene
        scene.world.at(self.clock.world(self.now + scene.plan.tick_ms * MS), self._tick, life)
        if self.paused is None:
            for broker in self.brokers.values():
                broker.tick()

    # --- messages --------------------------------------------------------------------------------------------

    def ask(self, controller: str, command: Command, then: Answered | None) -> None:
        """Send a request, by a new channel if need be. ``then`` None: one-way."""
        channel = self.channels.get(controller)
        if channel is None or not channel.open_here:
            channel = self._connect(controller)
        if channel is None:
            if then is not None:
                self.scene.world.at(self.scene.world.now + MS, self._unanswered, (self.life, then))
            return
        number = self.scene.serial()
        if then is not None:
            self._asks[number] = Open(channel, then)
            self.scene.world.at(self.clock.world(self.now + ASK_TIMEOUT_NS), self._timeout, (self.life, number))
        self.scene.send(self.name, controller, channel.kind, Ask(channel, number, command, number))

    def _connect(self, controller: str) -> Channel | None:
        process = self.scene.controllers.processes.get(controller)
        if process is None or not self.scene.outer.open(self.name, controller, "net0") or (
                not self.scene.outer.open(controller, self.name, "net0")):
            return None
        self._channels_made += 1
        channel = self.channels[controller] = Channel(self.name, process, self._channels_made)
        self.scene.counts["channel"] += 1
        return channel

    def close(self, controller: str) -> None:
        """This end closes a channel, and the next request makes another."""
        channel = self.channels.pop(controller, None)
        if channel is not None and channel.open_here:
            channel.open_here = False
            self.scene.counts["channel reset"] += 1
            self.scene.send_closed(channel)

    def _unanswered(self, which: tuple[int, Answered]) -> None:
        """Nobody could be reached."""
        life, then = which
        if life == self.life and self.paused is not None:
            self.scene.world.at(self.scene.world.now + 100 * MS, self._unanswered, which)
        elif life == self.life:
            then(None)

    def _timeout(self, which: tuple[int, int]) -> None:
        life, number = which
        if life != self.life:
            return
        if self.paused is not None:
            self.scene.world.at(self.scene.world.now + 100 * MS, self._timeout, which)
            return
        waiting = self._asks.pop(number, None)
        if waiting is not None:
            if self.scene.plan.hangs_up and waiting.channel.open_here:
                self.close(waiting.channel.process.name)
            waiting.then(None)

    def receive(self, message: Incoming) -> None:
        if not self.up:
            return
        if self.paused is not None:
            self.paused.append(message)
            return
        self.scene.world.fold(self.number, E_DELIVER, self.life, 0, 0, 0)
        if isinstance(message, Answer):
            waiting = self._asks.pop(message.number, None) if message.channel.open_here else None
            if waiting is not None:
                waiting.then(message.command)
        elif isinstance(message, Closed):
            if message.channel.open_here:
                message.channel.open_here = False
                for number in [number for number, open_ in self._asks.items() if open_.channel is message.channel]:
                    self._asks.pop(number).then(None)
        elif isinstance(message, Notify):
            broker = self.brokers.get(message.key)
            if broker is not None and message.address == self.address:
                self.scene.send(self.name, message.process.name, "notify", Told(message.process, message.number))
                broker.told(message.command)
        else:
            broker = self.brokers.get(message.key)
            if broker is not None:
                if isinstance(message, Pull):
                    broker.pulled(message)
                else:
                    broker.pushed(message)


