"""What `pip install ./raft` and `import raft` bring: exactly what they promise, and not a module more.

Builds the wheel with the tools at hand, without a network. Times are printed by the benchmarks, never asserted.
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--wheel-dir", str(out), str(ROOT / "raft")],
        check=True,
    )
    (path,) = out.glob("quorate_raft-*.whl")
    return zipfile.ZipFile(path)


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
