"""Every number that could be matched across a wire or a restart has its row in ``docs/reference/numbers.md``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.raft.bugs.run_mutants import ROOT

PAGE = ROOT / "docs/reference/numbers.md"
PACKAGES = ("raft", "remoting", "controller", "broker")
MESSAGES = re.compile(
    r"raft/(messages|clientwire|hello)|remoting/(headers|bodies)/|remoting/command|broker/ha/wire"
    r"|controller/metadata/commands")
"""Files whose classes travel, or are kept."""
WORDS = (r"ticket|round|token|opaque|session|serial|sequence|seq|number|request|generation|life|boot|asked|accepted"
         r"|version|epoch|nonce|incarnation")
COUNTER = re.compile(rf"(^|_)({WORDS})s?$")
FIELD = re.compile(rf"(^|_)({WORDS}|unique|uniq|check_code|voted_for|id)($|_id$)")
NO_LIFE = {"queue_id"}
"""Names of things that have no lives: a queue is what the topic's configuration says."""
DRAWN = {"getrandbits", "randbytes", "token_hex", "token_bytes", "token_urlsafe", "uuid1", "uuid4"}


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def rises(value: ast.expr) -> bool:
    """Whether something in it is one more."""
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Constant)
               and node.right.value == 1 for node in ast.walk(value))


def numbers(node: ast.AST, travels: bool) -> Iterator[str]:
    """Names of what a file counts, draws, or sends, if it may be matched with something later."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.AugAssign(target=ast.Attribute(attr=name), op=ast.Add(), value=ast.Constant(value=1)):
                yield from [name] if COUNTER.search(name) else []
            case ast.Assign(targets=targets, value=value) if rises(value):
                yield from (target.attr for target in targets
                            if isinstance(target, ast.Attribute) and COUNTER.search(target.attr))
            case ast.AnnAssign(target=ast.Name(id=name)) if travels and isinstance(node, ast.ClassDef):
                yield from [name] if FIELD.search(name) and name not in NO_LIFE else []
            case ast.Call(func=func) if name_of(func) in DRAWN or ast.unparse(func) == "itertools.count":
                yield name_of(func)
        yield from numbers(child, travels)


def found(root: Path = ROOT) -> set[str]:
    sites: set[str] = set()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            where = path.relative_to(root).as_posix()
            if not where.startswith("raft/sim/"):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                sites |= {f"{where}:{name}" for name in numbers(tree, bool(MESSAGES.match(where)))}
    return sites


def listed() -> list[str]:
    return re.findall(r"`([a-z_/]+\.py:\w+)`", PAGE.read_text(encoding="utf-8"))


def test_every_number_has_its_row() -> None:
    missing = sorted(found() - set(listed()))
    if missing:
        pytest.fail(
            "docs/reference/numbers.md has no row for what these count, draw or send. Say there what each is matched "
            "with and how two lives of a process differ; make it safe if they do not:\n" + "\n".join(missing),
            pytrace=False)


def test_every_row_is_of_a_number_that_there_is() -> None:
    for site in listed():
        path, _, name = site.partition(":")
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8")), f"{site} is gone"


@pytest.mark.parametrize(("code", "name"), [
    ("class A:\n    def ask(self):\n        self._token += 1\n", "_token"),
    ("class A:\n    def ask(self):\n        self.serial = number = (self.serial + 1) & 255\n", "serial"),
    ("class A:\n    life: int = 0\n", "life"),
    ("class A:\n    commit_id: str\n", "commit_id"),
    ("import itertools\nIDS = itertools.count(1)\n", "count"),
    ("def fresh(rng):\n    return rng.getrandbits(48)\n", "getrandbits"),
], ids=lambda value: value if value.isidentifier() else "")
def test_the_search_finds_a_new_one(code: str, name: str) -> None:
    assert list(numbers(ast.parse(code), True)) == [name]


def test_the_search_leaves_mere_tallies_alone() -> None:
    assert list(numbers(ast.parse("class A:\n    def seen(self):\n        self.dropped += 1\n"), True)) == []
