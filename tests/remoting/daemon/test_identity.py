"""A process is known again by its number and its birth, not by its number alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remoting.daemon import identity
from remoting.daemon.identity import born

NOBODY = (1 << 22) + 1
"""Above the highest number that Linux gives."""


def test_two_processes_are_not_born_as_one() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        ours, theirs = born(os.getpid()), born(child.pid)
        assert ours.isdecimal() and theirs.isdecimal() and int(theirs) > int(ours)
        assert born(child.pid) == theirs
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert born(child.pid) == "", "only its remains are there"
    assert born(child.pid) == "" == born(NOBODY)


@pytest.mark.parametrize("name", [") Z 1 (a", "\u00e9" * 8])
def test_a_program_may_have_any_name(tmp_path: Path, name: str) -> None:
    """The system shows 15 bytes of it between brackets, before the time of its birth: half a character, too."""
    program = tmp_path / name
    program.symlink_to("/bin/cat")
    with subprocess.Popen([program], stdin=subprocess.PIPE) as child:
        assert born(child.pid).isdecimal()


def test_without_proc_there_is_only_the_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "PROC", tmp_path)
    assert born(os.getpid()) == "runs" and born(NOBODY) == ""
