"""Which groups are controllers', by what stands in their logs, and what came of their commands."""

from __future__ import annotations

from pathlib import Path

import cbor2
import pytest
from pyspark.sql import SparkSession

from analysis.logs import open_logs
from analysis.views.commands import controller_groups
from controller.metadata.codec import FORMAT
from controller.metadata.machine import MetadataMachine
from raft.membership import Membership
from raft.messages import SnapshotMeta
from raft.storage.directory import DirectoryFiles
from raft.storage.snapshots import SnapshotStore
from tests.analysis import plain
from tests.analysis.by_hand import Log, frame, mark_of
from tests.analysis.scene import APPLY, NODES, command, lay_out, save, story

pytestmark = pytest.mark.java
CLAIM = command(APPLY, 1, 1, "h1:1;1")
NEXT_FORMAT = cbor2.dumps([FORMAT + 1, APPLY, 1, "brokers", "b0", 1, "h1:1;1"])


@pytest.mark.parametrize(("payloads", "theirs"), [
    ([[b"x%d" % number] for number in range(40)], False),
    ([[CLAIM], *([b"x%d" % number] for number in range(40))], True),      # others outvote it, and decide nothing
    ([*([b"x%d" % number] for number in range(7)), [b"y" * 9, CLAIM]], True),
    ([[b"y" * (20 << 10)], [command(APPLY, 1, 1, "h1:1;" + "1" * (20 << 10))]], True),
    ([[cbor2.dumps([1, 1, number])] for number in range(8)], False),      # a list that begins like one of theirs
    ([[cbor2.dumps([1, APPLY, 7, "brokers", "b0", 1, "h1:1;1"])]], False),  # of a term that is still to come
    ([[NEXT_FORMAT], [b"x"], [NEXT_FORMAT + b"y"]], True),                # which this version cannot read
    ([[NEXT_FORMAT], [b"x"]], False),
])
def test_one_command_tells_whose_group_it_is(
    spark: SparkSession, tmp_path: Path, payloads: list[list[bytes]], theirs: bool,
) -> None:
    log, index, chain = Log(), 1, 0
    log.begin()
    for each in payloads:
        made = frame(index, *each, chain=chain)
        log.block(made)
        index, chain = index + len(each), mark_of(made)
    log.block()
    log.save(tmp_path / "n0")
    logs = open_logs(spark, str(tmp_path))
    assert logs.ask("audit").collect() == []
    assert controller_groups(logs.frames) == ([("c", "1", 1)] if theirs else [])


def take_snapshot(root: Path, whole: Path, index: int) -> Path:
    """Of the controllers whose log is ``whole``, up to an entry, as a node does."""
    machine = MetadataMachine()
    for each in plain.frames(whole):
        for number, payload in enumerate(each.payloads if each.kind == 1 else ()):
            if each.first + number <= index:
                machine.apply_at(payload, each.term)
    store = SnapshotStore(DirectoryFiles(root))
    (root / "snapshots").mkdir()
    sink = store.create(1, SnapshotMeta(index, 3, 0, Membership(NODES), 2))
    machine.write(machine.capture(), sink)
    sink.finish()
    (path,) = (root / "snapshots").iterdir()
    return path


@pytest.mark.parametrize("in_driver", [True, False])
def test_a_purged_log_is_carried_on_from_the_oldest_good_snapshot_that_reaches_it(
    spark: SparkSession, tmp_path: Path, in_driver: bool,
) -> None:
    """Nodes take snapshots when they like, and the newest of all says nothing of what was before it."""
    save(tmp_path / "whole", story())
    whole = open_logs(spark, str(tmp_path / "whole")).history.where("index > 8").collect()
    assert len(whole) > 5 and all(row["outcome"] is not None for row in whole)
    nodes = tmp_path / "purged"
    for node in NODES:
        log, _ = lay_out(story()[5:])
        log.save(nodes / node, node=node)
    for node, index in (("n0", 5), ("n1", 8), ("n2", 13)):
        take_snapshot(nodes / node, tmp_path / "whole" / "n0", index)

    def known() -> list[tuple[object, ...]]:
        rows = open_logs(spark, str(nodes), in_driver=in_driver).history.where("outcome is not null").collect()
        return sorted((row["index"], row["is_change"], row["what"], row["outcome"], row["master"]) for row in rows)

    expected = sorted((row["index"], row["is_change"], row["what"], row["outcome"], row["master"]) for row in whole)
    assert known() == expected
    (path,) = (nodes / "n1" / "snapshots").iterdir()
    path.write_bytes(b"damaged")
    assert known() == [row for row in expected if row[0] > 13]
