"""Every key that has an effect is read by some code: one that is taken, listed and changed does nothing by that.

A key's field counts as read where code outside the classes of keys asks an object for it, or names it as a text; in
those classes, where a property or a method asks for it that is itself read outside. ``pick`` copies fields by name, so
the copy must be read. Another class may have a field of that name: the scan finds what nothing reads, not all of it.
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from remoting.daemon.keys import names

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "controller", "remoting", "raft")
CLASSES_OF_KEYS = ("broker/config.py", "controller/config.py", "controller/namesrv/config.py")
TABLES = runpy.run_path(str(ROOT / "docs" / "key_tables.py"))


@attrs.frozen
class Reads:
    """``outside``: names that code asks for, or has as texts. ``via``: by name, what stands for it."""

    outside: frozenset[str]
    via: Mapping[str, frozenset[str]]

    def reads(self, name: str, seen: frozenset[str] = frozenset()) -> bool:
        if name in self.outside:
            return True
        return any(self.reads(other, seen | {name}) for other in self.via.get(name, frozenset()) - seen - {name})


def attributes(tree: ast.AST) -> Iterator[str]:
    """What is asked of an object, and texts that are not the first ones of a module, class or function."""
    said = {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and node.body and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def renamed(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Field and what ``pick`` makes of it: ``pick(config, C, here="there")`` copies ``there`` to ``here``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "pick":
            yield from ((word.value.value, word.arg) for word in node.keywords
                        if word.arg and isinstance(word.value, ast.Constant) and isinstance(word.value.value, str))


def scan(modules: Iterable[tuple[str, str]]) -> Reads:
    """Of path and text of each."""
    outside: set[str] = set()
    via: dict[str, set[str]] = {}
    for path, text in modules:
        tree = ast.parse(text)
        for field, other in renamed(tree):
            via.setdefault(field, set()).add(other)
        if path in CLASSES_OF_KEYS:
            for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
                for method in (node for node in kind.body if isinstance(node, ast.FunctionDef)):
                    for name in attributes(method):
                        via.setdefault(name, set()).add(method.name)
        else:
            texts = {word for pair in renamed(tree) for word in pair}
            outside |= {name for name in attributes(tree) if name not in texts} | {
                node.attr for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    return Reads(frozenset(outside), {name: frozenset(others) for name, others in via.items()})


def ours() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def code() -> Reads:
    return scan(ours())


@pytest.mark.parametrize("kind", TABLES["recorded"]())
def test_each_key_with_an_effect_is_read(kind: str, code: Reads) -> None:
    fields = {key: TABLES["field_of"](kind, key) for key in TABLES["recorded"]()[kind]}
    assert not [key for key, field in fields.items() if field is not None and not code.reads(field.name)]


@pytest.mark.parametrize("kind", ["BrokerConfig", "NamesrvConfig", "ControllerConfig"])
def test_so_are_those_of_ours(kind: str, code: Reads) -> None:
    fields = names(TABLES["server_of"](kind)[0])
    assert not [key for key, field in fields.items() if not code.reads(field.name)]


@pytest.mark.parametrize(("modules", "read"), [
    ({"broker/x.py": "a = config.depth"}, True),
    ({"broker/x.py": "QUEUES = {'depth': 3}"}, True),
    ({"broker/x.py": "class C:\n    depth: int = 3"}, False),
    ({"broker/x.py": "config.depth = 3"}, False),
    ({"broker/x.py": "def f():\n    'depth'"}, False),
    ({"broker/config.py": "def check(config):\n    assert config.depth < 3"}, False),
    ({"broker/config.py": "class C:\n    @property\n    def deep(self):\n        return self.depth > 3"}, False),
    ({"broker/config.py": "class C:\n    @property\n    def deep(self):\n        return self.depth > 3",
      "broker/x.py": "a = config.deep"}, True),
    ({"broker/x.py": "a = pick(config, C, deep='depth')"}, False),
    ({"broker/x.py": "a = pick(config, C, deep='depth')", "broker/y.py": "b = a.deep"}, True),
])
def test_what_counts_as_read(modules: dict[str, str], read: bool) -> None:
    assert scan(modules.items()).reads("depth") is read
