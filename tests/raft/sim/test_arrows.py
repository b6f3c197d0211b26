"""Messages between nodes are written down: who sent what when, and when it arrived, if it did."""

from __future__ import annotations

import json
from pathlib import Path

from raft.sim.arrows import Arrows
from raft.sim.cluster import Cluster
from tests.raft.sim.registers import Register


def test_each_message_is_told_and_those_that_are_lost_have_no_end(tmp_path: Path) -> None:
    with Cluster(3, Register, seed=3) as cluster, Cluster(3, Register, seed=3) as other:
        arrows = Arrows(cluster)
        for each in (cluster, other):
            each.propose(b"x")
            each.partition([each.leader or ""])
            each.run_ms(500)
            each.heal()
            each.crash("n0")
            each.propose(b"y")
        assert cluster.fingerprint == other.fingerprint, "nothing else is done"
        assert cluster.counts["cut"] > 0 < cluster.counts["to the dead"]
    lost = [row for row in arrows.rows if "received_ns" not in row]
    assert cluster.counts["cut"] + cluster.counts["to the dead"] <= len(lost) < len(arrows.rows) / 2
    assert {(row["from"], row["to"]) for row in arrows.rows} == {
        (source, target) for source in cluster.nodes for target in cluster.nodes if source != target}
    assert all(row["received_ns"] > row["sent_ns"] for row in arrows.rows if row not in lost)
    assert "Append, term 1" in {row["what"] for row in arrows.rows}
    arrows.save(tmp_path / "messages.jsonl")
    assert [json.loads(line) for line in (tmp_path / "messages.jsonl").read_text().splitlines()] == arrows.rows
