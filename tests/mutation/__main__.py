"""The machine's mutants: every small change of a module must turn one of its quick tests red.

    python -m tests.mutation --package raft --slice 2/7        a night's part of the cores of raft
    python -m tests.mutation --package raft/quorum.py          one module
    python -m tests.mutation --package broker.ha               any package

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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import attrs

from tests.mutation.changes import Change, changes
from tests.mutation.forked import run
from tests.mutation.known import Known, load, page, store
from tests.mutation.modules import judges_of, modules
from tests.raft.bugs.run_mutants import ROOT, TIMEOUT_S, copy_tree, say

WHOLE = ("raft", "remoting", "controller", "broker", "harness", "analysis", "tests", "docs", "pyproject.toml")


@attrs.frozen
class Survivor:
    module: str
    change: Change


def survives(tree: Path, module: str, change: Change, tests: Sequence[str]) -> bool:
    """Whether the tests stay green. What hangs, or cannot be imported, is noticed."""
    file = tree / module
    plain = file.read_text(encoding="utf-8")
    file.write_text(change.code, encoding="utf-8")
    try:
        return run(tree, list(tests), TIMEOUT_S) == 0
    finally:
        file.write_text(plain, encoding="utf-8")


def run_module(module: str, chosen: Sequence[Change], trees: SimpleQueue[Path], jobs: int) -> list[Survivor]:
    tests, began = judges_of(module, ROOT), time.monotonic()

    def judge(change: Change) -> Survivor | None:
        tree = trees.get()
        try:
            survivor = Survivor(module, change) if survives(tree, module, change, tests) else None
        finally:
            trees.put(tree)
        if survivor is not None:
            say(f"  SURVIVED {module} {change.place}: {change.old} -> {change.new}")
        return survivor

    with ThreadPoolExecutor(jobs) as pool:
        survivors = [found for found in pool.map(judge, chosen) if found is not None]
    say(f"{module}: {len(chosen)} mutants, {len(survivors)} survived, {time.monotonic() - began:.0f} s")
    return survivors


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="raft", help="a dotted package or the path of a module (raft)")
    parser.add_argument("--slice", default="1/1", metavar="N/OF", help="every OFth mutant, from the Nth on (1/1)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="only say how many mutants there are")
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
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        for number in range(options.jobs):
            copy_tree(Path(name) / str(number), WHOLE)
            trees.put(Path(name) / str(number))
        for module, chosen in work.items():
            if run(Path(name) / "0", list(judges_of(module, ROOT)), TIMEOUT_S) != 0:
                say(f"{module}: its tests are red without any change")
                failed = True
                continue
            survivors = run_module(module, chosen, trees, options.jobs)
            failed |= compare(module, chosen, [each.change for each in survivors], known, whole=step == 1,
                              update=options.update)
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
