"""The structure of the tree in figures: what is asserted, named, tested, and how large it is, package by package.

    python -m benchmarks.structure                        # the table: recorded commits, the best reached, now
    python -m benchmarks.structure --list homonyms        # what a figure counts; --since COMMIT: what is new in it
    python -m benchmarks.structure --reached              # records what is better now: it may not get worse again
    python -m benchmarks.structure --tree DIR --json F    # counts another checkout

It reads text and syntax and imports nothing of what it reads, so it counts any commit. Recorded figures stand in
``benchmarks/results/structure.json``, and from there in the table of ``docs/reference/figures.md``.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "benchmarks" / "results" / "structure.json"
PAGE: Final = ROOT / "docs" / "reference" / "figures.md"

PACKAGES: Final = ("raft", "remoting", "controller", "broker", "mqcluster", "harness", "analysis")
WITH_PARTS: Final = (*PACKAGES, "controller.metadata", "broker.replicas", "broker.ha", "broker.store")
BROKER_WORDS: Final = ("journal", "puts", "gate", "fence", "young master", "held", "share", "settle", "dispatch",
                       "guardian", "confirm offset", "part", "escape", "acting", "pre-online", "ledger", "stand in",
                       "fellow", "mark", "life", "reign", "half", "op queue", "checkpoint", "receipt", "revive", "haul",
                       "blocked", "lease", "demand", "doubt", "veil", "moment", "turn", "rule", "draft", "diverted",
                       "outlet", "noted", "short way", "level", "right", "yield", "resign", "timer", "wheel", "nest")
"""Words of the broker's code that the glossary must have; one that the code loses leaves this list too."""
METHODS_MOST: Final = 30
WORDS_LEAST: Final = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Module:
    """One file of a package, with what it is said to be."""

    name: str
    path: Path
    kinds: tuple[str, ...]
    """Of core, simulator and shell; one, if the lists are right."""

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(ast.parse(self.text)))

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def says_something(self) -> bool:
        """Whether it is more than imports and a docstring."""
        return any(isinstance(node, Function | ast.ClassDef | ast.AnnAssign | ast.Assign)
                   and not ast.unparse(node).startswith("__all__") for node in self.nodes)


