"""The definition of a fault, and what it needs of a run: victims, their network, their disks.

It knows no fault, and does nothing itself. A campaign brings objects that fit these protocols.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import attrs

from harness.nemesis.disks import Disk
from harness.nemesis.network import Network

Undo = Callable[[], Awaitable[None]]


class Ability(Enum):
    """Abilities of a machine that a fault may need; the value names one in words."""

    CUTS = "cut links one way"
    LINKS = "shape links: delay, lose, repeat, reorder, limit"
    STALLS = "stall disks"
    ROOM = "fill disks"
    COPIES = "bring a disk back to what it held"
    PRELOAD = "load a shim into processes"
    POWER = "take from a disk what was not synced"


OF_DISKS: Final = frozenset({Ability.STALLS, Ability.ROOM, Ability.COPIES, Ability.PRELOAD, Ability.POWER})
"""Faults that need one of these need a scene with disks, and with shims where they can be built."""


class Victim(Protocol):
    """A process under test, by a name that is also its host's."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def ports(self) -> Mapping[str, str]:
        """Addresses where others find it: ``host:port`` by the port's name."""
        ...

    @property
    def data(self) -> Path:
        """The folder with the data that survive a kill."""
        ...

    @property
    def running(self) -> bool: ...

    @property
    def pid(self) -> int:
        """0 while it does not run."""
        ...

    async def start(self) -> None:
        """Starts it unless it runs; returns when it is ready."""
        ...

    async def kill(self) -> None:
        """Sends SIGKILL; returns when the process is gone."""
        ...

    async def stop(self) -> None:
        """Stops it as its operator would; returns when it is gone."""
        ...

    def pause(self) -> None:
        """Sends SIGSTOP: it keeps its connections and is silent."""
        ...

    def resume(self) -> None:
        """Sends SIGCONT, if the process runs."""
        ...

    async def wipe(self) -> None:
        """Removes its data, while it does not run."""
        ...

    def upgrade(self) -> bool:
        """Is another version when it is started next, for good; False where there is none."""
        ...


class Scene(Protocol):
    """The nodes, network and disks that faults act on."""

    @property
    def nodes(self) -> Mapping[str, Victim]: ...

    @property
    def network(self) -> Network: ...

    @property
    def disks(self) -> Mapping[str, Disk]:
        """Disks by the names of nodes. A disk's shim, if any, is also that of the node's wall clock."""
        ...

    @property
    def chance(self) -> Random: ...

    async def chosen(self, selector: str | Sequence[str]) -> list[str]:
        """The names that a selector stands for now. ``clients`` is the host of the clients."""
        ...


@attrs.define(eq=False)
class Begun:
    """A fault that has begun. ``undo`` ends it; asked again, it does nothing."""

    words: str
    _undo: Undo | None = None
    nodes: Sequence[str] = ()

    async def undo(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            await undo()


class BadArguments(ValueError):
    """A fault got arguments that it does not take."""


NODES: Final = "nodes"
PORT: Final = "port"
MOST: Final = 1e12
"""Most that a number may be, if its argument says nothing: beyond it no time can be waited for."""


@attrs.frozen
class Argument:
    """One argument that a scenario may give a fault in ``args``."""

    about: str
    default: Any
    least: float = 0
    most: float = MOST
    choices: Sequence[str] = ()
    names: str = ""
    """NODES or PORT: it is a name of the target's, which can be checked before a run; else empty."""

    def checked(self, where: str, value: object) -> Any:
        """Returns the value if it is allowed. Raises ``BadArguments``."""
        if self.choices:
            if value not in self.choices:
                raise BadArguments(f"{where} is {value!r}; it may be {', '.join(self.choices)}")
        elif isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise BadArguments(f"{where} is {value!r}; it may be true or false")
        elif isinstance(self.default, int | float):
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise BadArguments(f"{where} is {value!r}; it is a number")
            if not self.least <= value <= self.most:
                raise BadArguments(f"{where} is {value!r}; it is from {self.least:g} to {self.most:g}")
        elif not isinstance(value, str | list | tuple):
            raise BadArguments(f"{where} is {value!r}; it is a selector or a list of names")
        return value


Begin = Callable[[Scene, Sequence[str], Mapping[str, Any]], Awaitable[Begun]]


@attrs.frozen
class FaultKind:
    """One entry of the registry. ``begin`` takes the scene, the nodes' names, and arguments that were ``checked``.

    It raises ``NotHere`` where it turns out that nothing would happen: a program that passes by what it is done with.
    """

    name: str
    about: str
    begin: Begin
    arguments: Mapping[str, Argument] = attrs.field(factory=dict)
    needs: frozenset[Ability] = frozenset()

    def checked(self, args: Mapping[str, object]) -> dict[str, Any]:
        """Returns all arguments, with defaults. Raises ``BadArguments`` that says what is wrong."""
        unknown = sorted(set(args) - set(self.arguments))
        if unknown:
            known = ", ".join(self.arguments) or "none"
            raise BadArguments(f"{self.name} takes no {', '.join(unknown)}; it takes: {known}")
        return {name: each.checked(f"{self.name}'s {name}", args[name]) if name in args else each.default
                for name, each in self.arguments.items()}


def named(names: Sequence[str]) -> str:
    """The names of nodes, in words."""
    return ", ".join(names) or "nobody"
