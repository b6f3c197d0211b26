"""The option ``--version`` of each command of the distribution ``quorate``. Knows the installed metadata alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

DISTRIBUTION: Final = "quorate"


def version() -> str:
    """Return the version of the installed distribution; a checkout that is not installed has none."""
    from importlib import metadata  # slow to import: longer than the rest of the command line

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "of a checkout that is not installed"


class _Version(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _: argparse.Namespace, values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        sys.stdout.write(f"{parser.prog} {version()}\n")
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Print the version and exit."""
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
