"""Hosts on virtual time: programs with a disk and a network each, killed, powered off and started again.

A program is a coroutine function that gets its host. Everything that it does to the outside goes through the host:
``disk``, ``connect``, ``listen``, ``rng``. Knows tasks, disks and the network; knows nothing of what programs do.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, Final, TypedDict
from zlib import crc32

import trio
from trio.abc import Listener
from trio.abc import Stream as TrioStream
from trio.lowlevel import Task, current_task

from raft.config import Config
from raft.errors import UsageError
from raft.handshake import Connector
from raft.sim.disk import VirtualDisk
from raft.sim.tape import Stream, Tape
from raft.storage.interface import Files
from raft.violation import InvariantViolation
from raft.virtual.network import MemoryListener
from raft.virtual.replacing import EPOCH_S
from raft.virtual.scheduling import NOTE, SENT, STORED, Steps
from raft.virtual.wires import Latency, VirtualNetwork

ENDING_S: Final = 60.0
"""Virtual time that a killed program's tasks have to end."""
SMALL: Final = Config(
    segment_bytes=64 << 10, message_bytes_max=16 << 10, append_bytes_max=4_096, frame_bytes_max=4_096,
    entry_bytes_max=4_096, snapshot_chunk_bytes=4_096)
"""Configuration of ``raft`` for disks in memory: short segments, and entries of 4 KiB at most."""
HostProgram = Callable[..., Awaitable[object]]
"""A program, called with its host and the arguments of ``start``."""


class HostOptions(TypedDict):
    """The arguments of ``raft.open_node`` and ``raft.open_host`` that a host provides."""

    files: Files
    connect: Connector
    listeners: list[Listener[Any]]
    rng: Random
    wall_ms: Callable[[], int]
    config: Config


class LeakedTasks(InvariantViolation):
    """Tasks are still alive after their program or the run ended."""

    def __init__(self, message: str) -> None:
        super().__init__(LeakedTasks.__name__, message)


class _Journal(list[str]):
    """Folds a disk's operations into the digest, and keeps none."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def append(self, words: str) -> None:
        self._steps.fold(STORED, crc32(words.encode()))


class VirtualHost:
    """One machine, which ``VirtualWorld.host`` makes."""

    def __init__(self, world: VirtualWorld, name: str) -> None:
        self.world, self.name = world, name
        self.disk = VirtualDisk(world.tape.draw, name=f"disk {name}")
        """The host's disk, which outlives programs: ``Files`` of ``raft``, and of yours."""
        self.disk.dead = _gone
        self.disk.journal = _Journal(world.steps)
        self.value: Any = None
        """The value that the program gave to ``ready``."""
        self.starts = 0
        self._program: tuple[HostProgram, tuple[Any, ...]] | None = None
        self._task: Task | None = None
        self._scope = trio.CancelScope()
        self._ready, self._ended = trio.Event(), trio.Event()
        self._dying = self._dark = False

    # --- for programs ----------------------------------------------------------------------------------------

    def ready(self, value: Any = None) -> None:
        """Say that the program serves now: ``start`` returns ``value``. For the program to call."""
        self.value = value
        self._ready.set()

    async def connect(self, address: str) -> TrioStream:
        """Open a stream to ``host:port``. Raises ``OSError``."""
        return await self.world.network.connector(self.name)(address)

    def listen(self, address: str) -> MemoryListener:
        """Open a listener for ``trio.serve_listeners``. Raises ``OSError`` if the address is in use."""
        network = self.world.network
        if address in network.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), address)
        network.owners[address] = self.name
        listener = network.listeners[address] = MemoryListener()
        return listener

    def rng(self, name: str = "") -> Random:
        """Return random numbers from the seed, different ones for each start and name."""
        return self.world.tape.bits(f"{self.name} {self.starts} {name}")

    def wall_ms(self) -> int:
        return int((EPOCH_S + trio.current_time()) * 1e3)

    def node_options(self, address: str, config: Config = SMALL) -> HostOptions:
        """Return arguments that make ``raft.open_node`` run on this host and listen at ``address``."""
        return {"files": self.disk, "connect": self.connect, "rng": self.rng("raft"), "wall_ms": self.wall_ms,
                "listeners": [self.listen(address)], "config": config}

    # --- starts and faults -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._task is not None and not self._dying

    async def start(self, program: HostProgram, *args: Any) -> Any:
        """Run ``program(host, *args)``, and wait until it calls ``ready`` or ends. Return the value given to ``ready``.

        An error of the program ends the whole run, unless the host was killed.
        """
        if self._task is not None:
            raise UsageError(f"{self.name} runs a program already")
        self._program = program, args
        if self._dark:
            self.disk.restart()
            self.world.network.silent.discard(self.name)
            self.world.network.reset(self.name)
            self.world.network.changed()
            self._dark = False
        self.starts += 1
        self.value, self._ready, self._ended = None, trio.Event(), trio.Event()
        self._scope, self._dying = trio.CancelScope(), False
        self.world.nursery.start_soon(self._run, program, args, name=f"host {self.name}")
        async with trio.open_nursery() as either:
            for event in (self._ready, self._ended):
                either.start_soon(_end_with, event, either.cancel_scope)
        return self.value

    async def restart(self) -> Any:
        """Run the last program again."""
        if self._program is None:
            raise UsageError(f"{self.name} never ran a program")
        program, args = self._program
        self.world.note(f"{self.name} starts again")
        return await self.start(program, *args)

    async def kill(self) -> None:
        """Kill the process, as ``kill -9`` does. The machine lives, and its cache keeps all writes."""
        await self._die("is killed")
        self.disk.kill()
        self.world.network.silent.discard(self.name)
        self.world.network.changed()
        self.world.network.reset(self.name)

    async def cut_power(self) -> None:
        """Cut the machine's power: unsynced writes may be lost, peers get no reset. ``restart`` brings it back."""
        await self._die("loses power")
        self._dark = True
        self.world.network.vanish(self.name)

    async def _die(self, words: str) -> None:
        self.world.note(f"{self.name} {words}")
        self.world.happened[words] += 1
        self.disk.crash()
        self.world.network.silent.add(self.name)
        await self.end()

    async def end(self) -> None:
        """Cancel the program and wait until all its tasks ended. Raises ``LeakedTasks``."""
        self._dying = True
        if self._task is not None:
            self._scope.cancel()
            with trio.move_on_after(ENDING_S) as timer:
                await self._ended.wait()
            if timer.cancelled_caught and self._task is not None:
                living = ", ".join(self.world.steps.below(self._task)) or self._task.name
                raise LeakedTasks(f"tasks of {self.name} live on {ENDING_S:.0f} s after it was ended: {living}")

    async def _run(self, program: HostProgram, args: tuple[Any, ...]) -> None:
        self._task = current_task()
        try:
            with self._scope:
                await program(self, *args)
        except BaseException as error:
            if not self._dying or isinstance(error, trio.Cancelled):
                raise
        finally:
            self._task = None
            for address in [each for each, owner in self.world.network.owners.items() if owner == self.name]:
                self.world.network.listeners.pop(address, None)
            if not self._dying:
                self.world.network.reset(self.name)
            self._ended.set()


