"""What a scenario is, and the list of them: a function that takes a ``Stage`` and fails by raising.

Scenarios register themselves by decorator; which ones belong to the smoke is said there too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs

from harness.processes.java import Release

Play = Callable[["Stage"], Awaitable[None]]


@attrs.frozen
class Stage:
    """What a scenario gets: a fetched release, a directory of its own, and where to write what it sees."""

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
"""By module and place therein, whichever was imported first."""


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
    """The Java side does not say what it should."""


class Lost(Unexpected):
    """Something that was acknowledged is gone: this is never tried again until it looks better."""


class NotRun(Exception):
    """Something else than Java that this scenario needs is missing; the text says what. No failure."""


def expect(condition: object, what: str) -> None:
    """Raises ``Unexpected`` with words that tell what was seen."""
    if not condition:
        raise Unexpected(what)
