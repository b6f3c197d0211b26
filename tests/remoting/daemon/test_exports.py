"""Reports of metrics: to a real collector over gRPC, which goes and comes, refuses and says nothing; and to the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio

from remoting.daemon.exporter import MetricsKeys, Way
from remoting.daemon.exports import start_exports
from remoting.daemon.latency import Latency
from remoting.daemon.otlp import OTLP, NotTaken
from remoting.daemon.page import Metric, Page
from remoting.daemon.points import Point, Reports, Series
from tests.remoting.daemon.collector import Kept, collector

SOON_MS = 20


class Counts(Page):
    def __init__(self, keys: MetricsKeys) -> None:
        super().__init__({"cluster": "C", **keys.metric_labels})
        self.sent = 3
        self.waits = Latency()
        self.waits.add(2e-6)

    def collect(self) -> Iterator[Metric]:
        yield self.counter("sends", "What was sent.", [(("t",), self.sent)], "topic")
        yield self.gauge("share", "Of all.", [((), 0.5)])
        yield self.histogram("wait", "Of each.", {"GET": self.waits}, "code")


def otlp(port: int, **keys: Any) -> MetricsKeys:
    return MetricsKeys(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target=f"http://127.0.0.1:{port}",
                       metric_grpc_exporter_interval_in_mills=SOON_MS, **keys)


async def nobody(*_: Any, **__: Any) -> None:
    raise AssertionError("no page is served")


async def reported(kept: Kept, more: int = 1) -> int:
    """Wait for so many more requests; how many there were."""
    before = len(kept.requests)
    with trio.fail_after(20):
        while len(kept.requests) < before + more:
            await trio.sleep(0.005)
    return before


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.getMessage() == words]


async def test_a_collector_gets_all_that_is_on_the_page() -> None:
    with collector() as (kept, port):
        keys = otlp(port, metrics_grpc_exporter_header="Api-Key:k1, tenant:a:b,bad key:x,none:\u00fc",
                    metrics_label="zone:z")
        page = Counts(keys)
        async with trio.open_nursery() as nursery:
            await start_exports(page, keys, "0.0.0.0", nobody, nursery)
            await reported(kept)
            page.sent = 5
            first = await reported(kept, 2)
            nursery.cancel_scope.cancel()
        _, headers = kept.requests[0]
        assert {"api-key": "k1", "tenant": "a:b"}.items() <= headers.items()
        assert not {"bad key", "none"} & headers.keys()
        assert headers["user-agent"].startswith("grpc-python")
        kinds = {metric.name: (metric.WhichOneof("data"), metric.description) for metric in kept.metrics()}
        assert kinds == {"sends_total": ("sum", "What was sent."), "share": ("gauge", "Of all."),
                         "wait": ("histogram", "Of each.")}
        (labels, point), *_ = kept.points("sends_total")
        assert labels == {"cluster": "C", "zone": "z", "topic": "t"}
        assert (point.as_int, point.start_time_unix_nano < point.time_unix_nano) == (3, True)
        last = kept.points("sends_total")[-1][1]
        assert (last.as_int, last.start_time_unix_nano) == (5, point.start_time_unix_nano)
        assert kept.points("share", first)[0][1].as_double == 0.5
        spread = kept.points("wait")[0][1]
        assert (spread.count, spread.sum, list(spread.bucket_counts)[:3]) == (1, 2.0, [0, 1, 0])
        assert len(spread.bucket_counts) == len(spread.explicit_bounds) + 1
        sums = [metric.sum for metric in kept.metrics() if metric.name == "sends_total"]
        assert all(each.is_monotonic and each.aggregation_temporality == 2 for each in sums), "2: cumulative"


async def test_differences_of_reports_that_were_lost_come_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    with collector() as (kept, port):
        keys = otlp(port, metrics_in_delta=True)
        page = Counts(keys)
        with caplog.at_level(logging.INFO):
            async with trio.open_nursery() as nursery:
                await start_exports(page, keys, "0.0.0.0", nobody, nursery)
                await reported(kept, 2)
                kept.refuses = "too busy"
                page.sent += 4
                with trio.fail_after(20):
                    while not said(caplog, "metrics do not arrive; the server goes on without"):
                        await trio.sleep(0.005)
                await trio.sleep(5 * SOON_MS / 1e3)
                page.sent += 1
                kept.refuses = ""
                await reported(kept, 2)
                nursery.cancel_scope.cancel()
        found = kept.points("sends_total")
        assert sum(point.as_int for _, point in found) == page.sent == 8
        assert next(point.as_int for _, point in found if point.as_int) == 3
        assert found[0][0]["aggregation"] == "delta"
        assert all(metric.sum.aggregation_temporality == 1 for metric in kept.metrics() if metric.name == "sends_total")
        (warned,) = said(caplog, "metrics do not arrive; the server goes on without")
        assert warned["why"] == "RESOURCE_EXHAUSTED: too busy"
        (again,) = said(caplog, "metrics arrive again")
        assert again["reports_missed"] >= 2, "each was tried, one was told of"


async def test_a_collector_that_is_away_or_says_nothing_holds_up_no_task(caplog: pytest.LogCaptureFixture) -> None:
    with collector() as (kept, port):
        kept.silent.set()
        keys = otlp(port, metric_grpc_exporter_time_out_in_mills=30_000)
        turns = 0
        async with trio.open_nursery() as nursery:
            await start_exports(Counts(keys), keys, "0.0.0.0", nobody, nursery)
            with trio.move_on_after(10 * SOON_MS / 1e3):
                while True:
                    await trio.sleep(0.001)
                    turns += 1
            nursery.cancel_scope.cancel()
        assert turns > 10, "and the report that is under way keeps nobody from stopping"
    with caplog.at_level(logging.WARNING):
        async with trio.open_nursery() as nursery:  # nobody is there any more
            await start_exports(Counts(keys), keys, "0.0.0.0", nobody, nursery)
            with trio.fail_after(20):
                while not caplog.records:
                    await trio.sleep(0.005)
            nursery.cancel_scope.cancel()
    assert [vars(record)["why"].partition(":")[0] for record in caplog.records] == ["UNAVAILABLE"]


def test_a_report_is_split_and_what_is_refused_of_it_is_told() -> None:
    series = [Series("n", "", "gauge", tuple(Point((("n", str(n)),), n, 0) for n in range(5)))]
    with collector() as (kept, port):
        sender = OTLP(f"http://127.0.0.1:{port}/v1/metrics", {}, timeout_ms=5_000, points_max=2, delta=False)
        sender.send(series, 1)
        assert [point.as_int for _, point in kept.points("n")] == [0, 1, 2, 3, 4]
        assert len(kept.requests) == 3
        kept.rejects = 2
        with pytest.raises(NotTaken, match="2 points refused: too many series"):
            sender.send(series, 2)
        sender.close()
        sealed = OTLP(f"127.0.0.1:{port}", {}, timeout_ms=5_000, points_max=2, delta=False)
        with pytest.raises(NotTaken, match="UNAVAILABLE"):
            sealed.send(series, 3)  # no scheme means TLS, as in Java
        sealed.close()


async def test_metrics_are_lines_of_the_log(caplog: pytest.LogCaptureFixture, autojump_clock: trio.abc.Clock) -> None:
    keys = MetricsKeys(metrics_exporter_type="LOG", metric_logging_exporter_interval_in_mills=10_000)
    with caplog.at_level(logging.INFO):
        async with trio.open_nursery() as nursery:
            await start_exports(Counts(keys), keys, "0.0.0.0", nobody, nursery)
            await trio.sleep(9.9)
            assert not caplog.records
            await trio.sleep(10.2)
            nursery.cancel_scope.cancel()
    lines = [(record.getMessage(), vars(record)["kind"], vars(record)["points"]) for record in caplog.records]
    assert lines == 2 * [("sends_total", "counter", "{cluster=C,topic=t} 3"), ("share", "gauge", "{cluster=C} 0.5"),
                         ("wait", "histogram", "{cluster=C,code=GET} count 1 sum 2")]


@pytest.mark.parametrize(("told", "way"), [
    ("DISABLE", Way.DISABLE), ("0", Way.DISABLE), ("1", Way.OTLP_GRPC), ("OTLP_GRPC", Way.OTLP_GRPC), ("2", Way.PROM),
    ("PROM", Way.PROM), ("3", Way.LOG), ("LOG", Way.LOG),
])
async def test_each_way_by_its_name_and_its_number(told: str, way: Way) -> None:
    keys = partial(MetricsKeys, metrics_exporter_type=told)
    assert keys(metrics_grpc_exporter_target="http://h:1").metrics_way is way
    assert keys().metrics_way is (Way.DISABLE if way is Way.OTLP_GRPC else way), "to nobody"
    assert keys().exports_in_vain is (way is Way.OTLP_GRPC)


def test_points_of_one_report_are_those_of_the_page() -> None:
    page = Counts(MetricsKeys())
    series = Reports(0, delta=False).report(page.families(), 1)
    assert [each.name for each in series] == ["sends_total", "share", "wait"]
