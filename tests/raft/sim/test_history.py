"""Histories of explorations: their lines are those that checkers read."""

from __future__ import annotations

import json
from pathlib import Path

from raft.sim.history import History


def test_lines_have_what_checkers_know_and_no_more(tmp_path: Path) -> None:
    history = History()
    history.add("invoke", 3, "write", "x", 5, 100)
    history.add("ok", 3, "write", "x", 5, 250, result="before")
    history.add("invoke", 4, "read", None, None, 300)
    history.add("fail", 4, "read", None, None, 400, error="not the leader")
    history.save(tmp_path / "deep" / "history.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "deep" / "history.jsonl").read_text().splitlines()]
    assert lines == [
        {"index": 0, "type": "invoke", "process": 3, "f": "write", "key": "x", "value": 5, "time_ns": 100},
        {"index": 1, "type": "ok", "process": 3, "f": "write", "key": "x", "value": 5, "time_ns": 250},
        {"index": 2, "type": "invoke", "process": 4, "f": "read", "value": None, "time_ns": 300},
        {"index": 3, "type": "fail", "process": 4, "f": "read", "value": None, "time_ns": 400,
         "error": "not the leader"},
    ]
    assert history.of("ok")[0].result == "before"
    assert [event.index for event in history] == [0, 1, 2, 3] and len(history) == 4
    assert history.of("invoke", "read") == [history[2]]
