"""Logs of real replicas: simulated clusters under crashes and partitions, their disks copied out and analysed."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import cast

import pytest
from pyspark.sql import SparkSession

from analysis.logs import open_logs
from harness.simulation.controllers.plan import draw
from harness.simulation.controllers.scene import ControllerScene
from raft.sim.cluster import Cluster
from raft.sim.disks import SegmentDisk
from raft.sim.node import GROUP
from raft.sim.tape import Tape
from tests.analysis import plain

pytestmark = [pytest.mark.java, pytest.mark.slow]


class Nothing:
    def apply(self, command: bytes) -> int:
        return len(command)


def copy_out(cluster: Cluster, root: Path) -> None:
    """What each node's virtual disk holds, as directories."""
    for name, node in cluster.nodes.items():
        files = cast(SegmentDisk, node.disk).files
        for directory in ("", "log", "snapshots"):
            for entry in files.list(directory):
                path = f"{directory}/{entry}" if directory else entry
                if path in files._directories:
                    continue
                file = files.open(path)
                target = root / name / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.pread(file.size(), 0))
                file.close()


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Leaders crash, are cut off and come back, again and again; at the end all is healed and caught up."""
    root, rng = tmp_path_factory.mktemp("campaign"), Random(7)
    with Cluster(3, Nothing, seed=7, disk="segment") as cluster:
        for number in range(12):
            for _ in range(5):
                cluster.propose(rng.randbytes(rng.randrange(1, 200)))
            leader = cluster.leader
            assert leader is not None
            if number % 3 == 0:
                cluster.crash(leader)
                cluster.propose(b"without it")
                cluster.start(leader)
            elif number % 3 == 1:
                others = [name for name in cluster.nodes if name != leader]
                cluster.partition([leader], others)
                cluster.run_ms(3_000)
                cluster.heal()
        cluster.propose(b"last")
        cluster.run_ms(3_000)
        copy_out(cluster, root)
    return root


def test_a_campaigns_logs_agree_and_its_leaders_are_those_read_plainly(spark: SparkSession, campaign: Path) -> None:
    logs = open_logs(spark, str(campaign))
    assert [row for row in logs.ask("audit").collect() if row["severity"] == "critical"] == []
    plainly = {(frame.term, frame.first) for node in ("n0", "n1", "n2") for frame in plain.frames(campaign / node)
               if frame.kind == 2 and frame.group == GROUP}
    assert len(plainly) >= 8, "the campaign elected often"
    found = [row for row in logs.ask("leadership").collect() if row["group"] == str(GROUP)]
    assert sorted(row["term"] for row in found) == sorted(term for term, _ in plainly)
    kept = [row for row in logs.ask("audit_checks").collect() if row["check"] == "frames held by more than one replica"]
    assert kept[0]["n"] > 60


@pytest.mark.parametrize("seed", [5, 8])  # 8: at the end of a run most of the log is no command of theirs
def test_what_simulated_controllers_decided_is_what_their_logs_say(
    spark: SparkSession, tmp_path: Path, seed: int,
) -> None:
    """Brokers crash, are cut off and come back; controllers take snapshots."""
    tape = Tape(seed)
    plan = draw(tape, "brokers")
    plan.disk, plan.snapshot_bytes = "segment", 3_000
    scene = ControllerScene(tape, plan)
    scene.play(None)
    copy_out(scene.cluster, tmp_path)
    groups = {key.name: group for key in scene.keys if (group := scene.group(key)) is not None}
    logs = open_logs(spark, str(tmp_path))
    assert logs.ask("audit").collect() == []
    changes = sorted(logs.ask("master_changes").collect(), key=lambda row: row["index"])
    assert {row["broker_name"]: (row["master"], row["master_epoch"]) for row in changes} == {
        name: (group.master, group.master_epoch) for name, group in groups.items()}
    assert any(row["snapshots"] for row in logs.ask("compaction").collect())
