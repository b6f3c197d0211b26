"""Java's push consumer, unmodified, with filters on our brokers: two groups, one bad expression, and a dead master."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from broker.client import Client, ClientError, Message, connect
from harness.processes import java, ours
from harness.processes.errors import StartFailed
from harness.processes.handle import start_all
from harness.processes.program import Program
from tests.harness.processes.rocketmq import current_release


@pytest.fixture
def rocketmq() -> java.Release:
    return current_release()


async def send(client: Client, numbers: range) -> None:
    """Each until it is acknowledged."""
    with trio.fail_after(90):
        for number in numbers:
            while True:
                try:
                    await client.send(Message("Prices", b"%d x" % number, properties={"price": str(number % 10)}))
                    break
                except ClientError:
                    await trio.sleep(0.2)


async def received(program: Program, wanted: list[int]) -> None:
    """These and no others, though some may come again."""
    await program.wait_for("received", lambda found: set(wanted) <= {one["sequence"] for one in found}, timeout_s=60)
    assert {one["sequence"] for one in program.reports("received")} == set(wanted)


@pytest.mark.java
@pytest.mark.slow
async def test_java_consumers_filter_and_go_on_when_the_master_is_killed(
    rocketmq: java.Release, tmp_path: Path,
) -> None:
    keys = {"enablePropertyFilter": "true", "allAckInSyncStateSet": "true", "maxHashSlotNum": "1000",
            "maxIndexNum": "4000"}
    async with (
        ours.namesrv(tmp_path / "namesrv") as namesrv,
        ours.controllers(tmp_path / "controllers", 1) as controllers,
        ours.broker(tmp_path / "one", "a", namesrv=[namesrv.address], controllers=ours.addresses(controllers),
                    extra=keys, start=False) as one,
        ours.broker(tmp_path / "two", "a", namesrv=[namesrv.address], controllers=ours.addresses(controllers),
                    extra=keys, start=False) as two,
        connect([namesrv.address]) as client,
    ):
        await one.start()
        await start_all([two])
        with trio.fail_after(60):
            while True:
                try:
                    await client.create_topic("Prices", 2)
                    break
                except ClientError:
                    await trio.sleep(0.2)
        await send(client, range(20))
        with pytest.raises(StartFailed, match="CODE: 23"):
            async with java.receiver(rocketmq, tmp_path / "bad", namesrv=[namesrv.address], topic="Prices", group="bad",
                                     sql="price >"):
                pass
        async with (
            java.receiver(rocketmq, tmp_path / "high", namesrv=[namesrv.address], topic="Prices", group="high",
                          sql="price > 7") as high,
            java.receiver(rocketmq, tmp_path / "low", namesrv=[namesrv.address], topic="Prices", group="low",
                          sql="price BETWEEN 0 AND 1") as low,
        ):
            await received(high, [8, 9, 18, 19])
            await received(low, [0, 1, 10, 11])
            await trio.sleep(4)  # replicas copy tables every three seconds
            await one.kill()
            await send(client, range(20, 40))
            await received(high, [8, 9, 18, 19, 28, 29, 38, 39])
            await received(low, [0, 1, 10, 11, 20, 21, 30, 31])
