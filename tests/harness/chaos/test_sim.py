"""``chaos sim``: one front to the simulations and to a user's exploration, with tapes that repeat, and words."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from harness.chaos import sim
from harness.chaos.cli import main
from harness.chaos.sim import OURS, program_of
from harness.chaos.subcommand import UNKNOWN, USAGE
from raft.sim import Choices, Operation, explore
from raft.sim.tape import save

SUBJECT = '''
from raft.sim import explore

class Counter:
    n = 0
    def apply(self, command):
        self.n += 1
        return self.n
    def snapshot(self):
        return b"%d" % self.n
    def restore(self, data):
        self.n = int(data)

def below_four(machine):
    return machine.n < 4

def adds(choices):
    return b"+"

def nothing(choices):
    return b"+" if choices.serial >= 1_000_000_000 else None

def test_counter(explore):
    explore(Counter, adds, invariant=below_four)

def counts():
    explore(Counter, adds)

def idle():
    explore(Counter, nothing, profile="calm")
'''


@pytest.fixture
def subject(tmp_path: Path) -> str:
    (tmp_path / "subject_of_chaos.py").write_text(SUBJECT)
    return str(tmp_path / "subject_of_chaos.py")


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("what", OURS)
def test_every_simulation_of_ours_replays_a_tape(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "boring.json", 1, {}, profile="swarm", until_ns=1_000_000_000)
    for _ in range(2):
        assert main(["sim", what, "--replay", str(tmp_path / "boring.json"), "--json"]) == 0
    one, two = told(capsys)
    assert one == two
    assert one["about"] == "replay" and one["events"] > 0 and one["failure"] is None
    assert program_of(what).command == f"chaos sim {what}"


def test_a_seed_is_reported_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["sim", "raft", "--seed", "9", "--profile", "calm", "--jobs", "1", "--json",
                 "--out", str(tmp_path)]) == 0
    progress, report = told(capsys)
    assert (progress["about"], progress["seeds"]) == ("progress", 1)
    assert (report["about"], report["verdict"], report["seeds"]) == ("report", "passed", 1)
    assert report["events_per_s"] > 0


def test_progress_says_how_fast_it_is_and_how_many_faults_there_were(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["sim", "raft", "--seed", "9", "--profile", "crash", "--jobs", "1", "--out", str(tmp_path)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.search(
        r"[0-9.]+ M events +[0-9]+%  +[0-9.]+ k/s  1 seeds  [0-9.]+/s  [1-9][0-9,]* faults  0 failures", first)


def test_a_users_failure_is_found_and_repeated_by_the_command_that_is_printed(
    subject: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what, out = f"{subject}:test_counter", str(tmp_path / "failures")
    assert main(["sim", what, "--events", "1M", "--jobs", "1", "--out", out]) == 1
    said = capsys.readouterr().out
    repeat = next(line for line in said.splitlines() if "chaos sim" in line and "--replay" in line)
    assert "below_four" in said
    assert main(shlex.split(repeat)[1:]) == 1
    script = capsys.readouterr().out
    assert script.count("propose b'+'") == 4
    assert "What it needs (" in script and "leads, term" in script
    assert main([*shlex.split(repeat)[1:], "--json"]) == 1
    (found,) = told(capsys)
    assert found["failure"] == "below_four"


def test_several_processes_load_the_function_themselves(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", f"{subject}:counts", "--events", "20k", "--jobs", "2", "--json"]) == 0
    report = told(capsys)[-1]
    assert report["verdict"] == "passed" and report["invariants"]["operations done"] > 100


def test_a_campaign_in_which_nothing_was_done_is_invalid(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["sim", f"{subject}:idle", "--events", "10", "--jobs", "1", "--json"])
    report = told(capsys)[-1]
    assert status == UNKNOWN
    assert (report["verdict"], report["never"], report["profile"]) == ("invalid", ["operations done"], "calm")


class Register:
    """A register of numbers; nothing before the first write."""

    value: int | None = None

    def apply(self, command: bytes) -> None:
        self.value = int(command)

    def query(self, data: bytes) -> int | None:
        return self.value


def reads_and_writes(choices: Choices) -> Operation:
    if choices.random() < 0.5:
        return Operation(query=b"", f="read", key="x")
    return Operation(command=b"%d" % choices.serial, f="write", key="x", value=choices.serial)


def test_the_history_of_an_exploration_is_judged_by_chaos_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    explore(Register, reads_and_writes, check=lambda run: run.history.save(path), seeds=1, corpus=None)
    assert main(["check", str(path)]) == 0, capsys.readouterr().out
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    reads = [line for line in lines if (line["type"], line["f"]) == ("ok", "read")]
    assert len(reads) > 20 and any(line["type"] == "info" for line in lines)
    reads[-1]["value"] = reads[3]["value"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["check", str(path)]) == 1


@pytest.mark.parametrize(("arguments", "words"), [
    (["rafts"], "'rafts' is none of raft, controllers, brokers"),
    (["nowhere.py:test_x"], "no file nowhere.py"),
    (["SUBJECT:missing"], "has no function missing; it has"),
    (["SUBJECT:below_four"], "wants machine"),
    (["no_such_module:f"], "no_such_module cannot be imported"),
    (["raft", "--replay", "nowhere.json"], "nowhere.json"),
])
def test_mistakes_get_words(
    arguments: list[str], words: str, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", *(each.replace("SUBJECT", subject) for each in arguments)]) == USAGE
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_a_campaign_of_nothing_is_refused_and_does_not_pass(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No seed was played, and the verdict was passed."""
    with pytest.raises(SystemExit) as ended:
        main(["sim", "raft", "--seed", "1", option, "0", "--json"])
    assert ended.value.code == USAGE
    assert f"argument {option}: 0 is too few: at least 1" in capsys.readouterr().err


