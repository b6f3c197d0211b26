"""Exports a server's metrics: as a page on request, as reports to a collector (OTLP), or as lines of its log.

State is read in the event loop, at each report; reports are sent by a thread, and a collector that is away holds up
nothing. Knows the keys and the page; what is on that, the servers' modules know.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from remoting.daemon.exporter import ADVICE, MetricsKeys, Way
from remoting.daemon.points import Reports, Series, line

if TYPE_CHECKING:
    from remoting.daemon.page import Page

logger = logging.getLogger(__name__)

REMIND_S: Final = 600.0
"""Time between two warnings of a collector that stays away."""


class Serve(Protocol):
    """``raft.monitoring.serve_monitoring``, which this layer does not know."""

    async def __call__(self, shown: Any, listen: str, *, advice: str = ..., task_status: Any = ...) -> None: ...


async def start_exports(
    page: Page, keys: MetricsKeys, bind_address: str, serve: Serve, nursery: trio.Nursery,
) -> None:
    """Show ``page`` as the keys say, in tasks of ``nursery``.

    Raises ``ModuleNotFoundError``, and ``OSError`` where ``serve`` cannot listen, both with texts for the user.
    """
    way = keys.metrics_way
    if way is Way.PROM:
        await nursery.start(partial(serve, page, keys.metrics_listen(bind_address), advice=ADVICE))
    elif way is Way.LOG:
        nursery.start_soon(_log, page, keys)
    elif way is Way.OTLP_GRPC:
        from remoting.daemon.otlp import OTLP  # grpc starts threads: import it only for reports

        nursery.start_soon(push, page, keys, OTLP(
            keys.metrics_grpc_exporter_target, keys.metrics_headers, delta=keys.metrics_in_delta,
            timeout_ms=keys.metric_grpc_exporter_time_out_in_mills, points_max=keys.points_of_a_request))


class Collector(Protocol):
    """Takes the reports of a server, as ``remoting.daemon.otlp.OTLP`` does."""

    def send(self, report: Sequence[Series], now_ns: int) -> None: ...

    def close(self) -> None: ...


async def push(page: Page, keys: MetricsKeys, collector: Collector) -> None:
    """Task: a report each ``metricGrpcExporterIntervalInMills``, until cancelled."""
    from remoting.daemon.otlp import NotTaken

    failed, told_s = 0, -REMIND_S
    target = keys.metrics_grpc_exporter_target
    with contextlib.closing(collector):
        async with contextlib.aclosing(_reports(page, keys, keys.metric_grpc_exporter_interval_in_mills)) as reports:
            async for report, now_ns, arrived in reports:
                try:
                    await trio.to_thread.run_sync(collector.send, report, now_ns, abandon_on_cancel=True)
                except NotTaken as error:
                    failed += 1
                    if trio.current_time() - told_s >= REMIND_S:
                        told_s = trio.current_time()
                        logger.warning("metrics do not arrive; the server goes on without", extra={
                            "target": target, "reports": failed, "why": str(error)})
                    continue
                arrived()
                if failed:
                    logger.info("metrics arrive again", extra={"target": target, "reports_missed": failed})
                    failed, told_s = 0, -REMIND_S


async def _log(page: Page, keys: MetricsKeys) -> None:
    """Task: a line for each metric, each ``metricLoggingExporterIntervalInMills``, until cancelled."""
    async with contextlib.aclosing(_reports(page, keys, keys.metric_logging_exporter_interval_in_mills)) as reports:
        async for report, _, arrived in reports:
            for series in report:
                if series.points:
                    logger.info(series.name, extra={
                        "kind": series.kind, "points": "; ".join(map(line, series.points))})
            arrived()


async def _reports(
    page: Page, keys: MetricsKeys, interval_ms: int,
) -> AsyncGenerator[tuple[list[Series], int, Callable[[], None]], None]:
    """Report, its moment in nanoseconds of the wall clock, and whom to tell that it arrived."""
    reports = Reports(time.time_ns(), delta=keys.metrics_in_delta)
    due_s = trio.current_time()
    while True:
        due_s = max(due_s + interval_ms / 1e3, trio.current_time())
        await trio.sleep_until(due_s)
        now_ns = time.time_ns()
        yield reports.report(page.families(), now_ns), now_ns, reports.arrived
