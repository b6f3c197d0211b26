"""Replication between our brokers and Java's in both directions, by both HA protocols: equal logs, byte for byte.

It starts servers of both kinds and compares their commit logs on disk.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.java.settings import Value
from harness.processes.program import Program
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import SyncState, create_topic, until

TOPIC = "Orders"
GROUP = "broker-a"
BODY_BYTES = 4_000
"""Body size below which a Java producer does not compress."""
COUNT = 600
FILES: dict[str, Value] = {"mappedFileSizeCommitLog": 1 << 20}
"""Small log files, so that there are several."""
PLAIN_MASTER: dict[str, Value] = {
    **FILES, "brokerId": 0, "brokerRole": "SYNC_MASTER", "totalReplicas": 2, "inSyncReplicas": 2}
PLAIN_SLAVE: dict[str, Value] = {**FILES, "brokerId": 1, "brokerRole": "SLAVE"}
ALL_ACK: dict[str, Value] = {**FILES, "allAckInSyncStateSet": True}
PATIENT: dict[str, Value] = {"haMaxTimeSlaveNotCatchup": 120_000, "haHousekeepingInterval": 120_000}
"""Only a silent replica of ours, or one whose connection ends, leaves the SyncStateSet soon."""
IDLE_S = 12
"""Time in which an idle Java slave reports twice."""


def log_of(broker: Broker) -> bytes:
    """The bytes of the commit log up to its end."""
    files = sorted((broker.store / "commitlog").glob("0*"))
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


async def same_logs(stage: Stage, what: str, *brokers: Broker, timeout_s: float = 60) -> int:
    """Wait until all logs are the same; returns their size in bytes."""
    logs: list[bytes] = []
    with trio.move_on_after(timeout_s):
        while True:
            logs = [log_of(broker) for broker in brokers]
            if logs[0] and all(log == logs[0] for log in logs):
                stage.say(f"{what}: {len(logs[0])} bytes of log, the same on all")
                return len(logs[0])
            await trio.sleep(0.3)
    first = next((at for at, pair in enumerate(zip(*logs, strict=False)) if len(set(pair)) > 1), None)
    expect(False, f"{what}: logs of {[len(log) for log in logs]} bytes, the first difference at {first}")
    return 0


def topics_of(broker: Broker) -> str:
    """The content of the file of topics; empty while there is none."""
    path = broker.store / "config" / "topics.json"
    return path.read_text() if path.exists() else ""


async def topic_everywhere(brokers: Sequence[Broker], topic: str = TOPIC) -> None:
    """Wait until all brokers have a topic.

    A RocketMQ slave copies topics every 10 s under controllers; without them first 60 s after its start.
    If it is elected before, it creates them anew, with fewer queues: see ``harness.scenarios.interop.topics``.
    """
    with trio.fail_after(90):
        while not all(f'"{topic}"' in topics_of(broker) for broker in brokers):
            await trio.sleep(0.2)


@asynccontextmanager
async def sending(stage: Stage, name: str, namesrv: str, count: int = COUNT, **more: Any) -> AsyncIterator[Program]:
    async with java.sender(stage.release, stage.here / name, namesrv=[namesrv], count=count, body_bytes=BODY_BYTES,
                           **{"topic": TOPIC, "interval_ms": 0, **more}) as sender:
        yield sender


async def sent(stage: Stage, name: str, namesrv: str, count: int = COUNT) -> int:
    """Send messages; returns how many were acknowledged."""
    async with sending(stage, name, namesrv, count) as sender:
        reports = await sender.wait_for("sent", lambda found: len(found) >= count)
    good = len([report for report in reports if report["ok"]])
    stage.say(f"{name}: {good} of {count} acknowledged; others: "
              f"{sorted({str(report.get('status') or report.get('error')) for report in reports if not report['ok']})}")
    return good


async def taken(stage: Stage, name: str, namesrv: str, least: int = 20) -> None:
    """Send until so many messages were acknowledged: clients may need new routes first."""
    async with sending(stage, name, namesrv, 0, interval_ms=100) as sender:
        reports = await sender.wait_for("sent", lambda found: len([one for one in found if one["ok"]]) >= least)
    stage.say(f"{name}: {least} of {len(reports)} acknowledged")


async def _plain(stage: Stage, master: Broker, slave: Broker, namesrv: str) -> None:
    """Start the slave after the first messages; stop it for a while, and then the master."""
    await master.start()
    await slave.start()
    await create_topic(stage, namesrv, TOPIC)
    expect(await sent(stage, "first", namesrv) > COUNT // 2, "most puts wait for the slave and are acknowledged")
    await same_logs(stage, "copied", master, slave)
    await slave.kill()
    async with sending(stage, "without", namesrv, 3, retries=0) as sender:
        reports = await sender.wait_for("sent", lambda found: len(found) >= 3)
    expect(not any(report["ok"] for report in reports), f"a put needs a slave that is away: {reports}")
    await slave.start()
    await same_logs(stage, "caught up", master, slave)
    await master.kill()
    await master.start()
    await taken(stage, "again", namesrv)
    await same_logs(stage, "after the master's restart", master, slave)


@scenario("5.5.0")
async def a_java_slave_copies_our_plain_master(stage: Stage) -> None:
    """Default HA: a Java slave copies our master, away and back; puts wait for its copies; the logs are the same."""
    async with (
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", GROUP, namesrv=[namesrv.address], extra=PLAIN_MASTER, start=False) as master,
        java.broker(stage.release, stage.here / "java", group=GROUP, namesrv=[namesrv.address], extra=PLAIN_SLAVE,
                    start=False) as slave,
    ):
        await _plain(stage, master, slave, namesrv.address)


@scenario("5.5.0")
async def our_slave_copies_a_java_plain_master(stage: Stage) -> None:
    """Default HA: our slave copies a Java master, away and back; Java's puts wait for its copies."""
    async with (
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "java", group=GROUP, namesrv=[namesrv.address], extra=PLAIN_MASTER,
                    start=False) as master,
        ours.broker(stage.here / "ours", GROUP, namesrv=[namesrv.address], extra=PLAIN_SLAVE, start=False) as slave,
    ):
        await _plain(stage, master, slave, namesrv.address)


