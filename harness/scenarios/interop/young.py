"""A Java push consumer that keeps up, while the masters it reads from are killed one after the other.

A new master of ours does not know at once which messages the former one had shown: the consumer waits, and neither goes
back nor loses its place.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

import trio

from harness.processes import java, ours
from harness.processes.program import Report
from harness.scenarios.interop.ha import TOPIC
from harness.scenarios.interop.losses import SHOWN, acknowledged
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic, until

GROUP = "broker-a"
KILLS = 5
EXTRA = {"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "totalReplicas": 3, "electRetryMs": 500}


def _again(got: list[Report]) -> list[tuple[int, int]]:
    """Places in queues whose message was received more than once."""
    return [place for place, count in Counter((each["queue"], each["offset"]) for each in got).items() if count > 1]


@scenario("5.5.0", timeout_s=480)
async def a_java_push_consumer_keeps_its_place_on_young_masters(stage: Stage) -> None:
    """Three of ours; each master is killed -9 at full rate: a Java push consumer gets all of it, and nothing again."""
    async with AsyncExitStack() as stack:
        controllers = [each.address for each in await stack.enter_async_context(
            ours.controllers(stage.here / "controllers"))]
        namesrv = (await stack.enter_async_context(ours.namesrv(stage.here / "namesrv"))).address
        brokers = [await stack.enter_async_context(ours.broker(
            stage.here / f"b{number}", GROUP, namesrv=[namesrv], controllers=controllers, extra=EXTRA))
            for number in range(3)]
        state = await until(stage, controllers, GROUP, lambda found: len(found.in_sync) == 3, "all are in sync")
        await create_topic(stage, namesrv, TOPIC)
        receiver = await stack.enter_async_context(java.receiver(
            stage.release, stage.here / "receiver", namesrv=[namesrv], topic=TOPIC))
        sender = await stack.enter_async_context(java.sender(
            stage.release, stage.here / "sender", namesrv=[namesrv], topic=TOPIC, interval_ms=1, retries=0))
        for number in range(1, KILLS + 1):
            count = len(receiver.reports("received"))
            await receiver.wait_for("received", lambda found, count=count: len(found) > count + 300)  # type: ignore[misc]
            master = next(broker for broker in brokers if broker.address == state.master_address)
            stage.say(f"kill {number}: {master.name}, after {count} messages")
            await master.kill()
            await until(stage, controllers, GROUP, lambda found, epoch=state.master_epoch: (  # type: ignore[misc]
                found.master is not None and found.master_epoch > epoch), "elected anew")
            await trio.sleep(1)
            await master.start()
            state = await until(stage, controllers, GROUP, lambda found: (
                found.master is not None and len(found.in_sync) == 3), "all are in sync again")
        await sender.stop()
        promised = acknowledged(sender.reports("sent"))
        got = await receiver.wait_for(
            "received", lambda found: promised.keys() <= {each["sequence"] for each in found}, timeout_s=60)
        again = _again(got)
        expect(not again, f"{len(again)} messages came again, first {again[:SHOWN]}")
        stage.say(f"{len(promised)} acknowledged, {len(got)} received, none again")
