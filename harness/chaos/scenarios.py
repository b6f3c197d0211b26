"""``chaos scenarios``: lists the library; ``--show NAME`` prints a file, ``--copy NAME`` copies it with its target."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from harness.chaos.asked import SCENARIOS, TARGETS, library
from harness.chaos.subcommand import PASSED, Refused
from harness.nemesis.faults import FAULTS
from harness.targets.fields import nearest
from harness.targets.target import table
from harness.workloads.chosen import OURS

NAME: Final = "scenarios"
ABOUT: Final = "list scenarios, targets, faults and workloads; print or copy one"

_BESIDE: Final = re.compile(r"\{here\}/([\w./-]+)")
"""Finds the programs that a target names."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("--show", metavar="NAME", help="print a scenario's or a target's file")
    parser.add_argument("--copy", metavar="NAME",
                        help="copy a scenario with its target, or a target, and the programs that stand beside it")
    parser.add_argument("--to", type=Path, default=Path(), metavar="DIR", help="for --copy; default: here")
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    files = {"scenarios": library(SCENARIOS), "targets": library(TARGETS)}
    both = files["targets"] | files["scenarios"]
    asked = options.show or options.copy
    if asked is not None and asked not in both:
        raise Refused(f"neither a scenario nor a target is called {asked}{nearest(asked, both)}")
    if options.show is not None:
        print(both[asked].read_text(encoding="utf-8"), end="")
        return PASSED
    if options.copy is not None:
        for path in copied(both[asked], files["targets"], options.to):
            print(path)
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


def copied(file: Path, targets: Mapping[str, Path], to: Path) -> list[Path]:
    """Copy a file of the library with all files that it names, and refer to the copies. Raises ``Refused``."""
    text = file.read_text(encoding="utf-8")
    found = table(text)
    texts = {file.name: text}
    target = targets.get(str(found.get("target", "")))
    if "together" in found:
        raise Refused(f"{file.stem} names other scenarios: copy one of {', '.join(found['together'].values())}")
    if target is not None:
        texts = {file.name: text.replace(f'target = "{target.stem}"', f'target = "{target.name}"', 1),
                 target.name: target.read_text(encoding="utf-8")}
    at = target or file
    texts |= {name: (at.parent / name).read_text(encoding="utf-8")
              for name in dict.fromkeys(_BESIDE.findall(texts[at.name]))}
    if there := [name for name in texts if (to / name).exists()]:
        raise Refused(f"{to / there[0]} is there already")
    for name, content in texts.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_text(content, encoding="utf-8")
    return [to / name for name in texts]
