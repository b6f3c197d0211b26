"""The page on the tests: what it names is there, and each helper below ``tests/`` is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_reference import DOCS
from tests.test_tidy import LINK

TESTS = DOCS.parent / "tests"
PAGE = (TESTS / "README.md").read_text(encoding="utf-8")
NAME = re.compile(r"\[`(?:tests/)?([\w/.]+?)/?`\]\(([^)\s]+)\)")


def misnamed(text: str) -> list[str]:
    """Links of code that lead to another file than they say."""
    return [f"{name} leads to {path}" for name, path in NAME.findall(text)
            if not f"/{path}".endswith(f"/{name}") or not (TESTS / path).exists()]


def unnamed(text: str) -> list[str]:
    """Helpers that are neither linked nor in a folder that is."""
    linked = {(TESTS / target).resolve() for target in LINK.findall(text) if not target.startswith("http")}
    folders = {path for path in linked if path.is_dir()} - {(TESTS / "docs").resolve()}
    helpers = [path for path in sorted(TESTS.rglob("*.py"))
               if not path.name.startswith(("test_", "__init__")) and path.resolve() not in linked]
    return [str(path.relative_to(TESTS)) for path in helpers if not folders & {*path.resolve().parents}]


def test_what_the_page_names_is_there() -> None:
    assert misnamed(PAGE) == []
    assert len(NAME.findall(PAGE)) > 60
    for dotted in re.findall(r"`((?:harness|raft)\.[\w.]+)`", PAGE):
        parts = dotted.split(".")
        assert any((TESTS.parent.joinpath(*parts[:number])).exists() or
                   (TESTS.parent.joinpath(*parts[:number]).with_suffix(".py")).exists()
                   for number in range(2, len(parts) + 1)), dotted


def test_every_helper_is_named() -> None:
    assert unnamed(PAGE) == []


def test_the_mirror_is_one() -> None:
    """Each folder of tests mirrors one of a package, but for those that the page names."""
    alone = {"docs", "promises", "coverage", "mutation", "powercut", "raft/bugs", "remoting/golden",
             "remoting/golden_records"}
    for path in TESTS.rglob("test_*.py"):
        folder = path.parent.relative_to(TESTS)
        assert (TESTS.parent / folder).is_dir() or str(folder) in alone, path
    assert all(f"`tests/{folder}/`" in PAGE for folder in alone)


@pytest.mark.parametrize(("changed", "to", "found"), [
    ("(raft/script.py)", "(raft/alone.py)", "script.py leads to raft/alone.py"),
    ("(raft/script.py)", "(raft/nowhere/script.py)", "script.py leads to raft/nowhere/script.py"),
])
def test_a_wrong_name_is_noticed(changed: str, to: str, found: str) -> None:
    text = PAGE.replace(changed, to)
    assert misnamed(text) == [found]
    assert unnamed(text) == [str(Path("raft/script.py"))]
