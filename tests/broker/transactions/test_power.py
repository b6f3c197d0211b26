"""A machine that loses power takes decisions along that were not synced, and never a half that was."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.record import COMMIT
from tests.broker.transactions.world import bodies, producer, records


async def _sends(made: Cluster, node: Node) -> None:
    while True:
        await made.send(node.address, b"beside", "Other")
        await trio.sleep(0.7)


@pytest.mark.parametrize("later_s", [6, 7.5, 9])
async def test_a_half_whose_decision_is_lost_is_open_again(autojump_clock: MockClock, later_s: float) -> None:
    """Tables are on disk seconds before the log is, and say nothing of what it has not."""
    async with cluster() as made:
        node = await made.node(transactionCheckInterval="60000")
        async with trio.open_nursery() as nursery:
            await trio.sleep(1)
            nursery.start_soon(_sends, made, node)
            async with producer(made, node) as shop:
                half = await shop.half()
                await trio.sleep(15)
                flushed = node.broker.journal.log.flushed_offset
                await until(lambda: node.broker.journal.log.flushed_offset > flushed)
                await shop.commit(half)
                await trio.sleep(0.2)
                decided = records(node)[0].offset
                await trio.sleep(later_s)
            nursery.cancel_scope.cancel()
        assert half.offset < node.broker.journal.log.flushed_offset <= decided
        await node.kill()
        await node.start()
        async with producer(made, node, "p2") as again:
            again.uniques = shop.uniques
            await trio.sleep(100)
            assert bodies(node) == []
            assert {check.asked.transaction_id for check in again.checks} == {"U1"}
            assert (await again.end(half, COMMIT)).code == 0
        await trio.sleep(1)
        assert bodies(node) == [b"paid"]
