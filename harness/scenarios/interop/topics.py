"""Elects a RocketMQ slave that lacks a topic: its log is copied at once, its topics only every 10 s.

It shows this limit of RocketMQ beside our brokers, and that no message is lost by it.
"""

from __future__ import annotations

import re

import trio

from harness.processes import java
from harness.processes.broker import Broker
from harness.processes.handle import start_all
from harness.processes.java.jvm import log
from harness.processes.program import Report
from harness.scenarios.interop.ha import mixed, same_logs, seen, sending, topics_of
from harness.scenarios.interop.losses import acknowledged
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic, tool

QUEUES, FEWER = 8, 4
"""Queues of a topic by ``updateTopic``, and of one that a producer's send creates."""
COUNT = 100
TRIES = 5
COPIED = "Update slave topic config from master"


async def _just_copied(slave: Broker) -> None:
    """Wait until the slave has copied topics, as the next copy is 10 s away."""
    before = log(slave).count(COPIED)
    with trio.fail_after(60):
        while log(slave).count(COPIED) == before:
            await trio.sleep(0.1)


async def _young_topic(stage: Stage, namesrv: str, slave: Broker) -> tuple[str, list[Report]]:
    """Create a topic with messages that the slave does not know; returns it with the sender's reports."""
    for number in range(TRIES):
        topic = f"Young{number}"
        await _just_copied(slave)
        await create_topic(stage, namesrv, topic)
        async with sending(stage, topic, namesrv, COUNT, topic=topic) as sender:
            reports = await sender.wait_for("sent", lambda found: len(found) >= COUNT)
        if topic not in topics_of(slave):
            return topic, reports
        stage.say(f"{topic}: copied meanwhile")
    expect(False, f"the slave was always quicker, {TRIES} times")
    return "", []


def _places(reports: list[Report]) -> set[tuple[int, int]]:
    return {each.place for each in acknowledged(reports).values()}


@scenario("5.5.0", "5.3.3")
async def a_java_slave_is_elected_before_it_has_a_topic(stage: Stage) -> None:
    """RocketMQ makes it anew with four queues of eight; what the others hold is consumed once it has eight again."""
    async with mixed(stage, "oj") as (controllers, namesrv, (first, second)):
        await start_all([first, second])
        state = await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync")
        if state.master_address == second.announced:
            await second.kill()
            await seen(stage, controllers, lambda state: state.master_address == first.announced, "ours is master")
            await second.start()
            await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync again")
        topic, reports = await _young_topic(stage, namesrv, second)
        held = _places(reports)
        expect(len(held) == COUNT, f"{len(held)} of {COUNT} acknowledged with both in sync")
        await first.kill()
        expect(topic not in topics_of(second), "the slave copied the topic just before its master died")
        await seen(stage, controllers, lambda state: state.master_address == second.announced, "RocketMQ's is master")
        async with sending(stage, "after", namesrv, 0, topic=topic, interval_ms=100, retries=0) as sender:
            reports = await sender.wait_for("sent", lambda found: any(
                "queueId" in str(one.get("error")) for one in found) and any(one["ok"] for one in found))
        held |= _places(reports)
        refusal = next(str(one["error"]) for one in reports if "queueId" in str(one.get("error")))
        stage.say(f"RocketMQ made it anew; a send to a queue that it lacks: {refusal[:120]}")
        made = re.search(rf'"{topic}":\{{[^}}]*\}}?[^}}]*"writeQueueNums":(\d+)', re.sub(r"\s", "", topics_of(second)))
        expect(made is not None and int(made[1]) == FEWER, f"RocketMQ made the topic with {made and made[1]} queues")
        await first.start()
        await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync at last")
        await same_logs(stage, "after the switch", first, second)
        async with java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv], topic=topic) as receiver:
            def got(found: list[Report]) -> set[tuple[int, int]]:
                return {(one["queue"], one["offset"]) for one in found}

            some = {place for place in held if place[0] < FEWER}
            found = got(await receiver.wait_for("received", lambda found: some <= got(list(found))))
            expect(all(queue < FEWER for queue, _ in found), "nobody asks for the messages of the other queues")
            stage.say(f"{len(found)} of {len(held)} consumed: those of {FEWER} queues")
            said = await tool(stage, "updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", topic,
                              "-r", str(QUEUES), "-w", str(QUEUES))
            expect(" success." in said.stdout, str(said))
            found = got(await receiver.wait_for("received", lambda found: held <= got(list(found)), timeout_s=120))
            stage.say(f"with {QUEUES} queues again: {len(held & found)} of {len(held)} consumed")
