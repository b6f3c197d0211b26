"""What ``chaos shrink`` has to find again: the same promise of the same checker, and of several the gravest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.chaos.cli import main
from harness.chaos.shrink import failures
from harness.chaos.subcommand import USAGE, Refused
from tests.harness.chaos.test_playing import written
from tests.harness.chaos.test_run import CHAOS, ENVIRONMENT, KILLS, chaos, left, wait_until


def run_directory(root: Path, **checkers: dict[str, Any]) -> Path:
    (root / "verdict.json").write_text(json.dumps({"valid": False, "checkers": checkers}))
    return root


def broken(*promises: tuple[str, int]) -> dict[str, Any]:
    return {"valid": False, "broken": [{"promise": promise, "what": "w"} | ({"prefix": prefix} if prefix else {})
                                       for promise, prefix in promises]}


def test_each_promise_is_a_failure_of_its_own_and_the_gravest_comes_first(tmp_path: Path) -> None:
    found = failures(run_directory(
        tmp_path, nodes=broken(("well", 0)), recovery=broken(("within", 0)),
        queue=broken(("place", 9), ("lost", 0), ("place", 7)), mine={"valid": False, "prefix": 4},
        good={"valid": True}))
    assert [*found.items()] == [("mine", 4), ("queue: lost", 0), ("queue: place", 7), ("recovery: within", 0),
                                ("nodes: well", 0)]


def test_a_run_without_a_verdict_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="has no verdict"):
        failures(tmp_path)
    with pytest.raises(Refused, match="has no verdict"):
        failures(run_directory(tmp_path, queue={}))
    (tmp_path / "verdict.json").write_text('{"checkers": [1]}')
    with pytest.raises(Refused, match="has no verdict"):
        failures(tmp_path)


def test_what_was_not_broken_cannot_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = chaos(tmp_path, "run", "kill-store", "--seed", "6", "--seconds", "1.2", "--out", "run", "--no-sandbox")
    assert made.returncode == 0, made.stderr
    run_directory(tmp_path / "run", queue=broken(("lost", 3)))
    assert main(["shrink", str(tmp_path / "run"), "--promise", "queue: place"]) == USAGE
    assert "broke no queue: place, but queue: lost" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ["shrink", "run", "--no-sandbox"],
    ["compare", str(KILLS), "--side", "a=store", "--side", "b=store", "--out", "runs"]])
def test_nothing_is_left_of_what_plays_runs_itself(tmp_path: Path, command: list[str]) -> None:
    """Of one that is killed with -9 itself, while a run goes on below it."""
    written(tmp_path / "run")
    run_directory(tmp_path / "run", queue=broken(("lost", 3)))
    played = {"shrink": tmp_path / "run" / "tries" / "try-1", "compare": tmp_path / "runs" / KILLS.stem / "1-store"}
    with subprocess.Popen([*CHAOS, *command], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as harness:
        wait_until(lambda: len(left(played[command[0]])) >= 3)
        harness.kill()
    wait_until(lambda: not left(played[command[0]]), 5)
    assert not (played[command[0]] / "verdict.json").exists(), "it did not go on to its end"
