"""Copies of what was committed: each stays committed, names no half, and decides nothing. In virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import COMMIT, ROLLBACK
from tests.broker.pop.poppers import RETRY, pop
from tests.broker.transactions.world import bodies, place_of, producer, records, transactions

DELAYED = {"timer": {"TIMER_DELAY_SEC": "2"}, "level": {"DELAY": "2"}}
GIVEN_BACK = {"given back": 1, "given up": -1}
"""Levels of a consumer's 36."""


async def give_back(made: Cluster, node: Node, level: int) -> None:
    (final,) = records(node)
    answer = await made.ask(node.address, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
        final.offset, "G", level, origin_topic="T"))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.mark.parametrize(("way", "topic"), [
    ("timer", "T"), ("level", "T"), ("given back", "%RETRY%G"), ("given up", "%DLQ%G"), ("popped", RETRY)])
async def test_a_copy_stays_committed_and_decides_nothing(way: str, topic: str, autojump_clock: MockClock) -> None:
    """At the place that a copy would name, 0, an open half stands."""
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            assert (await shop.half(b"open", unique="U0")).offset == 0
            half = place_of(await shop.send(unique="U1", values=DELAYED.get(way, {})))
            await shop.commit(half)
            if way in GIVEN_BACK:
                await give_back(made, node, GIVEN_BACK[way])
            elif way == "popped":
                await trio.sleep(1)
                await pop(node, [0], 1_000)
            await until(lambda: bodies(node, topic) == [b"paid"])
            (copy,) = records(node, topic)
            assert (copy.message.sys_flag & ROLLBACK, copy.message.prepared_offset) == (COMMIT, 0)
            await trio.sleep(5)
            assert [each.half.unique for each in transactions(node).halves] == ["U0"]
            await shop.commit(half)
            assert (await shop.end(half, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
            assert bodies(node, topic) == [b"paid"]
