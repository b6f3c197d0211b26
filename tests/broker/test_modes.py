"""Deployments as real processes: pairs without controllers, groups under them, and the way from one to the other.

Real time passes here, so nothing is asserted about how much.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from broker.client import Client, ClientError, Message, SendFailed, connect
from harness.processes import ours
from harness.processes.broker import Broker
from remoting.bodies.broker import HARuntimeInfo
from remoting.client import Client as Remoting
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from tests.broker.test_processes import Cluster, cluster, everything, send

pytestmark = pytest.mark.slow
SMALL = {"maxHashSlotNum": "1000", "maxIndexNum": "4000"}
PAIR = {**SMALL, "totalReplicas": "2", "inSyncReplicas": "2", "enableAutoInSyncReplicas": "true",
        "syncBrokerMemberGroupPeriod": "200"}
MASTER, SLAVE = {"brokerId": "0", "brokerRole": "SYNC_MASTER"}, {"brokerId": "1", "brokerRole": "SLAVE"}


@attrs.define
class Pair:
    namesrv: str
    master: Broker
    slave: Broker
    remoting: Remoting

    async def wait_slaves(self, count: int) -> None:
        """Until so many hold all that the master has."""
        with trio.fail_after(60):
            while True:
                answer = await self.remoting.call(self.master.address, request(RequestCode.GET_BROKER_HA_STATUS))
                if HARuntimeInfo.from_json(answer.body).in_sync_slave_nums == count:
                    return
                await trio.sleep(0.05)


@asynccontextmanager
async def pair(here: Path, **settings: str) -> AsyncGenerator[Pair, None]:
    """A name server, a master that writes to its slave too, and that slave."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(ours.namesrv(here / "namesrv"))
        master, slave = [await stack.enter_async_context(ours.broker(
            here / name, "a", namesrv=[namesrv.address], extra={**PAIR, **role, **settings}))
            for name, role in (("b0", MASTER), ("b1", SLAVE))]
        made = Pair(namesrv.address, master, slave, await stack.enter_async_context(open_client()))
        await made.wait_slaves(1)
        yield made


async def refusal(client: Client) -> int | None:
    """The code with which a message is refused; what is stored first is none."""
    with trio.fail_after(60):
        while True:
            try:
                await client.send(Message("T", b"refused"), timeout_ms=1_000)
            except SendFailed as failed:
                return failed.code
            except ClientError:
                await trio.sleep(0.05)


async def test_a_pair_goes_on_alone_and_then_under_controllers(tmp_path: Path) -> None:
    bodies = [b"both", b"alone", b"both again"]
    async with pair(tmp_path) as made, connect([made.namesrv]) as client:
        await send(client, bodies[0])
        await made.slave.kill()
        await send(client, bodies[1])
        await made.slave.start()
        await made.wait_slaves(1)
        await send(client, bodies[2])
        await made.slave.stop()
        await made.master.stop()
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(ours.namesrv(tmp_path / "namesrv"))
        controllers = await stack.enter_async_context(ours.controllers(tmp_path / "controllers"))
        remoting = await stack.enter_async_context(open_client())
        moved = Cluster(namesrv.address, ours.addresses(controllers), [], remoting)
        for name in ("b0", "b1"):  # the former master first
            moved.brokers.append(await stack.enter_async_context(ours.broker(
                tmp_path / name, "a", namesrv=[namesrv.address], controllers=moved.controllers,
                extra={**SMALL, "allAckInSyncStateSet": "true"})))
            assert await moved.master(in_sync=len(moved.brokers)) is moved.brokers[0]
        async with connect([moved.namesrv]) as client:
            bodies.append(b"under controllers")
            await send(client, bodies[-1])
            await moved.brokers[0].kill()
            assert await moved.master(in_sync=1) is moved.brokers[1]
            assert await everything(client, len(bodies)) == set(bodies)


async def test_a_pair_that_must_be_two_refuses_until_it_is(tmp_path: Path) -> None:
    async with pair(tmp_path, minInSyncReplicas="2") as made, connect([made.namesrv]) as client:
        await send(client, b"both")
        await made.slave.kill()
        assert await refusal(client) == ResponseCode.SYSTEM_ERROR
        await made.slave.start()
        await send(client, b"both again")
        assert {b"both", b"both again"} <= await everything(client, 2)


async def test_a_group_under_controllers_shrinks_to_one_and_grows_again(tmp_path: Path) -> None:
    settings = {"minInSyncReplicas": "1", "haMaxTimeSlaveNotCatchup": "1000", "haSendHeartbeatInterval": "200"}
    async with cluster(tmp_path, **settings) as made, connect([made.namesrv]) as client:
        master = await made.master(in_sync=3)
        others = [broker for broker in made.brokers if broker is not master]
        for left, broker in zip((2, 1), others, strict=True):
            await broker.kill()
            await send(client, b"%d left" % left)
            assert await made.master(in_sync=left) is master
        for there, broker in zip((2, 3), others, strict=True):
            await broker.start()
            assert await made.master(in_sync=there) is master
        await send(client, b"three again")
        assert {b"2 left", b"1 left", b"three again"} <= await everything(client, 3)
