"""The interface of a subcommand of ``chaos``, and the exit codes of all. It knows none of them."""

from __future__ import annotations

import argparse
from typing import Final, Protocol

from harness.checkers.verdict import Valid

PASSED: Final = 0
BROKEN: Final = 1
USAGE: Final = 2
"""Wrong usage, and files that cannot be read or are of another kind."""
UNKNOWN: Final = 3
"""The verdict is unknown or the run invalid: a fault never happened, or a question was never asked."""
CODES: Final = {Valid.TRUE: PASSED, Valid.FALSE: BROKEN, Valid.UNKNOWN: UNKNOWN}


class Refused(ValueError):
    """What was asked for cannot be done; the message says why. The exit code is USAGE."""


class Subcommand(Protocol):
    """A module in the table of subcommands."""

    NAME: str
    ABOUT: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that it takes."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do what the options ask for; the exit code. Raises ``Refused``, ``HistoryError`` and ``OSError``."""
        ...
