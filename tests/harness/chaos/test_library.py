"""Scenarios and targets of the library: each can be asked for, is in the reference, and some are played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.chaos.asked import SCENARIOS, TARGETS, RunRequest, TogetherRequest, asked, asked_for, library
from harness.clients.rocketmq import missing, roles_listed, roles_of
from mqcluster.looking import ClusterView, GroupView
from tests.campaigns import campaign
from tests.harness.processes.rocketmq import current_release
from tests.harness.rediscovery import COPIED
from tests.raft.bugs.run_mutants import copy_tree

ROOT = Path(__file__).parents[3]
JAVA = "rocketmq-java"
REFERENCE = (ROOT / "docs" / "reference" / "chaos.md").read_text()


@pytest.mark.parametrize("name", library(SCENARIOS))
def test_each_can_be_asked_for(name: str) -> None:
    found = asked_for(name)
    if isinstance(found, TogetherRequest):
        assert all(schedule.steps for schedule in found.drawn(7).values()), "something is done to each group"
        targets = ", ".join(dict.fromkeys(each.target.name for each in found.groups.values()))
    else:
        assert found.drawn(7).steps, "something is done within its time"
        targets = found.target.name
    row = f"| [`{name}`](../../harness/scenarios/library/{name}.toml) | {targets} | {found.scenario.about} |"
    assert row in REFERENCE


def test_each_target_is_used_or_can_take_the_place_of_another() -> None:
    alone = {name: found for name in library(SCENARIOS) if isinstance(found := asked_for(name), RunRequest)}
    used = {name: found.target.name for name, found in alone.items()}
    assert {*used.values(), JAVA} == {*library(TARGETS)}
    for name in (name for name, target in used.items() if target == "rocketmq"):
        assert asked(name, JAVA).drawn(7) == asked(name).drawn(7), "the same is done to the same nodes"


def test_roles_are_names_of_nodes() -> None:
    brokers, controllers = {"b1": "broker-1", "b2": "broker-2"}, {"c1": "controller-1", "c2": "controller-2"}
    view = ClusterView("c2", {"a": GroupView("b2", 3, frozenset({"b2"}))})
    assert roles_of(view, "a", brokers, controllers) == {
        "master": ["broker-2"], "slave": ["broker-1"], "in-sync": ["broker-2"], "active": ["controller-2"],
        "standby": ["controller-1"]}
    assert not any(roles_of(ClusterView(), "a", brokers, controllers).values())


def test_roles_of_a_group_without_controllers_are_what_a_name_server_lists() -> None:
    slaves = {"s1": "slave-1", "s2": "slave-2"}
    assert roles_listed({0: "m", 1: "s1", 2: "s2"}, "m", slaves) == {
        "master": ["master-1"], "slave": ["slave-1", "slave-2"], "acting": []}
    assert roles_listed({2: "s2"}, "m", slaves) == {"master": [], "slave": ["slave-2"], "acting": ["slave-2"]}
    assert not any(roles_listed({}, "m", slaves).values())


def test_a_group_that_is_not_well_says_what_it_lacks() -> None:
    found = {"master": ["broker-1"], "slave": ["broker-2"], "in-sync": ["broker-1"], "active": ["controller-1"]}
    assert missing({}, True, 2) == ["no controller is active", "no broker is master", "in sync: nobody, 0 of 2"]
    assert missing(found, True, 2) == ["in sync: broker-1, 1 of 2"]
    assert missing(found | {"in-sync": ["broker-1", "broker-2"]}, True, 2) == []
    assert missing(found, False, 2) == []
    assert missing({"slave": ["slave-1"]}, False, 2) == ["no broker is master", "listed: slave-1, 1 of 2"]


STALE = """
about = "The active controller is killed with -9 while masters alter their sets by epochs that are over."
target = "controllers"
seconds = 8

[workload]
name = "controllers"
clients = 5
rate = 100.0
keys = 1
reads = 0.2
applies = 0.0
elects = 0.02
stale = 0.8
strangers = 0.0

