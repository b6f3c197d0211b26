"""Groups that read far behind the end of the log, alone and in a whole broker."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.pulling.laggards import Laggards
from broker.store.tables import SubscriptionGroup, SubscriptionGroups
from harness.simulation.worlds.brokers import Cluster, Node, cluster
from remoting.codes import RequestCode, ResponseCode
from tests.broker.pop.world import Popper

SLOW = {"disableConsumeIfConsumerReadSlowly": "true", "consumerFallbehindThreshold": "5000"}
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE)


def test_the_last_read_of_a_queue_counts_and_the_worst_queue_of_a_group() -> None:
    laggards = Laggards()
    for queue_id, behind in ((0, 900), (1, 300), (2, 400), (2, 10)):
        laggards.note("g", "t", queue_id, behind)
    laggards.note("even", "t", 0, 200)
    assert laggards.look(200) == {"g": 900}
    assert laggards.look(0) == {}, "each read is looked at once"


async def with_messages(made: Cluster, **settings: str) -> Node:
    """Ten of 1,000 bytes."""
    node = await made.node(**settings)
    for number in range(10):
        assert (await made.send(node.address, b"%d" % number * 1000)).code == ResponseCode.SUCCESS
    return node


async def read(made: Cluster, node: Node, code: RequestCode, first: int, count: int) -> ResponseCode:
    """As group G, from that message on."""
    if code is RequestCode.PULL_MESSAGE:
        node.pulling.reads = type(node.pulling.reads)(max_transfer_count_on_message_in_memory=count)
        return ResponseCode((await made.pull(node.address, first)).code)
    return ResponseCode((await Popper(made).ask(node, queue=0, count=count)).code)


@pytest.mark.parametrize("code", PULLS)
async def test_a_group_that_reads_slowly_may_no_longer_consume(autojump_clock: MockClock, code: RequestCode) -> None:
    async with cluster() as made:
        node = await with_messages(made, **SLOW)
        assert await read(made, node, code, 0, 2) is ResponseCode.SUCCESS
        await trio.sleep(170)
        assert node.groups.groups["G"].consume_enable, "it is looked at every three minutes"
        await trio.sleep(15)
        assert await read(made, node, code, 2, 2) is ResponseCode.NO_PERMISSION
        kept = SubscriptionGroups.from_json(bytes(node.store.content["config/subscriptionGroup.json"].data))
        assert not kept.subscription_group_table["G"].consume_enable
        node.groups.update([SubscriptionGroup("G")])
        await trio.sleep(200)
        assert await read(made, node, code, 2, 10) is ResponseCode.SUCCESS, "allowed again, it is judged anew"
        await trio.sleep(200)
        assert node.groups.groups["G"].consume_enable, "it read up to the end"


@pytest.mark.parametrize("settings", [{}, {**SLOW, "consumerFallbehindThreshold": "100000"}])
async def test_others_go_on(autojump_clock: MockClock, settings: dict[str, str]) -> None:
    async with cluster() as made:
        node = await with_messages(made, **settings)
        for code in PULLS:
            assert await read(made, node, code, 0, 2) is ResponseCode.SUCCESS
        await trio.sleep(400)
        assert node.groups.groups["G"].consume_enable


async def test_the_keys_may_change_while_it_runs(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await with_messages(made)
        text = "".join(f"{key}={value}\n" for key, value in SLOW.items())
        assert (await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())).code == 0
        assert await read(made, node, RequestCode.PULL_MESSAGE, 0, 2) is ResponseCode.SUCCESS
        await trio.sleep(200)
        assert not node.groups.groups["G"].consume_enable
