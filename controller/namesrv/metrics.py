"""A name server's metrics for Prometheus. Java's has none, so the names are ours.

Levels are read off the tables when somebody asks; the rest is what ``Counters`` counted. Beside them stands whether
the name server is healthy and ready.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.namesrv.config import NamesrvConfig
from controller.namesrv.requests import NameServer
from controller.recorder import request_name
from remoting.daemon.page import Metric, Page
from remoting.endpoint import Counters

_HELP = "Counted since the start."


class NamesrvMetrics(Page):
    """The page, with the labels of ``metricsLabel`` on every line. ``unready`` says why routes are not answered."""

    def __init__(
        self, core: NameServer, config: NamesrvConfig, remoting: Counters, unready: Callable[[], str] = str,
    ) -> None:
        super().__init__(config.metric_labels)
        self._core, self._remoting, self.unready = core, remoting, unready

    def unhealthy(self) -> str:
        """Nothing that it holds can fail for good, so a name server that answers is well."""
        return ""

    def collect(self) -> Iterator[Metric]:
        counters, tables = self._core.counters, self._core.tables
        yield self.gauge("namesrv_active_broker_num", "Registered brokers.", [
            ((group.cluster, name), len(group.replicas)) for name, group in sorted(tables.groups.items())
        ], "cluster", "broker_set")
        yield self.gauge("namesrv_groups_without_master", "Groups of which slaves alone are registered.",
                         [((), sum(group.master is None for group in tables.groups.values()))])
        yield self.gauge("namesrv_topics", "Topics that have a route.", [((), len(tables.topics))])
        yield self.gauge("namesrv_queues", "Entries of groups and topics together.", [((), tables.rows)])
        yield self.counter("namesrv_request", "Requests.", [
            ((request_name(code),), count) for code, count in sorted(counters.requests.items())], "request_type")
        yield self.counter("namesrv_failure", "Answers other than success.", [
            ((str(int(code)),), count) for code, count in sorted(counters.failures.items())], "response_code")
        yield self.counter("namesrv_registrations_refused", _HELP, [
            ((verdict.value,), count) for verdict, count in counters.registrations_refused.items()], "verdict")
        yield from self.totals("namesrv", _HELP, counters)
        yield from self.remoting(self._remoting)
