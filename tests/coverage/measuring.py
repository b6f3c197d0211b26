"""Runs the tests of a package under coverage, and reads what was measured."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
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


def run(package: str, workers: int, arguments: Iterable[str] = ()) -> int:
    """Runs the tests of a package; returns pytest's exit code."""
    folder = DATA / package
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = folder / "settings.ini"
    settings.write_text(SETTINGS.format(source=ROOT / package, data=folder / "data", variable=VARIABLE))
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "tests.coverage.contexts",
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
        test = nearest(path, found, wide) if found else by_names(path) or in_a_child(path, report["contexts"])
        out[name_of(path)] = Row(summary["covered_lines"], summary["num_statements"], summary["covered_branches"],
                                 summary["num_branches"], test)
    return out


def in_a_child(path: str, labels: Mapping[str, Iterable[str]]) -> str:
    """The test file whose child process imports the module, or none."""
    found = Counter(label for ran_by in labels.values() for label in ran_by if label)
    return nearest(path, found, Counter()) if found else ""


def inner_lines(text: str) -> set[int]:
    """Lines that an import does not run."""
    return {line for node in ast.walk(ast.parse(text)) if isinstance(node, Function)
            for statement in node.body for line in range(statement.lineno, (statement.end_lineno or 0) + 1)}


def by_label(inner: set[int], labels: Mapping[str, Iterable[str]]) -> Counter[str]:
    """How many of these lines each test file runs."""
    return Counter(label for line, ran_by in labels.items() if int(line) in inner for label in ran_by if label)


def nearest(path: str, found: Counter[str], wide: Mapping[str, int]) -> str:
    """Of the test files that run nearly as much of a module as any: in the nearest folder, the most special one."""
    most = max(found.values())
    good = [test for test, count in found.items() if count >= NEARLY * most]
    folder = f"tests/{path.rpartition('/')[0]}/"
    return min(good, key=lambda test: (-len(os.path.commonpath([folder, test])), wide[test], test))


def by_names(path: str) -> str:
    """Of a module without functions that are run: the test file that has the most of its names, or none."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | Function)} | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    texts = {test: set(re.findall(r"\w+", test.read_text(encoding="utf-8")))
             for test in sorted((ROOT / "tests" / path.partition("/")[0]).rglob("test_*.py"))}
    found = Counter({str(test.relative_to(ROOT)): len(words & names) for test, words in texts.items() if words & names})
    return nearest(path, found, Counter()) if found else ""
