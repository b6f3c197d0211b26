"""``chaos convert``: writes a history in another format, by ``harness.histories``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from harness.chaos.subcommand import PASSED, Refused
from harness.histories.reading import EDN, FORMATS, JSON, OPENCHAOS, open_history, write_history

NAME: Final = "convert"
ABOUT: Final = "write a history in another format"
_BY_SUFFIX: Final = {".jsonl": JSON, ".json": JSON, ".edn": EDN}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("history", type=Path, metavar="HISTORY", help="a file in any format, or a run's directory")
    parser.add_argument("out", type=Path, metavar="OUT", help="the file to write")
    parser.add_argument("--from", dest="read", choices=FORMATS, help="default: as the file looks")
    parser.add_argument("--to", choices=(JSON, EDN, OPENCHAOS), help="default: by OUT's name, .jsonl or .edn")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    to = options.to or _BY_SUFFIX.get(options.out.suffix)
    if to is None:
        raise Refused(f"{options.out.name} does not say its format: name it with --to")
    source = open_history(options.history, options.read)
    try:
        number = write_history(options.out, source.events, to)
    except TypeError as error:
        raise Refused(f"{FORMATS[to]} cannot hold this history: {error}") from None
    print(f"{number:,} events, {FORMATS[source.format]} to {FORMATS[to]}: {options.out}")
    return PASSED
