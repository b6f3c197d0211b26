"""Real processes: a plain master is killed with -9 while messages are out, and its slave brings back what is not
acknowledged, at another group's master, and gives out the rest. The master comes back, and brings back none of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import trio

from broker.abroad.tickets import Ticket
from broker.client import Popped, Popper, Start, connect
from harness.processes import ours
from harness.processes.broker import Broker
from remoting.bodies import TopicConfigSerializeWrapper
from remoting.client import Client as Remoting
from remoting.client import open_client
from remoting.codes import RequestCode
from remoting.command import request
from tests.broker.test_processes import send
from tests.broker.waiting import PATIENCE_S, SMALL, create, runtime

ACTING = {**SMALL, "enableSlaveActingMaster": "true", "enableRemoteEscape": "true", "totalReplicas": "2"}
COUNT = 40
INVISIBLE_MS = 25_000
SHORT_MS = 8_000


async def shows(remoting: Remoting, broker: Broker, enough: Callable[[Mapping[str, str]], object]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not enough(await runtime(remoting, broker)):
            await trio.sleep(0.1)


async def knows(remoting: Remoting, broker: Broker, topic: str) -> None:
    """Tables are copied beside the log, which may have the topic's messages before."""
    with trio.fail_after(PATIENCE_S):
        while topic not in TopicConfigSerializeWrapper.from_json((await remoting.call(
                broker.address, request(RequestCode.GET_ALL_TOPIC_CONFIG))).body).topic_config_table:
            await trio.sleep(0.1)


async def until(popper: Popper, given: list[Popped], count: int) -> None:
    with trio.fail_after(PATIENCE_S):
        while len(given) < count:
            given += await popper.poll(timeout_ms=200)


async def given_in_its_place(popper: Popper) -> None:
    """To a group that had nothing yet: all, some of it by the slave, and what it does not acknowledge again."""
    given: list[Popped] = []
    await until(popper, given, COUNT)
    assert {message.body for message in given} == {b"%d" % number for number in range(COUNT)}
    at_slave = [message for message in given if Ticket.read(message.receipt.revive_qid) is not None]
    assert at_slave and {message.receipt.broker_name for message in at_slave} == {"a"}
    left = {message.body for message in at_slave[::2]}
    for message in given:
        if message.body not in left:
            await message.ack()
    again: list[Popped] = []
    await until(popper, again, len(left))
    assert {message.body for message in again} == left
    for message in again:
        assert message.receipt.broker_name == "b" and message.stands_in == "%RETRY%H_T"
        await message.ack()


@pytest.mark.slow
async def test_what_was_popped_comes_back_without_its_master(tmp_path: Path) -> None:
    async with (
        ours.namesrv(tmp_path / "namesrv", extra={"supportActingMaster": "true"}) as namesrv,
        ours.broker(tmp_path / "b0", "b", namesrv=[namesrv.address], extra=SMALL),
        ours.broker(tmp_path / "a0", "a", namesrv=[namesrv.address], extra=ACTING) as master,
        ours.broker(tmp_path / "a1", "a", namesrv=[namesrv.address], extra={
            **ACTING, "brokerRole": "SLAVE", "brokerId": "1"}) as slave,
        connect([namesrv.address], producer_group="p") as client,
        open_client() as remoting,
    ):
        await shows(remoting, master, lambda told: told.get("preOnline") == "online")
        await create(client, "T", 2)
        for number in range(COUNT):
            await send(client, b"%d" % number)
        async with client.pop("G", "T", invisible_ms=INVISIBLE_MS, start=Start.FIRST) as popper:
            given: list[Popped] = []
            await until(popper, given, COUNT)
            assert Counter(message.body for message in given).total() == COUNT
            at_a = [message for message in given if message.receipt.broker_name == "a"]
            assert at_a, "producers use both groups"
            kept = {message.body for message in at_a[::2]}
            for message in given:
                if message.body not in kept:
                    await message.ack()
            end = (await runtime(remoting, master))["commitLogMaxOffset"]
            await shows(remoting, slave, lambda told: told.get("commitLogMaxOffset") == end)
            await knows(remoting, slave, "T")
            await master.kill()

            async with client.pop("H", "T", invisible_ms=SHORT_MS, start=Start.FIRST) as others:
                await given_in_its_place(others)

            again: list[Popped] = []
            await until(popper, again, len(kept))
            for message in again:
                assert message.receipt.broker_name == "b" and message.stands_in == "%RETRY%G_T"
                await message.ack()
            assert Counter(message.body for message in again) == Counter(kept), "each once, and nothing else"
            await shows(remoting, slave, lambda told: told.get("popReviveBehind") == "0")
            assert (await runtime(remoting, slave))["commitLogMaxOffset"] == end, "nothing is written there"

            await master.start()
            await shows(remoting, master, lambda told: told.get("deliveryWaitsFor") == "")
            await send(client, b"last")
            last: list[Popped] = []
            await until(popper, last, 1)
            await last[0].ack()  # it comes out of its timer behind all from before
            await shows(remoting, master,
                        lambda told: told.get("timerCongestNum") == "0" == told.get("popReviveBehind"))
            assert [message.body for message in [*last, *await popper.poll(timeout_ms=500)]] == [b"last"]