[[faults]]
fault = "kill"
nodes = "role:active"
every_s = [3.0, 5.0]
hold_s = [0.3, 1.0]
"""
"""Of ``controllers-kill`` one alter in ten is of something that is over: a slow machine has none in its seconds."""


def chaos(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness.chaos", *command], cwd=folder, capture_output=True, text=True,
        timeout=400, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, check=False)


@pytest.mark.slow
def test_a_master_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    told = chaos(tmp_path, "run", "kill-master", "--seed", "3", "--seconds", "9", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    assert verdicts["queue"]["asked"]["acknowledged"] > 100
    assert verdicts["queue"]["asked"]["read at the end"] >= verdicts["queue"]["asked"]["acknowledged"]
    assert verdicts["recovery"]["asked"]["faults"] == 1


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize(("name", "asked_of"), [("transactions-failovers", "refused"), ("pop-failovers", "received")])
def test_what_a_broker_knows_beside_its_queues_outlives_it(tmp_path: Path, name: str, asked_of: str) -> None:
    """The others are played by hand, and their results stand in the reference."""
    told = chaos(tmp_path, "run", name, "--seed", "3", "--seconds", "10.5", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    assert verdicts["queue"]["asked"]["acknowledged"] > 50
    assert (verdicts["queue"]["asked"] | verdicts["queue"]["counts"])[asked_of] > 3
    assert verdicts["nodes"]["asked"]["faults"] == 1


@pytest.mark.campaign
@pytest.mark.slow
def test_all_ways_to_keep_a_group_alive_lose_nothing_that_they_promise(tmp_path: Path) -> None:
    told = chaos(tmp_path, "run", "thousand-failovers", "--seed", "3", "--seconds", "16", "--out", "run", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    for group in ("all-ack", "quorum-write", "acting", "elected"):
        asked_of = verdicts[f"{group}: queue"]["asked"]
        assert asked_of["read at the end"] >= asked_of["acknowledged"] > 10
        assert verdicts[f"{group}: nodes"]["asked"]["kill"] >= 1
    for group in ("all-ack", "acting", "elected"):  # nobody takes over in the other
        assert verdicts[f"{group}: nodes"]["asked"]["failovers"] >= 1


def test_where_java_is_missing_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    told = chaos(tmp_path, "run", "kill-master", "--target", JAVA, "--out", "run", PATH=str(tmp_path / "bin"))
    assert told.returncode == 2 and "not run: java, javac, mvn not found; install a JDK" in told.stderr, told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.java
@pytest.mark.campaign
@pytest.mark.slow
def test_the_same_is_done_to_servers_of_java(tmp_path: Path) -> None:
    """Which promises Java's servers keep is theirs: that they are started, killed, found and judged is ours."""
    current_release()
    told = chaos(tmp_path, "run", "kill-master", "--target", JAVA, "--seed", "3", "--seconds", "9", "--json")
    assert told.returncode in (0, 1), told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    assert verdicts["queue"]["asked"]["read at the end"] > 50
    assert verdicts["nodes"]["valid"] is True and verdicts["nodes"]["asked"]["faults"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["raft-kill-leader", *campaign("raft-partition")])
def test_keys_of_a_raft_group_stay_linearizable(tmp_path: Path, scenario: str) -> None:
    told = chaos(tmp_path, "run", scenario, "--seed", "1", "--seconds", "9", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    assert verdicts["linearizable kv"]["asked"]["operations"] > 50
    assert verdicts["nodes"]["asked"]["faults"] >= 1


@pytest.mark.campaign
@pytest.mark.slow
def test_groups_keep_their_epochs_when_controllers_are_killed(tmp_path: Path) -> None:
    """The last fault kills all: on a busy machine the first may find nobody, as nobody has told yet who is active."""
    told = chaos(tmp_path, "run", "controllers-kill", "--seed", "1", "--seconds", "12", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    verdicts = json.loads(told.stdout)["checkers"]
    asked_of = verdicts["controllers"]["asked"]
    assert asked_of["groups"] == 3 and asked_of["ids bound"] >= 15
    assert asked_of["compared"] > 50 and asked_of["alters acknowledged"] > 3
    assert verdicts["nodes"]["asked"]["kill"] >= 1


@pytest.mark.campaign
@pytest.mark.slow
def test_controllers_that_take_alters_of_old_epochs_are_found(tmp_path: Path) -> None:
    """A bug in a copy of the tree: the set that a master knows is not asked for. Every master asks, most times by one
    that is over, so that a few dozen operations show it."""
    tree = tmp_path / "tree"
    copy_tree(tree, COPIED)
    file = tree / "controller" / "metadata" / "alter.py"
    there = "command.sync_state_set_epoch != group.sync_state_set_epoch:"
    assert there in file.read_text()
    file.write_text(file.read_text().replace(there, there.replace("!=", ">")))
    (tmp_path / "stale.toml").write_text(STALE)
    told = chaos(tmp_path, "run", "stale.toml", "--seed", "1", "--json", PYTHONPATH=str(tree))
    assert told.returncode == 1, told.stdout + told.stderr
    broken = {each["promise"] for each in json.loads(told.stdout)["checkers"]["controllers"]["broken"]}
    assert "fenced" in broken


@pytest.mark.campaign
@pytest.mark.slow
def test_reads_that_ask_nobody_are_found_to_be_stale(tmp_path: Path) -> None:
    told = chaos(
        tmp_path, "run", "raft-partition", "--seed", "1", "--seconds", "9", "--option", "read=unsafe", "--json")
    assert told.returncode == 1, told.stdout + told.stderr
    assert json.loads(told.stdout)["checkers"]["linearizable kv"]["valid"] is False
