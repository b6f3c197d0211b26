"""What is written down of a run, read again, left out, and told; runs themselves are in ``test_run``."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import attrs
import pytest

from harness.chaos import check, playing
from harness.chaos.asked import SCENARIOS, RunRequest, asked_for, library
from harness.chaos.cli import main
from harness.chaos.subcommand import BROKEN, PASSED, UNKNOWN, USAGE, Refused
from harness.checkers.verdict import Breach, Valid, Verdict
from harness.torture.player import Played
from harness.workloads import chosen


def asked(scenario: str = "kill-store") -> RunRequest:
    found = asked_for(scenario)
    assert isinstance(found, RunRequest)
    return found


def written(folder: Path, scenario: str = "kill-store") -> RunRequest:
    found = asked(scenario)
    playing.prepared(folder, found, found.drawn(7)).close()
    return found


def test_what_is_written_down_is_read_again(tmp_path: Path) -> None:
    found = written(tmp_path / "run")
    again, schedule = playing.read(tmp_path / "run")
    assert (again.scenario, again.target, schedule) == (found.scenario, found.target, found.drawn(7))
    other = tmp_path / "run" / "shorter.json"
    other.write_text(json.dumps(json.loads((tmp_path / "run" / "schedule.json").read_text()) | {"seed": 8}))
    assert playing.read(other)[1].seed == 8


@pytest.mark.parametrize(("name", "text", "words"), [
    ("asked.json", None, "asked.json is missing"), ("schedule.json", None, "schedule.json is missing"),
    ("asked.json", "{", "cannot be read as a run"), ("asked.json", "{}", "cannot be read as a run"),
    ("scenario.toml", "about = 3", "cannot be read as a run"),
    ("target.toml", "# \udcff", "cannot be read as a run: 'utf-8' codec")])
def test_what_is_no_run_is_refused_in_words(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    written(tmp_path)
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text, errors="surrogateescape")
    with pytest.raises(Refused, match=words):
        playing.read(tmp_path)


@pytest.mark.parametrize(("change", "words"), [
    ({"fault": "kil"}, "schedule.json: step 1: there is no fault 'kil'"),
    ({"nodes": ["store-9"]}, "step 1: nodes: "), ({"args": {"side": "in"}}, "step 1: kill takes no side")])
def test_a_schedule_that_somebody_changed_is_checked_before_it_is_played(
    tmp_path: Path, change: dict[str, object], words: str,
) -> None:
    written(tmp_path)
    file = tmp_path / "schedule.json"
    schedule = json.loads(file.read_text())
    schedule["steps"][0] |= change
    file.write_text(json.dumps(schedule))
    with pytest.raises(Refused, match=words):
        playing.read(tmp_path)


def test_a_users_own_code_stands_beside_the_scenario_for_replays_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = library(SCENARIOS)["kill-store"].read_text(encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "own.toml").write_text(
        text.replace('"register"', '"load.py:Load"') + '[check]\ncheckers = ["load.py:judge"]\n')
    (tmp_path / "mine" / "load.py").write_text(
        "class Load:\n    def next(self, client): ...\n    def seen(self, *told): ...\n    def last(self): ...\n"
        "def judge(events): ...\n")
    monkeypatch.chdir(tmp_path)
    found = asked("mine/own.toml")
    assert found.scenario.load.name == f"{tmp_path}/mine/load.py:Load"
    playing.prepared(tmp_path / "run", found, found.drawn(7)).close()
    monkeypatch.chdir(tmp_path / "mine")
    assert playing.read(tmp_path / "run")[0].scenario == found.scenario


def test_a_directory_with_a_run_is_not_written_over(tmp_path: Path) -> None:
    playing.require_no_run(tmp_path)
    (tmp_path / "history.jsonl").touch()
    with pytest.raises(Refused, match="give this one another --out"):
        playing.prepared(tmp_path, asked(), asked().drawn(1))
    (tmp_path / "history.jsonl").rename(tmp_path / "other")
    (tmp_path / "groups").mkdir()
    with pytest.raises(Refused, match="has a run"):
        playing.require_no_run(tmp_path)
    with pytest.raises(Refused, match="name one of"):
        playing.read(tmp_path)


def test_a_workloads_argument_that_is_misspelt_is_refused(tmp_path: Path) -> None:
    text = asked().scenario_text
    (tmp_path / "wrong.toml").write_text(text.replace("[workload]\n", "[workload]\nraeds = 0.9\n"))
    with pytest.raises(Refused, match=r"wrong: \[workload\] raeds is unknown; did you mean reads"):
        asked(str(tmp_path / "wrong.toml"))


@pytest.mark.parametrize(("fault", "words"), [
    ('"cut"\nargs = { from = "kind:sotre" }', "cut's from: there is no kind sotre; there are store"),
    ('"cut"\nargs = { from = "clints" }', "cut's from: it is 'clints': 'clints' is no kind:NAME"),
    ('"cut"\nargs = { from = ["clients", "store-7"] }', "cut's from: there is no node store-7; there are store-1"),
    ('"slow"\nargs = { from = "role:master" }', r"slow's from: role:master needs \[roles\] in the target"),
    ('"crowd"\nargs = { port = "htpt" }', "crowd's port: no node has a port htpt; did you mean http"),
])
def test_what_an_argument_of_a_fault_names_must_be_there(tmp_path: Path, fault: str, words: str) -> None:
    """A misspelt name of the other side cut nothing, and was counted as a fault."""
    text = asked().scenario_text.replace('fault = "kill"', f"fault = {fault}")
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(Refused, match=rf"wrong: \[faults 1\] {words}"):
        asked(str(tmp_path / "wrong.toml"))


@pytest.mark.parametrize("args", ['from = "clients"', 'from = ["clients", "store-1"]', 'from = ""', 'side = "in"'])
def test_arguments_that_name_what_is_there_are_taken(tmp_path: Path, args: str) -> None:
    text = asked().scenario_text.replace('fault = "kill"', f'fault = "cut"\nargs = {{ {args} }}')
    (tmp_path / "right.toml").write_text(text)
    assert asked(str(tmp_path / "right.toml")).drawn(1).steps[0].fault == "cut"


@pytest.mark.parametrize("name", ["scenario", "target"])
def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    """It ended without a verdict, as if somebody's own code had failed."""
    text = asked().scenario_text.replace('target = "store"', 'target = "target.toml"').encode()
    (tmp_path / "scenario.toml").write_bytes(text)
    (tmp_path / "target.toml").write_bytes(asked().target_text.encode())
    (tmp_path / f"{name}.toml").write_bytes(b"# \xff\n" + (tmp_path / f"{name}.toml").read_bytes())
    with pytest.raises(Refused, match=rf"{name}\.toml is no text: no UTF-8 at byte 2"):
        asked_for(str(tmp_path / "scenario.toml"))


