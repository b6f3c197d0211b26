"""``chaos replay RUN``: the schedule of a run once more, or of a ``schedule.json`` beside what it belongs to."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from harness.chaos import run as running

NAME: Final = "replay"
ABOUT: Final = "play a run's schedule again"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("directory", type=Path, metavar="RUN", help="a run's directory, or the schedule.json in it")
    running.playing(parser)


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    if running.PREPARED in os.environ:
        return running.inside(Path(os.environ[running.PREPARED]), options)
    found, schedule = running.read(options.directory)
    return running.begin(found, schedule, options)
