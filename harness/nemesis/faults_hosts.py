"""Faults of whole hosts: lost, and lost with their power.

They are made of faults of processes, links and disks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from harness.nemesis.fault import Ability, Begun, FaultKind, Scene, named
from harness.nemesis.faults_network import CUTS, others, silenced, ways
from harness.nemesis.faults_processes import killed, running, started


async def _lost(scene: Scene, names: Sequence[str], words: str, *, power: bool) -> Begun:
    """Cuts links before it ends processes, so that no connection closes."""
    nodes = running(scene, names)
    chosen = [node.name for node in nodes]
    pairs = {way for name in chosen for way in ways([name], await others(scene, [name], ""), "both")}
    cut = await silenced(scene, sorted(pairs), "", chosen)
    if power:
        for name in chosen:
            await trio.to_thread.run_sync(scene.disks[name].cut_power)
    await killed(nodes)
    if power:
        for name in chosen:
            await trio.to_thread.run_sync(scene.disks[name].restore_power)

    async def back() -> None:
        await cut.undo()
        await started(nodes)

    return Begun(f"{words} {named(chosen)}", back, chosen)


async def _host_loss(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    return await _lost(scene, names, "lose the host of", power=False)


async def _power_cut(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    return await _lost(scene, names, "cut the power of", power=True)


FAULTS: Final = (
    FaultKind("host-loss", "it dies and nobody is told: no connection closes; undone: started again", _host_loss, {},
              CUTS),
    FaultKind("power-cut", "as host-loss, and what was not synced is lost; undone: started again", _power_cut, {},
              CUTS | {Ability.POWER}),
)
