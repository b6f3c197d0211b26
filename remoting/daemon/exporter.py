"""The keys ``metrics*`` of every server's configuration: whether and where it shows its metrics. Text and numbers."""

from __future__ import annotations

from typing import Final

import attrs

from remoting.address import join_address
from remoting.daemon.keys import key

ADVICE: Final = "choose another metricsPromExporterPort"
"""Where nobody can listen at the address."""


@attrs.frozen(kw_only=True, slots=False)  # one base of two with slots is all that Python can lay out
class MetricsKeys:
    """Part of a configuration. Names are those of Java's ``ControllerConfig``."""

    metrics_exporter_type: str = key(
        "DISABLE", "PROM serves Prometheus at metricsPromExporterPort; OTLP_GRPC and LOG are taken, and export nothing",
        choices=("DISABLE", "OTLP_GRPC", "PROM", "LOG", "0", "1", "2", "3"))
    metrics_prom_exporter_port: int = key(5_557, "see metricsExporterType", least=0, most=65_535)
    metrics_prom_exporter_host: str = key("", "address to serve metrics at; default bindAddress")
    metrics_label: str = key("", "labels for every metric: k:v,k:v")

    @property
    def exports_metrics(self) -> bool:
        return self.metrics_exporter_type in ("PROM", "2")

    @property
    def exports_in_vain(self) -> bool:
        """Java would export them by a way that is not here."""
        return self.metrics_exporter_type in ("OTLP_GRPC", "LOG", "1", "3")

    def metrics_listen(self, bind_address: str) -> str:
        """``host:port``."""
        return join_address(self.metrics_prom_exporter_host or bind_address, self.metrics_prom_exporter_port)

    @property
    def metric_labels(self) -> dict[str, str]:
        """Name to value."""
        pairs = (item.partition(":") for item in self.metrics_label.split(",") if item.strip())
        return {name.strip(): value.strip() for name, _, value in pairs}
