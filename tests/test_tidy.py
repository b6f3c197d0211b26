"""House rules that no off-the-shelf checker knows, as checks over the text and syntax of every file in the tree.

Each check is a row: a function from one file to offences, and a piece of text it must object to, so that a check
that has gone blind turns red itself. It knows paths and syntax; it imports nothing of the packages it reads.
"""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import attrs
import pytest

from benchmarks.structure import PACKAGES, Tree

ROOT = Path(__file__).parent.parent

FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60

LONG_FUNCTIONS: dict[str, str] = {
    # "path::qualified.name": "why it is clearer in one piece",
}

TREE = Tree(ROOT)
"""For the kind of each module: core, shell, or part of a simulator."""
OPERATING_SYSTEM = {
    "trio", "outcome", "asyncio", "threading", "queue", "multiprocessing", "subprocess", "signal", "socket", "ssl",
    "select", "selectors", "os", "io", "pathlib", "tempfile", "shutil", "fcntl", "mmap", "time", "datetime", "logging",
    "random", "secrets", "uuid",
}
"""What every contract of cores forbids."""
ALLOWED = {
    "cores": {"random"},  # cores of raft name random.Random; `chance` looks
    "analysis-page": {"datetime"},  # moments become dates; `clock` looks
    "torture-cores": {"random"},  # schedules are drawn from seeds; `chance` looks
}
"""By contract: what it leaves out of that, and why."""
COROUTINES = {
    "broker/client/message.py": "a message is answered for by its consumer, which it awaits",
    **dict.fromkeys((f"harness/simulation/brokers/{name}.py" for name in (
        "acting/machine", "acting/shells", "acting/wire", "features", "tasks")),
                    "it drives coroutines of shells on the world's time, without trio"),
}
"""Cores that await, and why."""

LIBRARIES = ("raft/", "remoting/")
IMPORTS = {
    # `outcome` is the type that trio.lowlevel.reschedule takes; it comes with trio
    "raft/": {"attrs", "cbor2", "google_crc32c", "raft", "trio", "outcome"},
    "raft/metrics.py": {"prometheus_client"},
    "raft/monitoring.py": {"h11"},
    "raft/pytest_plugin.py": {"pytest"},
    "raft/statemachine.py": {"typing_extensions"},  # for type checkers, which bring it
    "remoting/": {"attrs", "orjson", "remoting", "trio", "outcome"},
    "remoting/daemon/command.py": {"raft"},  # which looks whose packages a command imports
    "remoting/daemon/completion.py": {"shtab"},
    "remoting/daemon/otlp.py": {"grpc", "opentelemetry"},
    "remoting/daemon/page.py": {"prometheus_client"},
    "remoting/daemon/points.py": {"prometheus_client"},  # for type checkers
}
"""Third-party packages that a library may import; by file where only one needs it."""


@attrs.frozen
class Source:
    """One file of the tree: its path from the root, and its text."""

    path: str
    text: str

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Qualified ones of all its functions."""
        return frozenset(name for name, _ in self.functions) if self.python else frozenset()

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def pure(self) -> bool:
        """A module of a package, unless a list says that it is a shell."""
        name = self.path.removesuffix(".py").replace("/", ".")
        in_package = self.python and name.partition(".")[0] in PACKAGES
        return in_package and not any(fnmatch(name, pattern) for pattern in TREE.patterns["shell"])

    @functools.cached_property
    def functions(self) -> tuple[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef], ...]:
        """Every function with its qualified name."""
        def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    continue  # it holds none
                name = prefix
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    name = f"{prefix}.{child.name}" if prefix else child.name
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield name, child
                yield from walk(child, name)

        return tuple(walk(self.tree, ""))

    @functools.cached_property
    def imports(self) -> list[tuple[int, str, tuple[str, ...]]]:
        """(line, module, names taken from it) of every absolute import."""
        found: list[tuple[int, str, tuple[str, ...]]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += ((node.lineno, alias.name, ()) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.append((node.lineno, node.module, tuple(alias.name for alias in node.names)))
        return found


@functools.cache
def sources() -> list[Source]:
    """Every text file that is, or is about to be, under version control, parsed.

    No garbage is searched for meanwhile: a finaliser that parses, as tracebacks of Python 3.11 do, breaks a parse.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    found = []
    for path in sorted(filter(None, set(listed))):
        try:
            found.append(Source(path, (ROOT / path).read_text(encoding="utf-8")))
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # not text, or deleted but not committed yet
    assert any(source.path == "tests/test_tidy.py" for source in found)
    gc.disable()
    try:
        for source in found:
            if source.python:
                assert source.nodes
    finally:
        gc.freeze()  # they stay
        gc.enable()
    return found


