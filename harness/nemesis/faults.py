"""The registry of faults, by the names that scenarios say, and those that others bring as ``quorate.faults``.

It knows names and entry points; what a fault does stands in the module of its subject.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from harness.nemesis import faults_clocks, faults_crowds, faults_disks, faults_hosts, faults_network, faults_processes
from harness.nemesis.fault import FaultKind

GROUP: Final = "quorate.faults"
"""Entry points of others: each is a ``FaultKind``, or gives one when it is called."""
FAULTS: Final = {fault.name: fault for fault in (
    *faults_processes.FAULTS, *faults_hosts.FAULTS, *faults_network.FAULTS, *faults_disks.FAULTS,
    *faults_clocks.FAULTS, *faults_crowds.FAULTS)}


class UnknownFault(ValueError):
    """No fault has that name, or the entry point of that name gives none."""


def fault(name: str) -> FaultKind:
    """Finds a fault by name. Raises ``UnknownFault`` with the known names."""
    if name in FAULTS:
        return FAULTS[name]
    others = {each.name: each for each in entry_points(group=GROUP)}
    if name not in others:
        raise UnknownFault(f"there is no fault {name!r}; there are {', '.join(sorted({*FAULTS, *others}))}")
    try:
        loaded = others[name].load()
        made = loaded if isinstance(loaded, FaultKind) else loaded() if callable(loaded) else loaded
    except Exception as error:  # it is a user's code
        raise UnknownFault(f"{others[name].value}, which brings the fault {name!r}, cannot be loaded: "
                           f"{type(error).__name__}: {error}") from error
    if not isinstance(made, FaultKind):
        raise UnknownFault(f"{others[name].value}, which brings the fault {name!r}, is no FaultKind of harness.nemesis")
    return made
