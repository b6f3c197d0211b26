"""Plays seeds of ``raft.sim`` twice, each time in a process of its own and under another hash seed, and compares them.
The two processes run at the same time.

    python -m tests.raft.sim.twice --seeds 1000
    python -m tests.raft.sim.twice --seeds 50 --profile bounce

What is compared: the fingerprint, into which every event is mixed, how many events there were, and what broke.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from raft.sim.campaign import RAFT, run
from raft.sim.tape import Tape

ROOT: Final = Path(__file__).parents[3]
TOGETHER: Final = 50
"""Seeds of one process; the next ones are played under two other hash seeds."""


def played(profile: str, seeds: range) -> Iterator[str]:
    """A line for each seed, played in this process."""
    for seed in seeds:
        result = run(Tape(seed), profile)
        yield f"{seed} {result.fingerprint} {result.events} {result.failure or 'passed'}"


def elsewhere(profile: str, seeds: range, hash_seed: int) -> list[str]:
    """The same lines of another process, under this hash seed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.raft.sim.twice", "--profile", profile, "--first", str(seeds.start),
         "--seeds", str(len(seeds)), "--print"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": str(hash_seed)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def differing(one: list[str], two: list[str]) -> list[str]:
    """The lines of the first playing that the second one does not have at their place."""
    assert len(one) == len(two), "both played all seeds"
    return [first for first, second in zip(one, two, strict=True) if first != second]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two runs of each seed of the library's simulation.")
    parser.add_argument("--profile", choices=RAFT.profiles, default=RAFT.profiles[0])
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--print", action="store_true", help="print one run of each, and compare nothing")
    options = parser.parse_args()
    last = options.first + options.seeds
    if options.print:
        for line in played(options.profile, range(options.first, last)):
            sys.stdout.write(f"{line}\n")
        return 0
    began, hash_seed, lines, differ = time.monotonic(), 0, [], []
    for first in range(options.first, last, TOGETHER):
        seeds = range(first, min(first + TOGETHER, last))
        with ThreadPoolExecutor() as both:
            one, two = both.map(partial(elsewhere, options.profile, seeds), (hash_seed + 1, hash_seed + 2))
        hash_seed += 2
        lines += one
        differ += differing(one, two)
        sys.stderr.write(f"{len(lines):,} seeds, {len(differ)} not repeated, {time.monotonic() - began:.0f} s\n")
    runs, events = {line.split()[1] for line in lines}, sum(int(line.split()[2]) for line in lines)
    sys.stdout.write(
        f"{len(lines):,} seeds of {options.profile}, each twice, under {hash_seed} hash seeds, {events:,} events: "
        f"{len(runs):,} different runs, {len(differ)} not repeated, {time.monotonic() - began:.0f} s\n")
    sys.stdout.writelines(f"not repeated: {line}\n" for line in differ[:10])
    return int(bool(differ) or len(lines) != options.seeds)


if __name__ == "__main__":
    sys.exit(main())
