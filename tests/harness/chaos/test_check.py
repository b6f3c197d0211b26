"""``chaos check`` and ``chaos convert`` as a user meets them: every format, every exit code, words for what is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.chaos.cli import main
from harness.chaos.subcommand import BROKEN, PASSED, UNKNOWN, USAGE
from harness.torture.clients import class_of
from harness.workloads.chosen import find
from raft.command import INTERRUPTED

STALE = """\
client,op,key,value,start_ms,end_ms,outcome,result
a,put,x,1,0,10,ok,
a,put,x,2,20,30,timeout,
b,get,x,,40,45,ok,2
b,get,x,,50,55,ok,1
"""
QUEUE = "".join(json.dumps(row) + "\n" for row in (
    {"type": "invoke", "process": 0, "f": "send", "value": "a"},
    {"type": "ok", "process": 0, "f": "send", "value": "a"},
    {"type": "invoke", "process": 1, "f": "receive"}, {"type": "ok", "process": 1, "f": "receive", "value": ["a"]}))


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(STALE)
    return path


def test_a_stale_read_is_told_with_its_line(stale: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(stale)]) == BROKEN
    said = capsys.readouterr().out
    assert "linearizable kv: BROKEN" in said
    assert "process b: get of x, ok 1 (line 5)" in said
    assert "the shortest beginning that fails: 7 events" in said
    assert "it could be: 2" in said


def test_every_exit_code(stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.csv"
    good.write_text(STALE.replace("ok,2", "ok,1"))
    assert main(["check", str(good)]) == PASSED
    assert main(["check", str(stale), "--steps-max", "0"]) in (BROKEN, UNKNOWN)
    assert main(["check", str(good), "--checker", "recovery"]) == UNKNOWN
    assert main(["check", str(tmp_path / "none")]) == USAGE
    assert main(["check", str(good), "--model", "none"]) == USAGE
    assert main(["check", str(good), "--model", "set"]) == USAGE
    errors = capsys.readouterr().err
    assert "No such file" in errors and "no model is called none" in errors and "sets knows" in errors


def test_a_verdict_for_programs(stale: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", str(stale), "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["valid"] is False
    assert verdict["checkers"]["linearizable kv"]["prefix"] == 7


def test_a_queue_in_one_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(QUEUE)
    assert main(["check", str(tmp_path)]) == PASSED
    assert main(["check", str(path), "--checker", "queue", "--memory", "1K", "--ordered"]) == PASSED
    assert main(["check", str(path), "--checker", "linearizable"]) == USAGE, "a receive may bring several"
    path.write_text(QUEUE.replace('["a"]', '["b"]'))
    assert main(["check", str(path)]) == BROKEN
    assert "phantom: b came, and nobody sent it (line 4)" in capsys.readouterr().out


def test_a_history_that_memory_does_not_hold_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each checker's memory was bounded, and not that of the events, of which most are asked at once."""
    path = tmp_path / "history.jsonl"
    path.write_text(QUEUE)
    assert main(["check", str(path), "--memory", "2000"]) == PASSED
    assert main(["check", str(path), "--memory", "1999"]) == UNKNOWN
    said = capsys.readouterr().out
    assert "history: UNKNOWN" in said and "more than 3 events need more memory than 1,999 bytes (--memory)" in said
    assert main(["check", str(path), "--memory", "1999", "--checker", "queue"]) == PASSED


def test_faults_of_a_run_give_recovery_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "history.jsonl").write_text(QUEUE)
    (tmp_path / "nemesis.jsonl").write_text('{"time_ns": 0, "fault": "kill", "on": ["n1"], "phase": "once"}\n')
    assert main(["check", str(tmp_path)]) == PASSED
    assert "accepted p50 0" in capsys.readouterr().out
    assert main(["check", str(tmp_path), "--accepted-within-ms", "1"]) == PASSED
    assert main(["check", str(tmp_path), "--accepted-within-ms", "0"]) == BROKEN
    assert "within: None accepted something 0 ms after kill at 0.0 s, and 0 ms are allowed" in capsys.readouterr().out
    (tmp_path / "nemesis.jsonl").write_text("{}\n")
    assert main(["check", str(tmp_path)]) == USAGE
    assert "line 1: nemesis.jsonl: no fault" in capsys.readouterr().err


@pytest.mark.parametrize(("phases", "code"), [
    (["start"], UNKNOWN), (["start", "end"], BROKEN), ([None], BROKEN)])
