"""What every simulation owes for a bug that was planted in it: found, made small, repeated, and gone with the bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from raft.sim.campaign import Program
from raft.sim.command import main
from raft.sim.tape import count, load


def found_small_and_repeated(
    program: Program, failure: str, profile: str, bug: pytest.MonkeyPatch, here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twenty seeds find ``failure``; its tape is small, repeats it, and passes when the ``bug`` is undone."""
    arguments = ["--seed", "1", "--seeds", "20", "--jobs", "1", "--out", str(here), "--profile", profile]
    assert main(arguments, program) == 1
    (path,) = here.iterdir()
    said = capsys.readouterr().out
    assert failure in said and f"{program.command} --replay {path}" in said
    assert count(load(path)[0].deviations) < 10
    assert main(["--replay", str(path)], program) == 1
    assert failure in capsys.readouterr().out
    bug.undo()
    assert main(["--replay", str(path)], program) == 0