@pytest.mark.parametrize(("options", "words"), [
    (["--seconds", "0"], "--seconds is 0; from 0.1 to 1e+07"), (["--seconds", "-3"], "--seconds is -3;"),
    (["--seconds", "nan"], "--seconds is nan;"), (["--seconds", "inf"], "--seconds is inf;"),
    (["--seed", "9" * 20], "at most 62 bits"), (["--seed", f"-{'9' * 20}"], "at most 62 bits"),
])
@pytest.mark.parametrize("scenario", ["kill-store", "thousand-failovers"])
def test_numbers_that_no_run_can_have_are_refused(
    scenario: str, options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("harness.chaos.run.begin", lambda *_: PASSED)
    assert main(["run", scenario, *options]) == USAGE
    assert words in capsys.readouterr().err
    assert main(["run", scenario, "--seconds", "0.1", "--seed", "-5"]) == PASSED


def test_what_cannot_be_done_is_refused_or_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked()
    schedule = found.drawn(7)
    kinds = {step.fault for step in schedule.steps}
    cannot = min(kinds)
    monkeypatch.setattr(playing, "missing", lambda *_: ([f"{cannot}: no room"], {"machine": "small"}))
    with closing(playing.prepared(tmp_path, found, schedule)) as directory:
        with pytest.raises(Refused, match="--skip-impossible leaves it out"):
            playing.possible(directory, found, schedule, skip=False)
        left, about = playing.possible(directory, found, schedule, skip=True)
    assert {step.fault for step in left.steps} == kinds - {cannot}
    assert about["left out"] == [f"{cannot}: no room"] and about["machine"] == "small"
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 7


def verdict(valid: Valid) -> Verdict:
    broken = [Breach("lost", "x was lost")] if valid is Valid.FALSE else []
    return Verdict("log", valid, "because", {"reads": 3}, broken=broken)


@pytest.mark.parametrize(("valid", "code"), [
    (Valid.TRUE, PASSED), (Valid.FALSE, BROKEN), (Valid.UNKNOWN, UNKNOWN)])
def test_a_verdict_is_told_as_the_options_want_it(
    valid: Valid, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    def told(**options: object) -> str:
        assert playing.told(tmp_path, 7, [verdict(valid)], argparse.Namespace(**{"json": False, **options})) == code
        return capsys.readouterr().out

    assert json.loads(told(json=True))["seed"] == 7
    assert told(json=True, runs=2).count("\n") == 1
    assert told(runs=2).startswith("seed 7: log ") and told(runs=2).count("\n") == 1
    whole = told()
    assert f"page: {tmp_path / 'page.html'}" in whole and "again: chaos replay" in whole
    assert ("lost: x was lost" in whole) is (valid is Valid.FALSE)


def played(**changes: object) -> Played:
    found = SimpleNamespace(**{field.name: None for field in attrs.fields(Played)})
    for name, value in {"faults": 2, "kinds": {"kill": 2}, "failovers": 1, "took_over": {"master": 1},
                        "came_back": {"active": 2}, "skipped": [], "died": [], "well": True,
                        "unwell": [], "seconds": 1.25, **changes}.items():
        setattr(found, name, value)
    return cast(Played, found)


def test_a_target_that_dies_or_stays_away_is_broken() -> None:
    assert playing._of_nodes(played(), asked=True).valid is Valid.TRUE
    assert playing._of_nodes(played(faults=0), asked=False).valid is Valid.TRUE
    assert playing._of_nodes(played(faults=0), asked=True).valid is Valid.UNKNOWN
    dead = playing._of_nodes(played(died=["store-1 ended"]), asked=True)
    assert dead.valid is Valid.FALSE and [each.promise for each in dead.broken] == ["alive"]
    away = playing._of_nodes(played(well=False, unwell=["store-2 says nothing"]), asked=True)
    assert away.valid is Valid.FALSE and [each.promise for each in away.broken] == ["well"]


@pytest.mark.parametrize("has_faults", [True, False])
def test_a_run_too_short_for_a_fault_is_unknown(
    has_faults: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One whose scenario has none passes."""
    found = asked()
    scenario = found.scenario if has_faults else attrs.evolve(found.scenario, faults=())
    schedule = found.lasting(0.5).drawn(1)
    assert not schedule.steps and found.scenario.faults
    monkeypatch.setattr(playing, "judged", lambda *_: [verdict(Valid.TRUE)])
    with closing(playing.prepared(tmp_path, found, schedule)) as directory:
        player = playing.player_of(directory, found, schedule, print)
        *_, nodes = playing.finished(player, scenario, {}, played(faults=0, kinds={}))
    assert nodes.valid is (Valid.UNKNOWN if has_faults else Valid.TRUE)


def test_a_run_that_ended_well_tells_of_no_passing_trouble() -> None:
    assert playing.as_json(played(unwell=["once"]))["unwell"] == []
    assert playing.as_json(played(well=False, unwell=["once"]))["unwell"] == ["once"]
    assert playing.as_json(played())["took_s"] == 1.2


def test_checkers_get_the_options_of_the_workload_and_of_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[list[str]] = []

    def keep(line: list[str]) -> list[Verdict]:
        lines.append(line)
        return []

    scenario = asked().scenario
    monkeypatch.setattr(check, "verdicts_of", keep)
    monkeypatch.setattr(chosen, "find", lambda name: SimpleNamespace(checks={"least": 3, "strict": True}))
    scenario = attrs.evolve(scenario, check=attrs.evolve(
        scenario.check, checkers=("log",), options={"least": 4, "strict": False, "only_of": ["a", "b"], "fast": True}))
    playing.judged(Path("run"), scenario)
    assert lines == [["run", "--checker", "log", "--least", "4", "--only-of", "a", "--only-of", "b", "--fast"]]


def test_a_prepared_run_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(playing.PREPARED, "/somewhere")
    assert (playing.prepared_for(), playing.prepared_for()) == (Path("/somewhere"), None)
