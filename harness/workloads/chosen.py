"""Workloads by name: those that are here, and users' own. Loads code that is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from harness.checkers.chosen import NotChosen, loaded
from harness.targets.fields import Fields, FormatError, nearest
from harness.workloads.controllers import ControllerLoad
from harness.workloads.objects import LockLoad, LogLoad, RegisterLoad, SetLoad, StoreLoad
from harness.workloads.queues import DelayedLoad, OrderedLoad, PopLoad, QueueLoad, TransactionLoad
from harness.workloads.workload import GROUP, Recipe, Workload

OURS: Final[dict[str, Callable[[Recipe], Workload]]] = {
    "register": RegisterLoad, "set": SetLoad, "log": LogLoad, "kv": StoreLoad, "mutex": LockLoad, "queue": QueueLoad,
    "ordered-queue": OrderedLoad, "delayed-queue": DelayedLoad, "transactions": TransactionLoad, "pop": PopLoad,
    "controllers": ControllerLoad,
}

_KINDS: Final[Mapping[type, Callable[[Fields, str], object]]] = {
    float: Fields.number, int: Fields.whole, bool: Fields.flag, list: Fields.span}
"""Type of an argument in ``takes`` -> how it is read; a list is two whole numbers, of which one between is drawn."""


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


def check_args(name: str, args: Mapping[str, Any], others: Iterable[str]) -> None:
    """Raise ``FormatError`` where a workload takes no such arguments; one of a user without ``takes`` takes any.

    ``others``: names that ``[workload]`` has beside them, which may have been meant.
    """
    takes: Mapping[str, type] | None = getattr(find(name), "takes", None)
    if takes is None:
        return
    fields = Fields("workload", args)
    for each in others:
        fields.any(each)
    for each, kind in takes.items():
        if each in args:
            _KINDS[kind](fields, each)
        else:
            fields.any(each)
    fields.done()