@attrs.frozen
class Tree:
    """A checkout."""

    root: Path

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))

    @functools.cached_property
    def modules(self) -> tuple[Module, ...]:
        patterns = self.patterns
        found = []
        for package in PACKAGES:
            for path in sorted((self.root / package).rglob("*.py")):
                inside = path.relative_to(self.root)
                name = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
                kinds = tuple(kind for kind, names in patterns.items() if _named(name, names))
                found.append(Module(name, path, kinds))
        return tuple(found)

    def of(self, room: str) -> list[Module]:
        """Modules of a package, or of a part of one."""
        return [each for each in self.modules if each.name == room or each.name.startswith(f"{room}.")]

    @functools.cached_property
    def patterns(self) -> dict[str, list[str]]:
        """Names of modules by kind. Cores and simulators are those that a contract keeps from the event loop."""
        found: dict[str, list[str]] = {"core": [], "simulator": [], "shell": self._shells()}
        for contract in self.settings["tool"]["importlinter"]["contracts"]:
            if "trio" in contract.get("forbidden_modules", ()):
                kind = "simulator" if "simulator" in contract["id"] else "core"
                inside = contract.get("as_packages", True)
                found[kind] += [name + end for name in contract["source_modules"] for end in ("", ".*")[:1 + inside]]
        return found

    def _shells(self) -> list[str]:
        """Names, or paths in a set of ``tests/test_tidy.py``, as they were listed once."""
        if "quorate" in self.settings["tool"]:
            return list(self.settings["tool"]["quorate"]["shells"])
        tidy = ast.parse((self.root / "tests/test_tidy.py").read_text(encoding="utf-8"))
        (paths,) = (ast.literal_eval(node.value) for node in tidy.body
                    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHELLS")
        return [path.removesuffix(".py").replace("/", ".") for path in paths]

    @functools.cached_property
    def tests(self) -> frozenset[str]:
        folder = self.root / "tests"
        return frozenset(str(path.relative_to(folder)) for path in folder.rglob("test_*.py"))

    @functools.cached_property
    def asked(self) -> dict[str, str]:
        """By module, the test that runs most of it, as ``make coverage`` recorded; only tests that are there."""
        file = self.root / "tests/coverage/floors.json"
        rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {module: test for module, (*_, test) in rows.items() if test and (self.root / test).is_file()}

    @functools.cached_property
    def mapped(self) -> list[str]:
        """Patterns of modules in tables of ``docs/explanation`` whose head has "modules of `PACKAGE/`". A folder's row
        stands for all that is in it, unless the folder has a table of its own."""
        out, own = [], set()
        for page in sorted((self.root / "docs/explanation").glob("*.md")):
            package = None
            for line in page.read_text(encoding="utf-8").splitlines():
                if not line.startswith("|"):
                    package = None
                elif head := re.search(r"\| modules of `([\w/]+)/` \|", line):
                    package = head[1].replace("/", ".")
                    own.add(package)
                elif package:
                    out += [f"{package}.{name}" for name in re.findall(r"`(\w+)`", line.split("|")[2])]
        return [pattern for name in out for pattern in ((name,) if name in own else (name, f"{name}.*"))]


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@attrs.frozen
class Cell:
    """A count, what it is out of, and what was counted."""

    count: int
    of: int
    which: tuple[str, ...] = attrs.field(default=(), eq=False)

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0


# --- what is counted -----------------------------------------------------------------------------------------


def asserts(tree: Tree, room: str) -> Cell:
    """Lists cores without any."""
    cores = [each for each in tree.of(room) if "core" in each.kinds]
    found = sum(is_assertion(node) for each in cores for node in each.nodes)
    functions = sum(isinstance(node, Function) for each in cores for node in each.nodes)
    return Cell(found, functions, tuple(
        each.name for each in cores if not any(map(is_assertion, each.nodes))))


def is_assertion(node: ast.AST) -> bool:
    """Whether it is an ``assert`` that says more than a type, or the ``require`` of a property, which raises an
    ``AssertionError``, too."""
    if isinstance(node, ast.Assert):
        return _says_more(node.test)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require"


def _says_more(test: ast.expr) -> bool:
    """Not ``isinstance`` and its like, nor ``is not None``: they repeat for a checker of types what a reader knows."""
    match test:
        case ast.BoolOp(values=values):
            return any(map(_says_more, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _says_more(operand)
        case ast.Call(func=ast.Name(id=name)):
            return name not in ("isinstance", "issubclass", "callable", "hasattr")
        case ast.Compare(left=ast.Call(func=ast.Name(id="type"))):
            return False
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return False
    return True


def unplaced(tree: Tree, room: str) -> Cell:
    modules = [each for each in tree.of(room) if each.path.name != "__init__.py"]
    return _those(modules, lambda each: not each.kinds)


def unmapped(tree: Tree, room: str) -> Cell:
    modules = [each for each in tree.of(room) if each.path.name not in ("__init__.py", "__main__.py")]
    return _those(modules, lambda each: not _named(each.name, tree.mapped))


def unexplained(tree: Tree, room: str) -> Cell:
    assert room == "broker", "the list of words is the broker's"
    glossary = (tree.root / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = {row.lower() for row in re.findall(r"^\| \*\*([^*]+)\*\*", glossary, re.MULTILINE)}
    missing = tuple(word for word in BROKER_WORDS if word not in rows)
    return Cell(len(missing), len(BROKER_WORDS), missing)


def homonyms(tree: Tree, room: str) -> Cell:
    where = defaultdict(set)
    for each in tree.of(room):
        for node in each.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].add(each.name)
    twice = tuple(f"{name}: {', '.join(sorted(names))}" for name, names in sorted(where.items()) if len(names) > 1)
    return Cell(len(twice), len(where), twice)


def short_docstrings(tree: Tree, room: str) -> Cell:
    short, of = [], 0
    for each in tree.of(room):
        for node in each.nodes:
            if isinstance(node, Function | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                of += 1
                if len(text.splitlines()[0].split()) < WORDS_LEAST:
                    short.append(f"{each.name}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    return Cell(len(short), of, tuple(short))


def short_attributes(tree: Tree, room: str) -> Cell:
    """Of texts that stand behind a field or a constant."""
    short, of = [], 0
    for each in tree.of(room):
        for text, line in _attribute_docstrings(each):
            of += 1
            if len(text.splitlines()[0].split()) < WORDS_LEAST:
                short.append(f"{each.name}:{line}: {text.splitlines()[0]}")
    return Cell(len(short), of, tuple(short))


def _attribute_docstrings(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.nodes:
        if isinstance(node, Function | ast.ClassDef | ast.Module):
            for field, behind in itertools.pairwise(node.body):
                if isinstance(field, ast.Assign | ast.AnnAssign) and isinstance(behind, ast.Expr) and isinstance(
                        behind.value, ast.Constant) and isinstance(behind.value.value, str):
                    yield behind.value.value.strip(), behind.lineno


def untested(tree: Tree, room: str) -> Cell:
    """A module's tests stand in the folder of ``tests/`` that mirrors its own, or coverage says which one asks it. One
    that only imports, or only has a docstring, needs none."""
    without = [each for each in tree.of(room) if each.says_something
               and _test_of(tree, each) not in tree.tests and each.name not in tree.asked]
    return Cell(sum(each.lines for each in without), sum(each.lines for each in tree.of(room)),
                tuple(f"{each.name}: {each.lines}" for each in sorted(without, key=lambda each: -each.lines)))


def large_classes(tree: Tree, room: str) -> Cell:
    found = sorted(_classes(tree, room), key=lambda pair: -pair[1])
    large = tuple(f"{name}: {methods}" for name, methods in found if methods > METHODS_MOST)
    return Cell(len(large), len(found), large)


def methods(tree: Tree, room: str) -> Cell:
    """Of the class that the room names last; 0 if it is gone."""
    package, _, name = room.rpartition(".")
    most = max((count for each, count in _classes(tree, package) if each == name), default=0)
    return Cell(most, most)


def _classes(tree: Tree, room: str) -> Iterator[tuple[str, int]]:
    for each in tree.of(room):
        for node in each.nodes:
            if isinstance(node, ast.ClassDef):
                yield node.name, sum(isinstance(inner, Function) for inner in node.body)


def _those(modules: Iterable[Module], has: Callable[[Module], bool]) -> Cell:
    every = list(modules)
    which = tuple(each.name for each in every if has(each))
    return Cell(len(which), len(every), which)


def _test_of(tree: Tree, module: Module) -> str:
    inside = module.path.relative_to(tree.root)
    return str(inside.with_name(f"test_{inside.name}"))


# --- the table -----------------------------------------------------------------------------------------------


def _as_share(cell: Cell) -> str:
    return f"{cell.share:.2f}" if cell.of else "–"


def _as_percent(cell: Cell) -> str:
    return f"{cell.share * 100:.0f} %" if cell.of else "–"


def _as_count(cell: Cell) -> str:
    return f"{cell.count} of {cell.of}"


def _as_number(cell: Cell) -> str:
    return str(cell.count)


@attrs.frozen
class Figure:
    """What is counted, where, how it is shown and compared."""

    about: str
    aim: str
    count: Callable[[Tree, str], Cell]
    rooms: tuple[str, ...] = PACKAGES
    shown: Callable[[Cell], str] = _as_count
    compared: Callable[[Cell], float] = attrs.field(default=lambda cell: cell.count)
    more_is_better: bool = False
    slack: float = 0.0
    """By how much it may be worse: a share moves when code does, though nobody meant it."""

    def worse(self, now: Cell, reached: Cell) -> bool:
        step = self.compared(now) - self.compared(reached)
        return (-step if self.more_is_better else step) > self.slack + 1e-9


FIGURES: Final[Mapping[str, Figure]] = {
    "asserts": Figure(
        "asserts per function in cores",
        "at least 0.3 in `raft`, `controller.metadata`, `broker.replicas`, `broker.ha`, `broker.store`", asserts,
        WITH_PARTS, _as_share, lambda cell: cell.share, more_is_better=True, slack=0.01),
    "unplaced": Figure("modules that are named neither core nor shell nor part of a simulator", "0", unplaced),
    "unmapped": Figure("modules that are on no map of the manual", "0", unmapped, compared=lambda cell: cell.share),
    "unexplained": Figure("words of the broker that the glossary lacks", "0", unexplained, ("broker",)),
    "homonyms": Figure("names of classes that mean two things", "0", homonyms),
    "docstrings": Figure(f"docstrings whose first line has fewer than {WORDS_LEAST} words",
                         "0 where the name does not say it already", short_docstrings),
    "attributes": Figure(f"texts of fields and constants whose first line has fewer than {WORDS_LEAST} words",
                         "0 where the name does not say it already", short_attributes),
    "untested": Figure("lines of modules that name no test: no file of their name, none that is measured to ask them",
                       "0 %", untested, shown=_as_percent, compared=lambda cell: cell.share, slack=0.02),
    "large": Figure(f"classes of more than {METHODS_MOST} methods", "each judged by itself, so it may rise",
                    large_classes, compared=lambda cell: 0),
    "methods": Figure("methods of the three that are to be halved", "33, 28 and 22", methods,
                      ("raft.Replica", "raft.Node", "broker.MessageStore"), _as_number),
}

Counted = dict[str, dict[str, Cell]]
"""Figure -> room -> cell."""


def counted(root: Path) -> Counted:
    tree = Tree(root)
    return {key: {room: figure.count(tree, room) for room in figure.rooms} for key, figure in FIGURES.items()}


def read(results: Mapping[str, Mapping[str, tuple[int, int]]]) -> Counted:
    return {key: {room: Cell(*pair) for room, pair in rooms.items()} for key, rooms in results.items()}


def written(cells: Counted) -> dict[str, dict[str, tuple[int, int]]]:
    return {key: {room: (cell.count, cell.of) for room, cell in rooms.items()} for key, rooms in cells.items()}


def as_json(results: object) -> str:
    """One line for each pair of numbers."""
    return re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", json.dumps(results, indent=1)) + "\n"


def worse(now: Counted, reached: Counted) -> list[str]:
    """What got worse, in words."""
    return [
        f"{FIGURES[key].about}, {room}: {FIGURES[key].shown(now[key][room])}, and it was {FIGURES[key].shown(cell)} "
        f"(python -m benchmarks.structure --list {key} --since COMMIT)"
        for key, rooms in reached.items() for room, cell in rooms.items() if FIGURES[key].worse(now[key][room], cell)]


def best(now: Counted, reached: Counted) -> Counted:
    """The better of both, cell by cell."""
    return {key: {room: reached[key][room] if attrs.evolve(FIGURES[key], slack=0).worse(cell, reached[key][room])
                  else cell for room, cell in rooms.items()} for key, rooms in now.items()}


def table(columns: Mapping[str, Counted]) -> Iterator[str]:
    """Rows of Markdown: a figure, a room, its columns."""
    yield f"| figure | in | {' | '.join(columns)} | aim |"
    yield f"|---|---|{'---|' * len(columns)}---|"
    for key, figure in FIGURES.items():
        for number, room in enumerate(figure.rooms):
            cells = " | ".join(figure.shown(each[key][room]) if room in each[key] else "–" for each in columns.values())
            first = number == 0
            yield f"| {figure.about if first else ''} | `{room}` | {cells} | {figure.aim if first else ''} |"


def recorded(path: Path = RESULTS) -> dict[str, Counted]:
    """By commit, and the best that was reached since."""
    return {name: read(cells) for name, cells in json.loads(path.read_text(encoding="utf-8")).items()}


def page(text: str) -> str:
    """The page with the table of what is recorded."""
    head, _, rest = text.partition("<!-- table -->\n")
    return head + "<!-- table -->\n" + "\n".join(table(recorded())) + "\n<!-- end" + rest.partition("<!-- end")[2]


def listed(cells: Mapping[str, Cell]) -> Counter[str]:
    """What a figure counts, by room; without the numbers of lines, so that two trees can be compared."""
    return Counter(f"{room} {re.sub(r':[0-9]+:', ':', each)}" for room, cell in cells.items() for each in cell.which)


def at_commit(commit: str, key: str) -> Counter[str]:
    """What a figure counted there."""
    with tempfile.TemporaryDirectory(prefix="structure-") as folder:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
        return listed(counted(Path(folder))[key])


def main() -> int:
    """The command; returns its exit code: 1 if something is worse than it was."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="another checkout to count")
    parser.add_argument("--list", choices=FIGURES, help="only print what this figure counts")
    parser.add_argument("--since", metavar="COMMIT", help="with --list: only what that commit did not have")
    parser.add_argument("--check", action="store_true", help="no table: only what is worse than it was")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    parser.add_argument("--reached", action="store_true", help="write what is better now to the recorded figures")
    options = parser.parse_args()
    now, results = counted(options.tree), recorded()
    if options.list:
        found = listed(now[options.list])
        print(*(found - at_commit(options.since, options.list) if options.since else found), sep="\n")
        return 0
    if not options.check:
        print(*table({**results, "now": now}), sep="\n")
    if options.json:
        options.json.write_text(as_json(written(now)), encoding="utf-8")
    if options.reached:
        results["reached"] = best(now, results["reached"])
        RESULTS.write_text(as_json({name: written(cells) for name, cells in results.items()}), encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    offences = worse(now, results["reached"])
    for each in offences:
        print(f"WORSE: {each}")
    return int(bool(offences))


if __name__ == "__main__":
    sys.exit(main())
