"""Which bugs of other libraries this one must be shown to be free of: rows, their tests, their mutants.

``python -m tests.raft.bugs.registry`` writes ``docs/reference/historical-bugs.md`` from them. It reads test files as
syntax and imports only the tables of mutants; it runs nothing.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.raft.bugs.mutant import Impossible, Mutant
from tests.raft.bugs.run_mutants import ROOT, collect, labelled

PAGE = ROOT / "docs/reference/historical-bugs.md"

TABLES: dict[str, tuple[str, int]] = {
    "E": ("Elections, votes, terms", 18),
    "D": ("Durability and ordering", 16),
    "L": ("Replication and commit", 23),
    "R": ("Replies, sessions, progress", 10),
    "S": ("Snapshots and compaction", 21),
    "M": ("Membership", 15),
    "Q": ("Reads, leases, clocks", 15),
    "V": ("Liveness", 17),
    "A": ("Applying, resources, the API", 11),
    "G": ("Disks that stand still, groups that say nothing", 6),
    "U": ("Guards that no test held", 17),
    "F": ("What a node forgot", 23),
    "W": ("Who may do what", 4),
    "DL_R": ("DLedger's own schedules", 20),
}
"""Prefix of the rows of each table -> (title, number of rows)."""

ROWS = [f"{prefix}{number}" for prefix, (_, count) in TABLES.items() for number in range(1, count + 1)]

WAITING: dict[str, str] = {
    "M15": "witnesses are not built yet: no node keeps metadata without data",
    "DL_R20, the second half": "client sessions are not built yet: an unknown outcome cannot be resolved by asking",
}
"""What has no test because what it is about does not exist yet."""

HEAD = """# Bugs that others had

Every row is a bug that some Raft library had, or a schedule that DLedger gets wrong, and what must hold instead. Each
is a test. Where a small change to the code would bring the bug back, that change is a *mutant*: `make mutants` applies
each to a copy of the tree and expects the named tests to turn red. Where no such change exists, the row says what
rules the bug out.

This page is written by `python -m tests.raft.bugs.registry` from the tests and tables of mutants, and a test compares.
"""

_NAME = re.compile(r"test_(?:BUG_([A-Z])(\d+)|(DL)_R(\d+))_")


@attrs.frozen
class RowTest:
    """A test function of a row."""

    row: str
    file: str
    name: str
    about: str
    """Its docstring as one line."""

    @property
    def id(self) -> str:
        return f"{self.file}::{self.name}"


def row_of(name: str) -> str | None:
    """The row that a test of this name is for."""
    found = _NAME.match(name)
    if not found:
        return None
    return f"DL_R{found[4]}" if found[3] else f"{found[1]}{found[2]}"


def collect_tests() -> list[RowTest]:
    """Every test of a row, anywhere under ``tests/raft``, in the order of files and lines."""
    out: list[RowTest] = []
    for path in sorted((ROOT / "tests/raft").rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), file)):
            row = row_of(node.name) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
            if row and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                out.append(RowTest(row, file, node.name, " ".join((ast.get_docstring(node) or "").split())))
    return out


def render() -> str:
    """The page."""
    tests, (mutants, impossible) = collect_tests(), collect()
    out = [HEAD]
    for prefix, (title, count) in TABLES.items():
        out += [f"## {title}", "", "| Row | What | Tests | Guard |", "| --- | --- | --- | --- |"]
        for row in (f"{prefix}{number}" for number in range(1, count + 1)):
            mine = [test for test in tests if test.row == row]
            what = next((test.about for test in mine if test.about), WAITING.get(row, ""))
            named = "<br>".join(f"`{test.id}`" for test in mine) or "none yet"
            out.append(f"| {row} | {_cell(what)} | {named} | {_cell(_guard(row, mutants, impossible))} |")
        out.append("")
    out += ["## Waiting", "", *(f"- {row}: {why}." for row, why in WAITING.items()), ""]
    return "\n".join(out)


def _guard(row: str, mutants: list[Mutant], impossible: list[Impossible]) -> str:
    files = [f"{label} in `{mutant.file}`" for label, mutant in labelled(mutants) if mutant.row == row]
    reasons = [f"no mutant: {each.why} ({each.assertion})" for each in impossible if each.row == row]
    return f"mutant {', '.join(files)}" if files else "; ".join(reasons)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def problems() -> Iterator[str]:
    """What is missing or contradicts itself, in words."""
    tests, (mutants, impossible) = collect_tests(), collect()
    tested, ids = {test.row for test in tests}, {test.id for test in tests}
    guarded, excused = {mutant.row for mutant in mutants}, {each.row for each in impossible}
    for row in ROWS:
        if row in WAITING:
            if row in tested:
                yield f"{row} has a test and is still listed as waiting"
            continue
        if row not in tested:
            yield f"{row} has no test"
        if row not in guarded | excused:
            yield f"{row} has neither a mutant nor a reason why there is none"
        if row in guarded & excused:
            yield f"{row} has a mutant and a reason why there is none"
    for row in sorted((tested | guarded | excused) - set(ROWS)):
        yield f"{row} is no row of any table"
    for row in sorted(tested - {test.row for test in tests if test.about}):
        yield f"none of the tests of {row} says where its scenario comes from"
    for label, mutant in labelled(mutants):
        yield from (f"mutant {label}: {problem}" for problem in _mutant_problems(mutant, ids))
    for each in impossible:
        for path in re.findall(r"\b(?:raft|tests)/[\w/]+\.py\b", each.assertion) or ["nothing"]:
            if not (ROOT / path).exists():
                yield f"{each.row}: its assertion names {path}, which is not there"


def _mutant_problems(mutant: Mutant, ids: set[str]) -> Iterator[str]:
    path = Path(ROOT / mutant.file)
    try:
        mutant.apply(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        yield str(error)
    for test in mutant.tests:
        if test not in ids:
            yield f"names {test}, which is no test of a row"
    if not any(row_of(test.rpartition("::")[2]) == mutant.row for test in mutant.tests):
        yield "names no test of its own row"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} written\n")
