"""What the two wheels and the imports of their libraries bring: exactly what they promise, and not a module more.

Builds the wheels with the tools at hand, without a network. Times are printed by the benchmarks, never asserted.
"""

from __future__ import annotations

import ast
import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata as installed
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

import raft

ROOT = Path(__file__).parent.parent


def built(project: Path, out: Path, **environment: str) -> zipfile.ZipFile:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--wheel-dir", str(out), str(project)],
        check=True, env={**os.environ, **environment},
    )
    (path,) = out.glob("quorate*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return built(ROOT / "raft", tmp_path_factory.mktemp("raft"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return built(ROOT, tmp_path_factory.mktemp("quorate"))


def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / "raft").rglob("*.py")}
    assert inside == on_disk | {"raft/py.typed"}


def test_wheel_carries_the_license_and_the_commands(wheel: zipfile.ZipFile) -> None:
    by_name = {name.rpartition("/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert wheel.read(by_name["LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    commands = wheel.read(by_name["entry_points.txt"]).decode()
    for name, module in (("raftlog", "raft.raftlog"), ("raftctl", "raft.cli")):
        assert f"{name} = {module}:main" in commands
        assert f"{name} = raft.command:main" in commands, "which looks first whose package raft is"


PROBE = """
import importlib.abc, runpy, sys
import raft.config, raft.pytest_plugin
from _pytest.assertion.rewrite import AssertionRewritingHook


def test_raft_is_as_python_loads_it(explore):
    assert "/wheel/" in raft.__file__, raft.__file__
    rewritten = [name for name, module in sys.modules.items()
                 if name.partition(".")[0] == "raft" and isinstance(module.__spec__.loader, AssertionRewritingHook)]
    assert set(rewritten) <= {"raft.pytest_plugin"}
    sys.modules.pop("raft.sim.__main__", None)
    sys.argv[1:] = ["--version"]
    try:
        runpy.run_module("raft.sim", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        assert not ended.code
"""


def test_pytest_rewrites_nothing_of_the_library_that_is_installed(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    """Of a wheel that has a plug-in as an entry point it rewrites every package."""
    wheel.extractall(tmp_path / "wheel")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["raft.pytest_plugin"]\n')
    (tmp_path / "test_probe.py").write_text(PROBE)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path, check=False,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path / "wheel")})
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_asks_for_pytest_in_an_extra_alone(wheel: zipfile.ZipFile) -> None:
    (asked,) = [line for line in metadata(wheel).get_all("Requires-Dist", []) if line.startswith("pytest")]
    assert asked.endswith(('extra == "test"', "extra == 'test'"))


def test_the_plug_in_loads_no_simulator_and_no_trio() -> None:
    """A run of pytest that explores nothing pays the import of ``raft`` and nothing else."""
    code = "import sys, pytest; before = set(sys.modules); import raft.pytest_plugin; print(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = {name for name in result.stdout.split() if name.startswith("raft.") or name in ("trio", "socket", "ssl")}
    assert "raft.pytest_plugin" in loaded
    assert not {name for name in loaded if name.startswith("raft.sim")} | loaded & {"trio", "ssl"}


def test_dependencies_are_the_four_and_bounded(wheel: zipfile.ZipFile) -> None:
    required = [line for line in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in required}
    assert names == {"trio", "attrs", "cbor2", "google-crc32c"}
    assert [line for line in required if ">=" not in line] == []


def test_the_version_is_one(wheel: zipfile.ZipFile, whole: zipfile.ZipFile) -> None:
    assert metadata(wheel)["Version"] == raft.__version__
    assert f"quorate-raft=={raft.__version__}" in metadata(whole).get_all("Requires-Dist", [])


@pytest.mark.parametrize("module", ["raft.cli", "raft.raftlog", "raft.sim"])
def test_every_command_of_raft_says_its_version(module: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", module, "--version"], cwd=ROOT, check=True, capture_output=True, text=True)
    assert result.stdout.split()[-1] == raft.__version__


def test_import_raft_loads_no_trio() -> None:
    code = "import sys, raft; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(result.stdout.split())
    assert "raft" in loaded
    assert not loaded & {"trio", "asyncio", "socket", "ssl", "prometheus_client", "rich"}


# --- quorate: all the rest -----------------------------------------------------------------------------------

PACKAGES = {"remoting", "controller", "broker", "mqcluster", "harness", "analysis"}


def test_the_other_wheel_holds_the_other_packages(whole: zipfile.ZipFile) -> None:
    launchers = {name for name in whole.namelist() if ".data/scripts/" in name}
    assert {name.rpartition("/")[2] for name in launchers} == {path.name for path in (ROOT / "launchers").iterdir()}
    assert all(whole.read(name).startswith(b"#!python\n") for name in launchers), "pip puts its Python there"
    inside = {name for name in whole.namelist() if ".dist-info/" not in name} - launchers
    assert {name.partition("/")[0] for name in inside} <= PACKAGES
    for package in PACKAGES:
        on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
        assert {name for name in inside if name.startswith(f"{package}/") and name.endswith(".py")} == on_disk
    assert {name for name in inside if not name.endswith((".py", "/py.typed"))} == {
        "analysis/log4j2.properties", "analysis/report/style.css", "analysis/report/templates/charts.html",
        "analysis/report/templates/page.html", "harness/pages/page.css", "harness/pages/page.html",
        "harness/pages/page.js", "harness/nemesis/shim.c",
        *(str(path.relative_to(ROOT)) for path in (ROOT / "harness").glob("*/library/*.toml"))}
    assert "remoting/py.typed" in inside


def test_the_programs_that_run_beside_java_come_when_they_are_asked_for(tmp_path: Path) -> None:
    inside = set(built(ROOT, tmp_path, HATCH_BUILD_HOOK_ENABLE_CUSTOM="true").namelist())
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "harness/processes/java/src").iterdir()}
    assert len(sources) > 5
    assert sources | {"harness/processes/node/exercise.js", "harness/processes/node/package.json"} <= inside


