"""The floors of coverage: when a module is below, how they rise, and which test a module names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.structure import PACKAGES
from tests.coverage import measuring, record
from tests.coverage.__main__ import missed
from tests.coverage.record import Row, better, load, raised, store, worse

FLOORS = load()


def test_what_is_recorded_is_possible() -> None:
    """And each row belongs to a package."""
    for module, row in FLOORS.items():
        assert module.partition(".")[0] in PACKAGES, module
        assert 0 <= row.lines <= row.of_lines and 0 <= row.branches <= row.of_branches, module


def test_the_cores_of_the_controller_are_run_whole() -> None:
    for module, row in FLOORS.items():
        if module.startswith("controller.metadata"):
            assert row.shares == (1.0, 1.0), module


@pytest.mark.parametrize(("floor", "now", "found"), [
    (Row(90, 100, 40, 50), Row(90, 100, 40, 50), []),
    (Row(90, 100, 40, 50), Row(88, 100, 38, 50), []),  # two fewer of each: threads took other turns
    (Row(90, 100, 40, 50), Row(87, 100, 40, 50), ["m: 87 % of its lines, and the floor is 90 %"]),
    (Row(90, 100, 40, 50), Row(90, 100, 37, 50), ["m: 74 % of its branches, and the floor is 80 %"]),
    (Row(900, 1000, 0, 0), Row(880, 1000, 0, 0), []),
    (Row(900, 1000, 0, 0), Row(879, 1000, 0, 0), ["m: 87 % of its lines, and the floor is 90 %"]),
    (Row(90, 100, 40, 50), Row(45, 50, 20, 25), []),  # a smaller module of the same share
    (Row(90, 100, 40, 50), Row(82, 100, 32, 50),
     ["m: 82 % of its lines, and the floor is 90 %", "m: 64 % of its branches, and the floor is 80 %"]),
])
def test_a_module_below_its_floor_is_told(floor: Row, now: Row, found: list[str]) -> None:
    assert worse({"m": now, "new": Row(0, 10, 0, 0)}, {"m": floor, "gone": floor}) == found


def test_floors_only_rise_share_by_share() -> None:
    floor, now = Row(90, 100, 40, 50, "tests/a.py"), Row(85, 100, 45, 50, "tests/b.py")
    assert better(now, floor) == Row(90, 100, 45, 50, "tests/b.py")
    assert better(Row(60, 60, 0, 0, ""), floor) == Row(60, 60, 0, 0, "")


def test_only_the_measured_package_is_written_anew() -> None:
    one, two = Row(1, 2, 0, 0), Row(2, 2, 0, 0)
    floors = {"raft": one, "raft.gone": one, "raft.log": two, "rafters.log": one, "broker.log": one}
    assert raised({"raft": two, "raft.log": one, "raft.new": one}, floors, "raft") == {
        "raft": two, "raft.log": two, "raft.new": one, "rafters.log": one, "broker.log": one}


def test_what_is_stored_is_read(tmp_path: Path) -> None:
    store(FLOORS, tmp_path / "floors.json")
    assert (tmp_path / "floors.json").read_bytes() == record.FILE.read_bytes()


def test_what_an_import_runs_does_not_say_who_asks() -> None:
    text = "import os\ndef f():\n    return 1\nclass C:\n    x = 1\n    def g(self):\n        y = 2\n        return y\n"
    assert measuring.inner_lines(text) == {3, 7, 8}
    labels = {"1": ["imports"], "2": ["imports"], "4": ["imports"], "3": ["b", ""], "7": ["a"], "8": ["", "b", "a"]}
    assert measuring.by_label({3, 7, 8}, labels) == {"a": 2, "b": 2}


@pytest.mark.parametrize(("found", "named"), [
    ({"tests/raft/test_a.py": 100, "tests/raft/log/test_b.py": 91, "tests/raft/log/test_c.py": 95}, "log/test_c.py"),
    ({"tests/raft/test_a.py": 100, "tests/raft/log/test_b.py": 89}, "test_a.py"),  # not nearly as much
    ({"tests/raft/log/test_b.py": 1, "tests/raft/log/test_d.py": 1}, "log/test_b.py"),
])
def test_the_test_that_asks_is_near_and_special(found: dict[str, int], named: str) -> None:
    wide = {"tests/raft/test_a.py": 100, "tests/raft/log/test_b.py": 700, "tests/raft/log/test_c.py": 95,
            "tests/raft/log/test_d.py": 700}
    assert measuring.nearest("raft/log/cut.py", Counter(found), wide) == f"tests/raft/{named}"


@pytest.mark.parametrize(("path", "test"), [
    ("harness/simulation/worlds/brokers.py", "tests/harness/"),  # a test imports it
    ("controller/metadata/outcomes.py", "tests/controller/metadata/"),
    ("controller/namesrv/verdict.py", "tests/b.py"),  # a child's process alone
    ("harness/scenarios/interop/store.py", "harness/scenarios/interop/__main__.py"),
    ("harness/pages/__init__.py", ""),
])
def test_a_module_of_which_no_function_is_run_is_asked_elsewhere(path: str, test: str) -> None:
    labels = {"1": ["", "tests/a.py", "tests/b.py"], "2": ["tests/b.py"]} if path.endswith("verdict.py") else {}
    found = measuring.otherwise(path, {"contexts": labels})
    assert found.startswith(test) if test else found == ""


def test_missed_branches_of_missed_lines_are_not_told_twice() -> None:
    assert missed([7, 8], [[3, 7], [3, 9], [5, -1]]) == "7 8 3->9 5->exit"


MODULE = """
def asked(number):
    if number > 1:
        return 1
    return 2


def in_a_child(number):
    return 3


def never():
    four = 4
    five = 5
    return four * five
"""
TEST = """
import subprocess, sys
from pathlib import Path
from remoting import module


def test_it():
    assert module.asked(2) == 1


def test_a_child():
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", "from remoting import module; module.in_a_child(1)"], check=True, cwd=root)
"""


def test_a_run_measures_its_children_too(tmp_path: Path) -> None:
    """A small tree of its own, measured by the same program."""
    root = Path(__file__).parents[2]
    for name, text in {"remoting/__init__.py": "", "remoting/module.py": MODULE, "tests/remoting/test_it.py": TEST,
                       "tests/coverage/floors.json": '{"remoting.module": [10, 10, 2, 2, ""]}'}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("benchmarks/structure.py", *(f"tests/coverage/{file}.py" for file in (
            "__main__", "measuring", "record", "contexts"))):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((root / name).read_text(encoding="utf-8"))
    ran = _in(tmp_path, "--package", "remoting", "--missed", "--reached")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "| `remoting.module` | 60 % | 50 % | 100 % and 100 % | 4 lines, 1 branches |" in ran.stdout
    assert "remoting/module.py: 5 13 14 15\n" in ran.stdout
    assert "BELOW: remoting.module: 60 % of its lines, and the floor is 100 %\n" in ran.stdout
    (tmp_path / "tests/coverage/floors.json").write_text("{}")
    ran = _in(tmp_path, "--package", "remoting", "--last", "--reached")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads((tmp_path / "tests/coverage/floors.json").read_text()) == {
        "remoting.module": [6, 10, 1, 2, "tests/remoting/test_it.py"]}


def _in(root: Path, *arguments: str) -> Any:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
    return subprocess.run([sys.executable, "-m", "tests.coverage", *arguments], cwd=root, check=False, text=True,
                          capture_output=True, env={**plain, "PYTHONPATH": str(root)}, timeout=120)
