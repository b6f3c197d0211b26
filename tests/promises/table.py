"""What stands in the table of promises: which sentence, what asks it, and where it cannot be asked.

A row is found by how its sentence begins. The simulator follows from an invariant's letter, the mutants from those that
name the invariant or one of the row's tests; only what nothing else knows is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

SIMULATORS: Final[Mapping[str, str]] = {
    "R": "`raft.sim`", "B": "`harness.simulation.brokers`",
    **dict.fromkeys("CEL", "`harness.simulation.controllers`")}
"""By the letter behind ``INV_``; ``ELIGIBLE`` and ``LEASE`` are of the controllers."""

# Why a simulator cannot ask: "cannot be asked there, because ..."
SHELL: Final = "simulations have no callers, sockets or cancellation"
FILES: Final = "it is asked of the files alone, at every byte and operation"
WORDS: Final = "it is about words for people"
DOOR: Final = "simulated nodes have no handshake"
BYTES: Final = "simulated messages are objects, or bytes that nobody damages"
ONE_ANSWER: Final = "it is a table of one request and its answer, which tests go through"
CONSUMERS: Final = "simulated consumers read what is confirmed, and know no groups"
JAVA: Final = "it is about Java's programs, which only real ones stand for"
PLAIN: Final = "groups without controllers are simulated where slaves act, and nowhere else"
TIMING: Final = "it is how long something takes, which only real processes tell"
TABLES: Final = "simulated brokers make their topics as they begin to lead"
ON_PURPOSE: Final = "it is a choice of what the code does not do"

# Why no campaign of real processes asks it.
IN_PROCESS: Final = "its tests run the real shell, on virtual time or in one process"
ONE_RULE: Final = "one rule of a core decides it, which outside can only be seen by its effects"
COPIED: Final = "campaigns copy no directories"
POWERLESS: Final = "a program cannot cut its machine's power, and a boot cannot be faked for a whole campaign"
ORDERS: Final = "the order of events that it is about cannot be brought about from outside"


@attrs.frozen
class Promise:
    """One sentence of a page. ``asks``: invariants without ``INV_``, by spaces."""

    start: str
    asks: str = ""
    not_simulated: str = ""
    tests: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    """Tests that run real processes, ``failovers PROMISE``, ``interop SCENARIO``, or ``powercut``."""
    not_real: str = ""

    @property
    def invariants(self) -> tuple[str, ...]:
        return tuple(f"INV_{name}" for name in self.asks.split())


@attrs.frozen
class Page:
    """A page of the manual: each of its sentences is a promise, or is said to be none."""

    path: str
    promises: tuple[Promise, ...]
    others: tuple[str, ...] = ()
    """How sentences begin that promise nothing: they explain, name, measure, or say what is not promised."""


def tests_of(folder: str, file: str, *names: str) -> tuple[str, ...]:
    """Ids of tests of one file."""
    return tuple(f"tests/{folder}/test_{file}.py::test_{name}" for name in names)


def both(*parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(each for part in parts for each in part)


KILLED: Final = tests_of("raft", "host", "nothing_acknowledged_is_lost_to_kill_9")
MASTERS_KILLED: Final = tests_of("broker", "processes", "masters_are_killed_and_nothing_acknowledged_is_lost")
FAILOVERS_LOST: Final = ("failovers LOST",)
