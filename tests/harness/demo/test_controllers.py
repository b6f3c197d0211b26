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
from harness.demo.controllers import FleetStory, report
from harness.demo.display import Display
from harness.fleet import BrokerGroup, Fleet, SimulatedBroker, Witness
from harness.fleet.broker import View
from harness.processes.handle import Handle

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_every_kind_of_kill_is_recovered_from(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "harness.demo.controllers", "--seconds", "1", "--groups", "4", "--seed", "1",
         "--without-report", "--data", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=ROOT)
    try:
        said, _ = demo.communicate(timeout=110)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGKILL)
    assert demo.returncode == 0, said
    assert re.search(r"12 brokers in 4 groups registered and in sync", said)
    assert re.search(r"master \d of group-\d killed; broker \d leads in epoch 2 after \d+ ms", said)
    assert re.search(r"2 masters at once killed; all replaced after \d+ ms", said)
    assert re.search(r"active controller n\d killed with -9; n\d accepted the next command after \d+ ms", said)
    assert re.search(r"master \d of group-\d and active controller n\d killed; broker \d leads", said)
    assert "name server: 4 of 4 groups have the present master as id 0" in said
    assert "NO INVARIANT WAS BROKEN" in said


class Told:
    """A fleet at its end."""

    groups: tuple[BrokerGroup, ...] = ()

    def __init__(self, witness: Witness) -> None:
        self.witness = witness


def story(witness: Witness) -> FleetStory:
    fleet = cast("Fleet", Told(witness))
    return FleetStory((), cast("Handle", None), fleet, Display(), Random(1))


def test_what_was_broken_is_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(story(Witness()), 0) == 0
    assert "NO INVARIANT WAS BROKEN" in capsys.readouterr().out
    witness = Witness()
    witness.told("g", View(1, 1, frozenset({1}), 1))
    witness.told("g", View(2, 1, frozenset({2}), 1))
    assert report(story(witness), 0) == 1
    said = capsys.readouterr().out
    assert "BROKEN: g: master epoch 1 has two masters, 1 and 2" in said
    deposed = story(Witness())
    deposed.tally.deposed = 2
    assert report(deposed, 0) == 1
    twice = story(Witness())
    twice.tally.probe_ids = [1, 2, 2]
    assert report(twice, 0) == 1


def test_the_live_view_shows_roles_epochs_sets_and_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    group = BrokerGroup("c", "group-7")
    for number in (1, 2, 3):
        broker = SimulatedBroker(group, number, f"a:{number}", number, running=number < 3)
        broker.learn(View(2, 41, frozenset({1, 2}), 5))
        group.brokers.append(broker)
    display = Display()
    with display.running():
        display.say("master 3 of [group-7] killed")
        display.show(tables.servers("controllers", [("n0", "a:1", "active"), ("n1", "a:2", "down")]),
                     tables.fleet([group], {"group-7": 17.4}), "all checked")
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "master 3 of [group-7] killed" in said
    for word in ("n0", "active", "down", "group-7", "1 2 ✗", "41", "1,2", "17 ms", "all checked"):
        assert word in said, word
