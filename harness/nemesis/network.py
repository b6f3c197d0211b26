"""A host for each server, as a network namespace on one bridge, and links that lose what is sent.

A cut is silent, as a broken switch is: the sender's neighbour entry for the other host names a card that nobody has,
so its packets arrive nowhere, and no error comes back. A shaped way has the card of ``wire`` there, which passes them
on as a bad link would. It needs the sandbox, ``ip``, and nothing of the firewall and of traffic control.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import attrs
import trio

from harness.nemesis.errors import NotHere
from harness.nemesis.shaping import Shape, together

CLIENTS: Final = "clients"
"""The name of the host on which this program runs."""
_BRIDGE: Final = "quorate0"
_NETWORK: Final = "10.77.0."
_CARD: Final = "02:77:00:00:00:"
_NOBODY: Final = "02:00:00:00:00:00"
_WIRE: Final = "wire0"

Way = tuple[str, str]
"""A directed pair of hosts: source and target."""


class Network(Protocol):
    """Hosts by the names of their servers; ``CLIENTS`` is one too."""

    def address(self, name: str) -> str:
        """The address where others find this server."""
        ...

    def bind(self, name: str) -> str:
        """The address where its server listens."""
        ...

    def prefix(self, name: str) -> Sequence[str]:
        """The words before a command that is to run on that host."""
        ...

    async def cut(self, source: str, target: str) -> None:
        """Drop what ``source`` sends to ``target`` from now on, without a word."""
        ...

    async def mend(self, source: str, target: str) -> None:
        """Takes back one ``cut`` of that way: it works again when all are taken back."""
        ...

    async def shape(self, source: str, target: str, shape: Shape) -> None:
        """Give what ``source`` sends to ``target`` a worse link from now on. Raises ``NotHere``."""
        ...

    async def unshape(self, source: str, target: str, shape: Shape) -> None:
        """Takes back one such shape of that way."""
        ...

    async def heal(self) -> None:
        """Takes back every cut and every shape."""
        ...


@attrs.define
class Namespaces:
    """The network of a sandbox. ``seed`` is that of what shaped links do."""

    names: Sequence[str]
    seed: str = ""
    _cut: Counter[Way] = attrs.field(factory=Counter, init=False)
    _shapes: dict[Way, list[Shape]] = attrs.field(factory=dict, init=False)
    _wire: trio.Process | None = attrs.field(default=None, init=False)
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Held while a way changes: its state is read and told in one piece."""

    def address(self, name: str) -> str:
        return f"{_NETWORK}{1 if name == CLIENTS else 11 + self.names.index(name)}"

    bind = address

    def prefix(self, name: str) -> Sequence[str]:
        return () if name == CLIENTS else ("ip", "netns", "exec", name)

    async def cut(self, source: str, target: str) -> None:
        self._cut[source, target] += 1
        await self._settle((source, target))

    async def mend(self, source: str, target: str) -> None:
        if self._cut[source, target]:
            self._cut[source, target] -= 1
            await self._settle((source, target))

    async def shape(self, source: str, target: str, shape: Shape) -> None:
        self._shapes.setdefault((source, target), []).append(shape)
        await self._settle((source, target))

    async def unshape(self, source: str, target: str, shape: Shape) -> None:
        shapes = self._shapes.get((source, target), [])
        if shape in shapes:
            shapes.remove(shape)
            await self._settle((source, target))

    async def heal(self) -> None:
        for way in sorted({*self._cut, *self._shapes}):
            self._cut.pop(way, None)
            self._shapes.pop(way, None)
            await self._settle(way)

    async def end(self) -> None:
        """Ends the process that shapes links."""
        if self._wire is not None:
            self._wire.kill()
            await self._wire.wait()

    async def _settle(self, way: Way) -> None:
        """Applies all troubles of a way together."""
        source, target = way
        async with self._turn:
            shapes = self._shapes.get(way, [])
            if shapes or self._wire is not None:
                await self._tell(source, target, together(shapes) if shapes else None)
            neighbour = [self.address(target), "dev", self._card(source)]
            if self._cut[way] or shapes:
                card = _NOBODY if self._cut[way] else self.hardware(_WIRE)
                await _ip(*self._at(source), "neigh", "replace", *neighbour, "lladdr", card, "nud", "permanent")
            elif await self._is_set(source, target):
                await _ip(*self._at(source), "neigh", "del", *neighbour)

    async def _is_set(self, source: str, target: str) -> bool:
        shown = await trio.run_process(["ip", *self._at(source), "neigh", "show", self.address(target), "nud",
                                        "permanent"], capture_stdout=True)
        return bool(shown.stdout.strip())

    async def _tell(self, source: str, target: str, shape: Shape | None) -> None:
        """Tells the wire's process, which the first call starts. Raises ``NotHere``."""
        if self._wire is None:
            hosts = [f"{self.hardware(name)}={self.address(name)}" for name in (CLIENTS, *self.names)]
            wire = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", "harness.nemesis.wire", _WIRE, self.hardware(_WIRE), self.seed,
                 *hosts],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if not await _answered(wire):
                assert wire.stderr is not None
                raise NotHere((await wire.stderr.receive_some()).decode().strip().rpartition("\n")[2])
            # The wire's card picks an address itself: a bridge keeps frames for its ports' own addresses.
            await _ip("link", "set", _WIRE, "master", _BRIDGE, "up")
            self._wire = wire
        assert self._wire.stdin is not None
        told = {"source": self.address(source), "target": self.address(target),
                "shape": None if shape is None else attrs.asdict(shape)}
        await self._wire.stdin.send_all(f"{json.dumps(told)}\n".encode())
        if not await _answered(self._wire):
            raise NotHere("the wire has ended")

    def hardware(self, name: str) -> str:
        """The address of a host's card, or of the wire's."""
        number = 1 if name == CLIENTS else 2 if name == _WIRE else 11 + self.names.index(name)
        return f"{_CARD}{number:02x}"

    def _at(self, name: str) -> Sequence[str]:
        return () if name == CLIENTS else ("-n", name)

    def _card(self, name: str) -> str:
        return _BRIDGE if name == CLIENTS else "eth0"


