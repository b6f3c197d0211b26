"""RocketMQ's proxy in cluster mode above our brokers, with a producer of the gRPC clients; remoting consumers receive.

It starts our servers, the proxy and both Java clients, and kills the master under them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from harness.processes import java
from harness.processes.java.grpc import fetch_grpc, proxy, remote
from harness.processes.program import Program, Report
from harness.scenarios.interop.clients import GROUP, GroupOfThree, group_of_three
from harness.scenarios.interop.scenario import Lost, NotRun, Stage, expect, scenario
from harness.scenarios.interop.transactions import FAST
from harness.scenarios.interop.watch import tool

DUE_MS = 12_000
FAR_MS = 40_000
PATIENCE_S = 90


async def done(program: Program, line: str, *, again: bool = False) -> Report:
    """The producer's report of one command; ``again``: repeat the command until it succeeds, as users would."""
    command, number = line.split()[:2]
    with trio.fail_after(PATIENCE_S):
        while True:
            before = len(program.reports("done"))
            await program.tell(line)
            report = (await program.wait_for("done", lambda found, before=before: len(found) > before))[-1]  # type: ignore[misc]
            expect((report["command"], report["sequence"]) == (command, int(number)), f"{line}: {report}")
            if report["ok"] or not again:
                return report
            await trio.sleep(0.5)


@asynccontextmanager
async def above(group: GroupOfThree, **topics: str) -> AsyncIterator[Program]:
    """The proxy and the producer. ``topics`` by kind of messages, which the proxy wants to be told."""
    stage = group.stage
    try:
        grpc = await fetch_grpc(stage.release, say=stage.say)
    except java.FetchFailed as failed:
        raise NotRun(f"no proxy: {failed}") from None
    for kind, topic in topics.items():
        run = await tool(stage, "updateTopic", "-n", group.namesrv, "-c", "DefaultCluster", "-t", topic, "-a",
                         f"+message.type={kind}")
        expect(" success." in run.stdout, f"topic {topic}: {run.stdout}")
    async with (
        proxy(grpc, stage.here / "proxy", namesrv=group.namesrv) as running,
        remote(grpc, stage.here / "remote", endpoints=running.address, plain=topics["NORMAL"],
               delayed=topics["DELAY"], pairs=topics.get("TRANSACTION", "")) as producer,
    ):
        yield producer


def counted(reports: list[Report]) -> Counter[int]:
    return Counter(report["sequence"] for report in reports)


@scenario("5.5.0", timeout_s=300)
async def a_grpc_producer_delays_and_recalls_through_javas_proxy(stage: Stage) -> None:
    """Proxy 5.5.0 above three of ours: a gRPC producer delays and recalls, before and after kill -9 of our master."""
    async with (
        group_of_three(stage, "Plain", "Later", recallMessageEnable=True) as group,
        above(group, NORMAL="Plain", DELAY="Later") as producer,
        java.receiver(stage.release, stage.here / "plain", namesrv=[group.namesrv], topic="Plain") as plain,
        java.receiver(
            stage.release, stage.here / "later", namesrv=[group.namesrv], topic="Later", group="later") as later,
    ):
        for line in ("send 1", f"delay 2 {DUE_MS}", f"delay 3 {FAR_MS}", f"delay 4 {FAR_MS}", "recall 3"):
            report = await done(producer, line)
            expect(report["ok"], f"{line}: {report}")
        far_at = trio.current_time() + FAR_MS / 1e3
        await group.kill_master()
        report = await done(producer, "recall 4", again=True)
        stage.say(f"{GROUP} has another master, which took back what the one before had taken: {report['id']}")
        await done(producer, "send 5", again=True)
        await done(producer, "delay 6 1000", again=True)
        await plain.wait_for("received", lambda found: {each["sequence"] for each in found} >= {1, 5})
        await later.wait_for("received", lambda found: {each["sequence"] for each in found} >= {2, 6})
        await trio.sleep_until(far_at + 5)
        got = counted(later.reports("received"))
        if got.keys() & {3, 4}:
            raise Lost(f"taken back, and delivered all the same: {got}")
        expect(got[2] in (1, 2) and got[6] == 1, f"a timer is delivered once, and again in a failover at most: {got}")
        stage.say(f"received: {dict(got)}; 3 and 4 were taken back")


@scenario("5.5.0", timeout_s=400)
async def a_grpc_producer_has_transactions_through_javas_proxy(stage: Stage) -> None:
    """Proxy 5.5.0 above three of ours: committed, rolled back, asked for, before and after kill -9 of our master."""
    async with (
        group_of_three(stage, "Plain", "Later", "Pairs", **FAST) as group,
        above(group, NORMAL="Plain", DELAY="Later", TRANSACTION="Pairs") as producer,
        java.receiver(stage.release, stage.here / "pairs", namesrv=[group.namesrv], topic="Pairs") as pairs,
    ):
        for line in ("commit 10", "rollback 11", "leave 12", "leave 13"):
            report = await done(producer, line)
            expect(report["ok"], f"{line}: {report}")
        await producer.wait_for("checked", lambda found: {each["sequence"] for each in found} >= {12, 13})
        for line in ("leave 14", "leave 15"):
            report = await done(producer, line)
            expect(report["ok"], f"{line}: {report}")
        await group.kill_master()
        stage.say("killed; halves 14 and 15 are the new master's to ask for")
        await done(producer, "commit 16", again=True)  # where the end is lost with the master, the checker commits, too
        await producer.wait_for(
            "checked", lambda found: {each["sequence"] for each in found} >= {14, 15}, timeout_s=PATIENCE_S)
        await pairs.wait_for("received", lambda found: {each["sequence"] for each in found} >= {10, 12, 14, 16})
        await trio.sleep(5)  # wrong messages would come by then
        got = counted(pairs.reports("received"))
        expect(got.keys() == {10, 12, 14, 16}, f"committed are 10, 12, 14 and 16, and received: {got}")
        expect(got[10] == got[12] == got[14] == 1, f"each once: {got}")
        stage.say(f"received: {dict(got)}; checked: {dict(counted(producer.reports('checked')))}")
