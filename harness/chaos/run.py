"""``chaos run SCENARIO``: plays real processes under load and faults, judges them and writes a page.

    chaos run kill-everything --seed 7
    chaos run my-scenario.toml --target my-target.toml --option bug=early --seconds 20
    chaos run kill-everything --runs 20

The exit code is that of the verdict; 1 also if a node ended by itself or did not come back.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final

import orjson

from harness.chaos import playing, together
from harness.chaos.asked import RunRequest, TogetherRequest, asked_for
from harness.chaos.subcommand import BROKEN, PASSED, UNKNOWN, Refused
from harness.torture.scenario import SECONDS_MAX, SECONDS_MIN

NAME: Final = "run"
SEED_MAX: Final = 1 << 62
"""Files hold numbers of 64 bits, and further runs and groups have the seeds behind it."""
ABOUT: Final = "torture real processes: a scenario's load and faults, a verdict, a page"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that it takes."""
    parser.add_argument("scenario", metavar="SCENARIO", help="one of `chaos scenarios`, or a file")
    parser.add_argument("--target", metavar="TARGET", help="one of the library, or a file; default: the scenario's")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="of the target; may be given again")
    parser.add_argument("--seed", type=int, help="of the schedule; default: the scenario's, else another each time")
    parser.add_argument("--seconds", type=float, help="of load and faults; default: the scenario's")
    parser.add_argument("--runs", type=int, default=1, metavar="N",
                        help="so many, one after the other, each with the next seed; default: %(default)s")
    playing.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Do what the options ask for."""
    prepared = playing.prepared_for()
    if prepared is not None:
        return inside(prepared, options)
    found = asked_for(options.scenario, options.target, _options(options.option))
    if options.seconds is not None:
        if not SECONDS_MIN <= options.seconds <= SECONDS_MAX:
            raise Refused(f"--seconds is {options.seconds:g}; from {SECONDS_MIN:g} to {SECONDS_MAX:g}")
        found = found.lasting(options.seconds)
    if options.runs < 1:
        raise Refused(f"--runs is {options.runs}; at least 1")
    seed = options.seed if options.seed is not None else found.scenario.seed
    seed = SystemRandom().randrange(1 << 32) if seed is None else seed
    if abs(seed) >= SEED_MAX:
        raise Refused(f"the seed is {seed}; a whole number of at most 62 bits is wanted")
    if options.runs == 1:
        return begin(found, seed, options)
    return _many(found, range(seed, seed + options.runs), options)


def begin(found: RunRequest | TogetherRequest, seed: int, options: argparse.Namespace) -> int:
    """Draw the schedule, and play it."""
    if isinstance(found, TogetherRequest):
        return together.begin(found, found.drawn(seed), options)
    return playing.begin(found, found.drawn(seed), options)


def inside(path: Path, options: argparse.Namespace) -> int:
    """Play a prepared run, as the program in the sandbox."""
    return together.inside(path, options) if together.is_one(path) else playing.inside(path, options)


def _many(found: RunRequest | TogetherRequest, seeds: range, options: argparse.Namespace) -> int:
    """Play a run for each seed; returns the worst exit code: broken is worse than unknown."""
    codes: dict[int, int] = {}
    for seed in seeds:
        one = argparse.Namespace(**{**vars(options), "out": options.out and options.out / str(seed)})
        codes[seed] = begin(found, seed, one)
        if codes[seed] not in (PASSED, BROKEN, UNKNOWN):
            return codes[seed]
    by_code = {word: [seed for seed, each in codes.items() if each == code]
               for word, code in (("broken", BROKEN), ("unknown", UNKNOWN))}
    if options.json:
        print(orjson.dumps({"runs": len(codes), **by_code}).decode())
    else:
        print(f"{len(codes)} runs; " + "; ".join(
            f"{len(each)} {word}" + (f": seeds {', '.join(map(str, each))}" if each else "")
            for word, each in by_code.items()))
    return BROKEN if by_code["broken"] else UNKNOWN if by_code["unknown"] else PASSED


def _options(given: Sequence[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each:
            raise Refused(f"--option {each}: NAME=VALUE is wanted")
    return {name: value for name, _, value in (each.partition("=") for each in given)}


