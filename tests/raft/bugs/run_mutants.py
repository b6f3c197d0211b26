"""Runs every mutant: takes one guard out of a copy of the tree and expects the tests named for it to turn red.

``python -m tests.raft.bugs.run_mutants [--only E1,E2] [--jobs N] [--json FILE]``. Exit code 1 when a mutant survives,
breaks instead of failing a test, or when a named test is red on the clean tree. It knows processes and pytest's
reports; it must not touch the tree it was started in.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import attrs

from tests.raft.bugs.mutant import Impossible, Mutant

ROOT = Path(__file__).parents[3]
COPIED = ("raft", "harness/__init__.py", "harness/simulation", "tests", "pyproject.toml")
TIMEOUT_S = 120
BROKEN = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError")
"""A test that ends in one of these proves that the change made no sense, not that a guard was missed."""


@attrs.frozen
class Verdict:
    """How the named tests took one mutant."""

    mutant: Mutant
    label: str
    verdict: str
    """"killed", or what went wrong: "SURVIVED", "BROKEN", "HUNG", "STALE"."""
    detail: str
    seconds: float


@attrs.frozen
class Run:
    """What pytest said: (test, first line of its message) of failures and of errors."""

    code: int
    failures: list[tuple[str, str]]
    errors: list[tuple[str, str]]
    output: str


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def collect() -> tuple[list[Mutant], list[Impossible]]:
    """Every table's mutants and impossible rows, in the order of file names."""
    mutants: list[Mutant] = []
    impossible: list[Impossible] = []
    for path in sorted(Path(__file__).parent.glob("mutants_*.py")):
        table = importlib.import_module(f"tests.raft.bugs.{path.stem}")
        mutants += table.MUTANTS
        impossible += table.IMPOSSIBLE
    return mutants, impossible


def labelled(mutants: Sequence[Mutant]) -> list[tuple[str, Mutant]]:
    """A name for each: the row, with ``#2`` and so on for further mutants of one row."""
    out: list[tuple[str, Mutant]] = []
    counts: dict[str, int] = {}
    for mutant in mutants:
        counts[mutant.row] = nth = counts.get(mutant.row, 0) + 1
        out.append((mutant.row if nth == 1 else f"{mutant.row}#{nth}", mutant))
    return out


def copy_tree(target: Path, copied: Sequence[str] = COPIED) -> None:
    """What is, or is about to be, under version control, as it is now, with bytecode checked by content."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *copied],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    for package in filter(lambda name: (target / name).is_dir() and name not in ("tests", "docs"), copied):
        compileall.compile_dir(
            target / package, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def run_tests(tree: Path, tests: Sequence[str], *, first_only: bool) -> Run | None:
    """The named tests in this tree; None when they do not end in time."""
    report = tree / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", "-p", "no:xdist",
               f"--junitxml={report}", *(["-x"] if first_only else []), *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}  # before an editable install of the tree left alone
    process = subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    failures: list[tuple[str, str]] = []
    errors: list[tuple[str, str]] = []
    if report.exists():
        for case in ET.parse(report).iter("testcase"):
            for tag, found in (("failure", failures), ("error", errors)):
                for node in case.findall(tag):
                    message = (node.get("message") or "").strip().splitlines()
                    found.append((case.get("name") or "?", message[0] if message else ""))
    return Run(process.returncode, failures, errors, output)


def imported_from(tree: Path) -> Path:
    """Where ``import raft.replica`` finds the package for a process that runs like the tests."""
    found = subprocess.run(
        [sys.executable, "-c", "import raft.replica; print(raft.replica.__file__)"],
        cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, check=True, capture_output=True, text=True).stdout
    return Path(found.strip()).resolve()


def judge(clean: Path, label: str, mutant: Mutant) -> Verdict:
    """Copy, change, run, compare with what is expected."""
    started = time.monotonic()

    def verdict(word: str, detail: str) -> Verdict:
        return Verdict(mutant, label, word, detail, time.monotonic() - started)

    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        tree = Path(name) / "tree"
        shutil.copytree(clean, tree)
        file = tree / mutant.file
        try:
            changed = mutant.apply(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            return verdict("STALE", str(error))
        file.write_text(changed, encoding="utf-8")
        run = run_tests(tree, mutant.tests, first_only=True)
    if run is None:
        return verdict("HUNG", f"no end within {TIMEOUT_S} s; a test should fail instead")
    if run.code == 0:
        return verdict("SURVIVED", "the named tests stay green")
    if run.errors or not run.failures:
        return verdict("BROKEN", str(run.errors[:1] or run.output[-400:]))
    test, message = run.failures[0]
    if message.split(":")[0] in BROKEN:
        return verdict("BROKEN", f"{test}: {message}")
    return verdict("killed", f"{test}: {message[:120]}")


def check_clean(clean: Path, tests: Sequence[str]) -> bool:
    """The named tests are green before anything is taken out."""
    run = run_tests(clean, tests, first_only=False)
    (clean / "report.xml").unlink(missing_ok=True)
    if run is not None and run.code == 0:
        return True
    say("red on the clean tree:")
    for test, message in (run.failures + run.errors) if run else [("all", "no end in time")]:
        say(f"  {test}: {message}")
    if run and not run.failures:
        say(run.output[-2_000:])
    return False


def summary(verdicts: Sequence[Verdict], impossible: int) -> None:
    say("")
    say(f"{'mutant':10} {'verdict':9} {'s':>5}  {'file':32} first red test")
    for verdict in verdicts:
        say(f"{verdict.label:10} {verdict.verdict:9} {verdict.seconds:5.1f}  {verdict.mutant.file:32} "
            f"{verdict.detail[:110]}")
    killed = sum(verdict.verdict == "killed" for verdict in verdicts)
    rows = len({verdict.mutant.row for verdict in verdicts})
    say(f"\n{killed} of {len(verdicts)} mutants killed, on {rows} rows; {impossible} rows are impossible to mutate")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.raft.bugs.run_mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="IDS", help="rows or labels, by commas: E1,D3,E1#2")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    options = parser.parse_args(arguments)
    mutants, impossible = collect()
    wanted = set(filter(None, options.only.split(",")))
    chosen = [(label, mutant) for label, mutant in labelled(mutants)
              if not wanted or {label, mutant.row} & wanted]
    if not chosen or wanted - {name for label, mutant in chosen for name in (label, mutant.row)}:
        say(f"no such mutant: {options.only}")
        return 2
    tests = sorted({test for _, mutant in chosen for test in mutant.tests})
    with tempfile.TemporaryDirectory(prefix="clean-") as name:
        clean = Path(name)
        copy_tree(clean)
        assert imported_from(clean).is_relative_to(clean.resolve()), "the tests would run on the tree left alone"
        say(f"{len(chosen)} mutants; {len(tests)} named tests on the clean tree first")
        if not check_clean(clean, tests):
            return 1
        verdicts: list[Verdict] = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for verdict in pool.map(lambda pair: judge(clean, *pair), chosen):
                verdicts.append(verdict)
                say(f"[{len(verdicts)}/{len(chosen)}] {verdict.label} {verdict.verdict} {verdict.seconds:.1f} s")
    summary(verdicts, len(impossible))
    if options.json:
        options.json.write_text(json.dumps([attrs.asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    return int(any(verdict.verdict != "killed" for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
