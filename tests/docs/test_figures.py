"""The figures of the structure: none gets worse, and each counts what it says."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from benchmarks import structure
from benchmarks.structure import FIGURES, Cell, Counted, Tree, best, counted, recorded, worse

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def here() -> Counted:
    return counted(ROOT)


def test_no_figure_is_worse_than_what_was_reached(here: Counted) -> None:
    if offences := worse(here, recorded()["reached"]):
        pytest.fail("\n".join(offences), pytrace=False)


def test_the_page_shows_what_is_recorded() -> None:
    text = structure.PAGE.read_text(encoding="utf-8")
    assert structure.page(text) == text
    assert text.count("\n| ") > 40


def test_every_figure_is_recorded_for_every_room() -> None:
    """A commit has no figures of packages that came after it."""
    for name, cells in recorded().items():
        assert cells.keys() == FIGURES.keys()
        for key, figure in FIGURES.items():
            later = () if name == "reached" else ("mqcluster",)
            assert tuple(cells[key]) == tuple(room for room in figure.rooms if room not in later)


SETTINGS = """
[[tool.importlinter.contracts]]
id = "cores"
source_modules = ["raft.log", "broker"]
as_packages = false
forbidden_modules = ["trio", "pathlib"]

[[tool.importlinter.contracts]]
id = "simulator"
source_modules = ["raft.sim"]
forbidden_modules = ["trio"]
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A core of two functions with one assert, a shell, a module of a simulator, and one that nobody named."""
    methods = "".join(f"    def m{number}(self): pass\n" for number in range(31))
    files = {
        "pyproject.toml": SETTINGS,
        "raft/log.py": 'def f():\n    """Cuts."""\n    assert len("a")\n    assert f is not None\n'
                       'def g():\n    """Cuts the log at that index."""\n',
        "raft/disk.py": "class Cut: pass\nclass _Own: pass\nA = 1\n'Its number.'\n"
                        "B = 2\n'How many blocks a cut takes.'\n",
        "raft/sim/world.py": "class Cut: pass\nclass _Own: pass\n",
        "raft/new.py": f"class Replica:\n{methods}",
        "broker/__init__.py": "",
        "tests/test_tidy.py": 'SHELLS = {\n    "raft/disk.py",\n}\n',
        "tests/raft/test_log.py": "",
        "tests/raft/test_worlds.py": "",
        "tests/coverage/floors.json": json.dumps({
            "raft.sim.world": [1, 1, 0, 0, "tests/raft/test_worlds.py"],
            "raft.new": [1, 1, 0, 0, "tests/raft/test_gone.py"], "raft.disk": [1, 1, 0, 0, ""]}),
        "tests/test_disk.py": "",
        "docs/explanation/map.md":
            "| layer | modules of `raft/` | what |\n|---|---|---|\n| low | `log` `sim` | `disk` |\n\n| `new` | `new` |",
        "docs/reference/glossary.md": "| **Fence** | what keeps out |\n| **share** of a queue | a part |\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(tmp_path)


@pytest.mark.parametrize(("key", "room", "cell", "which"), [
    ("asserts", "raft", (1, 2), ()),
    ("unplaced", "raft", (1, 4), ("raft.new",)),
    ("unplaced", "broker", (0, 0), ()),
    ("unmapped", "raft", (2, 4), ("raft.disk", "raft.new")),
    ("unexplained", "broker", (len(structure.BROKER_WORDS) - 2, len(structure.BROKER_WORDS)), tuple(
        word for word in structure.BROKER_WORDS if word not in ("fence", "share"))),
    ("homonyms", "raft", (1, 2), ("Cut: raft.disk, raft.sim.world",)),
    ("docstrings", "raft", (1, 2), ("raft.log:1: Cuts.",)),
    ("attributes", "raft", (1, 2), ("raft.disk:4: Its number.",)),
    ("untested", "raft", (38, 46), ("raft.new: 32", "raft.disk: 6")),
    ("large", "raft", (1, 5), ("Replica: 31",)),
    ("methods", "raft.Replica", (31, 31), ()),
    ("methods", "raft.Node", (0, 0), ()),
])
def test_a_figure_counts_what_it_says(tree: Tree, key: str, room: str, cell: tuple[int, int],
                                      which: tuple[str, ...]) -> None:
    found = FIGURES[key].count(tree, room)
    assert (found.count, found.of) == cell
    assert found.which == which


@pytest.mark.parametrize(("statement", "counts"), [
    ("assert end <= size", True),
    ("assert is_whole(end)", True),
    ("assert x is None", True),
    ("assert isinstance(x, int) and x > 0", True),
    ("require(end <= size, 'INV_R1', 'too long')", True),
    ("assert isinstance(x, int)", False),
    ("assert not isinstance(x, int)", False),
    ("assert type(x) is int", False),
    ("assert x is not None", False),
    ("assert x is not None and isinstance(y, str)", False),
    ("check(end <= size)", False),
])
def test_an_assertion_says_more_than_a_type(statement: str, counts: bool) -> None:
    assert any(map(structure.is_assertion, ast.walk(ast.parse(statement)))) is counts


def test_what_is_new_in_a_figure_is_told_whatever_line_it_stands_on(tree: Tree) -> None:
    before = structure.listed(counted(tree.root)["docstrings"])
    assert list(before) == ["raft raft.log: Cuts."]
    path = tree.root / "raft/log.py"
    path.write_text("\n\n" + path.read_text() + 'def h():\n    """Cuts more."""\n')
    assert list(structure.listed(counted(tree.root)["docstrings"]) - before) == ["raft raft.log: Cuts more."]


def of(key: str, room: str, count: int, total: int) -> Counted:
    return {key: {room: Cell(count, total)}}


@pytest.mark.parametrize(("key", "reached", "now", "is_worse"), [
    ("asserts", (30, 100), (28, 100), True),
    ("asserts", (30, 100), (31, 100), False),
    ("homonyms", (3, 100), (4, 200), True),
    ("homonyms", (3, 100), (3, 90), False),
    ("unmapped", (50, 100), (60, 120), False),  # a new module of a package without a map is no step back
    ("unmapped", (0, 100), (1, 100), True),
    ("untested", (36, 100), (39, 100), True),
])
def test_a_figure_may_only_go_towards_its_aim(key: str, reached: tuple[int, int], now: tuple[int, int],
                                              is_worse: bool) -> None:
    was, is_now = of(key, "raft", *reached), of(key, "raft", *now)
    assert bool(worse(is_now, was)) is is_worse
    assert best(is_now, was) == (was if is_worse else is_now)


@pytest.mark.parametrize(("key", "reached", "now"), [
    ("asserts", (30, 100), (29, 100)), ("untested", (36, 100), (38, 100)),
])
def test_a_share_has_slack_and_what_was_reached_stays(key: str, reached: tuple[int, int], now: tuple[int, int]) -> None:
    was, is_now = of(key, "raft", *reached), of(key, "raft", *now)
    assert worse(is_now, was) == []
    assert best(is_now, was) == was


def test_a_judged_figure_may_rise() -> None:
    assert worse(of("large", "raft", 9, 10), of("large", "raft", 1, 10)) == []


def judged() -> dict[str, int]:
    """Classes that the page judges, and how many methods each had then."""
    found = dict[str, int]()
    table = structure.PAGE.read_text(encoding="utf-8").split("| class | methods when judged |")[1].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, classes, methods, _ = row.split("|", 3)
        found |= zip(re.findall(r"\b[A-Z]\w+", classes), map(int, re.findall(r"(?<!were )\b\d+", methods)), strict=True)
    return found


def test_each_large_class_is_judged_as_it_is(here: Counted) -> None:
    large = {name: int(methods) for cell in here["large"].values() for name, methods in (
        each.split(": ") for each in cell.which)}
    then = judged()
    assert large.keys() <= then.keys()
    assert {name for name, methods in large.items() if methods > then[name] * 1.2} == set(), "judge these again"
