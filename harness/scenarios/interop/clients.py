"""Untouched clients with a group of three of our brokers, whose master is killed in the middle of their work.

It starts our servers and foreign client programs, which judge themselves what they received.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise

import attrs
import trio

from broker.client import Start, connect
from broker.topics.names import TRACE
from harness.processes import java, node, ours
from harness.processes.broker import Broker
from harness.processes.handle import start_all
from harness.processes.program import Program, Report
from harness.scenarios.interop.scenario import NotRun, Stage, expect, scenario
from harness.scenarios.interop.watch import SyncState, create_topic, until

GROUP = "broker-a"
DURABLE: dict[str, object] = {"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "electRetryMs": 1_000}
"""Settings under which the death of one broker loses no acknowledged message."""
OLD = "4.9.8"
ROUNDS = 150
ASKED_MS = 3_000
"""How long ``Ask`` waits for an answer."""
SLACK_MS = 3_000
"""Extra time on a busy machine."""
TRACED = 20
PATIENCE_S = 90


@attrs.frozen
class GroupOfThree:
    """Three of our brokers under our controllers and our name server, all in sync."""

    stage: Stage
    controllers: list[str]
    namesrv: str
    brokers: list[Broker]

    async def in_sync(self, count: int, what: str) -> SyncState:
        return await until(self.stage, self.controllers, GROUP,
                           lambda seen: seen.master is not None and len(seen.in_sync) == count, what)

    async def kill_master(self) -> Broker:
        """Kill the master with -9; returns when another one leads."""
        before = await self.in_sync(3, "before the kill")
        victim = next(broker for broker in self.brokers if broker.announced == before.master_address)
        await victim.kill()
        after = await until(self.stage, self.controllers, GROUP,
                            lambda seen: seen.master not in (None, before.master), "master killed")
        expect(after.master in before.in_sync, f"broker {after.master} was not in sync: {before}")
        return victim


@asynccontextmanager
async def group_of_three(stage: Stage, *topics: str, **extra: object) -> AsyncIterator[GroupOfThree]:
    """A running group with topics that Java's tool made; ``extra``: keys beside those of ``DURABLE``."""
    async with AsyncExitStack() as stack:
        controllers = await stack.enter_async_context(ours.controllers(stage.here / "controllers"))
        namesrv = await stack.enter_async_context(ours.namesrv(stage.here / "namesrv"))
        addresses = ours.addresses(controllers)
        brokers = [
            await stack.enter_async_context(ours.broker(
                stage.here / f"b{number}", GROUP, namesrv=[namesrv.address], controllers=addresses,
                extra=DURABLE | extra, start=False))
            for number in range(3)
        ]
        await start_all(brokers)
        made = GroupOfThree(stage, addresses, namesrv.address, brokers)
        await made.in_sync(3, "all in sync")
        for topic in topics:
            await create_topic(stage, made.namesrv, topic)
        yield made


