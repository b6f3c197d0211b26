"""``chaos replay RUN``: plays the schedule of a run again, or another ``schedule.json`` in its directory."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from harness.chaos import playing, together
from harness.chaos.run import inside

NAME: Final = "replay"
ABOUT: Final = "play a run's schedule again"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("directory", type=Path, metavar="RUN", help="a run's directory, or the schedule.json in it")
    playing.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    prepared = playing.prepared_for()
    if prepared is not None:
        return inside(prepared, options)
    if together.is_one(options.directory):
        return together.begin(*together.read(options.directory), options)
    return playing.begin(*playing.read(options.directory), options)
