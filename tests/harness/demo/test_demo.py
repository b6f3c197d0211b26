"""The demo as ``make demo`` runs it, shortened: real processes, every kind of kill, and its verdict."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import cast

import pytest

from harness.demo import tables
from harness.demo.__main__ import Story, report
from harness.demo.display import Display
from harness.processes.handle import Handle
from harness.scenarios.traffic import Ledger
from mqcluster.looking import GroupView
from remoting.client import Client

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_masters_and_controllers_die_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "harness.demo", "--seconds", "1", "--groups", "1", "--seed", "1", "--without-report",
         "--data", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=ROOT)
    try:
        said, _ = demo.communicate(timeout=240)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
    assert demo.returncode == 0, said
    assert re.search(r"master broker-a-\d killed with -9; broker-a-\d leads broker-a in epoch 2; \d+ ms", said)
    assert re.search(r"active controller n\d killed with -9; n\d is active after \d+ ms", said)
    assert re.search(r"master broker-a-\d and active controller n\d killed with -9", said)
    assert re.search(r"master broker-a-\d stopped with SIGSTOP; broker-a-\d leads broker-a in epoch 3; \d+ ms", said)
    stalled = re.search(r"master broker-a-\d has a disk that stalls; broker-a-\d leads broker-a in epoch 4", said)
    assert stalled or "no disk stalls in this run" in said
    [counts] = re.findall(r"sent ([\d,]+), acknowledged ([\d,]+), .* lost (\d+), duplicated (\d+)", said)
    assert int(counts[1].replace(",", "")) > 100
    assert counts[2] == "0"
    assert "in RocketMQ's default mode" in said
    assert "NOTHING ACKNOWLEDGED WAS LOST" in said


def story(ledger: Ledger) -> Story:
    return Story((), cast("Handle", None), {}, (), cast("Client", None), Display(), Random(1), ledger)


def test_what_was_lost_is_the_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.acknowledge(b"a/1", "g", 1.0)
    ledger.acknowledge(b"a/2", "g", 1.5)
    ledger.got.update([b"a/1", b"a/1", b"a/2", b"a/3"])
    assert report(story(ledger), "", tmp_path) == 0
    assert "lost 0, duplicated 1" in capsys.readouterr().out
    ledger.failed.add(b"a/3")
    assert report(story(ledger), "", tmp_path) == 1
    assert "BROKEN: 1 messages were consumed that" in capsys.readouterr().out
    ledger.failed.clear()
    del ledger.got[b"a/2"]
    assert report(story(ledger), "", tmp_path) == 1
    assert "1 ACKNOWLEDGED MESSAGES WERE LOST: this is a bug; one is b'a/2'" in capsys.readouterr().out


def test_gaps_are_of_each_group() -> None:
    ledger = Ledger()
    for body, group, now in ((b"1", "a", 1.0), (b"2", "b", 1.5), (b"3", "a", 3.0)):
        ledger.acknowledge(body, group, now)
    assert ledger.gaps_s == {"a": [2.0]}


def test_the_live_view_shows_roles_epochs_sets_and_rates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr("rich._console", None)
    members = [("broker-a-0", "h:1", True), ("broker-a-1", "h:2", True), ("broker-a-2", "h:3", False)]
    view = GroupView("h:2", 41, frozenset({"h:1", "h:2"}))
    display = Display()
    with display.running():
        display.show(tables.brokers({"broker-a": members}, {"broker-a": view}, {"broker-a": 123.0}, {"broker-a": 17.4}))
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for word in ("broker-a-0 slave", "broker-a-1 master", "broker-a-2 down", "41", "2 of 3", "123/s", "17 ms"):
        assert word in said, word
