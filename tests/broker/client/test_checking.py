"""The client filters by properties on our broker, and hears before it joins of an expression that is none."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from broker.client import Client, Message, Refused, Sql, Start
from harness.simulation.worlds.brokers import cluster
from tests.broker.client.consumption import take
from tests.broker.client.test_ours import created


async def filled(client: Client) -> None:
    await created(client, "orders")
    for price in range(10):
        await client.send(Message("orders", b"%d" % price, tag="a", properties={"price": str(price)}))


async def test_a_consumer_gets_what_its_expression_wants(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        await made.node(enablePropertyFilter="true")
        async with made.connect() as client:
            await filled(client)
            for group, text, wanted in (
                    ("high", "price > 6", [7, 8, 9]), ("low", "price IN ('1', '2') AND TAGS = 'a'", [1, 2])):
                async with client.consume(group, {"orders": Sql(text)}, start=Start.FIRST) as messages:
                    found = await take(messages, len(wanted))
                    assert sorted(int(message.body) for message in found) == wanted


@pytest.mark.parametrize(("text", "setting", "code"), [("price >", "true", 23), ("price > 5", "false", 1)])
async def test_what_a_broker_does_not_take_is_refused_before_it_joins(
    autojump_clock: MockClock, text: str, setting: str, code: int,
) -> None:
    async with cluster() as made:
        await made.node(enablePropertyFilter=setting)
        async with made.connect() as client:
            await filled(client)
            with pytest.raises(Refused) as refused:
                async with client.consume("g", {"orders": Sql(text)}):
                    pass
            assert refused.value.code == code


async def test_a_reader_of_queues_hears_of_it_and_reads_on_as_before(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        await made.node(enablePropertyFilter="true")
        async with made.connect() as client:
            await filled(client)
            async with client.pull("g", start=Start.FIRST) as puller:
                queues = await puller.queues("orders")
                await puller.assign(queues, Sql("price > 6"))
                for text, error in ((Sql("price >"), Refused), (" || ", ValueError)):
                    with pytest.raises(error):
                        await puller.assign(queues, text)
                found: list[int] = []
                while len(found) < 3:
                    found += [int(message.body) for message in await puller.poll()]
                assert sorted(found) == [7, 8, 9]
