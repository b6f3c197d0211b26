"""A controller's metrics for Prometheus, by the names of Java's ``ControllerMetricsConstant``, and raft's beside them.

State is read when somebody asks; what ``controller.recorder`` counted is added. Needs the extra ``metrics`` of
quorate-raft, as ``raft.metrics`` does, whose page this one includes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from controller.handlers import Controller
from controller.recorder import Latency, Recorder
from raft.messages import Role
from raft.metrics import Metrics
from remoting.endpoint import Counters

Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_ROLES: Final = {Role.CANDIDATE: 1, Role.FOLLOWER: 2, Role.LEADER: 3}
_OPERATION: Final = "append"


class ControllerMetrics(Collector):
    """The page. ``labels`` are on every line of ours: address, group, peer_id and those of ``metricsLabel``."""

    def __init__(self, core: Controller, recorder: Recorder, counters: Counters, store: Path) -> None:
        self._core, self._recorder, self._counters, self._store = core, recorder, counters, store
        config = core.config
        self._labels = {"address": config.address, "group": config.group, "peer_id": config.self_id,
                        **_given_labels(config.metrics_label)}
        self._raft = Metrics()
        self._raft.watch(core.node)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        return generate_latest(self._registry) + self._raft.exposition()

    def collect(self) -> Iterator[Metric]:
        core, recorder = self._core, self._recorder
        yield self._gauge("role", "UNKNOWN 0, CANDIDATE 1, FOLLOWER 2, LEADER 3.",
                          [((), _ROLES.get(core.node.replica.role, 0))])
        yield self._gauge("dledger_disk_usage", "Bytes of the replicated metadata's directory.",
                          [((), _directory_bytes(self._store))])
        alive = core.active.liveness.alive_count(core.clock())
        yield self._gauge("active_broker_num", "Brokers that this controller hears.",
                          [((key.cluster, key.name), count) for key, count in alive.items()], "cluster", "broker_set")
        yield self._gauge("active_controller", "1 on the active controller. Ours.", [((), core.active.active)])
        yield self._gauge("owed_notifications", "Brokers still to be told of an election. Ours.",
                          [((), len(core.active.notifications))])
        yield self._counter("request", "Requests answered.", list(recorder.requests.items()),
                            "request_type", "request_handle_status")
        yield self._counter("dledger_op", "Commands that went through raft.",
                            [((_OPERATION, status), count) for status, count in recorder.operations.items()],
                            "dledger_operation", "dLedger_operation_status")
        yield self._counter("election", "Elections by result.",
                            [((key.cluster, key.name, result), count)
                             for (key, result), count in recorder.elections.items()],
                            "cluster", "broker_set", "election_result")
        yield self._histogram("request_latency", "From reading a request to queueing its answer, microseconds.",
                              recorder.request_latency, "request_type")
        yield self._histogram("dledger_op_latency", "From proposing to applied, microseconds.",
                              {_OPERATION: recorder.operation_latency}, "dledger_operation")
        for field in attrs.fields(Counters):
            value = getattr(self._counters, field.name)
            if isinstance(value, int):
                yield self._counter(f"remoting_{field.name}", "Of the remoting server. Ours.", [((), value)])

    def _gauge(
        self, name: str, help_text: str, values: list[tuple[tuple[str, ...], float]], *labels: str
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, help_text, labels=[*self._labels, *labels])
        for own, value in values:
            family.add_metric([*self._labels.values(), *own], value)
        return family

    def _counter(
        self, name: str, help_text: str, values: list[tuple[tuple[str, ...], int]], *labels: str
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(name, help_text, labels=[*self._labels, *labels])
        for own, value in values:
            family.add_metric([*self._labels.values(), *own], value)
        return family

    def _histogram(
        self, name: str, help_text: str, latencies: Mapping[str, Latency], label: str
    ) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, help_text, labels=[*self._labels, label])
        for own, latency in latencies.items():
            family.add_metric([*self._labels.values(), own], latency.buckets(), latency.total_us)
        return family


def _directory_bytes(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue  # it was purged meanwhile
    return total


def _given_labels(text: str) -> dict[str, str]:
    """``k:v,k:v``."""
    pairs = (item.partition(":") for item in text.split(",") if item.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}