def longest_pause_ms(sent: Sequence[Report]) -> int:
    """The longest time between two successful sends."""
    ends: list[int] = [report["ended_us"] for report in sent if report["ok"]]
    return max(((later - sooner) // 1000 for sooner, later in pairwise(ends)), default=0)


async def judged(stage: Stage, group: GroupOfThree, program: Program, checks: int, before_kill: int) -> None:
    """Kill the master once so many sends were acknowledged; at the end every check must pass."""
    await program.wait_for("sent", lambda found: len([one for one in found if one["ok"]]) >= before_kill)
    victim = await group.kill_master()
    await program.wait_for("all_sent", timeout_s=120)
    await victim.start()
    await program.wait_for("ended", timeout_s=PATIENCE_S + 20)
    sent, verdicts = program.reports("sent"), program.reports("verdict")
    refused = [report for report in sent if not report["ok"]]
    stage.say(f"{len(sent) - len(refused)} sends acknowledged, {len(refused)} not and sent again; the longest pause: "
              f"{longest_pause_ms(sent)} ms")
    for one in verdicts:
        stage.say(f"{one['check']}: {one['seen']} received of {one['wanted']} wanted, {one['again']} again")
    expect(len(verdicts) == checks, f"{len(verdicts)} verdicts, not {checks}: {verdicts}")
    expect(all(one["ok"] for one in verdicts), f"not good: {[one for one in verdicts if not one['ok']]}")


@scenario("5.5.0", "5.3.3", timeout_s=300)
async def untouched_java_clients_across_a_failover_of_our_brokers(stage: Stage) -> None:
    """Single, one-way, batched sends; tags, order, broadcast, refusals, dead letters; our master is killed -9."""
    async with (
        group_of_three(stage, "Plain", "Ordered", "Refused") as group,
        java.exercise(stage.release, stage.here / "exercise", namesrv=[group.namesrv], rounds=ROUNDS,
                      patience_s=PATIENCE_S) as program,
    ):
        await judged(stage, group, program, checks=7, before_kill=4 * ROUNDS // 3)


@scenario("5.5.0", timeout_s=200)
async def java_requests_are_answered_across_a_failover_of_our_brokers(stage: Stage) -> None:
    """A Java producer asks and a Java consumer replies; our master is killed -9 meanwhile.

    The producer learns of the new master as it polls its routes, and is answered from then on. The client of 5.3.3 is
    not asked: it waits for no reply, of Java's broker neither, and says at once that the time is over.
    """
    await _asked(stage, stage)


@scenario("5.5.0", timeout_s=300)
async def requests_of_the_java_client_4_9_are_answered_by_our_brokers(stage: Stage) -> None:
    """The client 4.9.8 asks and replies; our master is killed -9 meanwhile."""
    try:
        old = await java.fetch_client(OLD, stage.release, say=stage.say)
    except java.FetchFailed as failed:
        raise NotRun(f"no client {OLD}: {failed}") from None
    await _asked(stage, attrs.evolve(stage, release=old))


async def _asked(stage: Stage, asking: Stage) -> None:
    async with (
        group_of_three(stage, "Asked") as group,
        java.asker(asking.release, stage.here / "asker", namesrv=[group.namesrv], topic="Asked") as program,
    ):
        before = await program.wait_for("answered", lambda found: len(answered(found)) >= ROUNDS, timeout_s=60)
        expect(len(answered(before)) == len(before), f"before the kill {before[-1]}")
        await group.kill_master()
        led_us = time.time_ns() // 1_000
        found = await program.wait_for(
            "answered", lambda found: len(answered(found, since_us=led_us)) >= ROUNDS, timeout_s=90)
        took = sorted(report["ended_us"] - report["begun_us"] for report in answered(found))
        first = min(report["ended_us"] for report in answered(found, since_us=led_us))
        stage.say(f"half of {len(took)} requests were answered in {took[len(took) // 2] / 1e3:.1f} ms; the first one "
                  f"by the new master {(first - led_us) / 1e6:.1f} s after it led")
        late = [report for report in found if not report["ok"] and report["begun_us"] > first]
        expect(not late, f"the new master answers, and not these: {late[:3]}")
        unclear = [report for report in found if not report["ok"] and (
            not report.get("error") or report["ended_us"] - report["begun_us"] > 1_000 * (ASKED_MS + SLACK_MS))]
        expect(not unclear, f"neither answered nor told so in time: {unclear[:3]}")


@scenario("5.5.0", timeout_s=120)
async def traces_of_a_java_producer_are_kept(stage: Stage) -> None:
    """With `traceTopicEnable=true` a Java producer's hook finds the topic of traces: each message it sent is there."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", namesrv=[namesrv.address], extra={"traceTopicEnable": True}),
        connect([namesrv.address]) as client,
    ):
        await create_topic(stage, namesrv.address, "Traced")
        async with java.sender(stage.release, stage.here / "send", namesrv=[namesrv.address], topic="Traced",
                               count=TRACED, trace=True) as sender:
            sent = await sender.wait_for("sent", lambda found: len(found) == TRACED)
            wanted, found = {report["id"] for report in sent if report["ok"]}, ""
            expect(len(wanted) == TRACED, f"not stored: {sent[:3]}")
            async with client.pull("traces", start=Start.FIRST) as puller:
                await puller.assign(await client.queues(TRACE))
                with trio.move_on_after(30):
                    while any(each not in found for each in wanted):
                        for message in await puller.poll(timeout_ms=1_000):
                            found += message.body.decode()
        missing = [each for each in wanted if each not in found]
        expect(not missing, f"not traced: {missing[:3]} of {len(wanted)}; the traces: {found[:300]!r}")
        stage.say(f"{len(wanted)} messages are traced, by {found.count('Pub')} contexts")


def answered(found: Sequence[Report], since_us: int = 0) -> list[Report]:
    return [report for report in found if report["ok"] and report["begun_us"] > since_us]


@scenario("5.5.0", timeout_s=300)
async def untouched_node_clients_across_a_failover_of_our_brokers(stage: Stage) -> None:
    """ali-ons from npm sends and consumes by tags and by broadcast, and refuses; our master is killed -9 meanwhile."""
    try:
        packages = await node.fetch(say=stage.say)
    except node.NodeMissing as missing:
        raise NotRun(str(missing)) from None
    async with (
        group_of_three(stage, "Plain") as group,
        node.exercise(packages, stage.here / "node", namesrv=group.namesrv, rounds=3 * ROUNDS,
                      patience_s=PATIENCE_S) as program,
    ):
        await judged(stage, group, program, checks=3, before_kill=ROUNDS)
