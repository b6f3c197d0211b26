"""A command whose packages are somebody else's says so; a checkout and an editable install are what they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from raft.command import in_the_way
from remoting.daemon.child import child

ROOT = Path(__file__).parents[2]
RAFTCTL = "import sys; sys.argv[0] = '/usr/bin/raftctl'; from raft.command import main; sys.exit(main())"
SCRIPT = "import sys; sys.argv[0] = '/usr/bin/mqbroker'; from remoting.daemon.command import main; sys.exit(main())"


def installed(site: Path, name: str, files: Mapping[str, str], *, entry_points: str = "") -> None:
    """As pip leaves it."""
    info = f"{name.replace('-', '_')}-1.2.dist-info"
    written = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"}
    if entry_points:
        written[f"{info}/entry_points.txt"] = entry_points
    record = []
    for path, content in written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(content)
        digest = urlsafe_b64encode(sha256(content.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    (site / info / "RECORD").write_text("\n".join([*record, f"{info}/RECORD,,\n"]))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Ours, of which one package is enough, and the module that looks."""
    made = tmp_path / "site"
    looks = {f"remoting/daemon/{name}": (ROOT / "remoting/daemon" / name).read_text()
             for name in ("__init__.py", "command.py", "version.py")}
    installed(made, "quorate-raft", {
        "raft/__init__.py": "", "raft/command.py": (ROOT / "raft/command.py").read_text(),
        "raft/cli.py": "def main(): print('raftctl runs')\n",
    }, entry_points="[quorate.commands]\nraftctl = raft.cli:main\n")
    installed(made, "quorate", {
        **looks, "remoting/__init__.py": "", "broker/__init__.py": "", "broker/cli.py": "def main(): print('runs')\n",
    }, entry_points="[quorate.commands]\nmqbroker = broker.cli:main\n")
    return made


def run(*path: Path, here: Path | None = None, script: str = SCRIPT) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", script], check=False, capture_output=True, text=True, cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))})
    return done.returncode, done.stdout + done.stderr


def test_what_is_ours_runs(site: Path) -> None:
    assert run(site) == (0, "runs\n")


def test_what_the_libraries_of_an_extra_are_for_is_said_where_they_are_missing(site: Path) -> None:
    (site / "quorate-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: quorate\nVersion: 1.2\nProvides-Extra: broker\n")
    (site / "broker/cli.py").write_text("import pyspark.sql\n")
    code, said = run(site)
    assert (code, said.splitlines()) == (2, [
        "mqbroker: pyspark is not installed here: pip install 'quorate[broker]', in a checkout pip install ./raft "
        "'.[broker]'"])


def test_who_interrupts_a_command_sees_no_trace(site: Path) -> None:
    installed(site, "quorate", {"broker/__init__.py": "", "broker/cli.py": "raise KeyboardInterrupt\n"},
              entry_points="[quorate.commands]\nmqbroker = broker.cli:main\n")
    assert run(site) == (130, "")


def test_somebody_elses_package_over_ours_is_named(site: Path) -> None:
    installed(site, "broker", {"broker/__init__.py": "raise ImportError('of another program')\n"})
    code, said = run(site)
    assert code == 1 and said.startswith("mqbroker: ") and len(said.splitlines()) == 1
    assert f"{site}/broker/__init__.py was written over by broker 1.2" in said and "install quorate again" in said


