"""Completion scripts: for all shells that the library knows, and nothing of it is loaded before one is asked for."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
import shtab

from remoting.daemon.completion import add_completion


def _asked(shell: str) -> pytest.ExceptionInfo[SystemExit]:
    made = argparse.ArgumentParser("prog")
    add_completion(made)
    with pytest.raises(SystemExit) as ended:
        made.parse_args(["--print-completion", shell])
    return ended


@pytest.mark.parametrize("shell", shtab.SUPPORTED_SHELLS)
def test_a_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not _asked(shell).value.code and "prog" in capsys.readouterr().out


def test_an_unknown_shell_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert _asked("ksh93").value.code == 2
    said = capsys.readouterr().err
    assert "no shell 'ksh93'" in said and "bash" in said and "zsh" in said


def test_a_start_does_not_load_it() -> None:
    code = "import sys, broker.cli; assert 'shtab' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
