"""What is sent in a transaction waits as a half, from the request on, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.topics.names import HALF
from harness.simulation.worlds.brokers import cluster
from remoting.codes import ResponseCode
from remoting.record import COMMIT, PREPARED
from tests.broker.transactions.world import bodies, producer, records, values


async def test_no_sender_says_what_only_brokers_say(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            half = await shop.half(__QUORATE_HALF="0", __QUORATE_RESUMED="5")
            stored = values(records(node, HALF)[half.queue_offset])
            assert not [name for name in stored if name.startswith("__QUORATE")]
            bare = await shop.send(sys_flag=PREPARED, values={"TRAN_MSG": "false"})
            assert bare.code == ResponseCode.MESSAGE_ILLEGAL


async def test_transactions_may_be_refused(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(rejectTransactionMessage="true")
        async with producer(made, node) as shop:
            answer = await shop.send()
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == "the broker[10.0.0.1] sending transaction message is forbidden"


async def test_what_is_committed_is_delayed_then(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            await shop.commit(await shop.half(DELAY="2"))
            await trio.sleep(4)
            assert bodies(node) == []
            await trio.sleep(4)
            (copy,) = records(node)
            assert (copy.message.sys_flag, copy.message.prepared_offset) == (COMMIT, 0)




@pytest.mark.parametrize(("timer", "settings"), [
    ({"TIMER_DELIVER_MS": "99999999999999"}, {}), ({"TIMER_DELAY_SEC": "abc"}, {}), ({"TIMER_DELAY_SEC": "259201"}, {}),
    ({"TIMER_DELAY_SEC": "5"}, {"timerWheelEnable": "false"})])
async def test_a_half_that_asks_for_an_impossible_timer_is_refused_as_any_message(
        autojump_clock: MockClock, timer: dict[str, str], settings: dict[str, str]) -> None:
    """Else its commit would be refused for ever."""
    async with cluster() as made:
        node = await made.node(**settings)
        async with producer(made, node) as shop:
            plain = await shop.send(values={**timer, "TRAN_MSG": "false"}, sys_flag=0)
            half = await shop.send(values=timer)
            assert (half.code, half.remark) == (plain.code, plain.remark)
            assert half.code != ResponseCode.SUCCESS and bodies(node, HALF) == []
            assert (await shop.send(values={"DELAY": "2", **timer})).code == ResponseCode.SUCCESS


async def test_a_half_whose_timer_is_possible_is_delayed_when_it_is_committed(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        async with producer(made, node) as shop:
            await shop.commit(await shop.half(TIMER_DELAY_SEC="5"))
            await trio.sleep(3)
            assert bodies(node) == []
            await trio.sleep(5)
            assert bodies(node) == [b"paid"]
