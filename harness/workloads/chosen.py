"""Workloads by name: those that are here, and users' own. Loads code that is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from harness.checkers.chosen import NotChosen, loaded
from harness.targets.fields import FormatError, nearest
from harness.workloads.controllers import ControllerLoad
from harness.workloads.objects import LockLoad, LogLoad, RegisterLoad, SetLoad, StoreLoad
from harness.workloads.queues import DelayedLoad, OrderedLoad, PopLoad, QueueLoad, TransactionLoad
from harness.workloads.workload import GROUP, Recipe, Workload

OURS: Final[dict[str, Callable[[Recipe], Workload]]] = {
    "register": RegisterLoad, "set": SetLoad, "log": LogLoad, "kv": StoreLoad, "mutex": LockLoad, "queue": QueueLoad,
    "ordered-queue": OrderedLoad, "delayed-queue": DelayedLoad, "transactions": TransactionLoad, "pop": PopLoad,
    "controllers": ControllerLoad,
}


def find(name: str) -> Callable[[Recipe], Workload]:
    """Return the maker of the workload of this name. Raises ``FormatError``."""
    if name in OURS:
        return OURS[name]
    try:
        made: Any = loaded(name, GROUP)
    except NotChosen as error:
        raise FormatError(str(error)) from None
    if made is None:
        raise FormatError(f"no workload is called {name}{nearest(name, OURS)}; your own is FILE.py:CLASS")
    if missing := [each for each in ("next", "seen", "last") if not hasattr(made, each)]:
        raise FormatError(f"{name} is no workload: it has no {', '.join(missing)}")
    found: Callable[[Recipe], Workload] = made
    return found
