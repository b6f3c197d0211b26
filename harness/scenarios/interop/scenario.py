"""The list of scenarios: each is a function that takes a ``Stage`` and fails by raising.

Scenarios register themselves by decorator, which also says whether they belong to the smoke test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs

from harness.processes.java import Release

Play = Callable[["Stage"], Awaitable[None]]


@attrs.frozen
class Stage:
    """The argument of a scenario: a fetched release, its own directory, and a function for its messages."""

    release: Release
    here: Path
    say: Callable[[str], None]


@attrs.frozen
class Scenario:
    """``needs`` is a release; ``smoke``: part of the short run that CI makes."""

    name: str
    about: str
    play: Play
    releases: tuple[str, ...]
    smoke: bool
    timeout_s: float


SCENARIOS: list[Scenario] = []
"""All scenarios, in the order of modules and of their places in them."""


def scenario(
    *releases: str, smoke: bool = False, timeout_s: float = 240
) -> Callable[[Play], Play]:
    """Register a scenario, once for each release; its docstring's first line says what it shows."""

    def register(play: Play) -> Play:
        about = (play.__doc__ or "").strip().splitlines()[0]
        name = getattr(play, "__name__", "scenario")
        SCENARIOS.append(Scenario(name, about, play, releases or ("5.5.0",), smoke, timeout_s))
        SCENARIOS.sort(key=_place)
        return play

    return register


def _place(each: Scenario) -> tuple[str, int]:
    code = getattr(each.play, "__code__", None)
    return each.play.__module__, code.co_firstlineno if code else 0


class Unexpected(AssertionError):
    """The Java side gave another result than expected."""


class Lost(Unexpected):
    """An acknowledged message is gone. Such a scenario is never tried again."""


class NotRun(Exception):
    """A scenario did not run, since it needs something besides Java; the text says what. This is no failure."""


def expect(condition: object, what: str) -> None:
    """Raise ``Unexpected`` with these words unless the condition holds."""
    if not condition:
        raise Unexpected(what)
