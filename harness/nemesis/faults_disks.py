"""Faults of disks: stalled, full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from harness.nemesis.fault import Ability, Begun, Fault, Scene, named


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


FAULTS: Final = (
    Fault("stall-disk", "every write and sync waits; undone: they go on", _stall, {}, frozenset({Ability.STALLS})),
    Fault("stall-syncs", "every sync waits, and writes stay in the system's memory; undone: they go on", _stall_syncs,
          {}, frozenset({Ability.STALLS})),
    Fault("fill-disk", "no room is left; undone: there is room again", _fill, {}, frozenset({Ability.ROOM})),
)