# --- under controllers ---------------------------------------------------------------------------------------


@asynccontextmanager
async def mixed(
    stage: Stage, kinds: str, extra: Mapping[str, Value] = ALL_ACK,
) -> AsyncIterator[tuple[list[str], str, list[Broker]]]:
    """Our controllers, a Java name server, and a group of brokers, ``o`` for ours and ``j`` for Java's, not started."""
    async with AsyncExitStack() as stack:
        controllers = [process.address for process in await stack.enter_async_context(
            ours.controllers(stage.here / "controllers"))]
        namesrv = await stack.enter_async_context(java.namesrv(stage.release, stage.here / "namesrv"))
        brokers = []
        for number, kind in enumerate(kinds, 1):
            here = stage.here / f"{kind}{number}"
            brokers.append(await stack.enter_async_context(
                ours.broker(here, GROUP, namesrv=[namesrv.address], controllers=controllers, extra=extra,
                            start=False)
                if kind == "o" else
                java.broker(stage.release, here, group=GROUP, namesrv=[namesrv.address], controllers=controllers,
                            extra=extra, start=False)))
        yield controllers, namesrv.address, brokers


async def seen(stage: Stage, controllers: list[str], wanted: Callable[[SyncState], bool], what: str) -> SyncState:
    return await until(stage, controllers, GROUP, wanted, what)


async def _switch(stage: Stage, kinds: str) -> None:
    """Kill the master; the other broker takes over, and the first one comes back as its slave."""
    async with mixed(stage, kinds) as (controllers, namesrv, (first, second)):
        await first.start()
        await seen(stage, controllers, lambda state: state.master_address == first.announced, "the first is master")
        await create_topic(stage, namesrv, TOPIC)
        await sent(stage, "alone", namesrv)
        await second.start()
        await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync")
        good = await sent(stage, "both", namesrv, 100)
        expect(good == 100, f"{good} of 100 acknowledged with both in sync")
        await same_logs(stage, "copied", first, second)
        await topic_everywhere((first, second))
        kept = log_of(first)
        await first.kill()
        await seen(stage, controllers, lambda state: state.master_address == second.announced, "the second is master")
        await taken(stage, "after", namesrv)
        await first.start()
        await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync again")
        await sent(stage, "at last", namesrv, 20)
        await same_logs(stage, "after the switch", first, second)
        expect(log_of(second).startswith(kept), "what both had is still there")
        async with java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv], topic=TOPIC) as receiver:
            await receiver.wait_for("received", lambda found: len(found) >= COUNT + 140)


