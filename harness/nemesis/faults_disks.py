"""Faults of disks: stalled, full.

They know a disk by what can be done to it, and nothing of how that is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from harness.nemesis.fault import Ability, Begun, FaultKind, Scene, named


async def _stall(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    disks = [scene.disks[name] for name in names]
    for disk in disks:
        await disk.stall()

    async def resume() -> None:
        for disk in disks:
            await disk.resume()

    return Begun(f"stall the disk of {named(names)}", resume, names)


async def _stall_syncs(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    disks = [scene.disks[name] for name in names]
    for disk in disks:
        await disk.stall_syncs()

    async def resume() -> None:
        for disk in disks:
            await disk.resume()

    return Begun(f"stall the syncs of {named(names)}", resume, names)


async def _fill(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    disks = [scene.disks[name] for name in names]
    for disk in disks:
        await trio.to_thread.run_sync(disk.fill)

    async def free() -> None:
        for disk in disks:
            await trio.to_thread.run_sync(disk.free)

    return Begun(f"fill the disk of {named(names)}", free, names)


STALLS: Final = frozenset({Ability.STALLS})
ROOM: Final = frozenset({Ability.ROOM})
FAULTS: Final = (
    FaultKind("stall-disk", "every write and sync waits; undone: they go on", _stall, {}, STALLS),
    FaultKind("stall-syncs", "every sync waits, and writes stay in the system's memory; undone: they go on",
              _stall_syncs, {}, STALLS),
    FaultKind("fill-disk", "no room is left; undone: there is room again", _fill, {}, ROOM),
)
