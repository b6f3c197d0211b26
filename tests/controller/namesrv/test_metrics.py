"""The name server's page of metrics, and that it is served where the keys say."""

from __future__ import annotations

from functools import partial

import trio
from prometheus_client.parser import text_string_to_metric_families

from controller.namesrv.cli import configure
from controller.namesrv.metrics import NamesrvMetrics
from controller.namesrv.server import RunningNamesrv, serve_namesrv
from raft.host import monotonic_ns
from remoting.codes import RequestCode
from remoting.daemon.files import MemoryFiles
from remoting.endpoint import Counters
from tests.controller.namesrv.fleet import Fleet, config

COMMON = {"zone": "z1", "kind": "x"}


def samples(page: bytes) -> dict[tuple[str, ...], float]:
    """Values by name and labels, but for those that all lines have."""
    return {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name not in COMMON)): sample.value
        for family in text_string_to_metric_families(page.decode()) for sample in family.samples}


def test_levels_are_those_of_the_tables_and_totals_those_of_the_counters() -> None:
    settings = config(metricsLabel="zone:z1, kind:x")
    fleet = Fleet(settings)
    page = NamesrvMetrics(fleet.core, settings, Counters(accepted=7))
    fleet.register("a", 0)
    fleet.register("a", 1)
    fleet.register("b", 0)
    fleet.unregister("a", 0)
    fleet.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="absent")
    fleet.ask(60_000)
    text = page.exposition()
    found = samples(text)
    assert all(sample.labels.items() >= COMMON.items()
               for family in text_string_to_metric_families(text.decode()) for sample in family.samples)
    for key, value in (
        (("namesrv_active_broker_num", "a", "C"), 1), (("namesrv_active_broker_num", "b", "C"), 1),
        (("namesrv_groups_without_master",), 1), (("namesrv_registrations_total",), 3),
        (("namesrv_brokers_unregistered_total",), 1), (("namesrv_request_total", "REGISTER_BROKER"), 3),
        (("namesrv_request_total", "UNKNOWN"), 1), (("namesrv_failure_total", "17"), 1),
        (("remoting_accepted_total",), 7),
    ):
        assert found[key] == value, key
    assert found["namesrv_topics",] == len(fleet.tables.topics) > 0
    assert found["namesrv_queues",] == fleet.tables.rows > 0


async def test_it_is_served_where_the_keys_say() -> None:
    probe = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = probe[0].socket.getsockname()[1]
    await probe[0].aclose()
    settings = config(metricsExporterType="PROM", metricsPromExporterHost="127.0.0.1",
                      metricsPromExporterPort=port)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        running: RunningNamesrv = await nursery.start(partial(
            serve_namesrv, settings, clock=monotonic_ns, files=MemoryFiles(), listeners=listeners))
        head, body = await get(port, "/metrics")
        assert head.startswith(b"HTTP/1.1 200") and samples(body)["namesrv_topics",] == 0
        for path in ("/healthz", "/readyz"):
            head, body = await get(port, path)
            assert head.startswith(b"HTTP/1.1 200") and body == b"ok\n"
        await running.stop()
        assert running._shell.unready() == "the name server stops"


async def get(port: int, path: str) -> tuple[bytes, bytes]:
    """Head and body."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b"".join([piece async for piece in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def test_a_name_server_that_waits_for_brokers_is_healthy_and_not_ready() -> None:
    settings = config(needWaitForService="true", waitSecondsForService="20")
    fleet, now = Fleet(settings), 19_999_999_999
    page = NamesrvMetrics(fleet.core, settings, Counters(), lambda: fleet.core.unready(now))
    assert page.unhealthy() == ""
    assert page.unready() == "this name server has just started and waits for brokers"
    now += 1
    assert page.unready() == ""


def test_a_controller_in_the_same_process_has_the_next_port() -> None:
    both = configure({
        "enableControllerInNamesrv": "true", "controllerDLegerGroup": "g", "controllerDLegerSelfId": "n0",
        "controllerDLegerPeers": "n0-127.0.0.1:9879", "metricsExporterType": "PROM", "metricsPromExporterPort": "7000"})
    assert both.controller is not None
    assert both.namesrv.metrics_listen("0.0.0.0") == "0.0.0.0:7000"
    assert both.controller.metrics_listen("::") == "[::]:7001"
    assert both.controller.serves_metrics
