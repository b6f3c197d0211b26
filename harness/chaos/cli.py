"""``chaos``: torture a state machine, a service or a cluster, and judge what its clients saw.

Knows the table of subcommands and the command line. Exit codes: 0 passed, 1 a promise is broken, 2 wrong usage or
unreadable input, 3 unknown or invalid, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import shtab

from harness.chaos import check, clean, convert, replay, report, run, scenarios, shrink, sim
from harness.chaos.subcommand import INTERRUPTED, USAGE, Refused, Subcommand
from harness.histories.events import HistoryError
from remoting.daemon.process import piped
from remoting.daemon.version import add_version

SUBCOMMANDS: Final[tuple[Subcommand, ...]] = (run, scenarios, check, report, replay, shrink, clean, convert, sim)


def parser() -> argparse.ArgumentParser:
    """The command line, of all subcommands."""
    made = argparse.ArgumentParser(prog="chaos", description="Chaos tests: histories, verdicts, pictures.")
    add_version(made)
    shtab.add_argument_to(made, ["--print-completion"])
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for each in SUBCOMMANDS:
        command = commands.add_parser(each.NAME, help=each.ABOUT, description=each.ABOUT)
        each.arguments(command)
        command.set_defaults(run=each.run)
    return made


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        return code
    except (Refused, HistoryError, OSError) as error:
        sys.stderr.write(f"chaos {options.command}: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write(f"chaos {options.command}: interrupted\n")
        return INTERRUPTED
