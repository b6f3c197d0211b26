"""The machine's mutants: every small change of a module must turn one of its quick tests red.

    python -m tests.mutation --package raft --slice 2/7        a part of the cores of raft
    python -m tests.mutation --package raft/quorum.py          one module
    python -m tests.mutation --package broker.ha               any package

A change inside functions is swapped into a process that has collected the tests, and only tests that run its lines are
asked. What is done at import is changed in the file, and all tests of the module are asked in a new process.

What survives is compared with ``survivors.json``: a survivor that is not there, or one there that is killed now, fails
the run. ``--update`` takes out what is killed now, and writes new ones without a reason, which a test then asks for.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

import attrs

from tests.mutation.changes import Change, changes
from tests.mutation.forked import run
from tests.mutation.known import Known, load, page, store
from tests.mutation.modules import judges_of, modules
from tests.mutation.resumed import Killed
from tests.mutation.swapped import swaps
from tests.mutation.warm import GREEN, NOT_SWAPPED, Measured, Warm
from tests.raft.bugs.run_mutants import ROOT, TIMEOUT_S, copy_tree, say

WHOLE = ("raft", "remoting", "controller", "broker", "mqcluster", "harness", "analysis", "benchmarks", "tests", "docs",
         "pyproject.toml")
PROGRESS_S = 10


@attrs.frozen
class Bench:
    """What one job works with: a process that waits with its tests collected, and a tree whose file may change."""

    warm: Warm
    tree: Path


def survives(bench: Bench, module: str, change: Change, measured: Measured) -> bool:
    """Whether the tests stay green. What hangs, or cannot be imported, is noticed."""
    plain = (bench.tree / module).read_text(encoding="utf-8")
    if swaps(plain, change.code):
        judges = [(number, measured.tests[number].cpu_s) for number in measured.judges(change.lines)]
        verdict = bench.warm.judge(change.code, judges) if judges else GREEN
        if verdict >= 0:
            measured.kills[verdict] += 1
        if verdict != NOT_SWAPPED and (verdict != GREEN or not change.lines & measured.imported):
            return verdict == GREEN
    return survives_in_its_file(bench.tree, module, change)


def survives_in_its_file(tree: Path, module: str, change: Change) -> bool:
    file = tree / module
    plain = file.read_text(encoding="utf-8")
    file.write_text(change.code, encoding="utf-8")
    try:
        return run(tree, list(judges_of(module, ROOT)), TIMEOUT_S) == 0
    finally:
        file.write_text(plain, encoding="utf-8")


def run_module(
    module: str, chosen: Sequence[Change], trees: Sequence[Path], killed: Killed | None,
) -> set[Change] | None:
    """Those that survive; None when the tests are red without any change."""
    began = time.monotonic()
    left = [change for change in chosen if killed is None or not killed.has(module, change)]
    benches = [Bench(Warm(tree, module, judges_of(module, ROOT)), tree) for tree in trees]
    idle: SimpleQueue[Bench] = SimpleQueue()
    for bench in benches:
        idle.put(bench)

    def judge(change: Change, measured: Measured) -> tuple[Change, bool]:
        bench = idle.get()
        try:
            return change, survives(bench, module, change, measured)
        finally:
            idle.put(bench)

    try:
        measured = benches[0].warm.measure()
        red = measured and [test.name for test in measured.tests if test.red]
        if not measured or not measured.tests or red:
            say(f"{module}: red, or no tests, without any change: {red}")
            return None
        say(f"{module}: {len(left)} mutants for {len(measured.tests)} tests, {time.monotonic() - began:.0f} s")
        survivors: set[Change] = set()
        dead, shown = set(), time.monotonic()
        began = time.monotonic()
        with ThreadPoolExecutor(len(benches)) as pool:
            verdicts = [pool.submit(judge, change, measured) for change in left]
            for done, verdict in enumerate(as_completed(verdicts), 1):
                change, survived = verdict.result()
                if survived:
                    survivors.add(change)
                    say(f"  SURVIVED {module}:{min(change.lines)} {change.place}: {change.old} -> {change.new}")
                else:
                    dead.add(change)
                if (now := time.monotonic()) - shown > PROGRESS_S:
                    rate, shown = done / (now - began), now
                    say(f"  {done} of {len(left)}, {rate:.1f}/s, {(len(left) - done) / rate:.0f} s to go")
                    if killed is not None:
                        killed.add(module, dead)
    finally:
        for bench in benches:
            bench.warm.close()
    if killed is not None:
        killed.add(module, dead)
    say(f"{module}: {len(left)} mutants, {len(survivors)} survived, {time.monotonic() - began:.0f} s")
    return survivors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="raft", help="a dotted package or the path of a module (raft)")
    parser.add_argument("--slice", default="1/1", metavar="N/OF", help="every OFth mutant, from the Nth on (1/1)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only say how many mutants there are")
    parser.add_argument("--resume", action="store_true", help="leave out what an earlier run with --resume killed")
    parser.add_argument("--update", action="store_true", help="write what was found to survivors.json and to its page")
    options = parser.parse_args(arguments)
    part, _, of = options.slice.partition("/")
    first, step = int(part) - 1, int(of or 1)
    work = {module: changes((ROOT / module).read_text(encoding="utf-8"))[first::step]
            for module in modules(options.package, ROOT)}
    total = sum(map(len, work.values()))
    for module, chosen in work.items():
        if options.list:
            say(f"{len(chosen):6} {module}")
    say(f"{total} mutants of {len(work)} modules")
    if options.list or not total:
        return 0
    known, failed = load(), False
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        trees = [Path(name) / str(number) for number in range(options.jobs)]
        for tree in trees:
            copy_tree(tree, WHOLE)
        for module, chosen in work.items():
            survivors = run_module(module, chosen, trees, Killed() if options.resume else None)
            failed |= survivors is None or compare(
                module, chosen, list(survivors), known, whole=step == 1, update=options.update)
    if options.update:
        store(known)
        page()
    return int(failed)


def compare(
    module: str, chosen: Sequence[Change], survived: Sequence[Change], known: Known, *, whole: bool, update: bool,
) -> bool:
    """What the list of survivors says otherwise. The list may only shrink."""
    listed, failed = known.survivors.setdefault(module, {}), False
    ran = {known.name(change) for change in chosen}
    alive = {known.name(change) for change in survived}
    for name in sorted(alive - set(listed)):
        say(f"NEW: {module}: {name}\n  kill it by a test, or say in survivors.json why nothing can tell it apart")
        failed = True
        if update:
            listed[name] = ""
    for name in sorted(set(listed) & ran - alive if not whole else set(listed) - alive):
        say(f"KILLED NOW: {module}: {name}\n  take it off the list (--update does)")
        failed = True
        if update:
            del listed[name]
    if whole and update:
        known.mutants[module] = len(chosen)
    return failed


if __name__ == "__main__":
    try:
        code = main()
    except ModuleNotFoundError as error:
        say(f"{error}: install it with `make mutants-machine`, or `{sys.executable} -m pip install --group mutation`")
        code = 2
    except subprocess.CalledProcessError as error:
        say(str(error))
        code = 2
    sys.exit(code)
