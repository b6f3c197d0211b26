"""The interface of subcommands of ``chaos``, and their exit codes. It knows no subcommand."""

from __future__ import annotations

import argparse
from typing import Final, Protocol

from harness.checkers.verdict import Valid

PASSED: Final = 0
BROKEN: Final = 1
USAGE: Final = 2
"""Wrong usage, or a file that cannot be read or has the wrong kind."""
UNKNOWN: Final = 3
"""The verdict is unknown, or the run invalid: a fault never happened, or a check was never made."""
CODES: Final = {Valid.TRUE: PASSED, Valid.FALSE: BROKEN, Valid.UNKNOWN: UNKNOWN}


class Refused(ValueError):
    """The request cannot be done; the message says why. The exit code is USAGE."""


class Subcommand(Protocol):
    """A module in the table of subcommands."""

    NAME: str
    ABOUT: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that it takes."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do what the options ask for; returns the exit code. Raises ``Refused``, ``HistoryError`` and ``OSError``."""
        ...
