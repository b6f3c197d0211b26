"""A page of metrics for Prometheus: lines that all have a server's labels.

What is on it, the servers' modules know; ``remoting.daemon.exports`` shows it.
Needs prometheus-client, of the extra ``metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from remoting.daemon.latency import Latency

try:
    from prometheus_client import Metric as MetricFamily
    from prometheus_client import generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("metrics need prometheus-client: pip install 'quorate[metrics]'") from missing

if TYPE_CHECKING:
    from remoting.endpoint import Counters

Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Values = list[tuple[tuple[str, ...], float]]
"""Values of the labels given, and the metric's."""


class Page(Collector):
    """A page; subclasses have ``collect``. ``labels`` are on every line."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The page as bytes, in Prometheus' text format."""
        return generate_latest(self._registry)

    def families(self) -> Iterable[MetricFamily]:
        """Return the metrics of the page in order."""
        return self._registry.collect()

    def gauge(self, name: str, help_text: str, values: Values, *labels: str) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, help_text, labels=[*self._labels, *labels])
        for own, value in values:
            family.add_metric([*self._labels.values(), *own], value)
        return family

    def counter(self, name: str, help_text: str, values: Values, *labels: str) -> CounterMetricFamily:
        family = CounterMetricFamily(name, help_text, labels=[*self._labels, *labels])
        for own, value in values:
            family.add_metric([*self._labels.values(), *own], value)
        return family

    def histogram(
        self, name: str, help_text: str, latencies: Mapping[str, Latency], label: str
    ) -> HistogramMetricFamily:
        family = HistogramMetricFamily(name, help_text, labels=[*self._labels, label])
        for own, latency in latencies.items():
            family.add_metric([*self._labels.values(), own], latency.buckets(), latency.total)
        return family

    def totals(self, prefix: str, help_text: str, counters: attrs.AttrsInstance) -> Iterator[Metric]:
        """A counter for each field that is a number."""
        for field in attrs.fields(type(counters)):
            value = getattr(counters, field.name)
            if isinstance(value, int):
                yield self.counter(f"{prefix}_{field.name}", help_text, [((), value)])

    def remoting(self, counters: Counters) -> Iterator[Metric]:
        """Return metrics from the counters of a remoting server."""
        return self.totals("remoting", "Of the remoting server. Ours.", counters)
