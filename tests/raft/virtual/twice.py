"""Runs seeds twice, each time in a process of its own and under another hash seed, and compares the digests.

    python -m tests.raft.virtual.twice --seeds 1000 --world tests.raft.virtual.services:counts
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from raft.virtual import run_on_virtual_time

ROOT = Path(__file__).parents[3]
SERVICES = "tests.raft.virtual.services"


def digests(world: str, seeds: range) -> list[str]:
    """In this process."""
    module, _, name = world.partition(":")
    main = getattr(import_module(module), name)
    return [run_on_virtual_time(main, seed=seed).digest for seed in seeds]


def elsewhere(world: str, seeds: range, hash_seed: str) -> list[str]:
    """In another process, under this hash seed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.raft.virtual.twice", "--world", world, "--first", str(seeds.start),
         "--seeds", str(len(seeds)), "--print"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two runs of each seed.")
    parser.add_argument("--world", default=f"{SERVICES}:echoes", help="MODULE:FUNCTION")
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--print", action="store_true", help="print the digests of one run each, and compare nothing")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    if options.print:
        sys.stdout.write("\n".join(digests(options.world, seeds)) + "\n")
        return 0
    one, two = (elsewhere(options.world, seeds, hash_seed) for hash_seed in ("1", "4242"))
    differ = [seed for seed, first, second in zip(seeds, one, two, strict=True) if first != second]
    sys.stdout.write(f"{len(one)} seeds of {options.world}, each run twice: {len(set(one))} different runs, "
                     f"{len(differ)} not repeated {differ[:10]}\n")
    return 1 if differ or len(one) != len(seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
