"""``chaos scenarios``: the library, a line each; ``--show NAME`` prints a file to copy."""

from __future__ import annotations

import argparse
from typing import Final

import orjson

from harness.chaos.asked import SCENARIOS, TARGETS, library
from harness.chaos.subcommand import PASSED, Refused
from harness.nemesis.faults import FAULTS
from harness.targets.fields import nearest
from harness.targets.target import table
from harness.workloads.chosen import OURS

NAME: Final = "scenarios"
ABOUT: Final = "list scenarios, targets, faults and workloads; print one to copy"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("--show", metavar="NAME", help="print a scenario's or a target's file")
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    files = {"scenarios": library(SCENARIOS), "targets": library(TARGETS)}
    if options.show is not None:
        both = files["targets"] | files["scenarios"]
        if options.show not in both:
            raise Refused(f"neither a scenario nor a target is called {options.show}{nearest(options.show, both)}")
        print(both[options.show].read_text(encoding="utf-8"), end="")
        return PASSED
    told = {what: {name: str(table(path.read_text(encoding="utf-8")).get("about", "")) for name, path in found.items()}
            for what, found in files.items()}
    told["faults"] = {name: fault.about for name, fault in FAULTS.items()}
    told["workloads"] = {name: (load.__doc__ or "").splitlines()[0] for name, load in OURS.items()}
    if options.json:
        print(orjson.dumps(told, option=orjson.OPT_INDENT_2).decode())
        return PASSED
    for what, found in told.items():
        print(f"{what}:")
        for name, about in found.items():
            print(f"  {name:24} {about}")
    return PASSED
