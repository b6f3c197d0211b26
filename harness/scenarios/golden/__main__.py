"""``python -m harness.scenarios.golden``: record golden frames between Java peers (some minutes; Linux).

Knows the command line and words; the work is done by the other modules.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.processes.java.commands import carried_out, say
from harness.processes.java.jars import CURRENT, Release, fetch
from harness.scenarios.golden import frames, scenes


async def record(arguments: argparse.Namespace) -> None:
    release: Release = await fetch(arguments.version, say=say)
    with tempfile.TemporaryDirectory(prefix="record-") as place:
        recorded = await scenes.record(release, Path(place), say=say)
    if arguments.raw:
        arguments.raw.write_text("".join(one.line() for one in recorded))
    kept = frames.pick(frames.exchanges(recorded))
    frames.write(kept, arguments.out, release.version)
    say(f"{sum(map(len, kept.values()))} exchanges of {len(kept)} codes in {arguments.out / release.version}")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness.scenarios.golden", description="Record golden frames between Java peers.",
        epilog="Takes some minutes, on Linux; needs a JDK of version 11 or later and Maven on PATH.")
    parser.add_argument("--version", default=CURRENT)
    parser.add_argument("--out", type=Path, required=True, help="folder that gets VERSION/CODE-NAME.ndjson")
    parser.add_argument("--raw", type=Path, help="also write every frame with its time into this file")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return carried_out(record, make_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
