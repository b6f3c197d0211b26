"""Which lines and branches of each module the tests of its package run.

    python -m tests.coverage                          # the tests of each package in turn, a table of its modules
    python -m tests.coverage --package controller     # one package; may be given more than once
    python -m tests.coverage --last                   # no tests: once more what was measured last
    python -m tests.coverage --package raft --missed  # which lines were not run, too
    python -m tests.coverage --reached                # records what is better now: it may not get worse again

A module counts what tests of its own package run, in the processes that they start too, unless these are killed. The
exit code is 1 if a module is below its floor in ``tests/coverage/floors.json``, or a test failed.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.structure import PACKAGES
from tests.coverage import measuring, record


def of_package(package: str, options: argparse.Namespace) -> int:
    """Measures and judges one package; returns 1 if a module is below its floor, or a test failed."""
    code = 0 if options.last else measuring.run(package, options.jobs, options.pytest.split())
    reports = measuring.measured(package)
    now = measuring.rows(reports)
    floors = record.load()
    say(f"\n## `{package}`\n", *record.table(now, floors))
    if options.missed:
        for path, report in sorted(reports.items()):
            if report["missing_lines"] or report["missing_branches"]:
                say(f"{path}: {missed(report['missing_lines'], report['missing_branches'])}")
    offences = record.worse(now, floors)
    for each in offences:
        say(f"BELOW: {each}")
    if code:
        say(f"tests/{package}: not green, so nothing is recorded")
    elif options.reached:
        record.store(record.raised(now, floors, package))
    return int(bool(offences or code))


def say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def missed(lines: list[int], branches: list[list[int]]) -> str:
    """Lines, and branches from lines that were run."""
    jumps = [f"{start}->{'exit' if end < 0 else end}" for start, end in branches if end not in lines]
    return " ".join([*map(str, lines), *jumps])


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="only this one")
    parser.add_argument("--last", action="store_true", help="run no tests: show what was measured last")
    parser.add_argument("--missed", action="store_true", help="print the lines and branches that were not run")
    parser.add_argument("--reached", action="store_true", help="raise the floors of green packages to what is reached")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests beside each other")
    parser.add_argument("--pytest", default="", metavar="ARGS", help="more arguments for pytest")
    options = parser.parse_args()
    return max([of_package(package, options) for package in options.package or PACKAGES])


if __name__ == "__main__":
    sys.exit(main())