@functools.cache
def by_path() -> dict[str, Source]:
    return {source.path: source for source in sources()}


# --- the checks ----------------------------------------------------------------------------------------------


def file_length(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if source.python and lines > FILE_LINES_MAX:
        yield f"{source.path}: {lines} lines, at most {FILE_LINES_MAX}"


def function_length(source: Source) -> Iterator[str]:
    if not source.python:
        return
    for name, node in source.functions:
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES_MAX and f"{source.path}::{name}" not in LONG_FUNCTIONS:
            yield f"{source.path}:{node.lineno}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def module_docstring(source: Source) -> Iterator[str]:
    if not source.python or not source.text.strip():
        return
    docstring = ast.get_docstring(source.tree) or ""
    due = 1 if source.path.startswith("tests/") else 2
    if len(re.findall(r"[.:!?](?=\s|$)", docstring)) < due:
        yield f"{source.path}: its docstring must say what it knows and what it must not know ({due} sentences or more)"


def file_name(source: Source) -> Iterator[str]:
    for part in source.path.split("/"):
        if part.partition(".")[0] in {"base", "common", "helper", "helpers", "lib", "misc", "util", "utils"}:
            yield f"{source.path}: {part!r} says nothing about what is inside"


def real_sleep(source: Source) -> Iterator[str]:
    if not (source.python and source.path.rpartition("/")[2].startswith("test_")):
        return
    for line, module, names in source.imports:
        if module == "time" and "sleep" in names:
            yield f"{source.path}:{line}: tests do not sleep; use a virtual clock"
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep":
            yield f"{source.path}:{node.lineno}: tests do not sleep; use a virtual clock"


def machine_path(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r"(?<![\w.])/(work|root|home|Users)/\w", line) or ".py" + "env/versions" in line:
            yield f"{source.path}:{number}: a path of one machine: {line.strip()[:80]}"


def chance(source: Source) -> Iterator[str]:
    if not source.pure:
        return
    for line, module, names in source.imports:
        if module == "random" and names != ("Random",):
            yield f"{source.path}:{line}: a core draws from an injected random.Random only"


def clock(source: Source) -> Iterator[str]:
    if not source.pure:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("now", "utcnow", "today"):
            yield f"{source.path}:{node.lineno}: a core is told the time"


def coroutine(source: Source) -> Iterator[str]:
    if not source.pure or source.path in COROUTINES:
        return
    for node in source.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield f"{source.path}:{node.lineno}: a core waits for nobody"


def third_party(source: Source) -> Iterator[str]:
    library = next((library for library in LIBRARIES if source.path.startswith(library)), None)
    if not source.python or library is None:
        return
    allowed = IMPORTS[library] | IMPORTS.get(source.path, set()) | set(sys.stdlib_module_names)
    for line, module, _ in source.imports:
        if module.partition(".")[0] not in allowed:
            yield f"{source.path}:{line}: imports {module}, which its installation does not promise"


def reach(source: Source) -> Iterator[str]:
    if not source.path.startswith("broker/"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and (found := REACH.search(ast.unparse(node))):
            yield f"{source.path}:{node.lineno}: {found[0]} reaches through two objects; take the {found[1]} itself"


def unbounded(source: Source) -> Iterator[str]:
    if not (source.python and source.path.startswith(LIBRARIES)):
        return
    for node in source.nodes:
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called == "open_memory_channel" and node.args and "inf" in ast.unparse(node.args[0]):
                yield f"{source.path}:{node.lineno}: a channel without a limit"
            if called == "spawn_system_task":
                yield f"{source.path}:{node.lineno}: a task outside any nursery"


@functools.cache
def named_outside() -> frozenset[str]:
    """``module.name`` of what code outside of the tests imports, or may take from a module that it imports; and of what
    a text names so."""
    found: set[str] = set()
    for source in sources():
        if source.path.startswith("tests/"):
            continue
        if not source.python:
            found.update(f"{module}.{name}" for module, name in re.findall(r"([\w.]+)[.:](\w+)", source.text))
            found.update(f"{module}.{name}" for module, names in re.findall(r"from ([\w.]+) import (.+)", source.text)
                         for name in re.findall(r"\w+", names))
            continue
        imported = {f"{module}.{name}" for _, module, names in source.imports for name in names}
        modules = (imported | {module for _, module, names in source.imports if not names}) & MODULES
        found |= imported | {f"{module}.{word}" for module in modules for word in re.findall(r"\w+", source.text)}
    return frozenset(found)


def unused(source: Source) -> Iterator[str]:
    """What a decorator takes is registered; worlds of simulated machines are made for tests."""
    if not source.python or source.path.partition("/")[0] not in PACKAGES or source.path.startswith(WORLDS):
        return
    module = source.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    by_name = next((names for path, names in BY_NAME.items() if source.path.startswith(path)), re.compile("__.*__"))
    for node in source.tree.body:
        match node:
            case (ast.FunctionDef(name=name, decorator_list=[]) | ast.AsyncFunctionDef(name=name, decorator_list=[])
                  | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)])
                  | ast.AnnAssign(target=ast.Name(id=name))) if not by_name.fullmatch(name):
                if len(re.findall(rf"\b{name}\b", source.text)) == 1 and f"{module}.{name}" not in named_outside():
                    yield f"{source.path}:{node.lineno}: nothing but tests names {name}"


