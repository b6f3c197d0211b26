"""The option ``--print-completion`` of each command. What writes the scripts is loaded when one is asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any


class _Completion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _: argparse.Namespace, values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        import shtab  # slow to import: longer than the rest of the command line

        if values not in shtab.SUPPORTED_SHELLS:
            raise argparse.ArgumentError(self, f"no shell {values!r}; choose from {', '.join(shtab.SUPPORTED_SHELLS)}")
        sys.stdout.write(f"{shtab.complete(parser, str(values))}\n")
        parser.exit()


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Print a completion script for a shell and exit."""
    parser.add_argument("--print-completion", action=_Completion, metavar="SHELL", default=argparse.SUPPRESS,
                        help="print a completion script for this shell, bash or another one, and exit")
