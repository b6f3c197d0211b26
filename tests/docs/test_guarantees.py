"""The page of guarantees: each row names tests that are there, and each promise of the project has its section."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "guarantees.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w.:]+)`")


def rows(page: str) -> Iterator[tuple[str, str, str]]:
    """(section, guarantee, what shows it) of every row of every table."""
    section = ""
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif line.startswith("|") and not re.match(r"\|[ -]*-", line) and not line.endswith("| Shown by |"):
            *guarantee, shown = line.strip("|").split(" | ")
            yield section, " | ".join(guarantee).strip(), shown.strip()


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """Names of the tests of a file: functions, and methods as ``Class::name``. Read as syntax."""
    path = ROOT / file
    found = set()
    if path.exists():
        for node in ast.parse(path.read_text()).body:
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
            found |= {prefix + it.name for it in inner
                      if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef) and it.name.startswith("test_")}
    return frozenset(found)


def problems(page: str) -> list[str]:
    """What does not hold of a page like this one."""
    found = []
    for _, guarantee, shown in rows(page):
        named = _TEST.findall(shown)
        if not named:
            found.append(f"no test: {guarantee}")
        if _TEST.sub("", shown).replace("<br>", "").strip():
            found.append(f"something else than tests: {shown}")
        found += [f"no such test: {file}::{name}" for file, name in named if name not in names_in(file)]
    return found


def test_every_guarantee_has_tests_and_every_test_exists() -> None:
    assert problems(PAGE) == []
    assert len(list(rows(PAGE))) > 60


def test_every_promise_has_its_section() -> None:
    assert list(dict.fromkeys(section for section, _, _ in rows(PAGE))) == [
        "Durability", "With a weaker `sync`", "Outcomes of a write", "Cancellation", "Reads", "Elections", "Membership",
        "Snapshots", "Disk full", "Failed sync", "Clocks and leases", "Bad input"]


@pytest.mark.parametrize("row", [
    "| all is well | |",
    "| all is well | trust me |",
    "| all is well | `tests/docs/test_guarantees.py::test_nothing` |",
    "| all is well | `tests/docs/test_nowhere.py::test_it` |",
])
def test_a_row_without_a_test_is_noticed(row: str) -> None:
    head = "## Some\n\n| Guarantee | Shown by |\n|---|---|\n"
    assert problems(head + row)
    me = test_a_row_without_a_test_is_noticed.__name__
    assert not problems(f"{head}| it is noticed | `tests/docs/test_guarantees.py::{me}` |")
