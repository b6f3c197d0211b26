"""Our broker between Java's clients, tools, name server and controllers: found, written to, read, looked at, led.

It starts servers of both kinds and Java programs, and reads what those say.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from harness.processes import java, ours
from harness.processes.program import Report
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic, tool, until

FIRST_POLL_MS = 2_000
TOPIC = "Orders"
GROUP = "broker-a"
COUNT = 200


async def _tool(stage: Stage, *arguments: str) -> str:
    """Run Java's mqadmin, which must succeed; returns its output."""
    said = await tool(stage, *arguments)
    expect(said.ok, str(said))
    return said.stdout


async def _exchange(stage: Stage, name: str, namesrv: str) -> None:
    """Let a Java producer send, and a Java consumer of a new group get all messages, older ones too.

    Then wait until the group's progress is known: clients report it now and then, and a killed one may never do.
    """
    async with (
        java.receiver(stage.release, stage.here / f"receiver-{name}", namesrv=[namesrv], topic=TOPIC,
                      group=f"readers-{name}") as receiver,
        java.sender(stage.release, stage.here / f"sender-{name}", namesrv=[namesrv], topic=TOPIC, count=COUNT,
                    interval_ms=5, body_bytes=300) as sender,
    ):
        reports = await sender.wait_for("sent", lambda found: len(found) >= COUNT)
        sent = {_placed(report) for report in reports if report["ok"]}
        expect(len(sent) > COUNT * 9 // 10, f"{len(sent)} of {COUNT} were acknowledged")
        got = await receiver.wait_for(
            "received", lambda found: sent <= {_placed(report) for report in found}, timeout_s=60)
        with trio.fail_after(60):
            while not (await tool(stage, "consumerProgress", "-n", namesrv, "-g", f"readers-{name}")).ok:
                await trio.sleep(0.5)
        stage.say(f"{name}: Java sent {len(sent)}, Java consumed {len(got)}")


async def _polled(stage: Stage, name: str, namesrv: str) -> None:
    """Let a new group poll from the last offset while its topic gets its first messages: it gets all of them.

    The first one comes at most two seconds after both the poll and the message."""
    topic = f"Polled-{name}"
    await create_topic(stage, namesrv, topic)
    async with (
        java.poller(stage.release, stage.here / f"poller-{name}", namesrv=[namesrv], topic=topic,
                    group=f"pollers-{name}") as poller,
        java.sender(stage.release, stage.here / f"first-{name}", namesrv=[namesrv], topic=topic, count=20) as sender,
    ):
        sent = {_placed(report) for report in await sender.wait_for("sent", lambda found: len(found) >= 20)
                if report["ok"]}
        got = await poller.wait_for(
            "received", lambda found: sent <= {_placed(report) for report in found}, timeout_s=60)
        (started,), stored = poller.reports("started"), sender.reports("sent")[0]["ended_us"]
        since_start, since_sent = ((got[0]["at_us"] - since) // 1_000 for since in (started["at_us"], stored))
        stage.say(f"{name}: Java polled its first message {since_start} ms after its start, {since_sent} ms after the "
                  "acknowledgement")
        expect(min(since_start, since_sent) <= FIRST_POLL_MS, f"the first message came too late: {got[0]}")


def _placed(report: Report) -> tuple[int, int, int]:
    """A message's number and place, since every producer counts from 0."""
    return report["sequence"], report["queue"], report["offset"]


async def _looked_at(stage: Stage, namesrv: str, broker: str, commands: Sequence[Sequence[str]]) -> None:
    for command, *rest in commands:
        said = await _tool(stage, command, *rest)
        expect(said.strip(), f"{command} says nothing")
        stage.say(f"{command}: {len(said.splitlines())} lines")
    said = await _tool(stage, "clusterList", "-n", namesrv)
    expect(broker in said and "V5_5_0" in said, f"clusterList does not show {broker}:\n{said}")


@scenario("5.5.0", smoke=True)
async def java_clients_and_tools_with_our_single_master(stage: Stage) -> None:
    """Our name server and our single master serve a Java producer, a Java push consumer and Java's mqadmin."""
    await _single_master(stage)


@scenario("5.3.3")
async def older_java_clients_and_tools_with_our_single_master(stage: Stage) -> None:
    """Our name server and our single master serve the older producer, push consumer and mqadmin."""
    await _single_master(stage)


async def _single_master(stage: Stage) -> None:
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", GROUP, namesrv=[namesrv.address]) as broker,
    ):
        await _polled(stage, "first", namesrv.address)
        await create_topic(stage, namesrv.address, TOPIC)
        await _exchange(stage, "first", namesrv.address)
        await _looked_at(stage, namesrv.address, broker.address, [
            ("brokerStatus", "-n", namesrv.address, "-b", broker.address),
            ("getBrokerConfig", "-n", namesrv.address, "-b", broker.address),
            ("haStatus", "-n", namesrv.address, "-b", broker.address),
            ("topicStatus", "-n", namesrv.address, "-t", TOPIC),
            ("consumerProgress", "-n", namesrv.address, "-g", "readers-first"),
        ])
        said = await _tool(stage, "updateBrokerConfig", "-n", namesrv.address, "-b", broker.address,
                           "-k", "fileReservedTime", "-v", "24")
        expect("success" in said, said)
        await broker.kill()
        await broker.start()
        await _exchange(stage, "restarted", namesrv.address)


@scenario("5.5.0", "5.3.3")
async def our_broker_under_a_java_name_server_and_java_controllers(stage: Stage) -> None:
    """Our brokers register with a Java name server and Java controllers; one is killed, the other is elected."""
    async with (
        java.controllers(stage.release, stage.here / "controllers") as group,
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
    ):
        controllers = [controller.address for controller in group]
        extra = {"allAckInSyncStateSet": True, "electRetryMs": 1_000}
        async with (
            ours.broker(stage.here / "a1", GROUP, namesrv=[namesrv.address], controllers=controllers,
                        extra=extra) as first,
            ours.broker(stage.here / "a2", GROUP, namesrv=[namesrv.address], controllers=controllers,
                        extra=extra) as second,
        ):
            state = await until(stage, controllers, GROUP, lambda found: len(found.in_sync) == 2, "both are in sync")
            master, other = (first, second) if state.master_address == first.address else (second, first)
            await create_topic(stage, namesrv.address, TOPIC)
            await _exchange(stage, "first", namesrv.address)
            said = await _tool(stage, "getBrokerEpoch", "-n", namesrv.address, "-b", GROUP)
            expect("Epoch" in said, f"getBrokerEpoch: {said}")
            await master.kill()
            await until(stage, controllers, GROUP, lambda found: found.master_address == other.address, "elected anew")
            await _exchange(stage, "after", namesrv.address)
