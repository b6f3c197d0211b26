"""Names of code that the manual links stand in the files that the links lead to; nearly each step of a way has one."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_reference import DOCS

ROOT = DOCS.parent
WAYS = [DOCS / "explanation" / f"{name}.md" for name in (
    "way-of-a-send", "way-of-a-pull", "way-of-a-pop", "way-of-a-failover", "start-of-a-broker", "architecture")]
"""The library's ways are on the page of its architecture."""
LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./\.\./([\w/]+\.py)\)")
STEP = re.compile(r"^\d+\. .*?(?=^\d+\. |^$|^#)", re.MULTILINE | re.DOTALL)
TESTS = re.compile(r"`(tests/[\w/]+?(?:\.py|/))`")


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """Functions, classes, methods as ``Class.method``, and constants of a module. Read as syntax."""
    return frozenset(_named(ast.parse((ROOT / path).read_text(encoding="utf-8")).body))


def _named(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.ClassDef(name=name, body=inner):
                yield prefix + name
                yield from _named(inner, f"{prefix}{name}.")
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield prefix + name


def problems(page: str) -> list[str]:
    """What is wrong with a page, in words. A link may also have the name of its file, without its ending or with it."""
    found = [f"{path} has no {name}" for name, path in LINK.findall(page)
             if not (ROOT / path).exists()
             or (name not in (Path(path).stem, Path(path).name) and name not in names_in(path))]
    found += [f"{path} is not there" for path in TESTS.findall(page) if not (ROOT / path).exists()]
    return found


def test_every_name_stands_where_its_link_leads() -> None:
    found = {page.name: problems(page.read_text(encoding="utf-8")) for page in DOCS.rglob("*.md")}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("page", WAYS, ids=lambda page: page.stem)
def test_nearly_every_step_of_a_way_names_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(LINK.findall(text)) >= 14
    steps = STEP.findall(text)
    without = [step for step in steps if not LINK.search(step)]
    assert len(steps) >= 9
    assert len(without) <= len(steps) // 5, without


@pytest.mark.parametrize(("line", "problem"), [
    ("[`Puts.put`](../../broker/puts.py), [`HELD_MAX`](../../broker/puts.py)", None),
    ("[`Puts.putt`](../../broker/puts.py)", "broker/puts.py has no Puts.putt"),
    ("[`put`](../../broker/puts.py)", "broker/puts.py has no put"),
    ("[`puts`](../../broker/puts.py), [`puts.py`](../../broker/puts.py)", None),
    ("[`Puts.put`](../../broker/put.py)", "broker/put.py has no Puts.put"),
    ("`tests/broker/nowhere/`", "tests/broker/nowhere/ is not there"),
])
def test_a_name_that_is_not_there_is_noticed(line: str, problem: str | None) -> None:
    assert problems(line) == ([problem] if problem else [])
