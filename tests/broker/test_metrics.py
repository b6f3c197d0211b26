"""Whether a broker is healthy and ready, as its page of metrics says it: on virtual time, and of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from broker.metrics import BrokerMetrics
from broker.store.errors import StoreFailed
from harness.processes import ours
from harness.processes.ports import reserved
from harness.simulation.worlds.brokers import Node, cluster, controlled, until
from raft.monitoring import Judged
from tests.remoting.daemon.collector import Kept, collector

READY = ""


def page_of(node: Node) -> BrokerMetrics:
    page = BrokerMetrics(node.broker)
    assert isinstance(page, Judged)
    return page


async def test_a_master_and_its_slave_are_ready_and_not_while_they_stop(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        master = await made.node()
        slave = await made.node(brokerRole="SLAVE", brokerId="1")
        for node in (master, slave):
            page = page_of(node)
            assert (page.unhealthy(), page.unready()) == ("", READY)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(node.stop)
                await trio.testing.wait_all_tasks_blocked()
                assert (page.unhealthy(), page.unready()) == ("", "the broker stops")


async def test_a_broker_without_a_role_is_not_ready(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        page = page_of(await made.node(**controlled()))
        await trio.sleep(30)
        assert (page.unhealthy(), page.unready()) == ("", "the broker has no role yet")


async def test_a_master_whose_lease_is_over_is_not_ready_and_its_slave_is(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        nodes = [await made.node(**controlled()) for _ in range(2)]
        pages = [page_of(node) for node in nodes]
        await until(lambda: [page.unready() for page in pages] == [READY, READY])
        master = next(node for node in nodes if node.broker.standing.role.leads)
        slave = next(node for node in nodes if node is not master)
        assert made.controllers is not None
        for name in list(made.controllers.running):
            await made.controllers.kill(name)
        await until(lambda: page_of(master).unready())
        assert page_of(master).unready() == (
            "the master takes no messages: no active controller has renewed this master's lease")
        assert page_of(master).unhealthy() == ""
        assert page_of(slave).unready() == READY
        assert page_of(slave).unwritable() == "this broker is not the master of its group"
        assert page_of(master).unwritable() == "no active controller has renewed this master's lease"


async def test_a_broker_whose_disk_failed_is_neither_healthy_nor_ready(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        page = page_of(node)
        node.broker.journal.failure = StoreFailed("fdatasync: Input/output error")
        assert page.unhealthy() == page.unready() == "the store has failed: fdatasync: Input/output error"
        node.broker.journal.failure = None


async def asked(port: int, path: str) -> str:
    """The answer, status line first; "" while nobody listens."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            return b"".join([piece async for piece in stream]).decode()
    except OSError:
        return ""


async def until_answered(port: int, path: str, status: int, words: str) -> None:
    with trio.fail_after(60):
        while not (answer := await asked(port, path)).startswith(f"HTTP/1.1 {status} ") or words not in answer:
            await trio.sleep(0.1)


@pytest.mark.slow
async def test_real_servers_say_when_they_serve(tmp_path: Path) -> None:
    """A broker is ready when its controller has made it master, and not when that is gone and the lease with it."""
    def shown(port: int) -> dict[str, object]:
        return {"metricsExporterType": "PROM", "metricsPromExporterPort": port, "metricsPromExporterHost": "127.0.0.1"}

    with reserved() as named, reserved() as led, reserved() as stored:
        async with ours.namesrv(tmp_path / "namesrv", extra=shown(named)) as namesrv, \
                ours.controllers(tmp_path / "controllers", 1, start=False, extra=shown(led)) as (controller,), \
                ours.broker(tmp_path / "broker", namesrv=[namesrv.address], controllers=[controller.address],
                            start=False, extra=shown(stored)) as broker:
            await until_answered(named, "/readyz", 200, "ok")
            await broker.launch()
            await until_answered(stored, "/readyz", 503, "the broker has no role yet")
            await until_answered(stored, "/healthz", 200, "ok")
            await controller.start()
            await until_answered(led, "/readyz", 200, "ok")
            await until_answered(stored, "/readyz", 200, "ok")
            await until_answered(stored, "/metrics", 200, "broker_writes_open")
            await until_answered(stored, "/writable", 200, "ok")
            await controller.kill()
            await until_answered(stored, "/writable", 503, "lease")
            await until_answered(stored, "/readyz", 503, "the master takes no messages")
            await until_answered(stored, "/healthz", 200, "ok")


@pytest.mark.slow
async def test_real_servers_report_to_a_collector_that_comes_later_and_goes(tmp_path: Path) -> None:
    """Meanwhile they serve: a controller makes the broker master, and each says once that nobody takes its metrics."""
    def there(port: int) -> dict[str, object]:
        return {"metricsExporterType": "OTLP_GRPC", "metricsGrpcExporterTarget": f"http://127.0.0.1:{port}",
                "metricGrpcExporterIntervalInMills": 50, "metricGrpcExporterTimeOutInMills": 500}

    ours_of_each = ("broker_is_master", "active_controller", "raft_term", "namesrv_topics")

    async def arrive(kept: Kept) -> None:
        with trio.fail_after(60):
            while not all(kept.points(name) for name in ours_of_each):
                await trio.sleep(0.05)

    with reserved() as port:
        async with ours.namesrv(tmp_path / "namesrv", extra=there(port)) as namesrv, \
                ours.controllers(tmp_path / "controllers", 1, extra=there(port)) as (controller,), \
                ours.broker(tmp_path / "broker", namesrv=[namesrv.address], controllers=[controller.address],
                            extra=there(port)) as broker:
            servers = (namesrv, controller, broker)

            async def warned(times: int) -> None:
                with trio.fail_after(60):
                    while any(server.out.read_text().count("metrics do not arrive") < times for server in servers):
                        await trio.sleep(0.05)

            await warned(1)
            with collector(port) as (kept, _):
                await arrive(kept)
                with trio.fail_after(60):
                    while kept.points("broker_is_master")[-1][1].as_int != 1:
                        await trio.sleep(0.05)
            await warned(2)
            labels, _ = kept.points("broker_is_master")[0]
            assert labels == {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
            for server in servers:
                assert server.running
                text = server.out.read_text()
                assert text.count("metrics arrive again") == 1
                assert text.count("metrics do not arrive") == 2, "once each time"
