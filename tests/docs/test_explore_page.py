"""The page on exploring a machine: its test finds the bug, as printed; the file repeats it; mended, all passes.

One wheel is enough for it, and no right that only root has.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.chaos.cli import main
from raft.pytest_plugin import OPTIONS
from raft.sim import explore
from raft.sim.swarm import PROFILES
from tests.test_packaging import built

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "explore-a-machine.md").read_text()
FILES = re.findall(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, mark
    return found[1]


def pytest_in(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments], cwd=folder,
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_page_from_its_first_line_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    status, said = pytest_in(tmp_path, "test_bank.py")
    assert status == 1
    for line in block("says").splitlines():
        assert line.strip() in said, said
    (tape,) = (tmp_path / ".explore").glob("*/*.json")
    (drawn,) = re.findall(r"^chaos (report .*)$", PAGE, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    assert main(drawn.split()) == 0
    (page,) = tape.parent.glob("*.html")
    assert re.search(r'\["n\d","n\d",\d+,\d+,"Append, term 1"\]', page.read_text()) is not None
    status, said = pytest_in(tmp_path, "test_bank.py::test_bank", "--explore-replay", str(tape))
    assert status == 1
    assert "the failure is still there" in said
    assert "1 earlier failures in" in said, "the header says so"

    bank = tmp_path / "bank.py"
    text = bank.read_text()
    bank.write_text(text[: text.index("    def snapshot")] + block("mend: bank.py"))
    status, said = pytest_in(tmp_path, "test_bank.py", "--explore-seeds", "3")
    assert status == 0, said
    assert "explore: seeds=3" in said
    monkeypatch.syspath_prepend(tmp_path)
    (command,) = re.findall(r"^chaos (sim .*)$", PAGE, re.MULTILINE)
    assert main([*command.replace("500M", "20k").replace("--jobs 2", "--jobs 1").split(), "--json"]) == 0
    assert '"verdict": "passed"' in capsys.readouterr().out


@pytest.mark.slow
def test_one_wheel_gives_the_first_verdict_without_root(tmp_path: Path) -> None:
    """That file and what it needs from the index: neither the checkout nor what it installed is at hand."""
    built(ROOT / "raft", tmp_path / "wheel").close()
    (wheel,) = (tmp_path / "wheel").iterdir()
    installed, work = tmp_path / "installed", tmp_path / "work"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "--target", str(installed), f"{wheel}[test]"], check=True)
    assert [path.name.partition("-")[0] for path in installed.glob("quorate*")] == ["quorate_raft"]
    work.mkdir()
    for name, text in (("pytest.ini", "[pytest]\n"), *FILES):
        (work / name).write_text(text)
    done = subprocess.run(
        [*without_rights(), sys.executable, "-S", "-m", "pytest", "-p", "no:cacheprovider", "test_bank.py"], cwd=work,
        env=os.environ | {"PYTHONPATH": str(installed)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    for line in block("says").splitlines():
        assert line.strip() in done.stdout


def without_rights() -> list[str]:
    """Words before a command that takes from it all that root may do, where the tests are run by root."""
    if os.geteuid() or shutil.which("setpriv") is None:
        return []
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def test_the_test_on_the_page_has_twenty_lines_at_most() -> None:
    assert "and twenty lines" in PAGE
    assert len([line for line in dict(FILES)["test_bank.py"].splitlines() if line]) <= 20


def test_the_table_has_the_options_that_there_are() -> None:
    rows = PAGE.split("\n## Options\n")[1].strip().split("\n\n")[0].splitlines()[2:]
    own = set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows)))
    lines = set(re.findall(r"`--explore-(\w+)`", "".join(row.split("|")[2] for row in rows)))
    assert lines == {*OPTIONS, "replay", "corpus"}
    assert own <= set(inspect.signature(explore).parameters)
    profiles = next(row for row in rows if "`profile`" in row).split("|")[3]
    assert set(re.findall(r"`(\w+)`", profiles)) <= set(PROFILES)


@pytest.mark.parametrize("name", ["invariant", "check", "every_step"])
def test_every_predicate_is_explained(name: str) -> None:
    assert f"`{name}(" in PAGE