def test_somebody_elses_package_in_front_of_ours_is_named(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    installed(other, "broker", {"broker/__init__.py": "raise ImportError('of another program')\n"})
    code, said = run(other, site)
    assert code == 1 and f"{other}/broker/__init__.py stands before {site}/broker/__init__.py by broker 1.2" in said


def test_a_command_of_raft_looks_for_its_own_package_alone(site: Path) -> None:
    installed(site, "broker", {"broker/__init__.py": "raise ImportError('of another program')\n"})
    assert run(site, script=RAFTCTL) == (0, "raftctl runs\n")
    installed(site, "raft", {"raft/__init__.py": "# of another program\n"})
    code, said = run(site, script=RAFTCTL)
    assert code == 1 and said.startswith("raftctl: ") and len(said.splitlines()) == 1
    assert f"{site}/raft/__init__.py was written over by raft 1.2" in said and "install quorate-raft again" in said


def test_somebody_elses_raft_is_named_whatever_it_raises(site: Path) -> None:
    installed(site, "raft", {"raft/__init__.py": "raise ValueError('of another program')\n"})
    code, said = run(site)
    assert code == 1 and said.startswith("mqbroker: ") and len(said.splitlines()) == 1
    assert f"{site}/raft/__init__.py is not that of quorate-raft (ValueError: of another program)" in said


def test_a_package_that_is_gone_is_named(site: Path) -> None:
    (site / "broker/__init__.py").unlink()
    (site / "broker/cli.py").unlink()
    (site / "broker").rmdir()
    assert "broker/__init__.py is gone" in run(site)[1]


def test_a_checkout_in_front_is_meant(site: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "broker").mkdir(parents=True)
    (checkout / "pyproject.toml").write_text('[project]\nname = "quorate"\n')
    (checkout / "broker/__init__.py").write_text("")
    (checkout / "broker/cli.py").write_text("def main(): print('of the checkout')\n")
    assert run(checkout, site) == (0, "of the checkout\n")


def test_an_editable_install_lists_no_packages(site: Path, tmp_path: Path) -> None:
    editable = tmp_path / "editable"
    installed(editable, "quorate", {"_quorate.pth": str(site)},
              entry_points="[quorate.commands]\nmqbroker = broker.cli:main\n")
    assert run(editable, site) == (0, "runs\n")


# --- what pip's list says ---------------------------------------------------------------------------------------------


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution ``shop`` on this process's path, of which nothing is imported, and its list."""
    installed(tmp_path / "site", "shop", {"shop_goods/__init__.py": "", "shop_goods/of/__init__.py": "", "one.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site" / "shop-1.2.dist-info" / "RECORD"


def found(*distributions: str) -> list[str]:
    return list(in_the_way(distributions or ("shop",)))


def test_a_distribution_that_is_whole_or_not_there_is_in_order(listed: Path) -> None:
    assert found() == [] and found("no such distribution") == []
    listed.unlink()
    assert found() == [], "who installed it kept no list"


@pytest.mark.parametrize("line", ["shop_goods/__init__.py,,", "shop_goods/__init__.py,,\n\n", "shop_goods/__init__.py"])
def test_a_list_without_digests_vouches_for_the_place_alone(listed: Path, line: str) -> None:
    listed.write_text(line)
    listed.parents[1].joinpath("shop_goods/__init__.py").write_text("# changed\n")
    assert found() == []


def test_a_package_that_was_written_over_has_its_writer_named(listed: Path) -> None:
    installed(listed.parents[1], "thief", {"shop_goods/__init__.py": "# of another program\n"})
    (fault,) = found()
    assert fault.startswith(f"{listed.parents[1]}/shop_goods/__init__.py was written over by thief 1.2, so shop_goods")
    assert found("shop", "thief")[0].startswith(f"{listed.parents[1]}/shop_goods/__init__.py was written over, so")


def test_a_folder_of_the_same_name_is_no_package(listed: Path) -> None:
    listed.parents[1].joinpath("shop_goods/__init__.py").unlink()
    (fault,) = found()
    assert fault.startswith(f"{listed.parents[1]}/shop_goods/__init__.py is gone, so shop_goods is not that of shop")


@pytest.mark.parametrize("project", ["", "raft"])
@pytest.mark.parametrize("name", ["shop", "other"])
def test_a_folder_in_front_is_meant_if_it_is_a_checkout_of_the_same(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str, name: str,
) -> None:
    front = tmp_path / "front"
    for folder in (front / "shop_goods", front / project):
        folder.mkdir(parents=True, exist_ok=True)
    (front / "shop_goods/__init__.py").write_text("")
    (front / project / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    monkeypatch.syspath_prepend(str(front))
    said = [f"{front}/shop_goods/__init__.py stands before {listed.parents[1]}/shop_goods/__init__.py"]
    assert [fault.partition(", so ")[0] for fault in found()] == ([] if name == "shop" else said)


# --- children --------------------------------------------------------------------------------------------------------


def test_children_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    for name in ("trio", "broker", "attrs", "remoting"):
        (tmp_path / f"{name}.py").write_text("print('of the working directory')\n")
    done = subprocess.run([*child("broker.cli"), "--version"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("mqbroker ")


def test_a_checkout_that_is_not_installed_has_children(tmp_path: Path) -> None:
    """Whoever starts there has it on the path; they have it from their command line."""
    [_, safe, _, statements] = child("remoting.daemon.version", "print('first')")
    assert safe == "-P" and f"sys.path.append('{ROOT}'); print('first'); from remoting" in statements


def test_every_child_of_a_package_is_started_so() -> None:
    """But for workers of the benchmarks and the fuzzer, which are run in a checkout alone."""
    found = []
    for package in ("remoting", "controller", "broker", "mqcluster", "harness", "analysis", "raft"):
        for path in (ROOT / package).rglob("*.py"):
            found += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in path.read_text().splitlines()
                      if re.search(r"[\[(]\s*sys\.executable,", line) and '"-P"' not in line]
    for path in (ROOT / "harness").rglob("*.toml"):
        found += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in path.read_text().splitlines()
                  if '"{python}", ' in line and '"{python}", "-P"' not in line]
    assert found == []
