"""``chaos compare``: one schedule against several targets, and a table of what came out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.chaos import cli
from harness.chaos.compare import Side, merged, read, table
from harness.chaos.subcommand import UNKNOWN, USAGE, Refused
from tests.harness.chaos.test_run import KILLS, chaos

BROKEN = {"valid": False, "checkers": {
    "queue": {"valid": False, "asked": {"acknowledged": 1200}, "figures": {"lost": 20, "once": 3, "place": 4}},
    "recovery": {"valid": True, "figures": {"accepted p50_ms": 240, "accepted most_ms": 17_900}}}}
ABOUT = {"began": "2026-01-02T03:04:05+00:00", "seconds": 30.0, "faults": 5, "well": True}


def test_a_side_is_a_target_with_options() -> None:
    assert Side.of("ours, default=rocketmq,all_ack=false,in_sync=1") == Side(
        "ours, default", "rocketmq", ("all_ack=false", "in_sync=1"))
    for wrong in ("", "ours", "ours=", "=rocketmq", "ours=rocketmq,all_ack"):
        with pytest.raises(Refused, match="NAME=TARGET"):
            Side.of(wrong)


def test_a_row_says_what_was_lost_and_how_long_it_took() -> None:
    row = {"scenario": "kill-master", "side": "a"} | read(BROKEN, ABOUT)
    assert row["lost"] == {"lost": 20, "place": 4}, "what came twice is no loss"
    fine = read({"valid": True, "checkers": {"queue": {"valid": True, "asked": {"acknowledged": 7}}}}, ABOUT)
    doubt = read({"valid": False, "checkers": {"queue": {"valid": "unknown", "asked": {}}}}, ABOUT | {"well": False})
    rows = [row, {"scenario": "kill-master", "side": "b"} | fine,
            {"scenario": "pause", "side": "a"} | doubt, {"scenario": "pause", "side": "b", "not_run": "no Java"}]
    assert [*table(rows)] == [
        "| lost of acknowledged; accepts again after p50, most | a | b |", "|---|---|---|",
        "| `kill-master` | **20 lost**, **4 places taken twice** of 1,200; 0.2, 17.9 s | 0 of 7; – |",
        "| `pause` | nobody can tell of 0; –; not well again | not run: no Java |"]


@pytest.mark.parametrize(("figures", "longer"), [
    ({"accepted p50_ms": 30, "accepted most_ms": 156, "refused p50_ms": 41_771, "refused most_ms": 41_970},
     "41.8, 42.0 s"),
    ({"accepted p50_ms": 33_801, "accepted most_ms": 33_821, "refused p50_ms": 30_925, "refused most_ms": 30_948},
     "33.8, 33.8 s"),
    ({"accepted p50_ms": 76, "accepted most_ms": 97}, "0.1, 0.1 s"),
])
def test_an_outage_that_begins_behind_a_fault_is_no_short_one(figures: dict[str, int], longer: str) -> None:
    """What was sent before the fault took hold was accepted, and 42 s without an answer were told as 0.2 s."""
    found = {"valid": True, "checkers": {"queue": {"valid": True, "asked": {"acknowledged": 7}},
                                         "recovery": {"valid": True, "figures": figures}}}
    assert [*table([{"scenario": "s", "side": "a"} | read(found, ABOUT)])][-1] == f"| `s` | 0 of 7; {longer} |"


def test_what_is_broken_without_a_loss_is_told() -> None:
    """Values out of order, and of nobody, were a clean row."""
    ways = {
        "queue": {"valid": False, "asked": {"acknowledged": 2}, "figures": {"order": 1, "phantom": 3},
                  "broken": [{"promise": "order", "what": "b came before a"}]},
        "recovery": {"valid": False, "broken": [{"promise": "recovered", "what": "q"}] * 2},
        "linearizable kv": {"valid": False, "why": "no order"}, "nodes": {"valid": True}}
    row = {"scenario": "kill-master", "side": "a"} | read({"valid": False, "checkers": ways}, ABOUT)
    assert [*table([row])][-1] == (
        "| `kill-master` | **broken: order, phantom, recovered, linearizable kv**, 0 of 2; – |")
    del row["broken"]
    assert [*table([row])][-1] == "| `kill-master` | 0 of 2; – |", "a row of before"


def test_rows_that_are_kept_take_the_place_of_older_ones_alone() -> None:
    old = [{"scenario": "b", "side": "x", "seed": 1}, {"scenario": "b", "side": "y", "seed": 1}]
    new = [{"scenario": "b", "side": "x", "seed": 2}, {"scenario": "a", "side": "x", "seed": 2}]
    assert merged(old, new) == [new[1], old[1], new[0]]


def test_wrong_use_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "kill-store", "--side", "one=store"]) == USAGE
    assert cli.main(["compare", "kill-store", "--side", "one=store", "--side", "one=store"]) == USAGE
    assert "two sides" in capsys.readouterr().err
    sides = ["--side", "one=store", "--side", "two=store"]
    for text in ("{", "{}", "[3]", '[{"scenario": "a"}]'):
        (tmp_path / "rows.json").write_text(text)
        assert cli.main(["compare", "kill-store", *sides, "--keep", str(tmp_path / "rows.json")]) == USAGE
        assert "no file of rows" in capsys.readouterr().err, "before anything is played"


@pytest.mark.slow
def test_a_store_beside_itself_and_beside_what_is_not_there(tmp_path: Path) -> None:
    done = chaos(tmp_path, "compare", str(KILLS), "--seconds", "2", "--side", "right=store", "--side", "none=nothing",
                 "--out", "runs", "--keep", "rows.json")
    assert done.returncode == UNKNOWN, done.stdout + done.stderr
    right, none = json.loads((tmp_path / "rows.json").read_text())
    assert right["side"] == "right" and right["valid"] is True and right["faults"] and right["most_ms"] > 0
    assert "nothing" in none["not_run"] and "not run: " in done.stdout
    assert (tmp_path / "runs" / "kill-store" / "1-store" / "page.html").exists()
