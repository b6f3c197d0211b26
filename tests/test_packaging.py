"""What the two wheels and the imports of their libraries bring: exactly what they promise, and not a module more.

Builds the wheels with the tools at hand, without a network. Times are printed by the benchmarks, never asserted.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def built(project: Path, out: Path) -> zipfile.ZipFile:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--wheel-dir", str(out), str(project)],
        check=True,
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
    assert "raftlog = raft.raftlog:main" in commands
    assert "raftctl = raft.cli:main" in commands


def test_dependencies_are_the_four_and_bounded(wheel: zipfile.ZipFile) -> None:
    required = [line for line in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in line]
    names = {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower() for line in required}
    assert names == {"trio", "attrs", "cbor2", "google-crc32c"}
    assert [line for line in required if ">=" not in line] == []


def test_import_raft_loads_no_trio() -> None:
    code = "import sys, raft; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    loaded = set(result.stdout.split())
    assert "raft" in loaded
    assert not loaded & {"trio", "asyncio", "socket", "ssl", "prometheus_client", "rich"}


# --- quorate: all the rest -----------------------------------------------------------------------------------

PACKAGES = {"remoting", "controller", "broker", "harness", "analysis"}


def test_the_other_wheel_holds_the_other_packages(whole: zipfile.ZipFile) -> None:
    inside = {name for name in whole.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in inside} <= PACKAGES
    for package in PACKAGES:
        on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
        assert {name for name in inside if name.startswith(f"{package}/") and name.endswith(".py")} == on_disk
    assert "remoting/py.typed" in inside


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
