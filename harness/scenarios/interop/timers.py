"""Timers of an unmodified Java client while our brokers are killed, change masters or lack replicas at their due time.

It starts our servers and one Java program that sends timers and receives them; ``waiting`` judges what came.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from harness.processes import java, ours
from harness.processes.program import Program, Report
from harness.scenarios.interop.clients import group_of_three
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.waiting import LATER, PATIENCE_S, WAITS, come, named, send_timer
from harness.scenarios.interop.watch import create_topic

PENDING = 1_000
ALONE_S = 10
"""How long the master of timers that are due lacks its replicas."""


async def _send(timers: Program, name: str, delays_ms: Sequence[int]) -> list[Report]:
    """Send one timer for each delay; all are acknowledged."""
    beginning = f"{name}-"
    for number, delay_ms in enumerate(delays_ms):
        await timers.tell(f"{beginning}{number} {delay_ms}")
    sent = await timers.wait_for(
        "sent", lambda found: len(named(found, beginning)) == len(delays_ms), timeout_s=PATIENCE_S)
    mine = named(sent, beginning)
    expect(all(one["ok"] for one in mine), f"not stored: {[one for one in mine if not one['ok']][:3]}")
    return mine


async def _ready(timers: Program) -> None:
    """Wait until the program's consumer has its queues."""
    await send_timer(timers, "first", 0)
    await timers.wait_for("received")


@scenario("5.5.0", timeout_s=300)
async def java_timers_outlive_a_kill_of_our_single_master(stage: Stage) -> None:
    """A thousand timers of a Java producer wait as our broker is killed -9 and started again: each comes."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", namesrv=[namesrv.address], extra=WAITS) as broker,
    ):
        await create_topic(stage, namesrv.address, LATER)
        async with java.later(stage.release, stage.here / "later", namesrv=[namesrv.address], topic=LATER) as timers:
            await _ready(timers)
            await _send(timers, "pending", [20_000 + 2 * number for number in range(PENDING)])
            early = named(timers.reports("received"), "pending-")
            expect(len(early) < PENDING // 2, f"too many came before the kill to say something: {len(early)}")
            await broker.kill()
            await broker.start()
            await come(stage, timers, f"the broker killed -9, {PENDING - len(early)} pending", "pending-")


@scenario("5.5.0", timeout_s=360)
async def java_timers_come_after_a_failover_and_without_replicas_in_sync(stage: Stage) -> None:
    """Our master is killed -9 two seconds before timers of a Java producer; later it stands alone as others are due."""
    async with (
        group_of_three(stage, LATER, **WAITS) as group,
        java.later(stage.release, stage.here / "later", namesrv=[group.namesrv], topic=LATER) as timers,
    ):
        await _ready(timers)
        sent = await _send(timers, "failover", [8_000] * 20)
        await trio.sleep(max(0.0, (sent[0]["due_ms"] - 2_000 - sent[-1]["at_ms"]) / 1_000))
        victim = await group.kill_master()
        await come(stage, timers, "the master killed 2 s before", "failover-")
        await victim.start()
        now = await group.in_sync(3, "all in sync again")
        slaves = [broker for broker in group.brokers if broker.announced != now.master_address]
        await send_timer(timers, "back", 0)  # the producer knows the new master from here on
        sent = await _send(timers, "alone", [6_000] * 20)
        for slave in slaves:
            await slave.kill()
        last_due_ms = max(one["due_ms"] for one in sent)
        await trio.sleep(ALONE_S + (last_due_ms - sent[-1]["at_ms"]) / 1_000)
        for slave in slaves:
            await slave.start()
        await come(stage, timers, f"the master without a replica for {ALONE_S} s as they were due", "alone-")
