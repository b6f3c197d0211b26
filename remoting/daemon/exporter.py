"""The keys ``metrics*`` of every server's configuration: whether and where it shows its metrics. Text and numbers."""

from __future__ import annotations

import enum
import re
from typing import Final

import attrs

from remoting.address import join_address
from remoting.daemon.keys import key

ADVICE: Final = "choose another metricsPromExporterPort"
"""Advice when the address cannot be listened at."""
POINTS_OF_A_REQUEST: Final = 1_000
"""Points of one report, like Java's ``metricsExportBatchMaxDataPoints``, which only brokers have."""
_HEADER: Final = re.compile(r"[0-9a-z_.-]+")


class Way(enum.Enum):
    """Ways in which metrics leave a server; values are Java's numbers."""

    DISABLE = "0"
    OTLP_GRPC = "1"
    PROM = "2"
    LOG = "3"


NEEDS: Final = {
    Way.PROM: ("metrics", ("prometheus_client", "h11")), Way.LOG: ("metrics", ("prometheus_client",)),
    Way.OTLP_GRPC: ("otlp", ("prometheus_client", "grpc", "opentelemetry.proto")),
}
"""Extra of the distribution, and packages of it."""


@attrs.frozen(kw_only=True, slots=False)  # Python allows only one base with slots
class MetricsKeys:
    """Part of a configuration. Names are those of Java's ``ControllerConfig``."""

    metrics_exporter_type: str = key(
        "DISABLE", "PROM serves Prometheus at metricsPromExporterPort, OTLP_GRPC reports to metricsGrpcExporterTarget, "
        "LOG writes a line for each metric to the server's log",
        choices=("DISABLE", "OTLP_GRPC", "PROM", "LOG", "0", "1", "2", "3"))
    metrics_grpc_exporter_target: str = key(
        "", "collector of OTLP by gRPC: http://host:port, or https://host:port for TLS, which is meant without either")
    metrics_grpc_exporter_header: str = key("", "headers of a report: k:v,k:v")
    metric_grpc_exporter_time_out_in_mills: int = key(3_000, "for one request of a report", least=1, most=86_400_000)
    metric_grpc_exporter_interval_in_mills: int = key(60_000, "between two reports", least=1, most=86_400_000)
    metric_logging_exporter_interval_in_mills: int = key(
        10_000, "between two reports to the log", least=1, most=86_400_000)
    metrics_prom_exporter_port: int = key(5_557, "see metricsExporterType", least=0, most=65_535)
    metrics_prom_exporter_host: str = key("", "address to serve metrics at; default bindAddress")
    metrics_label: str = key("", "labels for every metric: k:v,k:v")
    metrics_in_delta: bool = key(
        False, "reports have what happened since the last that arrived, and the label aggregation=delta")

    @property
    def metrics_way(self) -> Way:
        told = self.metrics_exporter_type
        way = Way(told) if told.isdigit() else Way[told]
        return Way.DISABLE if way is Way.OTLP_GRPC and not self.metrics_grpc_exporter_target.strip() else way

    @property
    def serves_metrics(self) -> bool:
        """At a port of its own, where Prometheus asks."""
        return self.metrics_way is Way.PROM

    @property
    def exports_in_vain(self) -> bool:
        """It shall report, and to nobody."""
        return self.metrics_exporter_type in ("OTLP_GRPC", "1") and self.metrics_way is Way.DISABLE

    @property
    def points_of_a_request(self) -> int:
        return POINTS_OF_A_REQUEST

    @property
    def metrics_headers(self) -> dict[str, str]:
        """Name to value; names are in small letters, as HTTP/2 has them. What can be no header is left out."""
        return {name.lower(): value for name, value in _pairs(self.metrics_grpc_exporter_header).items()
                if _HEADER.fullmatch(name.lower()) and value.isascii() and value.isprintable()}

    def metrics_listen(self, bind_address: str) -> str:
        """Return the address of the page of metrics, as ``host:port``."""
        return join_address(self.metrics_prom_exporter_host or bind_address, self.metrics_prom_exporter_port)

    @property
    def metric_labels(self) -> dict[str, str]:
        """Labels that every metric bears: name to value."""
        return {**_pairs(self.metrics_label), **({"aggregation": "delta"} if self.metrics_in_delta else {})}


def _pairs(text: str) -> dict[str, str]:
    pairs = (item.partition(":") for item in text.split(",") if item.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
