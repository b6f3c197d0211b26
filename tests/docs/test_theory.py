"""Hard code begins with its theory: the idea, what was rejected and why, and the proof in words."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from benchmarks.structure import PACKAGES
from tests.docs.test_reference import DOCS

ROOT = DOCS.parent
ARGUED = {
    "broker/replicas/machine.py": "role",
    "broker/ha/insync.py": "SyncStateSet",
    "broker/ha/autoswitch.py": "Auto-switch replication",
    "raft/pending.py": "group commit",
    "raft/storage/inlining.py": "inline",
    "raft/membership.py": "joint consensus",
    "raft/reads.py": "round",
    "controller/liveness.py": "heartbeat",
    "broker/timer/delivered.py": "new master",
    "broker/transactions/ending.py": "transaction",
}
"""What a reviewer of the field would argue about, each with a word for what it is."""
IDEA = re.compile(r"^\*The idea\b", re.MULTILINE)
PARTS = re.compile(r"^\*(The idea|Rejected|Why )", re.MULTILINE)
REASON = re.compile(r"[.:;?] +\S")
"""A thing that was rejected is followed by why."""
LEAST = 2


@functools.cache
def openings() -> dict[str, str]:
    """Docstrings of modules, by path."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            for path in paths}


def problems(opening: str) -> Iterator[str]:
    """What a theory lacks, in words."""
    head, *rest = PARTS.split(opening)
    names = [name.strip() for name in rest[::2]]
    if names != ["The idea", "Rejected", "Why"]:
        yield f"the parts are {names}"
        return
    parts = dict(zip(names, rest[1::2], strict=True))
    rejected, right = (items(parts[name]) for name in ("Rejected", "Why"))
    if not head.strip():
        yield "no line says what the module does"
    if len(parts["The idea"].split(".")) <= LEAST:
        yield "the idea is a single sentence"
    if len(rejected) < LEAST:
        yield "too little was rejected"
    yield from (f"no reason: {item}" for item in rejected if not REASON.search(item))
    if len(right) < LEAST:
        yield "no proof"


def items(part: str) -> list[str]:
    """Those of its list, each on one line."""
    return [" ".join(item.split("\n\n")[0].split()) for item in re.split(r"^- ", part, flags=re.MULTILINE)[1:]]


@pytest.mark.parametrize("path", ARGUED)
def test_what_is_argued_about_begins_with_its_theory(path: str) -> None:
    opening = openings()[path]
    assert IDEA.search(opening)
    assert ARGUED[path] in opening


def test_each_theory_has_all_its_parts() -> None:
    """Of any module that begins to tell its idea."""
    found = {path: lacks for path, opening in openings().items()
             if IDEA.search(opening) and (lacks := list(problems(opening)))}
    assert found == {}


@pytest.mark.parametrize(("old", "new", "problem"), [
    ("*The idea", "An idea", "the parts are ['Rejected', 'Why']"),
    ("*Rejected.*", "Others do it otherwise.", "the parts are ['The idea', 'Why']"),
    ("*Why it is right.*", "It is right.", "the parts are ['The idea', 'Rejected']"),
    (". Its cost would be that of a write without the disk.", "", "no reason: A round for each read"),
])
def test_a_part_that_lacks_is_noticed(old: str, new: str, problem: str) -> None:
    opening = openings()["raft/reads.py"]
    assert opening.count(old) == 1
    assert list(problems(opening)) == []
    assert list(problems(opening.replace(old, new))) == [problem]


@pytest.mark.parametrize(("part", "problem"), [("Rejected", "too little was rejected"), ("Why ", "no proof")])
def test_an_empty_part_is_noticed(part: str, problem: str) -> None:
    opening = openings()["raft/membership.py"]
    emptied = re.sub(rf"(^\*{part}.*\n)(\n|- .*\n|  .*\n)*", r"\1\n", opening, flags=re.MULTILINE)
    assert list(problems(emptied)) == [problem]