@scenario("5.5.0")
async def a_java_slave_copies_our_master_and_takes_over(stage: Stage) -> None:
    """Auto-switch HA: a Java slave joins our master's SyncStateSet, takes over when it is killed, and takes it back."""
    await _switch(stage, "oj")


@scenario("5.5.0")
async def our_slave_copies_a_java_master_and_takes_over(stage: Stage) -> None:
    """Auto-switch HA: our slave joins a Java master's SyncStateSet, takes over when it is killed, and takes it back."""
    await _switch(stage, "jo")


@scenario("5.3.3")
async def the_older_java_and_ours_take_over_from_each_other(stage: Stage) -> None:
    """Auto-switch HA: an older slave joins our master's SyncStateSet, leads when it is killed, and gives it back."""
    await _switch(stage, "oj")


# --- beats ---------------------------------------------------------------------------------------------------


async def _idle(stage: Stage, controllers: list[str], size: int) -> None:
    """Check that no member leaves the set while no message is sent: each change would raise its epoch."""
    before = await seen(stage, controllers, lambda state: len(state.in_sync) == size, f"{size} in sync")
    await trio.sleep(IDLE_S)
    after = await seen(stage, controllers, lambda state: len(state.in_sync) == size, f"{size} in sync yet")
    expect(after.epoch == before.epoch, f"the SyncStateSet changed meanwhile: epochs {before.epoch} and {after.epoch}")


@scenario("5.5.0")
async def our_slave_that_hangs_leaves_and_an_idle_java_slave_stays(stage: Stage) -> None:
    """Beats: idle replicas stay. SIGSTOP of ours: it leaves, and comes back; of Java's: it is waited for as ever."""
    async with mixed(stage, "ojo", {**ALL_ACK, **PATIENT}) as (controllers, namesrv, (master, javas, slave)):
        await master.start()
        await seen(stage, controllers, lambda state: state.master_address == master.announced, "ours is master")
        await create_topic(stage, namesrv, TOPIC)
        await javas.start()
        await slave.start()
        await _idle(stage, controllers, 3)
        slave.pause()
        await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "our slave, stopped, is out")
        expect(await sent(stage, "without our slave", namesrv, 50) == 50, "the others are enough")
        slave.resume()
        calm = await seen(stage, controllers, lambda state: len(state.in_sync) == 3, "our slave is in again")
        javas.pause()
        await trio.sleep(IDLE_S / 2)
        javas.resume()
        after = await seen(stage, controllers, lambda state: len(state.in_sync) == 3, "the Java slave, stopped, stayed")
        expect(after.epoch == calm.epoch, f"it left meanwhile: epochs {calm.epoch} and {after.epoch}")
        expect(await sent(stage, "all three", namesrv, 50) == 50, "all three acknowledge")
        await same_logs(stage, "at last", master, javas, slave)


@scenario("5.5.0")
async def a_java_master_bears_the_beats_of_our_slave(stage: Stage) -> None:
    """Beats: our slave repeats itself to a Java master, which neither leaves it nor takes it out, idle or sending."""
    async with mixed(stage, "jo", {**ALL_ACK, **PATIENT}) as (controllers, namesrv, (master, slave)):
        await master.start()
        await seen(stage, controllers, lambda state: state.master_address == master.announced, "Java's is master")
        await create_topic(stage, namesrv, TOPIC)
        await slave.start()
        await _idle(stage, controllers, 2)
        expect(await sent(stage, "both", namesrv, 100) == 100, "both acknowledge")
        await _idle(stage, controllers, 2)
        await same_logs(stage, "copied", master, slave)
