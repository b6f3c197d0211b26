"""``chaos report DIR``: writes the page of a run or of a history. Knows files and the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import orjson

from harness.chaos.check import of_history
from harness.chaos.subcommand import PASSED, Refused
from harness.pages.files import made

NAME: Final = "report"
ABOUT: Final = "write the page of a run: one HTML file"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="a run's directory, or a history")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: page.html in DIR, or beside the history")
    parser.add_argument("--json", action="store_true", help="where it is, and its size, as JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    here = options.directory
    out = options.out or (here if here.is_dir() else here.parent) / "page.html"
    size = write(here, out)
    print(orjson.dumps({"page": str(out), "bytes": size}).decode() if options.json else f"{out}: {size / 1e6:.1f} MB")
    return PASSED


def write(here: Path, out: Path) -> int:
    """Write the page of a run or a history; returns its size in bytes. Raises ``Refused`` and ``HistoryError``."""
    try:
        text = made(here, of_history)
    except KeyError as error:
        raise Refused(f"nemesis.jsonl or messages.jsonl lacks {error}") from None
    except TypeError as error:
        raise Refused(f"nemesis.jsonl or messages.jsonl has what cannot be read: {error}") from None
    staged = out.with_name(out.name + ".part")
    staged.write_text(text, encoding="utf-8")
    staged.replace(out)
    return out.stat().st_size
