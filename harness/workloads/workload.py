"""The interface of workloads. It knows no particular one, no client and no process.

A user's own is an entry point of the group ``quorate.workloads``, or ``FILE.py:CLASS``: a class that is made with a
``Recipe``, and is a ``Workload``. If it has ``takes``, the name and type of each argument, others are refused.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import attrs

GROUP: Final = "quorate.workloads"


class LoadOp(NamedTuple):
    """One operation: the function's name, its object, and the value."""

    f: str
    key: Any = None
    value: Any = None


class LoadOutcome(NamedTuple):
    """The outcome of an operation: ``ok``, ``fail`` (it surely did not happen) or ``info`` (unknown)."""

    type: str
    value: Any = None
    error: str | None = None


@attrs.frozen
class Recipe:
    """The ingredients of a workload. ``args``: further arguments of the scenario."""

    clients: int
    keys: int
    chance: Random
    args: Mapping[str, Any]


class Workload(Protocol):
    """Tells each client its next operation, and hears the outcome."""

    def next(self, client: int) -> LoadOp | None:
        """The operation that this client does now; None: it waits a turn."""
        ...

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """Takes the outcome before the client asks for the next operation."""
        ...

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """Operations that one client does after all faults; each outcome is sent in."""
        ...
