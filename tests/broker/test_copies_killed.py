"""Real processes: a slave that is killed with -9 again and again while it copies a large log, by both protocols.

Flow control makes the copy take its time, so that every kill meets it; how much time is asserted nowhere.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import pytest
import trio

from broker.client import Message, connect
from harness.processes import ours
from harness.processes.broker import Broker
from harness.scenarios.interop.ha import log_of
from remoting.bodies.broker import HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.client import Client as Remoting
from remoting.client import open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import RemotingError
from tests.broker.test_processes import send

pytestmark = pytest.mark.slow
LOG_BYTES = 24 << 20
BODY_BYTES = 64 << 10
COMMON = {"maxHashSlotNum": "1000", "maxIndexNum": "4000",
          "haFlowControlEnable": "true", "maxHaTransferByteInSecond": str(6 << 20), "haSendHeartbeatInterval": "200"}
MANY_FILES = {"mappedFileSizeCommitLog": str(4 << 20)}
PLAIN = ({"brokerId": "0", "brokerRole": "ASYNC_MASTER"}, {"brokerId": "1", "brokerRole": "SLAVE"})
"""One file: an empty slave of the default protocol begins at the last one."""


@attrs.define
class Pair:
    namesrv: str
    master: Broker
    slave: Broker
    remoting: Remoting

    async def copying(self) -> HAConnectionRuntimeInfo | None:
        """What the master says of its slave."""
        try:
            answer = await self.remoting.call(self.master.address, request(RequestCode.GET_BROKER_HA_STATUS))
        except RemotingError:
            return None
        slaves = HARuntimeInfo.from_json(answer.body).ha_connection_info
        return max(slaves, key=lambda slave: slave.slave_ack_offset, default=None)

    async def copied(self, offset: int, besides: str | None = None) -> HAConnectionRuntimeInfo:
        """Wait until the slave holds so much and is sent more, by another connection than that one."""
        with trio.fail_after(60):
            while True:
                found = await self.copying()
                if found is not None and found.slave_ack_offset >= offset and found.addr != besides \
                        and found.transfer_from_where:
                    return found
                await trio.sleep(0.02)


@asynccontextmanager
async def pair(here: Path, *, controlled: bool) -> AsyncGenerator[Pair, None]:
    """A master, and a slave that was never started."""
    async with AsyncExitStack() as stack:
        namesrv = await stack.enter_async_context(ours.namesrv(here / "namesrv"))
        controllers = ours.addresses(await stack.enter_async_context(ours.controllers(
            here / "controllers", 1))) if controlled else []
        roles = (MANY_FILES, MANY_FILES) if controlled else PLAIN
        master, slave = [await stack.enter_async_context(ours.broker(
            here / name, "a", namesrv=[namesrv.address], controllers=controllers, extra={**COMMON, **role},
            start=name == "b0")) for name, role in zip(("b0", "b1"), roles, strict=True)]
        yield Pair(namesrv.address, master, slave, await stack.enter_async_context(open_client()))


async def fill(namesrv: str) -> None:
    """With bytes that no client compresses, and none of which could stand in another's place."""
    random = Random(1)
    async with connect([namesrv]) as client:
        await send(client, b"the broker is there")
        for _ in range(LOG_BYTES // BODY_BYTES):
            await client.send(Message("T", random.randbytes(BODY_BYTES)), timeout_ms=60_000)


@pytest.mark.parametrize("controlled", [True, False], ids=["auto-switch", "default protocol"])
async def test_a_slave_killed_while_it_copies_goes_on_where_it_was(tmp_path: Path, controlled: bool) -> None:
    async with pair(tmp_path, controlled=controlled) as made:
        await fill(made.namesrv)
        end = len(log_of(made.master))
        assert end > LOG_BYTES
        await made.slave.start()
        for part in (1, 2, 3):
            found = await made.copied(end * part // 4)
            assert found.slave_ack_offset < end, "the kill meets it while it copies"
            await made.slave.kill()
            held = found.slave_ack_offset
            await made.slave.start()
            found = await made.copied(held, besides=found.addr)
            assert found.transfer_from_where >= held - BODY_BYTES - 1_000, "what it held is not copied again"
        await made.copied(end)
        assert log_of(made.slave) == log_of(made.master)
