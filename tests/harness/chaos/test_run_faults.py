"""``chaos run`` with disks that lie and lose power: a store that does not sync is found, and what cannot be is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.chaos.test_run import HOSTS, PLAIN, TARGET, chaos

# The fault comes late: hardly a key is written again before the last reads.
SCENARIO = """
about = "One disk."
target = "{target}"
seconds = 3.5
seed = 1
[workload]
name = "register"
clients = 3
rate = 100.0
keys = 20
[[faults]]
fault = "{fault}"
nodes = "all"
at_s = 2.3
hold_s = [0.9, 0.9]
"""


def scenario(folder: Path, fault: str) -> str:
    path = folder / f"{fault}.toml"
    path.write_text(SCENARIO.format(target=TARGET, fault=fault))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("where", [PLAIN])
def test_a_disk_that_lies_loses_what_was_acknowledged(tmp_path: Path, where: list[str]) -> None:
    lied = chaos(tmp_path, "run", scenario(tmp_path, "lie-disk"), "--out", "run", *where)
    assert lied.returncode == 1, lied.stdout + lied.stderr
    assert "linearizable register: BROKEN" in lied.stdout
    rows = [json.loads(line) for line in (tmp_path / "run" / "nemesis.jsonl").read_text().splitlines()]
    assert [(row["fault"], row["phase"], row["on"]) for row in rows] == [
        ("lie-disk", phase, ["store-1"]) for phase in ("start", "end")]


@pytest.mark.slow
@pytest.mark.parametrize("where", [HOSTS, PLAIN])
def test_a_power_cut_finds_that_the_store_never_syncs(tmp_path: Path, where: list[str]) -> None:
    """Where power cannot be cut it is said, before anything is started."""
    cut = chaos(tmp_path, "run", scenario(tmp_path, "power-cut"), "--out", "run", *where)
    if cut.returncode == 2:
        assert "power-cut" in cut.stderr + cut.stdout and "loop devices need root" in cut.stderr + cut.stdout
        assert not list((tmp_path / "run").glob("nodes/*"))
    else:
        assert cut.returncode == 1, cut.stdout + cut.stderr
        assert "linearizable register: BROKEN" in cut.stdout
        assert "cut the power of store-1" in (tmp_path / "run" / "nemesis.jsonl").read_text()
