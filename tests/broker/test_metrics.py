"""Whether a broker is healthy and ready, as its page of metrics says it, on virtual time."""

from __future__ import annotations

import trio

from broker.metrics import BrokerMetrics
from broker.store.errors import StoreFailed
from raft.monitoring import Judged
from tests.broker.cluster import Node, cluster, controlled, until

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


async def test_a_broker_whose_disk_failed_is_neither_healthy_nor_ready(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        page = page_of(node)
        node.broker.journal.failure = StoreFailed("fdatasync: Input/output error")
        assert page.unhealthy() == page.unready() == "the store has failed: fdatasync: Input/output error"
        node.broker.journal.failure = None