def argued_ignores(source: Source) -> Iterator[str]:
    if source.path != "pyproject.toml":
        return
    block = re.search(r"^ignore = \[\n(.*?)^\]", source.text, re.MULTILINE | re.DOTALL)
    for line in block[1].splitlines() if block else ["no list of ignored rules found"]:
        if "#" not in line:
            yield f"{source.path}: an ignored rule without its reason: {line.strip()}"


def error_tree(source: Source) -> Iterator[str]:
    if source.path not in {f"{library}errors.py" for library in LIBRARIES}:
        return
    drawn: list[tuple[str, str]] = []
    stack: list[str] = []
    for line in (ast.get_docstring(source.tree) or "").splitlines():
        if found := re.fullmatch(r"\s*((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)(  .*)?", line):
            branch = "── " in line
            depth = len(found[1]) // 4 + 1 if branch else 0
            if not branch and stack:
                continue
            stack[depth:] = [found[2]]
            drawn.append((found[2], stack[depth - 1] if depth else "Exception"))
    written = [
        (node.name, ast.unparse(node.bases[0]))
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and node.bases and not ast.unparse(node.bases[0]).startswith("enum.")
    ]
    for name, parent in sorted(set(drawn) ^ set(written)):
        where = "the docstring" if (name, parent) in drawn else "the classes"
        yield f"{source.path}: {name}({parent}) stands only in {where}"


WORLDS = "harness/simulation/worlds/"
BY_NAME = {
    "harness/chaos/": re.compile("__.*__|NAME|ABOUT|arguments|run"),  # by the command, of each of its parts
    "raft/pytest_plugin.py": re.compile("pytest_.*"),
}
"""Names that are looked up by other programs, by path."""
MODULES = frozenset(each.name for each in TREE.modules)
REACH = re.compile(r"\.(?:_?journal|_?store)\.(log|messages|visible|trust|veil|writer|flusher|cleaner)\.\w+$")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
TEST_ID = re.compile(r"\b(tests/[\w/]+\.py)::([\w.:]+)")