async def _end_with(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _gone(words: str) -> OSError:
    """Return the error of a dead host's disk. The dying program may catch it, but nothing is written any more."""
    return OSError(errno.EIO, words)


class VirtualWorld:
    """Hosts and their network. ``run_on_virtual_time`` makes it and gives it to your function."""

    def __init__(self, tape: Tape, steps: Steps, nursery: trio.Nursery, latency: Latency | None = None) -> None:
        self.tape, self.steps, self.nursery = tape, steps, nursery
        self.hosts: dict[str, VirtualHost] = {}
        self.happened: Counter[str] = Counter()
        """Number of times that each fault happened, and your own counts."""
        self.notes: list[tuple[float, str]] = []
        """The events of the run as (seconds, words), which a failure shows."""
        self.network = VirtualNetwork(nursery, tape, self._sent, latency)

    def host(self, name: str) -> VirtualHost:
        """Return the host of this name. The first call makes it."""
        if name not in self.hosts:
            self.hosts[name] = VirtualHost(self, name)
        return self.hosts[name]

    def stream(self, name: str) -> Stream:
        """Return a stream for your own decisions, from the seed: ``stream.chance(0.1)``, ``stream.between(1, 9)``.

        A failure is shrunk to the decisions that it needs.
        """
        return self.tape.stream(f"own {name}")

    def note(self, words: str) -> None:
        """Note an event of this moment, in words."""
        self.notes.append((trio.current_time(), words))
        self.steps.fold(NOTE, crc32(words.encode()))

    def _sent(self, source: str, target: str, data: bytes) -> None:
        self.steps.fold(SENT, crc32(f"{source} {target}".encode()), crc32(data), len(data))

    # --- the network -----------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Block the way from ``source`` to ``target``: bytes wait there. The other direction stays open."""
        self.note(f"the way from {source} to {target} is cut")
        self.happened["cut"] += 1
        self.network.blocked.add((source, target))

    def partition(self, *groups: Iterable[str]) -> None:
        """Block all ways between groups of hosts; hosts in no group form one more."""
        sides = [set(group) for group in groups]
        sides.append({name for name in self.hosts if not any(name in side for side in sides)})
        self.note("partition: " + " | ".join(" ".join(sorted(side)) for side in sides))
        self.happened["partition"] += 1
        for number, side in enumerate(sides):
            for other in sides[:number]:
                self.network.blocked |= {pair for a in side for b in other for pair in ((a, b), (b, a))}

    def heal(self) -> None:
        """Open all ways between hosts again."""
        self.note("all ways are open")
        self.network.blocked.clear()
        self.network.changed()
