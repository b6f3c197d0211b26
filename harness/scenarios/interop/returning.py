"""Mixed groups without controllers: a killed master comes back and takes the state of its slave of the other kind.

It starts servers of both kinds and sends consumers' requests to them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable

import trio

from broker.store.tables import SubscriptionGroup
from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.java.settings import Value
from harness.scenarios.interop.ha import FILES, GROUP, TOPIC, same_logs, sent, taken
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic, tool
from remoting.client import Client, checked, open_client
from remoting.codes import RequestCode
from remoting.command import Command, request
from remoting.errors import RemotingError
from remoting.header import Header
from remoting.headers.pulling import OffsetResponse, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest

ACTING: dict[str, Value] = {
    **FILES, "enableSlaveActingMaster": True, "totalReplicas": 2, "slaveReadEnable": True,
    "compatibleWithOldNameSrv": False}
MASTER: dict[str, Value] = {**ACTING, "brokerId": 0, "brokerRole": "ASYNC_MASTER"}
SLAVE: dict[str, Value] = {**ACTING, "brokerId": 1, "brokerRole": "SLAVE"}
READERS = "readers"
COUNT = 600
FROM, TO = 3, 7


async def _ask(client: Client, broker: Broker, code: int, header: Header | None, body: bytes = b"") -> Command:
    return checked(await client.call(broker.address, request(code, header, body), timeout_ms=5_000), broker.address)


async def _offset(client: Client, broker: Broker) -> int | None:
    """The group's offset in the first queue; None: it is unknown, or there is no answer."""
    header = QueryConsumerOffsetRequest(READERS, TOPIC, 0, set_zero_if_not_found=False)
    try:
        answer = await _ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except RemotingError:
        return None
    return OffsetResponse.from_ext(answer.ext).offset


async def _commit(client: Client, broker: Broker, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(READERS, TOPIC, 0, offset)
    await _ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def _play(stage: Stage, master: Broker, slave: Broker, namesrv: str, lose: Callable[[], None]) -> None:
    await master.start()
    await create_topic(stage, namesrv, TOPIC)
    async with open_client() as client:
        await slave.start()
        run = await tool(stage, "updateTopic", "-n", namesrv, "-b", slave.address, "-t", TOPIC)
        expect(" success." in run.stdout, "a Java slave copies topics and groups once a minute: this one has them now")
        for broker in (master, slave):
            await _ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None,
                       SubscriptionGroup(READERS).to_json())
        await sent(stage, "first", namesrv, COUNT)
        await _commit(client, master, FROM)
        await same_logs(stage, "copied", master, slave)
        await master.kill()
        await trio.sleep(2)  # the name server forgets it
        await _commit(client, slave, TO)
        lose()
        await master.start()
        await taken(stage, "again", namesrv)
        expect(await _offset(client, master) == TO, "the master knows what consumers committed at the slave")
        await same_logs(stage, "after the master came back", master, slave)
        expect(await _offset(client, slave) == TO, "and the slave still does")
        stage.say(f"offset {TO}, committed at the slave, is the master's, and the slave's still")


@scenario("5.5.0", timeout_s=300)
async def our_plain_master_comes_back_to_a_java_slave(stage: Stage) -> None:
    """Our master is killed -9 and loses its disk: it copies its log from a Java slave, and takes its offsets."""
    async with (
        java.namesrv(stage.release, stage.here / "namesrv", extra={"supportActingMaster": True}) as namesrv,
        ours.broker(stage.here / "ours", GROUP, namesrv=[namesrv.address], extra=MASTER, start=False) as master,
        java.broker(stage.release, stage.here / "java", group=GROUP, namesrv=[namesrv.address], extra=SLAVE,
                    start=False) as slave,
    ):
        await _play(stage, master, slave, namesrv.address, lambda: shutil.rmtree(master.store))


@scenario("5.5.0", timeout_s=300)
async def a_java_plain_master_comes_back_to_our_slave(stage: Stage) -> None:
    """A Java master is killed -9: in its pre-online it is linked to our slave, and takes its offsets."""
    async with (
        ours.namesrv(stage.here / "namesrv", extra={"supportActingMaster": True}) as namesrv,
        java.broker(stage.release, stage.here / "java", group=GROUP, namesrv=[namesrv.address], extra=MASTER,
                    start=False) as master,
        ours.broker(stage.here / "ours", GROUP, namesrv=[namesrv.address], extra=SLAVE, start=False) as slave,
    ):
        await _play(stage, master, slave, namesrv.address, lambda: None)
