"""The systemd units start commands that exist, with flags that they take, and leave them time to stop."""

from __future__ import annotations

import argparse
import configparser
import shlex
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from broker import cli as broker_cli
from broker.container import cli as container_cli
from controller import cli as controller_cli
from controller.namesrv import cli as namesrv_cli

ROOT = Path(__file__).resolve().parents[2]
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "mqbroker": broker_cli.parser, "mqbrokercontainer": container_cli.parser,
    "mqcontroller": controller_cli.parser, "mqnamesrv": namesrv_cli.parser}
UNITS = sorted((ROOT / "docs/examples/systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    read = configparser.ConfigParser(strict=False, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(unit.read_text())
    program, *flags = shlex.split(read["Service"]["ExecStart"])
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["quorate.commands"]
    assert Path(program).name in commands
    options = PARSERS[Path(program).name]().parse_args(flags)
    assert options.configFile.startswith("/etc/rocketmq/")
    assert read["Service"]["Type"] == "notify", "tests/remoting/daemon/test_launch.py shows that each says READY=1"
    assert read["Service"]["KillSignal"] == "SIGTERM"
    assert read["Service"]["ReadWritePaths"] == str(Path(options.configFile).parent), "what is changed is kept there"


def test_there_are_units() -> None:
    assert {unit.stem for unit in UNITS} == set(PARSERS)


def verified(unit: str, here: Path, name: str = "unit.service") -> tuple[int, str]:
    """What systemd says of a unit whose commands are in this environment. It reads the file; nothing is started."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("not run: systemd-analyze is not here (apt-get install systemd)")
    file = here / name
    file.write_text(unit.replace("/opt/quorate/bin", sysconfig.get_path("scripts")))
    run = subprocess.run([tool, "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=60,
                         check=False)
    return run.returncode, run.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    assert verified(unit.read_text(), tmp_path, unit.name) == (0, "")


@pytest.mark.parametrize(("what", "instead", "said"), [
    ("KillMode=mixed", "KilMode=mixed", "'KilMode' in section"),
    ("Type=notify", "Type=notifies", "Failed to parse service type"),
    ("bin/mqbroker -c", "bin/mqbrok -c", "is not executable"),
])
def test_systemd_would_tell(what: str, instead: str, said: str, tmp_path: Path) -> None:
    unit = (ROOT / "docs/examples/systemd/mqbroker.service").read_text()
    assert what in unit
    assert said in verified(unit.replace(what, instead), tmp_path)[1]
