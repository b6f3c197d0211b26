"""The page on torturing a service of one's own, as its reader follows it: its files, its commands, what they find."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_packaging import built

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "torture-your-own-service.md").read_text()
REGKV = ROOT / "docs" / "examples" / "torture" / "regkv"
COMMANDS = re.findall(r"^ +chaos (.*)$", PAGE, re.MULTILINE)
FOUND = "--option"
"""Commands that plant a bug have it, and must end with 1; so must replaying and shrinking what they made."""


def chaos(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "harness.chaos", *command.split()], cwd=folder,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200,
                          check=False)


@pytest.mark.slow
def test_the_store_is_right_and_its_bug_is_found(tmp_path: Path) -> None:
    said = []
    for command in (each for each in COMMANDS if "regkv" not in each):
        told = chaos(tmp_path, command)
        broken = FOUND in command or "kill-store-2" in command
        assert told.returncode == (1 if broken else 0), f"{command}\n{told.stdout}{told.stderr}"
        said.append(told.stdout)
    assert "kill store-1" in said[-1] and re.search("now: [12] faults; [1-3] of [1-3] runs failed", said[-1]), (
        f"one fault is enough, as often as processes that run in real time show it\n{said[-1]}")
    for text in re.findall(r"^```text\n(linear.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        assert any(all(line in each for line in text.splitlines()) for each in said), text


@pytest.mark.campaign
@pytest.mark.slow
def test_the_store_in_go_is_right_and_its_bug_is_found(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("not run: go is missing")
    for command in (each for each in COMMANDS if "regkv" in each):
        told = chaos(tmp_path, command.replace("docs/examples/torture/regkv", str(REGKV)).replace("12", "6"))
        assert told.returncode == (1 if FOUND in command else 0), f"{command}\n{told.stdout}{told.stderr}"


@pytest.mark.slow
def test_the_wheels_alone_give_verdicts(tmp_path: Path) -> None:
    """The first command of the page, and a copy to change, where nothing of the checkout is at hand."""
    for name, project in (("raft", ROOT / "raft"), ("whole", ROOT)):
        with built(project, tmp_path / name) as wheel:
            wheel.extractall(tmp_path / "installed")
    (tmp_path / "work").mkdir()
    code = "import sys; from harness.chaos.cli import main; sys.exit(main())"

    def told(command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *command.split()], cwd=tmp_path / "work", capture_output=True, text=True,
            timeout=200, check=False, env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "linearizable register: holds" in told(COMMANDS[0])
    asked = (tmp_path / "work" / "chaos-runs" / "kill-store-1" / "asked.json").read_text()
    assert str(tmp_path / "installed") in asked, "the target is the wheel's"
    copy, run = (each for each in COMMANDS if "mine" in each)
    assert "mine/store/client.py" in told(copy)
    assert "linearizable register: holds" in told(run)
    asked = (tmp_path / "work" / "chaos-runs" / "kill-store-2" / "asked.json").read_text()
    assert str(tmp_path / "work" / "mine") in asked, "the target is the copy"


def test_the_files_on_the_page_are_those_of_the_example() -> None:
    shown = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == [(REGKV / name).read_text() for name in ("target.toml", "partition.toml")]
