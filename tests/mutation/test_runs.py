"""How the machine runs its mutants: by swapping code in a process that waits, and only before tests that see it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.mutation.changes import Change, changes
from tests.mutation.resumed import Killed
from tests.mutation.swapped import Swapper, swaps
from tests.mutation.warm import GREEN, NOT_SWAPPED, RED, Warm, lines_run

MODULE = '''
LIMIT = 3

def keep(function):
    return function

class Counter:
    step = 1

    def __init__(self):
        self.count = 0

    @property
    def full(self):
        return self.count >= LIMIT

    @keep
    def add(self):
        while True:
            self.count += self.step
            return sorted([1, 2], key=lambda each: -each * self.count)

    def unused(self):
        return 1

class Child(Counter):
    def __init__(self):
        super().__init__()
'''


@pytest.mark.parametrize(("old", "new", "can"), [
    ("self.count >= LIMIT", "self.count > LIMIT", True),
    ("-each", "each", True),
    ("        self.count = 0\n", "        pass\n", True),
    ("LIMIT = 3", "LIMIT = 4", False),
    ("step = 1", "step = True", False),
    ("    @keep\n", "", False),
    ("def unused(self)", "def unused(self, more=2)", False),
    ("-each * self.count", "(lambda: -each)()", False),
    ("return function", "return lambda: function", False),
])
def test_bodies_of_functions_are_swapped_and_nothing_else(old: str, new: str, can: bool) -> None:
    assert old in MODULE
    assert swaps(MODULE, MODULE.replace(old, new)) is can


def test_every_live_function_takes_its_changed_code(tmp_path: Path) -> None:
    file = str(tmp_path / "m.py")
    names: dict[str, type] = {}
    exec(compile(MODULE, file, "exec"), names)
    counter = names["Counter"]()
    swapper = Swapper(file, MODULE)
    swapper.swap(MODULE.replace(">= LIMIT", "< LIMIT").replace("-each", "each").replace("= 0", "= 7"))
    assert (counter.full, counter.add(), names["Child"]().count) == (True, [1, 2], 7)
    swapper.swap(MODULE)
    with pytest.raises(ValueError, match="free vars"):
        swapper.swap(MODULE.replace("super().__init__()", "pass"))


def test_functions_are_found_that_the_collector_no_longer_looks_at(tmp_path: Path) -> None:
    """As tests/conftest.py freezes all that was collected: else each change would be put nowhere, and survive."""
    file = str(tmp_path / "m.py")
    names: dict[str, type] = {}
    exec(compile(MODULE, file, "exec"), names)
    gc.freeze()
    swapper = Swapper(file, MODULE)
    gc.freeze()
    swapper.swap(MODULE.replace("= 0", "= 7"))
    assert names["Counter"]().count == 7
    with pytest.raises(ValueError, match="no live function"):
        Swapper(str(tmp_path / "other.py"), MODULE).swap(MODULE)


def test_lines_of_one_file_are_seen_alone(tmp_path: Path) -> None:
    file = str(tmp_path / "m.py")
    names: dict[str, type] = {}
    exec(compile(MODULE, file, "exec"), names)
    with lines_run(file) as lines:
        names["Child"]()
    assert lines == {11, 28}


TESTS = '''
from raft.counter import LIMIT, Child, Counter

def test_starts_empty():
    assert Counter().count == 0

def test_fills():
    counter = Counter()
    for _ in range(LIMIT):
        assert not counter.full
        assert counter.add() == [2, 1]
    assert counter.full
'''


def test_only_tests_that_run_a_changed_line_are_asked(tmp_path: Path) -> None:
    for name, text in {"raft/counter.py": MODULE, "tests/test_counter.py": TESTS, "raft/__init__.py": "",
                       "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\n"
                                         "markers = ['slow']\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    warm = Warm(tmp_path, "raft/counter.py", ["tests/test_counter.py"])
    try:
        measured = warm.measure()
        assert measured is not None and not any(test.red for test in measured.tests)
        assert [test.name.rpartition("::")[2] for test in measured.tests] == ["test_starts_empty", "test_fills"]

        def judge(old: str, new: str) -> tuple[int, list[int]]:
            line = MODULE[: MODULE.index(old)].count("\n") + 1
            judges = measured.judges(frozenset({line}))
            code = MODULE.replace(old, new)
            return warm.judge(code, [(each, measured.tests[each].cpu_s) for each in judges]), sorted(judges)

        assert judge("self.count = 0", "self.count = 1") in ((0, [0, 1]), (1, [0, 1]))
        assert judge("self.count >= LIMIT", "self.count > LIMIT") == (1, [1])
        assert judge("self.count >= LIMIT", "self.count == LIMIT") == (GREEN, [1])
        assert judge("return sorted", "if not self.count: return sorted") == (RED, [1]), "it hangs"
        assert judge("return 1", "return 2") == (GREEN, [])
        assert judge("super().__init__()", "pass")[1] == []
        assert warm.judge(MODULE.replace("super().__init__()", "pass"), [(0, 0.1)]) == NOT_SWAPPED
        assert 2 in measured.imported and 11 not in measured.imported
        measured.kills[0], measured.kills[1] = 1_000_000, 0
        assert measured.judges(frozenset({11})) == [0, 1], "who noticed most is asked first"
        measured.kills[0], measured.kills[1] = 0, 1_000_000
        assert measured.judges(frozenset({11})) == [1, 0]
    finally:
        warm.close()


def test_tests_that_cannot_be_imported_are_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow']\n")
    warm = Warm(tmp_path, "raft/counter.py", ["test_broken.py"])
    assert warm.measure() is None
    warm.close()


def test_what_was_killed_stays_killed_until_its_function_changes(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    file = tmp_path / "scratch/killed.json"
    code = "def f(x):\n    return x > 1\n\ndef g(x):\n    return x > 2\n"
    first, *others = changes(code)
    Killed(file).add("m.py", [first])
    Killed(file).add("m.py", others[:1])
    assert [Killed(file).has("m.py", change) for change in changes(code)][:3] == [True, True, False]
    assert not Killed(file).has("n.py", first)
    assert Killed(file).has("m.py", changes(code.replace("x > 2", "x > 3"))[0]), "another function"
    changed = changes(code.replace("return x", "return 0 + x", 1))
    assert not any(Killed(file).has("m.py", change) for change in changed if change.place == "f")


def test_a_change_knows_its_lines_and_its_statement() -> None:
    pytest.importorskip("cosmic_ray")
    code = "def f(x):\n    if (x > 1\n            and x != 3):\n        return g(\n            x)\n    return 1\n"
    found: dict[str, Change] = {each.old: each for each in changes(code)}
    assert found["and x != 3):"].lines == {2, 3}
    assert found["return g( ⏎ x)"].lines == {4, 5}
    assert found["return 1"].lines == {6}