def slug(heading: str) -> str:
    """The anchor that renderers of Markdown make of a heading."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def links(source: Source) -> Iterator[str]:
    if not source.path.endswith(".md"):
        return
    text = re.sub(r"```.*?```", "", source.text, flags=re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / source.path).parent / path if path else ROOT / source.path
        if not file.exists():
            yield f"{source.path}: link to {target}, which is not there"
        elif anchor and file.suffix == ".md":
            body = source.text if not path else file.read_text(encoding="utf-8")
            if anchor not in map(slug, re.findall(r"^#+ (.*)$", body, re.MULTILINE)):
                yield f"{source.path}: link to {target}, and no heading makes that anchor"


def named_tests(source: Source) -> Iterator[str]:
    if not source.path.endswith(".md"):
        return
    for path, name in TEST_ID.findall(source.text):
        if path not in by_path() or name.replace("::", ".") not in by_path()[path].names:
            yield f"{source.path}: names the test {path}::{name}, which does not exist"


Check = Callable[[Source], Iterator[str]]

CHECKS: list[tuple[Check, str, str]] = [
    (file_length, "raft/a.py", "x = 1\n" * 801),
    (function_length, "raft/a.py", "class A:\n  def f(self):\n" + "    x = 1\n" * 60),
    (module_docstring, "raft/a.py", '"""One sentence."""\nx = 1\n'),
    (file_name, "raft/utils.py", ""),
    (real_sleep, "tests/test_a.py", "import time\ntime.sleep(1)\n"),
    (real_sleep, "tests/test_a.py", "from time import sleep\n"),
    (machine_path, "docs/a.md", "see /" + "home/me/notes"),
    (chance, "raft/a.py", "import random\n"),
    (chance, "raft/a.py", "from random import random\n"),
    (chance, "harness/fleet/a.py", "import random\n"),
    (clock, "analysis/report/a.py", "from datetime import datetime\nat = datetime.now()\n"),
    (coroutine, "broker/ha/a.py", "async def wait(): ...\n"),
    (third_party, "raft/a.py", "import requests\n"),
    (third_party, "raft/a.py", "import prometheus_client\n"),
    (third_party, "remoting/a.py", "import raft\n"),
    (reach, "broker/a.py", "end = self._journal.log.max_offset\n"),
    (unbounded, "raft/a.py", "import math, trio\ntrio.open_memory_channel(math.inf)\n"),
    (unbounded, "raft/a.py", "import trio\ntrio.lowlevel.spawn_system_task(f)\n"),
    (unused, "raft/a.py", "LEFT = 1\n"),
    (unused, "raft/a.py", "def left(): ...\n"),
    (unused, "raft/node.py", "class Left: ...\n"),
    (argued_ignores, "pyproject.toml", 'ignore = [\n  "E501",\n]\n'),
    (error_tree, "raft/errors.py", '"""E.\n\n    RaftError\n    └── Gone   a\n"""\nclass RaftError(Exception): ...'),
    (error_tree, "raft/errors.py", '"""E.\n\n    RaftError\n"""\nclass RaftError(Exception): ...\nclass B(A): ...'),
    (links, "docs/a.md", "[there](nowhere.md)"),
    (links, "README.md", "# One\n[there](#two)"),
    (named_tests, "docs/a.md", "shown by tests/test_tidy.py::test_of_nothing"),
]


@pytest.mark.parametrize("check", dict.fromkeys(row[0] for row in CHECKS), ids=lambda check: check.__name__)
def test_tree_is_tidy(check: Check) -> None:
    offences = [offence for source in sources() for offence in check(source)]
    if offences:
        pytest.fail("\n".join(offences), pytrace=False)


@pytest.mark.parametrize(("check", "path", "text"), CHECKS)
def test_check_objects(check: Check, path: str, text: str) -> None:
    assert list(check(Source(path, text)))


def test_every_exemption_is_needed() -> None:
    long = {
        f"{source.path}::{name}"
        for source in sources() if source.python
        for name, node in source.functions if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert set(LONG_FUNCTIONS) <= long


def test_every_module_is_a_core_or_a_shell_or_of_a_simulator() -> None:
    """A new module must say which it is, in pyproject.toml: in a contract, or among the shells."""
    unclear = [f"{each.name}: {' and '.join(each.kinds) or 'neither core nor shell'}" for each in TREE.modules
               if each.path.name != "__init__.py" and len(each.kinds) != 1]
    assert not unclear, "\n".join(unclear)


def test_every_folder_of_modules_is_a_package() -> None:
    """Else it is found here, and not in the zip that Spark's workers get, which knows no namespace packages."""
    folders = {each.path.parent for each in TREE.modules}
    assert not [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()]


def test_every_core_and_shell_that_is_named_exists() -> None:
    names = {each.name for each in TREE.modules}
    gone = [pattern for kind in TREE.patterns.values() for pattern in kind if "*" not in pattern
            and pattern not in names]
    gone += [pattern for pattern in TREE.patterns["shell"] if not any(fnmatch(name, pattern) for name in names)]
    assert not gone, gone


def test_every_contract_of_cores_forbids_the_whole_operating_system() -> None:
    contracts = [each for each in TREE.settings["tool"]["importlinter"]["contracts"]
                 if "trio" in each.get("forbidden_modules", ()) and "simulator" not in each["id"]]
    assert len(contracts) > 10
    left_out = {each["id"]: OPERATING_SYSTEM - set(each["forbidden_modules"]) for each in contracts}
    assert {name: left for name, left in left_out.items() if left} == ALLOWED


def test_every_core_that_awaits_does() -> None:
    for path in COROUTINES:
        assert "await" in (ROOT / path).read_text(encoding="utf-8")


def test_asserts_are_on() -> None:
    """Asserts are part of the product's checks; a suite run under ``python -O`` would prove little."""
    with pytest.raises(AssertionError):
        assert not CHECKS
