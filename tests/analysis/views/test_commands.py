"""Which groups are controllers', by what stands in their logs."""

from __future__ import annotations

from pathlib import Path

import cbor2
import pytest
from pyspark.sql import SparkSession

from analysis.logs import open_logs
from analysis.views.commands import controller_groups
from tests.analysis.by_hand import Log, frame, mark_of
from tests.analysis.scene import APPLY, command

pytestmark = pytest.mark.java
CLAIM = command(APPLY, 1, 1, "h1:1;1")
NEXT_FORMAT = cbor2.dumps([2, APPLY, 1, "brokers", "b0", 1, "h1:1;1"])


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
