"""Real processes: a name server, three controllers, a group of three brokers, and our client; masters are killed.

Real time passes here, so nothing is asserted about how much.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from broker.client import Client, ClientError, Message, Start, connect
from harness.processes import ours
from harness.processes.broker import Broker
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.bodies.controller import BrokerReplicasInfo
from remoting.client import Client as Remoting
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError

pytestmark = pytest.mark.slow
SETTINGS = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "totalReplicas": "3", "maxHashSlotNum": "1000",
            "maxIndexNum": "4000", "electRetryMs": "500"}


@attrs.define
class Cluster:
    namesrv: str
    controllers: list[str]
    brokers: list[Broker]
    remoting: Remoting

    async def master(self, in_sync: int) -> Broker:
        """Who it is, once that many are in sync with it."""
        with trio.fail_after(60):
            while True:
                for controller in self.controllers:
                    try:
                        answer = await self.remoting.call(controller, request(
                            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["a"]'))
                        found = BrokerReplicasInfo.from_json(answer.body).replicas_info_table.get("a")
                    except RemotingError:
                        continue
                    if found is not None and len(found.in_sync_replicas) == in_sync:
                        for broker in self.brokers:
                            if broker.running and broker.address == found.master_address:
                                return broker
                await trio.sleep(0.05)


@asynccontextmanager
async def cluster(here: Path, **settings: str) -> AsyncGenerator[Cluster, None]:
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(ours.namesrv(here / "namesrv"))
        controllers = await stack.enter_async_context(ours.controllers(here / "controllers"))
        addresses = [controller.address for controller in controllers]
        brokers = [await stack.enter_async_context(ours.broker(
            here / f"b{number}", "a", namesrv=[namesrv.address], controllers=addresses, extra={**SETTINGS, **settings}))
            for number in range(3)]
        remoting = await stack.enter_async_context(open_client())
        yield Cluster(namesrv.address, addresses, brokers, remoting)


async def send(client: Client, body: bytes) -> None:
    """Until it is acknowledged."""
    with trio.fail_after(60):
        while True:
            try:
                await client.send(Message("T", body))
            except ClientError:
                await trio.sleep(0.05)
            else:
                return


async def everything(client: Client, count: int) -> set[bytes]:
    """So many different messages of the topic, if there are."""
    found: set[bytes] = set()
    async with client.pull("reader", start=Start.FIRST) as puller:
        await puller.assign(await client.queues("T"))
        with trio.move_on_after(30):
            while len(found) < count:
                found |= {message.body for message in await puller.poll()}
    return found


async def test_masters_are_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, connect([made.namesrv]) as client:
        acknowledged: set[bytes] = set()
        for round_ in range(3):
            master = await made.master(in_sync=3)
            for number in range(10):
                await send(client, b"%d-%d" % (round_, number))
                acknowledged.add(b"%d-%d" % (round_, number))
            if round_ == 0:
                await master.kill()
            elif round_ == 1:
                await master.stop()
            else:
                break
            second = await made.master(in_sync=2)
            assert second is not master
            await send(client, b"%d-after" % round_)
            acknowledged.add(b"%d-after" % round_)
            await master.start()
        assert acknowledged <= await everything(client, len(acknowledged))


async def test_the_address_of_a_killed_master_answers_and_its_broker_comes_back(tmp_path: Path) -> None:
    async with cluster(tmp_path, enableGuardian="true") as made, connect([made.namesrv]) as client:
        master = await made.master(in_sync=3)
        await send(client, b"before")
        (broker,) = children(master.pid)
        os.kill(broker, signal.SIGKILL)
        with trio.fail_after(60):
            while not await sent_to(made.remoting, master.address, b"to the old address"):
                await trio.sleep(0.01)
        await made.master(in_sync=3)
        assert children(master.pid) not in ([], [broker])
        assert {b"before", b"to the old address"} <= await everything(client, 2)
        assert not alive(broker)


async def test_the_address_of_a_stopped_master_answers_until_it_is_told_not_to(tmp_path: Path) -> None:
    async with cluster(tmp_path, enableGuardian="true") as made, connect([made.namesrv]) as client:
        master = await made.master(in_sync=3)
        (broker,) = children(master.pid)
        os.kill(master.pid, signal.SIGHUP)  # restarted in order; mastership goes to another one
        with trio.fail_after(60):
            while alive(broker) or not await sent_to(made.remoting, master.address, b"restarted"):
                await trio.sleep(0.01)
        second = await made.master(in_sync=3)
        assert second is not master and children(master.pid) not in ([], [broker])
        (broker,) = children(second.pid)
        os.kill(second.pid, signal.SIGTERM)
        with trio.fail_after(60):
            while alive(broker) or not await sent_to(made.remoting, second.address, b"stopped"):
                await trio.sleep(0.01)
        assert second.running and not children(second.pid)
        await second.stop()  # the second signal
        assert await everything(client, 2) == {b"restarted", b"stopped"}


def children(pid: int) -> list[int]:
    """Of any of its threads."""
    return [int(each) for task in Path(f"/proc/{pid}/task").glob("*/children") for each in task.read_text().split()]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def sent_to(remoting: Remoting, address: str, body: bytes) -> bool:
    """As an unmodified client does that knows this address alone."""
    header = SendMessageRequest("T", 0, producer_group="P", default_topic="TBW102", properties="", batch=False)
    try:
        answer = await remoting.call(address, request(RequestCode.SEND_MESSAGE, header, body), timeout_ms=3_000)
    except RemotingError:
        return False
    return answer.code == ResponseCode.SUCCESS
