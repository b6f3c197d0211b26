"""``chaos``: torture a state machine, a service or a cluster, and judge what its clients saw.

Knows the table of subcommands and the command line. Exit codes: 0 passed, 1 a promise is broken, 2 wrong usage or
unreadable input, 3 unknown or invalid, 130 interrupted. What nobody foresaw, as the error of a user's own checker, is
told in one line, and is 3: it is no broken promise.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Final, cast

from harness.chaos.subcommand import UNKNOWN, USAGE, Refused, Subcommand
from harness.histories.events import HistoryError
from raft.command import INTERRUPTED
from remoting.daemon.completion import add_completion
from remoting.daemon.process import piped
from remoting.daemon.version import add_version

SUBCOMMANDS: Final = ("run", "compare", "scenarios", "check", "report", "replay", "shrink", "clean", "convert", "sim")
"""Modules of this package. Each is loaded only when needed, since some take long to load."""


def parser(names: Sequence[str] = SUBCOMMANDS) -> argparse.ArgumentParser:
    """The command line, with these subcommands."""
    made = argparse.ArgumentParser(prog="chaos", description="Chaos tests: histories, verdicts, pictures.")
    add_version(made)
    add_completion(made)
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for each in map(subcommand, names):
        command = commands.add_parser(each.NAME, help=each.ABOUT, description=each.ABOUT)
        each.arguments(command)
        command.set_defaults(run=each.run)
    return made


def subcommand(name: str) -> Subcommand:
    """The module of a subcommand."""
    return cast(Subcommand, importlib.import_module(f"harness.chaos.{name}"))


@piped
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser(given[:1] if given and given[0] in SUBCOMMANDS else SUBCOMMANDS).parse_args(given)
    try:
        code: int = options.run(options)
        return code
    except BrokenPipeError:
        raise
    except (Refused, HistoryError, OSError) as error:
        sys.stderr.write(f"chaos {options.command}: {error}\n")
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write(f"chaos {options.command}: interrupted\n")
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  it must not pass for a broken promise
        sys.stderr.write(f"chaos {options.command}: it ended without a verdict: {_where(error)}\n")
        return UNKNOWN


def _where(error: Exception) -> str:
    """The first error of a group, and the line that raised it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
