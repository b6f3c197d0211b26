"""Halves of a master that is away: its slave asks their producers, and writes nothing."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from harness.simulation.worlds.brokers import until
from tests.broker.standin.test_part import group, may_deliver
from tests.broker.transactions.world import FAST, Place, producer


async def test_an_acting_slave_asks_as_often_as_its_master_would(autojump_clock: MockClock) -> None:
    async with group(1, transactionCheckMax="3", **FAST) as (made, (master, slave)):
        async with producer(made, master) as shop:
            half = await shop.half()
            await until(lambda: shop.checks)
            await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await master.kill()
        await until(lambda: may_deliver(slave))
        end = slave.broker.journal.end
        async with producer(made, slave) as shop:
            await until(lambda: shop.checks)
            first = shop.checks[0]
            assert first.place.offset > half.offset, "the half that its master put back"
            assert first.asked.transaction_id == "U1"
            assert first.record.message.body == b"paid"
            await trio.sleep(30)
            assert [check.place for check in shop.checks] == [Place(first.place.offset, first.place.queue_offset)] * 2
        assert slave.broker.journal.end == end
