"""What is sent in a transaction waits as a half, from the request on, in virtual time."""

from __future__ import annotations

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


