"""What is open is known again after a start, a crash, a cut, and on every replica."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.brokers import cluster
from tests.broker.transactions.world import FAST, bodies, producer


@pytest.mark.parametrize("decided", [True, False])
async def test_killed_and_started_again(decided: bool, autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH", **FAST)
        async with producer(made, node) as shop:
            half = await shop.half()
            await trio.sleep(3.9)
            if decided:
                await shop.commit(shop.checks[0].place)
        await node.kill()
        await node.start()
        async with producer(made, node) as shop:
            await trio.sleep(6)
            if not decided:
                await shop.commit(shop.checks[-1].place)
            await shop.commit(half)
            await trio.sleep(60)
            assert bodies(node) == [b"paid"]
