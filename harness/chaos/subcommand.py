"""What a subcommand of ``chaos`` is, and the exit codes of all of them. Knows none of them."""

from __future__ import annotations

import argparse
from typing import Final, Protocol

from harness.checkers.verdict import Valid

PASSED: Final = 0
BROKEN: Final = 1
USAGE: Final = 2
"""Also of files that cannot be read, or are none of what was asked for."""
UNKNOWN: Final = 3
"""Nobody can tell, or the run is invalid: a fault that never happened, a question that was never asked."""
INTERRUPTED: Final = 130
CODES: Final = {Valid.TRUE: PASSED, Valid.FALSE: BROKEN, Valid.UNKNOWN: UNKNOWN}


class Refused(ValueError):
    """What was asked for cannot be done; in words. The exit code is USAGE."""


class Subcommand(Protocol):
    """A module that is in the table."""

    NAME: str
    ABOUT: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that it takes."""
        ...

    def run(self, options: argparse.Namespace) -> int:
        """Do what the options ask for; the exit code. Raises ``Refused``, ``HistoryError`` and ``OSError``."""
        ...
