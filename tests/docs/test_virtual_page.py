"""The page on whole services on virtual time: its test finds the bug; the file repeats it; mended, all passes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.chaos.cli import main
from raft.virtual import VirtualHost, VirtualWorld
from raft.virtual.scheduling import TRIED
from tests.docs.test_explore_page import pytest_in

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "servers-on-virtual-time.md").read_text()
FILES = re.findall(r"<!-- file: (\w+\.py) -->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FOUND = re.compile(r"seed \d+: (\d+) decisions shrunk to (\d+) in \d+ runs")


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, mark
    return found[1]


def plain(said: str) -> list[str]:
    """Lines of a finding without what hangs on each step of the library: moments, names and counts."""
    return [re.sub(r"\bn\d\b|[\d.]+", "N", line).strip() for line in said.splitlines() if line.strip()]


@pytest.mark.slow
def test_the_page_from_its_first_line_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    status, said = pytest_in(tmp_path, "test_service.py")
    assert status == 1
    found = FOUND.search(said)
    assert found and int(found[2]) * 10 < int(found[1]), said  # how small, hangs on the time it had
    lines = [re.sub(r"^E +", "", line) for line in plain(said)]
    for line in plain(block("says")):
        if " ms " not in line:  # which faults it were is another question with another version
            assert any(line.split(": assert")[0].split(" decisions)")[0] in each for each in lines), (line, said)
    (tape,) = (tmp_path / ".search").glob("*.json")

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    what = "test_service.py:each_request_counts_once"
    assert main(["sim", what, "--replay", str(tape)]) == 1

    service, text = tmp_path / "service.py", (tmp_path / "service.py").read_text()
    start, end = text.index("class Counter"), text.index("async def serve")
    service.write_text(text[:start] + block("mend: service.py") + "\n\n" + text[end:])
    again = tmp_path / "test_service.py"
    again.write_text(again.read_text().replace("seeds=20", "seeds=3"))
    once = next(code for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
                if "test_the_same_seed" in code)
    (tmp_path / "test_once.py").write_text(once)
    status, said = pytest_in(tmp_path, "test_service.py", "test_once.py")
    assert status == 0, said
    (command,) = re.findall(r"^chaos (sim .*)$", PAGE, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "harness.chaos", *shlex.split(command.replace("10M", "10k").replace("jobs 2", "jobs 1")),
         "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and '"verdict": "passed"' in done.stdout, done.stdout + done.stderr


def test_the_table_names_what_exists() -> None:
    owners = {each.__name__: each for each in (VirtualWorld, VirtualHost)}
    rows = re.findall(r"^\| `(Virtual\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    assert {owner for owner, _ in rows} == owners.keys()
    world_of_its_own = {"disk", "happened"}  # made by the constructor
    for owner, verbs in rows:
        for verb in re.findall(r"`(\w+)", verbs):
            assert hasattr(owners[owner], verb) or verb in world_of_its_own, f"{owner}.{verb}"


def test_the_page_says_which_trio_was_tried() -> None:
    oldest, newest = (".".join(map(str, each)) for each in TRIED)
    assert f"trio {oldest} to {newest}" in " ".join(PAGE.split())
