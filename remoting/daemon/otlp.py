"""Reports of metrics to a collector of OpenTelemetry over gRPC (OTLP). Calls block: they belong into a thread.

Needs the extra ``otlp``. Knows points and the protocol's messages, and nothing of who counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from remoting.daemon.points import Distribution, Point, Series, portions
from remoting.daemon.version import version

try:
    import grpc
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
        ExportMetricsServiceResponse,
    )
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import (
        AggregationTemporality,
        Gauge,
        Histogram,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("metrics by OTLP need grpcio and opentelemetry-proto: pip install 'quorate[otlp]'"
                              ) from missing

SCOPE: Final = "quorate"
METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
PLAIN: Final = "http://"
ENCRYPTED: Final = "https://"


class NotTaken(Exception):
    """A report that the collector did not take, and why."""


class OTLP:
    """A collector. ``target`` is ``http://host:port``, or ``https://host:port`` for TLS.

    Without either, TLS is meant, as in Java. ``headers`` go with each report. A request has at most ``points_max``
    points.
    """

    def __init__(
        self, target: str, headers: Mapping[str, str], *, timeout_ms: int, points_max: int, delta: bool,
    ) -> None:
        address = target.partition("://")[2] if target.startswith((PLAIN, ENCRYPTED)) else target
        address = address.partition("/")[0]
        self._channel = grpc.insecure_channel(address) if target.startswith(PLAIN) else grpc.secure_channel(
            address, grpc.ssl_channel_credentials())
        self._export = self._channel.unary_unary(
            METHOD, request_serializer=ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=ExportMetricsServiceResponse.FromString)
        self._scope = InstrumentationScope(name=SCOPE, version=version())
        self._headers = tuple(headers.items())
        self._timeout_ms, self._points_max = timeout_ms, points_max
        self._since = (AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA if delta
                       else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE)

    def send(self, report: Sequence[Series], now_ns: int) -> None:
        """Raises ``NotTaken``: the collector was not reached, or refused a request or points of it."""
        for portion in portions(report, self._points_max):
            request = ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(
                scope=self._scope, metrics=[self._metric(each, now_ns) for each in portion])])])
            try:
                answer = self._export(request, timeout=self._timeout_ms / 1e3, metadata=self._headers,
                                      compression=grpc.Compression.Gzip)
            except grpc.RpcError as error:
                raise NotTaken(f"{error.code().name}: {error.details()}") from error
            if refused := answer.partial_success.rejected_data_points:
                raise NotTaken(f"{refused} points refused: {answer.partial_success.error_message}")

    def close(self) -> None:
        """Whatever is under way ends."""
        self._channel.close()

    def _metric(self, series: Series, now_ns: int) -> Metric:
        metric = Metric(name=series.name, description=series.about)
        if series.kind == "histogram":
            metric.histogram.CopyFrom(Histogram(
                data_points=[_distribution(point, now_ns) for point in series.points],
                aggregation_temporality=self._since))
        elif series.kind == "counter":
            metric.sum.CopyFrom(Sum(data_points=[_number(point, now_ns, point.since_ns) for point in series.points],
                                    aggregation_temporality=self._since, is_monotonic=True))
        else:
            metric.gauge.CopyFrom(Gauge(data_points=[_number(point, now_ns, 0) for point in series.points]))
        return metric


def _number(point: Point, now_ns: int, since_ns: int) -> NumberDataPoint:
    assert not isinstance(point.value, Distribution)
    made = NumberDataPoint(attributes=_labels(point), start_time_unix_nano=since_ns, time_unix_nano=now_ns)
    if float(point.value).is_integer():
        made.as_int = int(point.value)
    else:
        made.as_double = point.value
    return made


def _distribution(point: Point, now_ns: int) -> HistogramDataPoint:
    value = point.value
    assert isinstance(value, Distribution)
    return HistogramDataPoint(
        attributes=_labels(point), start_time_unix_nano=point.since_ns, time_unix_nano=now_ns,
        count=sum(value.counts), sum=value.total, bucket_counts=value.counts, explicit_bounds=value.bounds)


def _labels(point: Point) -> list[KeyValue]:
    return [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in point.labels]