SERVERS = """
import trio
from raft.virtual import VirtualWorld, torture

async def rest(host):
    host.ready()
    await trio.sleep_forever()

async def is_never_killed(world):
    await world.host("a").start(rest)
    await torture(world, seconds=10)
    assert not world.happened["is killed"]

async def idles(world: VirtualWorld) -> None:
    await trio.sleep(1)
"""


@pytest.fixture
def servers(tmp_path: Path) -> str:
    (tmp_path / "servers_of_chaos.py").write_text(SERVERS)
    return str(tmp_path / "servers_of_chaos.py")


def test_servers_of_a_user_are_played_cut_down_and_repeated(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what, out = f"{servers}:is_never_killed", str(tmp_path / "failures")
    assert main(["sim", what, "--events", "1M", "--jobs", "1", "--out", out]) == 1
    said = capsys.readouterr().out
    repeat = next(line for line in said.splitlines() if "chaos sim" in line and "--replay" in line)
    assert " deviations shrunk to 1 in " in said
    assert main(shlex.split(repeat)[1:]) == 1
    script = capsys.readouterr().out
    assert "What happened (1 decisions):" in script and script.count("a is killed") == 1
    assert main([*shlex.split(repeat)[1:], "--json"]) == 1
    (found,) = told(capsys)
    assert found["failure"].startswith("AssertionError in ") and len(found["script"]) == 3


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_servers_that_pass_are_reported(servers: str, jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", f"{servers}:idles", "--seed", "1", "--seeds", "4", "--jobs", jobs, "--json"]) == 0
    report = told(capsys)[-1]
    assert (report["verdict"], report["seeds"], report["virtual_s"]) == ("passed", 4, 4.0)
    assert report["invariants"] == {"programs that ended": 4, "times tasks were counted at the end": 4}


def test_a_trio_that_is_not_replayable_is_told(
    servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sim, "NOT_REPLAYABLE", "not replayable: trio 9.9 has no _r")
    program_of(f"{servers}:idles")
    assert capsys.readouterr().err == "not replayable: trio 9.9 has no _r\n"
