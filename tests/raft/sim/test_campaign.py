"""Campaigns: seeds without a violation, a bug that is found and shrunk, a report that admits what never happened."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from raft.following import Following
from raft.invariants import DECLARED
from raft.messages import Append
from raft.sim import command
from raft.sim.campaign import DECLARED_FAULTS, LONG_EVENTS, RAFT, Ledger, name_of, run
from raft.sim.swarm import PROFILES, draw_plan
from raft.sim.tape import Tape, count, load


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(start, start + 4) for start in range(1, 25, 4)], ids=str)
def test_a_small_campaign_breaks_nothing(seeds: range) -> None:
    for seed in seeds:
        result = run(Tape(seed))
        assert result.failure is None, (seed, result.message)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_plays(profile: str) -> None:
    result = run(Tape(5), profile, until_ns=4_000_000_000)
    assert result.failure is None, result.message
    assert result.events > 500


def test_a_recording_replays_to_the_same_fingerprint() -> None:
    for seed in (2, 3, 5):
        tape = Tape(seed)
        recorded = run(tape, until_ns=3_000_000_000)
        replayed = run(Tape(seed, tape.deviations), until_ns=3_000_000_000)
        assert replayed.fingerprint == recorded.fingerprint
        assert replayed.events == recorded.events


def test_the_boring_tape_is_a_calm_cluster_of_three() -> None:
    plan = draw_plan(Tape(1, {}), "swarm")
    assert (plan.size, plan.faults, plan.links.loss, plan.slow) == (3, (), 0.0, 0.0)
    result = run(Tape(1, {}))
    assert result.failure is None
    assert result.outcomes == {}


def no_matching(self: Following, message: Append) -> bool:
    """Mutant: accept entries behind anything."""
    return message.prev_index <= self.core.log.last_index


@pytest.mark.slow
def test_a_planted_bug_is_found_shrunk_and_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Following, "_matches", no_matching)
    monkeypatch.setattr(command, "SHRINK_S", 1e9)  # bounded by runs alone, so that this test has one outcome
    report = tmp_path / "report.json"
    status = command.main(
        ["--seed", "28", "--seeds", "60", "--jobs", "1", "--out", str(tmp_path), "--report", str(report)])
    said = capsys.readouterr().out
    assert status == 1
    assert "Repeat with:" in said
    (failure,) = json.loads(report.read_text())["failures"]
    (path,) = [path for path in tmp_path.iterdir() if path != report]
    tape, notes = load(path)
    assert notes["failure"] == failure["failure"]
    assert count(tape.deviations) * 4 <= notes["deviations_before"]
    assert command.main(["--replay", str(path)]) == 1
    assert failure["failure"] in capsys.readouterr().out
    monkeypatch.undo()
    assert command.main(["--replay", str(path)]) == 0


def test_a_campaign_without_faults_is_invalid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main(["--first", "1", "--events", "10", "--jobs", "1", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().out
    assert "never happened: " in said
    assert "invalid" in said


def test_what_is_missing_is_named() -> None:
    everything = Counter(dict.fromkeys((*DECLARED, *DECLARED_FAULTS), 1))
    assert RAFT.missing(everything, everything) == []
    everything["INV_R8"] = 0
    everything["wipe"] = 0
    assert RAFT.missing(everything, everything) == ["INV_R8", "wipe"]


def test_a_short_campaign_need_not_meet_what_is_rare() -> None:
    everything = Counter(dict.fromkeys((*DECLARED, *DECLARED_FAULTS), 1))
    everything["neighbour damaged"] = everything["crash"] = 0
    assert RAFT.missing(everything, everything, LONG_EVENTS - 1) == ["crash"]
    assert RAFT.missing(everything, everything, LONG_EVENTS) == ["crash", "neighbour damaged"]


def test_an_exception_has_a_name_without_line_numbers() -> None:
    with pytest.raises(TypeError) as caught:
        Ledger().restore(None)  # type: ignore[arg-type]  # whatever raises
    assert name_of(caught.value) == "TypeError in campaign.py:restore"


def test_the_ledger_goes_on_from_its_snapshot() -> None:
    one, two = Ledger(), Ledger()
    for number in range(100):
        one.apply(b"%d" % number)
    two.restore(one.snapshot())
    assert two.apply(b"x") == one.apply(b"x")
    assert two.snapshot() == one.snapshot()


def test_events_are_read_with_their_unit() -> None:
    assert command._number("500M") == 500_000_000
    assert command._number("20k") == 20_000
    assert command._number("7") == 7