def test_a_fault_that_is_not_over_breaks_nothing(
    phases: list[str | None], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [*({"type": "info", "process": "nemesis", "f": "kill", "value": phase} for phase in phases),
            {"type": "invoke", "process": 0, "f": "write", "key": "a", "value": 2},
            {"type": "fail", "process": 0, "f": "write", "key": "a"}]
    path = tmp_path / "h.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["check", str(path), "--checker", "recovery"]) == code
    said = capsys.readouterr().out
    assert ("nobody sent anything when a fault was over" if code == UNKNOWN else "a accepted nothing more") in said
    assert main(["check", str(path), "--checker", "recovery", "--accepted-within-ms", "0"]) == BROKEN, "it never is"


def test_an_outage_is_judged_though_another_fault_falls_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    """31 s without an answer are not within 6 s."""
    rows = [("send", "invoke", 1.1, "a"), ("send", "fail", 4.1, "a"), ("send", "invoke", 31.5, "b"),
            ("send", "ok", 32.0, "b"), ("receive", "invoke", 33, None), ("receive", "ok", 33, ["b"])]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(
        {"type": kind, "process": f, "f": f, "key": "q", "value": value, "time_ns": int(at * 1e9)}) + "\n"
        for f, kind, at, value in rows))
    (tmp_path / "nemesis.jsonl").write_text("".join(json.dumps(
        {"time_ns": at * 10**9, "fault": "kill", "on": ["n1"], "phase": "once"}) + "\n" for at in (1, 29)))
    assert main(["check", str(tmp_path), "--accepted-within-ms", "31000"]) == PASSED
    assert main(["check", str(tmp_path), "--accepted-within-ms", "6000"]) == BROKEN
    assert ("within: q accepted something 31,000 ms after kill at 1.0 s, with 1 more faults meanwhile"
            in capsys.readouterr().out)


def test_a_users_checker(stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from harness.checkers.verdict import Valid, Verdict\n\n"
        "def few(events):\n    return Verdict('few', Valid.TRUE, f'{len(events)} events', {'events': len(events)})\n")
    assert main(["check", str(stale), "--checker", f"{tmp_path}/mine.py:few"]) == PASSED
    assert "7 events" in capsys.readouterr().out


BROUGHT = """
from harness.checkers.models import ILLEGAL
from harness.checkers.verdict import Valid, Verdict

def few(events):
    return Verdict('few', Valid.TRUE, f'{len(events)} events', {'events': len(events)})

class Never:
    def begin(self): return 0
    def step(self, state, call): return ILLEGAL
    def reads(self, call): return False

class Idle:
    def __init__(self, recipe): ...
    def next(self, client): ...
    def seen(self, client, op, told): ...
    def last(self): yield from ()

class Caller:
    async def do(self, f, key, value): ...
"""
ENTRIES = {"checkers": "few", "models": "Never", "workloads": "Idle", "clients": "Caller"}


def test_what_a_package_brings_is_found_by_its_entry_points(
    stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A package that is installed, as ``importlib.metadata`` sees it."""
    info = tmp_path / "installed" / "theirs-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text("".join(
        f"[quorate.{group}]\nours = theirs_of_chaos:{name}\n" for group, name in ENTRIES.items()))
    (info.parent / "theirs_of_chaos.py").write_text(BROUGHT)
    monkeypatch.syspath_prepend(info.parent)
    assert main(["check", str(stale), "--checker", "ours"]) == PASSED
    assert "7 events" in capsys.readouterr().out
    assert main(["check", str(stale), "--model", "ours"]) == BROKEN
    assert "linearizable ours: BROKEN" in capsys.readouterr().out
    assert find("ours").__name__ == "Idle"
    assert class_of("ours", tmp_path).__name__ == "Caller"


@pytest.mark.parametrize(("code", "words"), [
    ("def judge(events): ...", "returned None; a harness.checkers.verdict.Verdict is wanted"),
    ("def judge(events): raise KeyError('x')", "failed: KeyError: 'x'"),
    ("def judge(events)", "cannot be loaded: SyntaxError")])
def test_a_users_checker_that_is_none_is_told(
    stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, words: str,
) -> None:
    (tmp_path / "mine.py").write_text(code)
    assert main(["check", str(stale), "--checker", f"{tmp_path}/mine.py:judge"]) == USAGE
    assert words in capsys.readouterr().err


def test_what_nobody_foresaw_is_one_line_and_no_broken_promise(
    stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "model.py").write_text(
        "class Mine:\n    def begin(self): raise RuntimeError('no state')\n    def step(self, *_): ...\n"
        "    def reads(self, *_): ...\n    functions = {'put': 1, 'get': 1}\n")
    assert main(["check", str(stale), "--model", f"{tmp_path}/model.py:Mine"]) == UNKNOWN
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"chaos check: it ended without a verdict: \w+: .* \(.*\.py:\d+\)", line), line


def test_there_and_back(stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h.edn", "h.jsonl"):
        assert main(["convert", str(stale), str(tmp_path / name)]) == PASSED
        assert main(["check", str(tmp_path / name)]) == BROKEN
    assert "a table to JSON lines" in capsys.readouterr().out
    assert main(["convert", str(stale), str(tmp_path / "h.xml")]) == USAGE
    assert "name it with --to" in capsys.readouterr().err


def test_who_stops_it(stale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.chaos.check.run", stop)
    assert main(["check", str(stale)]) == INTERRUPTED