def test_the_other_wheel_needs_the_library_and_little_more(whole: zipfile.ZipFile) -> None:
    required = [line for line in metadata(whole).get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in required}
    assert {"quorate-raft", "trio", "attrs", "orjson"} <= names
    assert [line for line in required if not re.search("[=>]=", line)] == []


def test_import_remoting_loads_neither_trio_nor_raft() -> None:
    modules = "remoting.frame, remoting.bodies, remoting.headers.namesrv, remoting.properties"
    code = f"import sys, {modules}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(result.stdout.split())
    assert "remoting" in loaded
    assert not loaded & {"trio", "asyncio", "socket", "ssl", "raft", "controller"}


# --- what is declared ----------------------------------------------------------------------------------------

PROJECTS = ("raft/pyproject.toml", "pyproject.toml")
DISTRIBUTIONS = {
    "google_crc32c": "google-crc32c", "prometheus_client": "prometheus-client", "py4j": "pyspark",
    "grpc": "grpcio", "opentelemetry": "opentelemetry-proto"}
"""Import name -> distribution, where they differ; py4j is part of what pyspark promises."""
IN_EXTRA = {
    "prometheus-client": "metrics", "h11": "metrics", "rich": "demo", "pyspark": "analysis", "pyarrow": "analysis",
    "numpy": "analysis", "jinja2": "analysis", "markupsafe": "analysis",
    "pytest": "test", "lz4": "client-compression", "zstandard": "client-compression",
    "grpcio": "otlp", "opentelemetry-proto": "otlp",
}
"""What only an extra brings."""


def settings(project: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / project).read_text(encoding="utf-8"))


def declared(project: str, extra: str | None = None) -> set[str]:
    """Distributions that a project asks for by itself, or in an extra; what that takes of another project with it."""
    known = settings(project)["project"]
    lines = known["dependencies"] if extra is None else known["optional-dependencies"].get(extra, [])
    found = set()
    for each in map(Requirement, lines):
        if each.name == "quorate-raft":
            found |= declared(PROJECTS[0])
            for inner in each.extras:
                found |= declared(PROJECTS[0], inner)
        else:
            found.add(canonical(each.name))
    return found


def third_party(package: str) -> dict[str, str]:
    """Distribution -> one file that imports it, where it runs."""
    ours = {"raft", *PACKAGES}
    found: dict[str, str] = {}
    for path in (ROOT / package).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_checkers = {inner for node in ast.walk(tree) if isinstance(node, ast.If)
                        and ast.unparse(node.test) == "TYPE_CHECKING" for inner in ast.walk(node)}
        for node in set(ast.walk(tree)) - for_checkers:
            names = ([alias.name for alias in node.names] if isinstance(node, ast.Import)
                     else [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else [])
            for name in {name.partition(".")[0] for name in names} - ours - sys.stdlib_module_names - {"outcome"}:
                found[canonical(DISTRIBUTIONS.get(name, name))] = str(path.relative_to(ROOT))
    return found


@pytest.mark.parametrize("package", ["raft", *sorted(PACKAGES)])
def test_whatever_is_imported_is_declared_by_the_wheel_that_imports_it(package: str) -> None:
    project = PROJECTS[package != "raft"]
    for name, path in third_party(package).items():
        assert name in declared(project, IN_EXTRA.get(name)), f"{path} imports {name}"


def test_every_extra_brings_what_it_is_for() -> None:
    for project in PROJECTS:
        assert set(settings(project)["project"]["optional-dependencies"]) <= set(IN_EXTRA.values())
    for name, extra in IN_EXTRA.items():
        assert name in declared("pyproject.toml", extra), f"{extra} lacks {name}"


# --- what is pinned ------------------------------------------------------------------------------------------


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines if line[0] != "#")}


def asked_for() -> Iterator[Requirement]:
    """Everything that the projects, their extras, their groups and their builds name."""
    for project in PROJECTS:
        known = settings(project)
        lines = [*known["build-system"]["requires"], *known["project"]["dependencies"]]
        for group in (known["project"]["optional-dependencies"], known.get("dependency-groups", {})):
            lines += [line for named in group.values() for line in named if isinstance(line, str)]
        yield from map(Requirement, lines)


@cache
def needed(name: str) -> frozenset[Requirement]:
    """What an installed distribution asks for here; nothing of one that is not installed."""
    try:
        lines = installed.requires(name) or []
    except installed.PackageNotFoundError:
        return frozenset()
    return frozenset(each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate(
        {"extra": ""}))


def test_everything_that_make_installs_is_pinned_within_its_range() -> None:
    pinned, seen = pins(), set()
    waiting = [each for each in asked_for() if not each.name.startswith("quorate")]
    while waiting:
        each = waiting.pop()
        name = canonical(each.name)
        assert name in pinned, f"constraints.txt has no {name}; `make constraints` writes it"
        assert each.specifier.contains(pinned[name]), f"{name} is pinned to {pinned[name]}, and {each} is asked for"
        if name not in seen:
            seen.add(name)
            waiting += needed(name)
    assert len(seen) > 40


def test_make_installs_nothing_without_the_pins() -> None:
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    free = [line for line in recipes if "pip install" in line and "--constraint constraints.txt" not in line]
    assert all(".venv-newest" in line for line in free), free
    assert "--build-constraint constraints.txt" in next(line for line in recipes if line.startswith("PIP ="))
