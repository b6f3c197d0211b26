"""Faults of disks: stalled, full, failing, slow, lying.

They know a disk by what can be done to it, and nothing of how that is done.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio

from harness.nemesis.disks import Disk
from harness.nemesis.errors import NotHere
from harness.nemesis.fault import Ability, Argument, Begun, FaultKind, Scene, Undo, named
from harness.nemesis.faults_processes import killed, running, started
from harness.nemesis.shim import Shim, Trouble, bypassed

WHAT: Final = Argument("of what", "both", choices=("both", "writes", "syncs"))


def shims(scene: Scene, names: Sequence[str]) -> list[Shim]:
    """The shims of nodes. Raises ``NotHere`` where a node has none, or its processes bypass it."""
    found = []
    for name in names:
        shim = scene.disks[name].shim
        why = "it was started without the shim" if shim is None else bypassed(scene.nodes[name].pid)
        if shim is None or why:
            raise NotHere(f"{name}: {why}")
        found.append(shim)
    return found


def by_shims(scene: Scene, names: Sequence[str], words: str, begin: Callable[[Shim], None],
             end: Callable[[Shim], None]) -> Begun:
    """Do ``begin`` to the shim of each name, and ``end`` when it is undone. Raises ``NotHere``."""
    chosen = shims(scene, names)
    for shim in chosen:
        begin(shim)

    async def undo() -> None:
        await trio.lowlevel.checkpoint()
        for shim in chosen:
            end(shim)

    return Begun(words, undo, names)


def troubled(scene: Scene, names: Sequence[str], trouble: Trouble, words: str) -> Begun:
    """Troubles disks by their shims until the fault is undone. Raises ``NotHere``."""
    return by_shims(scene, names, words, lambda shim: shim.begin(trouble), lambda shim: shim.end(trouble))


async def _stall(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    words = f"stall the disk of {named(names)}"
    if not all(scene.disks[name].kind.stalls for name in names):
        return troubled(scene, names, Trouble(writes_wait=True, syncs_wait=True), words)
    for name in names:
        await scene.disks[name].stall()
    return Begun(words, _resumed(scene, names), names)


async def _stall_syncs(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    words = f"stall the syncs of {named(names)}"
    if not all(scene.disks[name].kind.stalls for name in names):
        return troubled(scene, names, Trouble(syncs_wait=True), words)
    for name in names:
        await scene.disks[name].stall_syncs()
    return Begun(words, _resumed(scene, names), names)


def _resumed(scene: Scene, names: Sequence[str]) -> Undo:
    async def resume() -> None:
        for name in names:
            await scene.disks[name].resume()

    return resume


async def _fill(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    words = f"fill the disk of {named(names)}"
    if not all(scene.disks[name].kind.fills for name in names):
        return troubled(scene, names, Trouble(writes_errno=errno.ENOSPC), words)
    await _each(scene, names, Disk.fill)

    async def free() -> None:
        await _each(scene, names, Disk.free)

    return Begun(words, free, names)


async def _fail(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    trouble = Trouble(writes_errno=0 if args["what"] == "syncs" else errno.EIO,
                      syncs_errno=0 if args["what"] == "writes" else errno.EIO)
    return troubled(scene, names, trouble, f"fail {_what(args)} of {named(names)} with EIO")


async def _slow(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    trouble = Trouble(write_ms=0.0 if args["what"] == "syncs" else args["longer_ms"],
                      sync_ms=0.0 if args["what"] == "writes" else args["longer_ms"])
    return troubled(scene, names, trouble, f"{_what(args)} of {named(names)} take {args['longer_ms']:g} ms longer")


def _what(args: Mapping[str, Any]) -> str:
    return "writes and syncs" if args["what"] == "both" else str(args["what"])


async def _lie(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    nodes = running(scene, names)
    chosen = [node.name for node in nodes]
    for node in nodes:
        node.pause()
    try:
        await _each(scene, chosen, Disk.remember)
    finally:
        for node in nodes:
            node.resume()

    async def lose() -> None:
        await killed(nodes)
        await _each(scene, chosen, Disk.go_back)
        await started(nodes)

    return Begun(f"the disk of {named(chosen)} says that it synced and keeps nothing, until its power fails", lose,
                 chosen)


async def _each(scene: Scene, names: Sequence[str], do: Callable[[Disk], None]) -> None:
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(trio.to_thread.run_sync, do, scene.disks[name])


STALLS: Final = frozenset({Ability.STALLS})
PRELOAD: Final = frozenset({Ability.PRELOAD})
FAULTS: Final = (
    FaultKind("stall-disk", "every write and sync waits; undone: they go on", _stall, {}, STALLS),
    FaultKind("stall-syncs", "every sync waits, and writes stay in the system's memory; undone: they go on",
              _stall_syncs, {}, STALLS),
    FaultKind("fill-disk", "no room is left; undone: there is room again", _fill, {}, frozenset({Ability.ROOM})),
    FaultKind("fail-disk", "writes, syncs or both fail with EIO; undone: they work", _fail, {"what": WHAT}, PRELOAD),
    FaultKind("slow-disk", "writes, syncs or both take longer; undone: they do not", _slow,
              {"what": WHAT, "longer_ms": Argument("how much longer each takes", 100.0)}, PRELOAD),
    FaultKind("lie-disk", "syncs are answered and nothing is kept; undone: the power fails, all since the beginning "
              "is lost, and the node starts again", _lie, {}, frozenset({Ability.COPIES})),
)
