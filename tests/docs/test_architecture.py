"""The page on architecture: every module in its layer, every law and absence held by something that exists."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from tests.docs.test_guarantees import names_in

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()


def layers() -> list[set[str]]:
    """Modules of each layer of the import contract, from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (it for it in settings["tool"]["importlinter"]["contracts"] if it["id"] == "layers")
    return [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]


def drawn() -> list[set[str]]:
    table = PAGE.split("| layer |")[1].split("\n\n")[0].splitlines()[2:]
    return [set(re.findall(r"`(\w+)`", row.split("|")[2])) for row in table]


def test_every_module_of_raft_is_on_the_map_once() -> None:
    there = {path.stem for path in (ROOT / "raft").glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in (ROOT / "raft").glob("*/__init__.py")}
    listed = [name for row in drawn() for name in row]
    assert sorted(listed) == sorted(there)


def test_the_map_has_the_layers_of_the_contract() -> None:
    place = {name: number for number, row in enumerate(drawn()) for name in row}
    above: set[str] = set()
    for layer in layers():
        assert all(place[upper] <= place[lower] for upper in above for lower in layer), layer
        above |= layer


def test_what_holds_a_law_exists() -> None:
    tables = [PAGE.split(head)[1].split("\n\n")[0] for head in ("| Law |", "| There is no |")]
    rows = [row for table in tables for row in table.splitlines()[2:]]
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named or "`make check`" in row, row
        assert all(name in names_in(file) for file, name in named), row


def test_entries_are_dropped_in_one_place() -> None:
    """``Replica.truncate`` is the only way to lose a suffix, it refuses committed entries, and one line calls it."""
    calls = []
    for path in (ROOT / "raft").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("core.truncate", "self.core.truncate"):
                calls.append(path.name)
    assert calls == ["following.py"]
    replica, writes = ((ROOT / "raft" / name).read_text() for name in ("replica.py", "writes.py"))
    assert replica.count("self.truncate(") == 0 and replica.count("self.writes.truncate(") == 1
    assert writes.count("self._log.truncate(") == 1 and "log.truncate(" not in replica
    body = replica.split("def truncate(")[1].split("\n    def ")[0]
    assert "assert first > self.commit_index" in body and "self.writes.truncate(first, self.now)" in body
