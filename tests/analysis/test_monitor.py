"""The monitor over live logs, through Spark's streams: what is written while it runs raises alerts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analysis.monitor import Monitor, monitoring
from analysis.register import register
from analysis.watch import Alert, Watch
from tests.analysis.by_hand import Log, frames, hard_state, mark_of
from tests.analysis.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

def test_alerts_while_logs_grow(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    common, logs = frames(1, [2, 3]), {}
    for node in ("n0", "n1"):
        logs[node] = Log()
        logs[node].begin()
        logs[node].block(*common)
        logs[node].save(tmp_path / "logs" / node, node=node)
    told: list[Alert] = []
    clock = [0]
    monitor = Monitor(Watch(no_leader_ms=1_000), told.append, now_ms=lambda: clock[0])
    streams = monitoring(spark, [str(tmp_path / "logs")], str(tmp_path / "checkpoint"), monitor, trigger_ms=100)
    with streams as queries:
        for query in queries:
            query.processAllAvailable()
        monitor.tick()
        assert told == []
        places = {}
        for node, text in (("n0", "this"), ("n1", "that")):
            (made,) = frames(6, [1], chain=mark_of(common[-1]), text=text)
            places[node] = logs[node].block(hard_state(1, 2, "n0"), made) + 64 + len(hard_state(1, 2, "n0"))
            logs[node].save(tmp_path / "logs" / node, node=node)
        until(lambda: told, "an alert")
        for query in queries:
            query.processAllAvailable()
        clock[0] = 1_001
        monitor.tick()
    kinds = {alert.kind: alert for alert in told}
    assert set(kinds) == {"log_mismatch", "no_leader"} and len(told) == 2
    found = kinds["log_mismatch"]
    assert found.node is not None and found.file is not None
    assert (found.index, found.offset, f"/{found.node}/" in found.file) == (6, places[found.node], True)
    assert kinds["no_leader"].since_ms == 0 and kinds["no_leader"].at_ms == 1_001
