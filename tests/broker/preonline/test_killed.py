"""Real processes: a master without controllers is killed with -9, consumers go on at its slave, the master comes back.

The second time its disk is new, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

from broker.client import connect
from broker.store.tables import SubscriptionGroup
from harness.processes import ours
from harness.processes.broker import Broker
from harness.scenarios.interop.ha import log_of
from remoting.bodies.namesrv import TopicRouteData
from remoting.client import Client as Remoting
from remoting.client import checked, open_client
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.errors import RemotingError
from remoting.header import Header
from remoting.headers.namesrv import GetRouteInfoRequest
from remoting.headers.pulling import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest
from tests.broker.test_processes import send
from tests.broker.waiting import create

COMMON = {"maxHashSlotNum": "1000", "maxIndexNum": "4000", "enableSlaveActingMaster": "true", "totalReplicas": "2",
          "slaveReadEnable": "true", "mappedFileSizeCommitLog": str(1 << 20),
          "haSendHeartbeatInterval": "200"}
COUNT = 50


class Asks:
    def __init__(self, remoting: Remoting, namesrv: str) -> None:
        self._remoting, self._namesrv = remoting, namesrv

    async def ask(self, address: str, code: int, header: Header | None, body: bytes = b"") -> Command:
        """Raises ``RemotingError``."""
        return checked(await self._remoting.call(address, request(code, header, body), timeout_ms=5_000), address)

    async def offset(self, broker: Broker) -> int | None:
        header = QueryConsumerOffsetRequest("G", "T", 0, set_zero_if_not_found=False)
        try:
            return OffsetResponse.from_ext((await self.ask(
                broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header)).ext).offset
        except RemotingError:
            return None

    async def commit(self, broker: Broker, offset: int) -> None:
        """Again and again, as consumers do: a slave takes none while it expects its master."""
        with trio.fail_after(60):
            while True:
                try:
                    await self.ask(broker.address, RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequest(
                        "G", "T", 0, offset))
                except RemotingError:
                    await trio.sleep(0.1)
                else:
                    return

    async def members(self) -> dict[int, str]:
        try:
            answer = await self.ask(self._namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest("T"))
        except RemotingError:
            return {}
        (group,) = TopicRouteData.from_json(answer.body).broker_datas
        return dict(group.broker_addrs)

    async def listed(self, **brokers: Broker) -> None:
        """Wait until the route has these, by ids, and no others."""
        wanted = {int(name[1:]): broker.address for name, broker in brokers.items()}
        with trio.fail_after(60):
            while await self.members() != wanted:
                await trio.sleep(0.02)


@pytest.mark.slow
async def test_a_master_that_is_killed_comes_back_to_what_its_slave_knows(tmp_path: Path) -> None:
    async with (
        ours.namesrv(tmp_path / "namesrv") as namesrv,
        ours.broker(tmp_path / "b0", "a", namesrv=[namesrv.address], extra=COMMON) as master,
        ours.broker(tmp_path / "b1", "a", namesrv=[namesrv.address],
                    extra={**COMMON, "brokerRole": "SLAVE", "brokerId": "1"}) as slave,
        connect([namesrv.address], producer_group="p") as client,
        open_client() as remoting,
    ):
        asks = Asks(remoting, namesrv.address)
        await create(client, "T", 1)
        await asks.ask(master.address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroup(
            "G").to_json())
        for number in range(COUNT):
            await send(client, b"%d" % number)
        await asks.commit(master, 3)
        await asks.listed(b0=master, b1=slave)
        with trio.fail_after(60):
            while log_of(slave) != log_of(master) or await asks.offset(slave) != 3:
                await trio.sleep(0.02)
        for offset, has_disk in ((20, True), (10, False)):
            await master.kill()
            await asks.listed(b1=slave)
            await asks.commit(slave, offset)
            if not has_disk:
                shutil.rmtree(master.store)
            await master.start()
            await asks.listed(b0=master, b1=slave)
            assert await asks.offset(master) == offset
            await send(client, b"more")
        with trio.fail_after(60):
            while log_of(slave) != log_of(master):
                await trio.sleep(0.02)
        assert await asks.offset(slave) == 10
