"""A page of metrics for Prometheus: lines that all have a server's labels, and the task that shows it over HTTP.

What is on it, the servers' modules know. Needs prometheus-client, as the extra ``metrics`` of quorate-raft brings it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
import trio
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from remoting.address import split_address
from remoting.daemon.latency import Latency
from remoting.endpoint import Counters
from remoting.streams import STREAM_ERRORS

Metric = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Values = list[tuple[tuple[str, ...], float]]
"""Values of the labels given, and the metric's."""

_REQUEST_BYTES_MAX: Final = 8 << 10
_REQUEST_TIMEOUT_S: Final = 5.0
_CONNECTIONS_MAX: Final = 64
"""One more ends the oldest: who is slow keeps nobody from the page."""


class Page(Collector):
    """A page; subclasses have ``collect``. ``labels`` are on every line."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> bytes:
        """The page's bytes."""
        return generate_latest(self._registry)

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
            family.add_metric([*self._labels.values(), own], latency.buckets(), latency.total_us)
        return family

    def totals(self, prefix: str, help_text: str, counters: attrs.AttrsInstance) -> Iterator[Metric]:
        """A counter for each field that is a number."""
        for field in attrs.fields(type(counters)):
            value = getattr(counters, field.name)
            if isinstance(value, int):
                yield self.counter(f"{prefix}_{field.name}", help_text, [((), value)])

    def remoting(self, counters: Counters) -> Iterator[Metric]:
        """What the remoting server counts."""
        return self.totals("remoting", "Of the remoting server. Ours.", counters)


async def serve_page(
    page: Page, listen: str, *, task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Task: answer ``GET /metrics`` at ``listen`` (``host:port``) until cancelled. Reports its listeners.

    Raises ``OSError`` in words for an address that cannot be listened at, ``ValueError`` for one that is none.
    """
    host, port = split_address(listen)
    open_since: dict[trio.CancelScope, None] = {}

    async def answer(stream: trio.SocketStream) -> None:
        if len(open_since) >= _CONNECTIONS_MAX:  # who came first had time enough
            oldest = next(iter(open_since))
            del open_since[oldest]
            oldest.cancel()
        with trio.move_on_after(_REQUEST_TIMEOUT_S) as scope:
            open_since[scope] = None
            with contextlib.suppress(*STREAM_ERRORS):  # whoever asked may be gone
                await stream.send_all(_response(await _request_line(stream), page))
        open_since.pop(scope, None)

    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise OSError(f"cannot show metrics at {listen}: {error.strerror or error}; "
                      "choose another metricsPromExporterPort") from error
    await trio.serve_listeners(answer, listeners, task_status=task_status)


async def _request_line(stream: trio.abc.ReceiveStream) -> bytes:
    """b"" if the request is too long or ends early."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = await stream.receive_some(_REQUEST_BYTES_MAX)
        data += piece
        if not piece or len(data) > _REQUEST_BYTES_MAX:
            return b""
    return data.split(b"\r\n", 1)[0]


def _response(line: bytes, page: Page) -> bytes:
    words = line.split(b" ")
    status, body = "200 OK", b""
    if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
        status = "400 Bad Request"
    elif words[1].split(b"?")[0] != b"/metrics":
        status = "404 Not Found"
    elif words[0] == b"GET":
        body = page.exposition()
    head = (f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n")
    return head.encode() + body
