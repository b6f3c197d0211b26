"""A collector of OpenTelemetry for tests: a server of gRPC that keeps what comes, and refuses what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

SERVICE = "opentelemetry.proto.collector.metrics.v1.MetricsService"


class Kept:
    """Requests with their headers, in their order; ``silent`` while set: it takes a request and does not answer."""

    def __init__(self) -> None:
        self.requests: list[tuple[Any, dict[str, str]]] = []
        self.refuses = ""
        self.rejects = 0
        self.silent = threading.Event()
        self.ends = threading.Event()

    def take(self, request: Any, context: Any) -> Any:
        if self.silent.is_set():
            self.ends.wait(30)
        if self.refuses:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.refuses)
        self.requests.append((request, dict(context.invocation_metadata())))
        answer = ExportMetricsServiceResponse()
        if self.rejects:
            answer.partial_success.rejected_data_points = self.rejects
            answer.partial_success.error_message = "too many series"
        return answer

    def metrics(self, first: int = 0) -> Iterator[Any]:
        """Of all requests from the given one on."""
        for request, _ in self.requests[first:]:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    yield from scope.metrics

    def points(self, name: str, first: int = 0) -> list[tuple[dict[str, str], Any]]:
        """Labels and point, of every report."""
        found = []
        for metric in self.metrics(first):
            if metric.name == name:
                kind = getattr(metric, metric.WhichOneof("data"))
                found += [({each.key: each.value.string_value for each in point.attributes}, point)
                          for point in kind.data_points]
        return found


@contextmanager
def collector(port: int = 0) -> Iterator[tuple[Kept, int]]:
    """A collector at a port of this machine."""
    kept = Kept()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {
        "Export": grpc.unary_unary_rpc_method_handler(
            kept.take, request_deserializer=ExportMetricsServiceRequest.FromString,
            response_serializer=ExportMetricsServiceResponse.SerializeToString)}),))
    at = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield kept, at
    finally:
        kept.ends.set()
        server.stop(None).wait()
