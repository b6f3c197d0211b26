"""What the machine's mutants are made of, and the list of those that survive: each with a reason, none out of date."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation.__main__ import WHOLE, compare
from tests.mutation.changes import Change, _left_out, what_runs
from tests.mutation.known import PAGE, Known, load, render
from tests.mutation.modules import CORES, EXCUSED, judges_of, modules
from tests.raft.bugs.run_mutants import ROOT


def test_every_survivor_has_its_reason() -> None:
    missing = [f"{module}: {name}" for module, listed in load().survivors.items()
               for name, why in listed.items() if len(why) < 20]
    if missing:
        pytest.fail("tests/mutation/survivors.json gives no reason for\n" + "\n".join(missing), pytrace=False)


def test_no_survivor_is_of_code_that_is_gone() -> None:
    for module, listed in load().survivors.items():
        lines = {line.strip() for line in (ROOT / module).read_text(encoding="utf-8").splitlines()}
        for name in listed:
            old = name.partition(": ")[2].partition(" -> ")[0]
            assert set(old.split(" ⏎ ")) <= lines, f"{module}: {old} is gone: take it off the list"


def test_survivors_are_of_modules_that_were_run() -> None:
    known = load()
    assert set(known.survivors) <= set(known.mutants)


def test_the_page_is_what_the_list_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m tests.mutation.known"


def test_every_core_has_tests_that_are_there() -> None:
    for module, tests in CORES.items():
        assert (ROOT / module).is_file()
        assert all((ROOT / test).exists() for test in tests), module


def imports(file: Path) -> Iterator[str]:
    """Names of modules that a file imports, each with the package that it is in."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_what_the_judges_import_is_in_the_tree_that_is_copied() -> None:
    """Else none of them is collected, and a whole package is never asked."""
    judges = {ROOT / test for tests in CORES.values() for test in tests}
    due = [file for judge in judges for file in (judge.rglob("*.py") if judge.is_dir() else (judge,))]
    seen, missing = set(due), set[str]()
    while due:
        for name in imports(due.pop()):
            top, path = name.partition(".")[0], ROOT / name.replace(".", "/")
            if (ROOT / top).is_dir() and top not in WHOLE:
                missing.add(top)
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if top in ("tests", "harness") and file.is_file() and file not in seen:
                    seen.add(file)
                    due.append(file)
    assert len(seen) > 100 and missing == set()


def test_every_core_is_changed_or_excused() -> None:
    """Cores split off later, too."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = settings["importlinter"]["contracts"]
    named = next(each["source_modules"] for each in contracts if each["id"] == "cores")
    globs = [*named, "controller.metadata.*"]
    cores = {found.relative_to(ROOT).as_posix() for glob in globs for found in ROOT.glob(f"{glob.replace('.', '/')}.py")
             if found.name != "__init__.py"}
    assert {"raft/voting.py", "raft/rules/strict.py", "controller/metadata/groups.py"} <= cores
    assert sorted(cores - CORES.keys() - EXCUSED.keys()) == [], "name the tests that judge it, or say why not"
    assert not CORES.keys() & EXCUSED.keys() and EXCUSED.keys() <= cores


def test_a_package_without_a_table_is_judged_by_the_tests_beside_it() -> None:
    assert modules("raft/quorum.py", ROOT) == ["raft/quorum.py"]
    assert set(modules("controller.metadata", ROOT)) < set(CORES)
    found = modules("broker.ha", ROOT)
    assert "broker/ha/acks.py" in found and "broker/ha/__init__.py" not in found
    assert judges_of("broker/ha/acks.py", ROOT) == ("tests/broker/ha/test_acks.py",)
    assert judges_of("broker/ha/master.py", ROOT) in (("tests/broker/ha/test_master.py",), ("tests/broker/ha",))


def test_a_statement_is_left_out_where_it_runs() -> None:
    code = 'def f(x: int) -> int:\n    """Says."""\n    x += 1\n    if x:\n        return 2\n    return x\n'
    left = [text.splitlines()[2:] for text in _left_out(code)]
    assert ["    pass", "    if x:", "        return 2", "    return x"] in left
    assert ["    x += 1", "    pass", "    return x"] in left
    assert ["    x += 1", "    if x:", "        return 2", "    pass"] in left
    assert len(left) == 4, "documentation stays"
    assert list(_left_out("def f(x):\n    return None\n")) == [], "that is what its end says anyhow"


@pytest.mark.parametrize(("before", "after", "same"), [
    ("def f(x: int | None) -> int: return x", "def f(x: int & None) -> int: return x", True),
    ("def f(x):\n    assert x > 1\n    return x", "def f(x):\n    assert x >= 1\n    return x", True),
    ("def f(c):\n    if c.trace:\n        c.trace(1)\n", "def f(c):\n    if c.trace:\n        c.trace(2)\n", True),
    ("@attrs.frozen(kw_only=True)\nclass C: x: int", "@attrs.frozen(kw_only=False)\nclass C: x: int", True),
    ("def f(x): return x > 1", "def f(x): return x >= 1", False),
])
def test_what_decides_nothing_at_run_time_is_no_change(before: str, after: str, same: bool) -> None:
    assert (what_runs(before) == what_runs(after)) is same
    assert what_runs("def f(:") is None


def test_the_list_may_only_shrink() -> None:
    old, new = Change("f", "a", "b", ""), Change("g", "c", "d", "")
    known = Known({}, {"m.py": {Known.name(old): "nothing can tell the two apart"}})
    assert not compare("m.py", [old, new], [old], known, whole=True, update=False)
    assert compare("m.py", [old, new], [old, new], known, whole=True, update=False), "a new one survives"
    assert compare("m.py", [old, new], [], known, whole=True, update=False), "it is killed now"
    assert not compare("m.py", [new], [], known, whole=False, update=False), "another slice says nothing of it"
    compare("m.py", [old, new], [], known, whole=True, update=True)
    assert known == Known({"m.py": 2}, {"m.py": {}})
