"""Real processes: a topic is deleted and made again, and its master is killed with -9. A group that was in the old one
receives every message of the new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from broker.client import Start, connect
from harness.processes import ours
from harness.processes.broker import Broker
from remoting.client import Client as Remoting
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.queries import TopicRequest
from tests.broker.test_processes import cluster, send
from tests.broker.waiting import PATIENCE_S, SMALL, create

pytestmark = pytest.mark.slow
OLD, NEW = 4, 10
"""More new messages than old ones: an old position is one within the new topic."""


async def send_all(namesrv: str, word: str, count: int) -> set[bytes]:
    """To the topic's only queue, each acknowledged."""
    bodies = [b"%s-%d" % (word.encode(), number) for number in range(count)]
    async with connect([namesrv]) as client:
        await create(client, "T", 1)
        for body in bodies:
            await send(client, body)
    return set(bodies)


async def received(namesrv: str, wanted: set[bytes]) -> None:
    """Until the group has received all of them, from where it was on, else from the first."""
    left = set(wanted)
    async with connect([namesrv]) as client, client.consume("G", "T", start=Start.FIRST) as messages:
        with trio.move_on_after(PATIENCE_S / 3):
            while left:
                message = await anext(messages)
                left.discard(message.body)
                message.ack()
    assert not left


async def on_disk(*brokers: Broker) -> None:
    """Until the position behind all old messages is."""
    with trio.fail_after(PATIENCE_S):
        for broker in brokers:
            path = broker.store / "config/consumerOffset.json"
            while not path.exists() or json.loads(path.read_text())["offsetTable"].get("T@G", {}).get("0") != OLD:
                await trio.sleep(0.05)


async def delete(remoting: Remoting, master: Broker) -> None:
    answer = await remoting.call(master.address, request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("T")))
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_slave_that_follows_a_killed_master_passes_nothing_over(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        master = await made.master(in_sync=3)
        await received(made.namesrv, await send_all(made.namesrv, "old", OLD))
        await on_disk(*made.brokers)
        await delete(made.remoting, master)
        new = await send_all(made.namesrv, "new", NEW)
        await master.kill()
        assert await made.master(in_sync=2) is not master
        await received(made.namesrv, new)


async def test_a_broker_killed_when_the_deletion_was_answered_passes_nothing_over(tmp_path: Path) -> None:
    async with (
        ours.namesrv(tmp_path / "namesrv") as namesrv,
        ours.broker(tmp_path / "b0", "a", namesrv=[namesrv.address], extra=SMALL) as broker,
        open_client() as remoting,
    ):
        await received(namesrv.address, await send_all(namesrv.address, "old", OLD))
        await on_disk(broker)
        await delete(remoting, broker)
        await broker.kill()
        await broker.start()
        await received(namesrv.address, await send_all(namesrv.address, "new", NEW))
