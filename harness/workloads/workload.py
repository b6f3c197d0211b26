"""What a workload is. Knows no particular one, no client and no process.

A user's own is an entry point of the group ``quorate.workloads``, or ``FILE.py:CLASS``: a class that is made with a
``Recipe``, and is a ``Workload``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import attrs

GROUP: Final = "quorate.workloads"


class LoadOp(NamedTuple):
    """One operation: a function's name, the object that it is of, and what is given."""

    f: str
    key: Any = None
    value: Any = None


class LoadOutcome(NamedTuple):
    """What came of it: ``ok``, ``fail`` (it surely did not happen) or ``info`` (nobody knows)."""

    type: str
    value: Any = None
    error: str | None = None


@attrs.frozen
class Recipe:
    """What a workload is made of. ``args``: what the scenario says besides."""

    clients: int
    keys: int
    chance: Random
    args: Mapping[str, Any]


class Workload(Protocol):
    """Clients ask it one after the other what to do, and tell it what came of that."""

    def next(self, client: int) -> LoadOp | None:
        """What this client does now; None: it waits a turn."""
        ...

    def seen(self, client: int, op: LoadOp, told: LoadOutcome) -> None:
        """What came of it, before the client asks for the next."""
        ...

    def last(self) -> Generator[LoadOp, LoadOutcome, None]:
        """What one client does when all faults are over; it is sent what came of each."""
        ...
