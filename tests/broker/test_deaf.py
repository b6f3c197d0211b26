"""Clients that ask and do not read, at whole brokers on virtual time: replicas and controllers do not wait for them."""

from __future__ import annotations

import trio

from harness.simulation.worlds.brokers import Cluster, cluster, in_sync, three
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.frame import encode
from remoting.headers.pulling import SUBSCRIPTION, PullMessageRequest
from tests.broker.test_acknowledged import TWO
from tests.broker.test_server import send_all
from tests.remoting.test_connection import before

BUDGET = 32 << 20
LARGE = 900 << 10
PULL = encode(request(RequestCode.PULL_MESSAGE, PullMessageRequest("G", "T", 0, 0, 1, SUBSCRIPTION, 0, 0, "*", 0)))


async def does_not_read(made: Cluster, address: str, number: int) -> None:
    """It pipelines pulls of a large message, and takes nothing from then on."""
    stream = await made.network.connector(f"deaf{number}:1")(address)
    *_, theirs = made.network.links[-1]
    before(theirs, trio.sleep_forever)
    await stream.send_all(PULL * 6)


async def test_neither_replicas_nor_controllers_wait_behind_clients_that_do_not_read(
        autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *_ = await three(made, **TWO, outgoingBytesBudget=str(BUDGET), masterLeaseMs="2000")
        await in_sync(master, 2)
        await send_all(made, master.address, bytes(LARGE))
        for number in range(60):
            await does_not_read(made, master.address, number)
        await trio.sleep(1)
        server = master.broker.server
        assert BUDGET // 4 < sum(each.queued_bytes for each in server.connections) <= BUDGET + 2 * LARGE
        for _ in range(10):
            asked = trio.current_time()
            answer = await made.send(master.address, b"small")
            assert answer.code == ResponseCode.SUCCESS, "all members acknowledged it, and the lease holds"
            assert trio.current_time() - asked < 0.1
            await trio.sleep(0.5)
        assert server.counters.stalled and master.serves
