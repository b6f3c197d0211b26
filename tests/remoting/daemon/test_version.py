"""Every command that the wheel installs says its version."""

from __future__ import annotations

import importlib
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, WHEEL = SETTINGS["project"], SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]
SCRIPTS: dict[str, str] = PROJECT["entry-points"]["quorate.commands"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_command_says_its_version(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    module, _, function = SCRIPTS[name].partition(":")
    monkeypatch.setattr(sys, "argv", [name, "--version"])
    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), function)()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{name} {metadata.version('quorate')}\n"


def test_every_script_is_a_command_that_looks_who_is_in_the_way() -> None:
    """By an entry point, or by a file that a shell may read, too."""
    files: dict[str, str] = WHEEL["shared-scripts"]
    assert set(files.values()) == {path.name for path in (ROOT / "launchers").iterdir()}
    assert files == {f"launchers/{name}": name for name in files.values()}
    assert all("from remoting.daemon.command import main\n" in (ROOT / file).read_text() for file in files)
    assert PROJECT["scripts"] == dict.fromkeys(
        SCRIPTS.keys() - set(files.values()), "remoting.daemon.command:main")


def test_a_checkout_that_is_not_installed_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from remoting.daemon.version import version

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert version() == "of a checkout that is not installed"
