"""All 96 commands of RocketMQ 5.5.0 with all their options: here, or named as absent with the reason.

``commands-5.5.0.txt`` is what ``Commands.java`` prints of the released jar, by reflection; where Java and the jar are
here, it is made anew and compared.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import attrs
import pytest

from controller.admin.absent import ABSENT
from controller.admin.cli import DONE, FAILED, USAGE, main, parser
from controller.admin.command import COMMANDS
from remoting.daemon.child import child
from tests.harness.processes.rocketmq import current_release

RECORDED = Path(__file__).with_name("commands-5.5.0.txt")
OURS = {"changeControllerGroup", "explainController", "importControllerMetaData"}
OF_ALL = {"help", "namesrvAddr"}


@attrs.frozen
class Option:
    """As the original has it."""

    short: str
    long: str
    takes_value: bool
    needed: bool


def original() -> dict[str, list[Option]]:
    found: dict[str, list[Option]] = {}
    options: list[Option] = []
    for line in RECORDED.read_text().splitlines():
        name, *rest = line.split("\t")
        if name:
            options = found[name] = []
        else:
            options.append(Option("" if rest[0] == "null" else rest[0], rest[1], rest[2] == "value", rest[3] != ""))
    return found


@cache
def whole() -> argparse.ArgumentParser:
    return parser()


def ours(name: str) -> argparse.ArgumentParser:
    (commands,) = (each for each in whole()._actions if isinstance(each, argparse._SubParsersAction))
    found: argparse.ArgumentParser = commands.choices[name]
    return found


@pytest.mark.java
def test_the_recorded_list_is_that_of_the_released_jar() -> None:
    release = current_release()
    run = subprocess.run([release.java, "-Xmx128m", "-cp", release.classpath, "Commands"], capture_output=True,
                         timeout=60, check=True)
    assert run.stdout.decode() == RECORDED.read_text()


def test_every_command_is_here_or_named_as_absent() -> None:
    found = original()
    assert len(found) == 96
    assert found.keys() - COMMANDS.keys() == ABSENT.keys()
    assert COMMANDS.keys() - found.keys() == OURS


@pytest.mark.parametrize("name", sorted(original().keys() - ABSENT.keys()))
def test_every_option_is_here(name: str) -> None:
    actions = {flag: action for action in ours(name)._actions for flag in action.option_strings}
    for option in original()[name]:
        flags = [f"-{option.short}"] * bool(option.short) + [f"--{option.long}"] * bool(option.long)
        for flag in flags:
            assert flag in actions, f"{name} {flag}"
            assert (actions[flag].nargs != 0) == option.takes_value, f"{name} {flag}"
            if option.long not in OF_ALL and option.needed:
                assert actions[flag].required, f"{name} {flag}"


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_what_is_absent_says_why(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "-b", "a:1"]) == FAILED
    assert capsys.readouterr().err == f"mqadmin {name}: not offered here: {ABSENT[name]}\n"


def test_names_are_taken_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["QUERYMSGTRACEBYID", "-i", "x", "-n", ""]) == FAILED
    assert "mqadmin queryMsgTraceById: -n is needed" in capsys.readouterr().err
    assert main(["createuser"]) == FAILED


def test_what_is_no_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topicsList"]) == USAGE
    assert "there is no command topicsList; did you mean topicList" in capsys.readouterr().err
    assert main(["xyzzy"]) == USAGE
    assert "`mqadmin help` lists them" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["help"], ["help", "topicList"], ["TOPICLIST", "-h"]])
def test_help_is_given(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == DONE
    assert "usage: mqadmin" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [
    ["printMsgByQueue", "-t", "t", "-a", "a", "-i", "one"], ["updateTopicPerm", "-b", "a:1", "-t", "t", "-p", "3"],
    ["updateTopicPerm", "-t", "t", "-p", "6"], ["checkMsgSendRT", "-t", "t", "-a", "0"],
    ["setConsumeMode", "-b", "a:1", "-t", "t", "-g", "g", "-m", "PUSH"], ["updateOrderConf", "-t", "t", "-m", "look"],
])
def test_wrong_usage_is_told(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == USAGE
    assert "mqadmin" in capsys.readouterr().err


def test_a_reader_that_leaves_early_leaves_no_trace() -> None:
    """As ``mqadmin … | head``: nobody reads what is printed."""
    for arguments in (["help"], ["help", "printMsg"], ["--print-completion", "bash"]):
        reading, writing = os.pipe()
        os.close(reading)
        run = subprocess.run([*child("controller.admin.cli"), *arguments], stdout=writing, stderr=subprocess.PIPE,
                             timeout=60, check=False)
        os.close(writing)
        assert b"Traceback" not in run.stderr and b"BrokenPipe" not in run.stderr, run.stderr


def test_every_command_is_in_the_completion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--print-completion", "bash"])
    printed = capsys.readouterr().out
    assert not [name for name in COMMANDS if name not in printed]


def test_each_has_a_row_that_says_what_was_run() -> None:
    """Of both tools against our servers and Java's, and of ours alone; or why not."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "mqadmin.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page.partition("<!-- generated: mqadmin-runs -->")[2],
                           re.MULTILINE))
    for name in original():
        cells = rows[name].split(" | ")
        assert all(cell.strip(" |") and cell != "not yet" for cell in (cells[-1:] if name in ABSENT else cells)), name
