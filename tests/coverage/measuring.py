"""Runs the tests of a package under coverage, and reads what was measured."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from benchmarks.structure import Function
from tests.coverage.contexts import VARIABLE
from tests.coverage.record import ROOT, Row

DATA: Final = ROOT / ".coverage-data"
"""A folder for each package: what its last run measured."""
SETTINGS: Final = """[run]
branch = true
parallel = true
sigterm = true
patch = _exit
source = {source}
data_file = {data}
context = ${{{variable}-}}
disable_warnings = no-data-collected, module-not-measured, module-not-imported
[report]
exclude_also =
    if __name__ == .__main__.:
    raise NotImplementedError
    @overload
    assert_never
"""

NEARLY: Final = 0.9
COMMANDS: Final = {
    "harness.scenarios.interop.*": "harness/scenarios/interop/__main__.py",
    "harness.scenarios.golden.*": "harness/scenarios/golden/__main__.py",
    "*.sim*.__main__": "tests/docs/test_commands.py",
    "harness.processes.node.programs": "harness/scenarios/interop/proxied.py",
    "harness.nemesis.*crowd*": "tests/harness/nemesis/test_faults_processes.py",
}
"""What asks a module that no test imports or runs: a scenario is a test itself, and a command runs it."""


def run(package: str, workers: int, arguments: Iterable[str] = ()) -> int:
    """Runs the tests of a package; returns pytest's exit code."""
    folder = DATA / package
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = folder / "settings.ini"
    settings.write_text(SETTINGS.format(source=ROOT / package, data=folder / "data", variable=VARIABLE))
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-n", str(workers), "-p", "tests.coverage.contexts",
               f"tests/{package}", *arguments]
    code = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "COVERAGE_PROCESS_START": str(settings),
                                                               "COVERAGE_CORE": "ctrace"}).returncode
    _coverage(folder, "combine", "--quiet", "--keep")
    _coverage(folder, "json", "--quiet", "--show-contexts", "-o", str(folder / "lines.json"))
    for part in folder.glob("data.*"):
        part.unlink()
    return code


def _coverage(folder: Path, *arguments: str) -> None:
    """A process of its own, for this one may be measured itself."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    subprocess.run([sys.executable, "-m", "coverage", arguments[0], f"--rcfile={folder / 'settings.ini'}",
                    *arguments[1:]], cwd=ROOT, check=True, env=plain)


def measured(package: str) -> dict[str, Mapping[str, Any]]:
    """What the last run of a package found, by path from the root, in the words of coverage's own report."""
    files: dict[str, Mapping[str, Any]] = json.loads((DATA / package / "lines.json").read_text())["files"]
    return files


def name_of(path: str) -> str:
    """The module's dotted name."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


def rows(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Row]:
    """By module: the counts of a package, and the test that asks it."""
    labels = {path: by_label(inner_lines((ROOT / path).read_text(encoding="utf-8")), report["contexts"])
              for path, report in reports.items()}
    wide = sum(labels.values(), Counter())
    out = {}
    for path, report in reports.items():
        found, summary = labels[path], report["summary"]
        test = nearest(path, found, wide) if found else otherwise(path, report)
        out[name_of(path)] = Row(summary["covered_lines"], summary["num_statements"], summary["covered_branches"],
                                 summary["num_branches"], test)
    return out


def inner_lines(text: str) -> set[int]:
    """Lines that an import does not run."""
    return {line for node in ast.walk(ast.parse(text)) if isinstance(node, Function)
            for statement in node.body for line in range(statement.lineno, (statement.end_lineno or 0) + 1)}


def by_label(inner: set[int], labels: Mapping[str, Iterable[str]]) -> Counter[str]:
    """How many of these lines each test file runs."""
    return Counter(label for line, ran_by in labels.items() if int(line) in inner for label in ran_by if label)


def nearest(path: str, found: Mapping[str, int], wide: Mapping[str, int]) -> str:
    """Of the test files that run nearly as much of a module as any: in the nearest folder, the most special one."""
    most = max(found.values())
    good = [test for test, count in found.items() if count >= NEARLY * most]
    folder = f"tests/{path.rpartition('/')[0]}/"
    return min(good, key=lambda test: (-len(os.path.commonpath([folder, test])), wide[test], test))


def otherwise(path: str, report: Mapping[str, Any]) -> str:
    """Which test asks a module of which the package's tests run no function: the nearest that imports it; if it has no
    functions, the one that has the most of its names; one that starts a process that imports it; or a command."""
    functions = inner_lines((ROOT / path).read_text(encoding="utf-8"))
    found = by_import(path) or ({} if functions else by_names(path)) or Counter(
        label for ran_by in report["contexts"].values() for label in ran_by if label)
    return nearest(path, found, Counter()) if found else next(
        (file for pattern, file in COMMANDS.items() if fnmatchcase(name_of(path), pattern)), "")


def by_import(path: str) -> dict[str, int]:
    """Test files that import a module, of any package."""
    folder, _, name = name_of(path).rpartition(".")
    imports = re.compile(rf"^ *(?:from {folder}\.{name} import |import {folder}\.{name}\b"
                         rf"|from {folder} import (?:[\w, ]+, )?{name}\b)", re.MULTILINE)
    return {test: 1 for test, text in texts().items() if imports.search(text)}


def by_names(path: str) -> dict[str, int]:
    """How many of its own names test files of its package have."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    inside = f"tests/{path.partition('/')[0]}/"
    return {test: len(common) for test, text in texts().items()
            if test.startswith(inside) and (common := names & set(re.findall(r"\w+", text)))}


@functools.cache
def texts() -> dict[str, str]:
    return {str(test.relative_to(ROOT)): test.read_text(encoding="utf-8")
            for test in sorted((ROOT / "tests").rglob("test_*.py"))}
