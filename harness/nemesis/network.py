"""A host for each server, as a network namespace on one bridge, and links that lose what is sent.

A cut is silent, as a broken switch is: the sender's neighbour entry for the other host names a card that nobody has,
so its packets arrive nowhere, and no error comes back. It needs the sandbox, ``ip``, and nothing of the firewall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import attrs
import trio

CLIENTS: Final = "clients"
"""Where this program runs, as a host."""
_BRIDGE: Final = "quorate0"
_NETWORK: Final = "10.77.0."
_NOBODY: Final = "02:00:00:00:00:00"

Way = tuple[str, str]
"""From whom to whom."""


class Network(Protocol):
    """Hosts by the names of their servers; ``CLIENTS`` is one too."""

    def address(self, name: str) -> str:
        """Where the others find it."""
        ...

    def bind(self, name: str) -> str:
        """Where its server listens."""
        ...

    def prefix(self, name: str) -> Sequence[str]:
        """What stands before a command that is to run there."""
        ...

    async def cut(self, source: str, target: str) -> None:
        """What ``source`` sends to ``target`` is lost from now on, without a word."""
        ...

    async def mend(self, source: str, target: str) -> None:
        """Takes back one ``cut`` of that way: it works again when all are taken back."""
        ...

    async def heal(self) -> None:
        """Every link works again."""
        ...


@attrs.define
class Namespaces:
    """The network of a sandbox."""

    names: Sequence[str]
    _cut: Counter[Way] = attrs.field(factory=Counter, init=False)

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

    async def heal(self) -> None:
        for way in sorted(+self._cut):
            self._cut[way] = 0
            await self._settle(way)

    async def _settle(self, way: Way) -> None:
        source, target = way
        if self._cut[way]:
            await _ip(*self._at(source), "neigh", "replace", self.address(target), "lladdr", _NOBODY,
                      "dev", self._card(source), "nud", "permanent")
        else:
            await _ip(*self._at(source), "neigh", "del", self.address(target), "dev", self._card(source))

    def _at(self, name: str) -> Sequence[str]:
        return () if name == CLIENTS else ("-n", name)

    def _card(self, name: str) -> str:
        return _BRIDGE if name == CLIENTS else "eth0"


@asynccontextmanager
async def namespaces(names: Sequence[str]) -> AsyncIterator[Namespaces]:
    """In a sandbox, which ends it. Raises ``subprocess.CalledProcessError``."""
    made = Namespaces(names)
    await trio.run_process(["mount", "-t", "tmpfs", "tmpfs", "/run"])
    await _ip("link", "set", "lo", "up")
    await _ip("link", "add", "name", _BRIDGE, "type", "bridge")
    await _ip("addr", "add", f"{made.address(CLIENTS)}/24", "dev", _BRIDGE)
    await _ip("link", "set", _BRIDGE, "up")
    for number, name in enumerate(names):
        await _ip("netns", "add", name)
        await _ip("link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
        await _ip("link", "set", f"host{number}", "master", _BRIDGE, "up")
        await _ip("-n", name, "addr", "add", f"{made.address(name)}/24", "dev", "eth0")
        await _ip("-n", name, "link", "set", "eth0", "up")
        await _ip("-n", name, "link", "set", "lo", "up")
    yield made


async def _ip(*arguments: str) -> None:
    await trio.run_process(["ip", *arguments], capture_stdout=True)
