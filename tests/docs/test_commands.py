"""Every command that the README and the manual show is one: its program is there and takes these arguments.

Programs are run up to the point where their arguments are parsed; ``make`` is asked what it would do.
"""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from analysis import cli as report_cli
from analysis import monitor
from broker import cli as broker_cli
from broker.container import cli as container_cli
from controller import cli as controller_cli
from controller.admin import cli as admin_cli
from controller.admin.command import COMMANDS
from controller.namesrv import cli as namesrv_cli
from harness.chaos import cli as chaos_cli
from mqcluster import cli as cluster_cli
from raft.cli import ADDRESSES_VARIABLE
from remoting.daemon import shutdown

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")),
         *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = {"raftctl": "raft.cli", "raftlog": "raft.raftlog"}
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "mqcontroller": controller_cli.parser, "mqnamesrv": namesrv_cli.parser, "mqadmin": admin_cli.parser,
    "mqbroker": broker_cli.parser, "mqbrokercontainer": container_cli.parser,
    "mqcluster": cluster_cli.parser, "raft-report": report_cli.parser,
    "raft-monitor": monitor.parser, "mqshutdown": shutdown.parser, "chaos": chaos_cli.parser}
OWN = ("raft", "benchmarks", "tests", "fuzz", "harness")
NO_ARGUMENTS = {"tests.raft.bugs.registry", "tests.controller.defects", "tests.broker.defects", "tests.promises.page",
                "tests.broker.acting.overlaps"}
"""Modules that take none: only that they exist is checked."""


def commands(page: Path) -> list[str]:
    """Lines of blocks, fenced or indented, and inline code, that begin with the name of a program."""
    first = rf"(?:make|python|pip|export|{'|'.join((*PROGRAMS, *PARSERS))}) +[^`\n]*"
    text = page.read_text()
    lines = re.findall(rf"^(?:    )?({first})$", text, re.MULTILINE) + re.findall(rf"`({first})`", text)
    return [line for line in lines if "[" not in line and "COMMAND" not in line]  # patterns, not commands


class Parsed(Exception):
    """Arguments were understood."""


def understand(program: str, arguments: list[str], patch: pytest.MonkeyPatch) -> None:
    """Run a module (or a file), until it has parsed these arguments."""
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, given: Any = None, *rest: Any) -> Any:
        parse(self, given, *rest)  # exits if it does not understand
        raise Parsed

    if program in NO_ARGUMENTS:
        assert find_spec(program) and not arguments
        return
    with patch.context() as here:
        here.setattr(argparse.ArgumentParser, "parse_args", stop)
        here.setattr(sys, "argv", [program, *arguments])
        for name in [name for name in sys.modules if name == program or name == f"{program}.__main__"]:
            here.delitem(sys.modules, name)  # as a fresh interpreter would
        run = partial(runpy.run_module, program)
        if program.endswith(".py"):
            here.syspath_prepend(str((ROOT / program).parent))
            run = partial(runpy.run_path, str(ROOT / program))
        with pytest.raises(Parsed):
            run(run_name="__main__")


def choose_tests(run: str) -> None:
    """Fails if pytest would not take these arguments, or a file among them is not there."""
    name, *arguments = shlex.split(run)
    assert name == "pytest"
    options = {"-n": None, "--dist": ("worksteal",), "-k": None, "-m": None, "--hypothesis-profile": ("deep", "steady")}
    for before, word in zip(["", *arguments], arguments, strict=False):
        option, _, value = word.partition("=")
        if word.startswith("-"):
            assert option in options and (not value or value in (options[option] or ())), word
        elif before not in options:
            assert (ROOT / word).exists(), word


def check(line: str, patch: pytest.MonkeyPatch) -> None:
    """Fails, or exits, if this is no command of ours."""
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        done = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        runs = re.findall(r"^\S*/python (?:-m )?(.*?)(?: \|\| .*)?$", done.stdout, re.MULTILINE)
        own = [shlex.split(run) for run in runs if run.startswith((*OWN, "docs/"))]
        assert own or words in (["check"], ["fix"]) or words[0] in ("test", "campaigns"), done.stdout
        if words[0] in ("test", "campaigns"):
            tests = [run for run in runs if not run.startswith(("pip ", "venv "))]  # for another interpreter's .venv
            assert tests, done.stdout
            for given in tests:
                choose_tests(given)
        for name, *arguments in own:
            understand(name, arguments, patch)
    elif program == "python" and words[0] == "-m":
        understand(words[1], words[2:], patch)
    elif program == "python":
        assert words[0] in "".join(re.findall(r"<!-- file: (\S+) -->", (ROOT / TUTORIAL).read_text()))
    elif program == "pip":
        assert words in (["install", "./raft"], ["install", "./raft", "."])
        assert all((ROOT / folder / "pyproject.toml").exists() for folder in words[1:])
    elif program == "export":
        assert words[0].startswith(f"{ADDRESSES_VARIABLE}=")
    elif program == "mqadmin" and len(words) == 1:
        assert words[0] in COMMANDS  # it is named, not run
    elif program == "chaos" and len(words) == 1:
        assert words[0] in ("--help", *chaos_cli.SUBCOMMANDS)  # it is named, not run
    elif program in PARSERS and words != ["--help"]:
        PARSERS[program]().parse_args(words)
    elif program in PROGRAMS:
        understand(PROGRAMS[program], words, patch)


TUTORIAL = "docs/tutorial/replicated-counter.md"
ALL = {command: None for page in PAGES for command in commands(page)}


@pytest.mark.parametrize("command", ALL)
def test_a_command_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(command, monkeypatch)


def test_commands_are_found() -> None:
    programs = {command.split()[0] for command in ALL}
    assert programs == {"make", "python", "pip", "export", *PROGRAMS, *PARSERS}
    assert len(ALL) > 48


@pytest.mark.parametrize("command", [
    "make nothing", 'make bench-raft ARGS="--no-such"', "python -m raft.nothing", "python -m raft.sim --no-such",
    "python nothing.py", "raftctl nothing", "mqadmin nothing", "mqadmin electMaster -a h:1", "mqcontroller --nothing",
    "raftlog verify", "pip install nothing", "export NOTHING=1", 'make test ARGS="tests/nothing"',
    'make test ARGS="--nothing"',
])
def test_what_is_no_command_is_noticed(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((AssertionError, SystemExit, ImportError)):
        check(command, monkeypatch)
