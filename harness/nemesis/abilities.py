"""Finds out what this machine and this user can do to processes, and says it in words.

It tries each thing; it knows nothing of scenarios.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from harness.nemesis import disks, sandbox, shim, wire
from harness.nemesis.fault import Ability, FaultKind


@attrs.frozen
class Abilities:
    """``why_not`` has words for each thing that cannot be done here."""

    sandbox: str
    """``root``, ``user``, or empty: see ``sandbox.inside``."""
    why_not: Mapping[Ability, str]

    def missing(self, fault: FaultKind) -> str:
        """Return why this fault cannot be; empty if it can."""
        return "; ".join(self.why_not[each] for each in sorted(fault.needs, key=lambda need: need.name)
                         if each in self.why_not)

    @property
    def cannot(self) -> list[str]:
        """Sentences that say what is not possible here and why, for people and for ``run.json``."""
        return [f"cannot {ability.value}: {why}" for ability, why in self.why_not.items()]

    def as_json(self) -> dict[str, Any]:
        """An object as ``run.json`` holds it."""
        return {"sandbox": self.sandbox or "none", "cannot": self.cannot}


def probe(root: Path) -> Abilities:
    """Tries what the faults need, in the sandbox that this program is in; ``root`` is where its disks will be."""
    inside = sandbox.inside()
    kind = disks.possible(root, inside)
    why_not = {}
    if why := wire.impossible() if inside else "links need network namespaces, which need root or user namespaces":
        why_not[Ability.LINKS] = why
    if why := shim.impossible():
        why_not[Ability.PRELOAD] = why
        if not kind.stalls:
            why_not[Ability.STALLS] = f"a disk is {kind.value}, and {why}"
        if not kind.fills:
            why_not[Ability.ROOM] = f"a disk is {kind.value}, and {why}"
    if kind is not disks.Kind.LOOP:
        why_not[Ability.POWER] = f"a disk is {kind.value}: loop devices need root"
    elif shutil.which("e2fsck") is None:
        why_not[Ability.POWER] = "e2fsck missing"
    return Abilities(inside, why_not)
