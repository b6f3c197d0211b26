"""Scenarios and targets of the library: each can be asked for, is in the reference, and two are played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.chaos.asked import SCENARIOS, TARGETS, asked, library
from harness.clients.rocketmq import roles_of
from mqcluster.looking import ClusterView, GroupView

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs" / "reference" / "chaos.md").read_text()


@pytest.mark.parametrize("name", library(SCENARIOS))
def test_each_can_be_asked_for(name: str) -> None:
    found = asked(name)
    assert found.drawn(7).steps, "something is done within its time"
    row = f"| [`{name}`](../../harness/scenarios/library/{name}.toml) | {found.target.name} | {found.scenario.about} |"
    assert row in REFERENCE


def test_each_target_is_used() -> None:
    assert {asked(name).target.name for name in library(SCENARIOS)} == {*library(TARGETS)}


def test_roles_are_names_of_nodes() -> None:
    brokers, controllers = {"b1": "broker-1", "b2": "broker-2"}, {"c1": "controller-1", "c2": "controller-2"}
    view = ClusterView("c2", {"a": GroupView("b2", 3, frozenset({"b2"}))})
    assert roles_of(view, "a", brokers, controllers) == {
        "master": ["broker-2"], "slave": ["broker-1"], "in-sync": ["broker-2"], "active": ["controller-2"],
        "standby": ["controller-1"]}
    assert not any(roles_of(ClusterView(), "a", brokers, controllers).values())


@pytest.mark.slow
def test_a_master_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-P", "-m", "harness.chaos", "run", "kill-master", "--seed", "3", "--seconds", "9", "--json"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240,
        check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    assert verdicts["queue"]["asked"]["acknowledged"] > 100
    assert verdicts["queue"]["asked"]["read at the end"] >= verdicts["queue"]["asked"]["acknowledged"]
    assert verdicts["recovery"]["asked"]["faults"] == 1