@attrs.define
class Share:
    """A group's hosts in a network that has others, too: ``broker-1`` is ``GROUP.broker-1`` there."""

    whole: Network
    group: str
    _cut: Counter[Way] = attrs.field(factory=Counter, init=False)
    _shapes: list[tuple[Way, Shape]] = attrs.field(factory=list, init=False)

    def there(self, name: str) -> str:
        """The name of a host of this group in the whole network."""
        return name if name == CLIENTS else f"{self.group}.{name}"

    def address(self, name: str) -> str:
        return self.whole.address(self.there(name))

    def bind(self, name: str) -> str:
        return self.whole.bind(self.there(name))

    def prefix(self, name: str) -> Sequence[str]:
        return self.whole.prefix(self.there(name))

    async def cut(self, source: str, target: str) -> None:
        self._cut[source, target] += 1
        await self.whole.cut(self.there(source), self.there(target))

    async def mend(self, source: str, target: str) -> None:
        if self._cut[source, target]:
            self._cut[source, target] -= 1
            await self.whole.mend(self.there(source), self.there(target))

    async def shape(self, source: str, target: str, shape: Shape) -> None:
        self._shapes.append(((source, target), shape))
        await self.whole.shape(self.there(source), self.there(target), shape)

    async def unshape(self, source: str, target: str, shape: Shape) -> None:
        if ((source, target), shape) in self._shapes:
            self._shapes.remove(((source, target), shape))
            await self.whole.unshape(self.there(source), self.there(target), shape)

    async def heal(self) -> None:
        """Takes back what was done to this group's links, and nothing else."""
        for source, target in [*self._cut.elements()]:
            await self.mend(source, target)
        for (source, target), shape in [*self._shapes]:
            await self.unshape(source, target, shape)


@asynccontextmanager
async def namespaces(names: Sequence[str], seed: str = "") -> AsyncIterator[Namespaces]:
    """Make the network inside a sandbox, whose end removes it. Raises ``subprocess.CalledProcessError``."""
    made = Namespaces(names, seed)
    await trio.run_process(["mount", "--make-rshared", "/"])  # else hosts keep disks that are unmounted here
    await trio.run_process(["mount", "-t", "tmpfs", "tmpfs", "/run"])
    await _ip("link", "set", "lo", "up")
    await _ip("link", "add", "name", _BRIDGE, "address", made.hardware(CLIENTS), "type", "bridge")
    await _ip("addr", "add", f"{made.address(CLIENTS)}/24", "dev", _BRIDGE)
    await _ip("link", "set", _BRIDGE, "up")
    for number, name in enumerate(names):
        await _ip("netns", "add", name)
        await _ip("link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "address",
                  made.hardware(name), "netns", name)
        await _ip("link", "set", f"host{number}", "master", _BRIDGE, "up")
        await _ip("-n", name, "addr", "add", f"{made.address(name)}/24", "dev", "eth0")
        await _ip("-n", name, "link", "set", "eth0", "up")
        await _ip("-n", name, "link", "set", "lo", "up")
    try:
        yield made
    finally:
        with trio.CancelScope(shield=True):
            await made.end()


async def _ip(*arguments: str) -> None:
    await trio.run_process(["ip", *arguments], capture_stdout=True)


async def _answered(wire: trio.Process) -> bool:
    """Return whether the wire confirms what it was told. It does not if it has ended."""
    assert wire.stdout is not None
    return bool(await wire.stdout.receive_some(1))
