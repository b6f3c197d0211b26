"""Faults of processes: killed, stopped, restarted, wiped.

They know processes by the protocol of ``fault``, and nothing of links and disks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio

from harness.nemesis.errors import NotHere
from harness.nemesis.fault import Argument, Begun, FaultKind, Scene, Victim, named


def running(scene: Scene, names: Sequence[str]) -> list[Victim]:
    """The nodes that run: another fault may have ended the others."""
    return [scene.nodes[name] for name in names if scene.nodes[name].running]


async def started(nodes: Sequence[Victim]) -> None:
    """Starts all nodes at once: some are ready only when others are."""
    async with trio.open_nursery() as nursery:
        for node in nodes:
            if not node.running:
                nursery.start_soon(node.start)


async def killed(nodes: Sequence[Victim]) -> None:
    """Kills all nodes at once; none of them runs afterwards."""
    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(node.kill)


async def _kill(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    nodes = running(scene, names)
    await killed(nodes)

    async def back() -> None:
        await started(nodes)

    chosen = [node.name for node in nodes]
    return Begun(f"kill -9 {named(chosen)}", back, chosen)


async def _pause(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    nodes = running(scene, names)
    for node in nodes:
        node.pause()

    async def go_on() -> None:
        await trio.lowlevel.checkpoint()
        for node in nodes:
            node.resume()

    chosen = [node.name for node in nodes]
    return Begun(f"stop {named(chosen)} with SIGSTOP", go_on, chosen)


async def _restart(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    nodes = running(scene, names)
    async with trio.open_nursery() as nursery:
        for node in nodes:
            nursery.start_soon(node.stop)

    async def back() -> None:
        await started(nodes)

    chosen = [node.name for node in nodes]
    return Begun(f"end {named(chosen)} in order", back, chosen)


async def _in_turn(nodes: Sequence[Victim], args: Mapping[str, Any], meanwhile: Callable[[Victim], None]) -> list[str]:
    """Ends each in order and starts it again; ``meanwhile`` is called between. The names of all."""
    for number, node in enumerate(nodes):
        if number:
            await trio.sleep(args["between_ms"] / 1e3)
        await node.stop()
        await trio.sleep(args["down_ms"] / 1e3)
        meanwhile(node)
        await node.start()
    return [node.name for node in nodes]


async def _rolling_restart(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    chosen = await _in_turn(running(scene, names), args, lambda node: None)
    return Begun(f"restart {named(chosen)}, one after the other", None, chosen)


async def _rolling_upgrade(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    def upgraded(node: Victim) -> None:
        if not node.upgrade():
            raise NotHere(f"{node.name} has no other version: its kind in the target has no [upgraded]")

    chosen = await _in_turn(running(scene, names), args, upgraded)
    return Begun(f"upgrade {named(chosen)}, one after the other", None, chosen)


async def _wipe(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    nodes = running(scene, names)
    await killed(nodes)
    for node in nodes:
        await node.wipe()

    async def back() -> None:
        await started(nodes)

    chosen = [node.name for node in nodes]
    return Begun(f"kill -9 {named(chosen)}, and everything on the disk is gone", back, chosen)


_TURN: Final = {"down_ms": Argument("how long each is down", 0.0),
                "between_ms": Argument("from one's being ready to the next one's end", 500.0)}
FAULTS: Final = (
    FaultKind("kill", "SIGKILL, all at once; undone: started again", _kill),
    FaultKind("pause", "SIGSTOP: silent, while connections stay; undone: SIGCONT", _pause),
    FaultKind("restart", "ended in order, all at once; undone: started again", _restart),
    FaultKind("rolling-restart", "ended in order and started again, one after the other; it is over when it has begun",
          _rolling_restart, _TURN),
    FaultKind("rolling-upgrade", "as rolling-restart, and each is the target's other version from then on",
          _rolling_upgrade, _TURN),
    FaultKind("wipe", "SIGKILL, and its data is gone; undone: started again, empty", _wipe),
)
