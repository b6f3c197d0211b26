"""What logs tell of a failover, and the table that is made of it."""

from __future__ import annotations

import logging

import pytest

from benchmarks.failover_timeline import MOMENTS, moments, page, said
from remoting.daemon.logs import TextLines

SINCE = 1_700_000_000.0


def line(after_ms: float, message: str, **fields: object) -> str:
    record = logging.makeLogRecord({"name": "controller", "levelname": "WARNING", "msg": message, **fields})
    record.created = SINCE + after_ms / 1e3
    return TextLines().format(record)


def test_the_first_line_of_this_failover_counts() -> None:
    log = "\n".join([line(-500, "writes are open", epoch=2), "Traceback", line(12, "writes are open", epoch=3),
                     line(40, "writes are open", epoch=3)])
    assert said(log, "^writes are open", SINCE) == pytest.approx(SINCE + 0.012)
    assert said(log, "^writes are closed", SINCE) is None
    assert said("", "", SINCE) is None


def test_moments_of_one_kill() -> None:
    elected = line(9, "master elected", cluster="c", group="a", broker_id=2, address="h:2", epoch=3, previous=1)
    namesrv = "\n".join([
        line(-9_000, "broker registered", cluster="c", group="a", broker_id=0, address="h:2"),
        line(4, "broker left the routes", cluster="c", group="a", broker_id=0, address="h:1", orderly=False),
        line(20, "broker registered", cluster="c", group="a", broker_id=0, address="h:2")])
    broker = "\n".join([
        line(8, "taking a role", role="slave", epoch=3), line(10, "taking a role", role="master", epoch=3),
        line(14, "writes are open", epoch=3)])
    found = moments(SINCE, 3, [line(11, "master elected", epoch=3), elected, ""], ["", broker], namesrv, "h:2")
    assert found == {"left": 4, "elected": 9, "role": 10, "routes": 20, "open": 14}
    assert "elected" not in moments(SINCE, 33, [elected], [broker], namesrv, "h:2")


def test_the_table_says_how_often_a_moment_was_seen() -> None:
    kills = [{"elected": 9.0, "acknowledged": 30.0}, {"acknowledged": 41.0}]
    first, _, *rows = page({"day": "2026-01-02", "cpus": 2, "load": 0.5, "kills": kills})
    assert "2 kills on 2026-01-02" in first
    assert rows[2] == f"| {MOMENTS['elected']} | 9 | 9 | 9 | 1 of 2 |"
    assert rows[3] == f"| {MOMENTS['acknowledged']} | 41 | 41 | 41 | 2 of 2 |"
