"""Faults of wall clocks: a step, a drift.

They know a clock by the shim that shows it, and nothing of who reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.nemesis.fault import Argument, Begun, FaultKind, Scene, named
from harness.nemesis.faults_disks import PRELOAD, by_shims
from harness.nemesis.shim import WrongBy


def _wrong(scene: Scene, names: Sequence[str], by: WrongBy, words: str) -> Begun:
    return by_shims(scene, names, words, lambda shim: shim.set_wrong(by), lambda shim: shim.set_right(by))


async def _step(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    words = f"step the clock of {named(names)} by {args['step_ms']:+g} ms"
    return _wrong(scene, names, WrongBy(ahead_ns=int(args["step_ms"] * 1e6)), words)


async def _drift(scene: Scene, names: Sequence[str], args: Mapping[str, Any]) -> Begun:
    words = f"the clock of {named(names)} gains {args['gains_ppm']:+g} us a second"
    return _wrong(scene, names, WrongBy(gains_ppm=args["gains_ppm"]), words)


_DAY_MS: Final = 86_400_000.0
FAULTS: Final = (
    FaultKind("step-clock", "the wall clock jumps, back if negative; undone: it jumps to the right time", _step,
              {"step_ms": Argument("how far", 60_000.0, least=-365 * _DAY_MS, most=365 * _DAY_MS)}, PRELOAD),
    FaultKind("drift-clock", "the wall clock goes too fast, too slow if negative; undone: it jumps to the right time",
              _drift, {"gains_ppm": Argument("microseconds a second", 100_000.0, least=-900_000.0, most=1e7)},
              PRELOAD),
)
