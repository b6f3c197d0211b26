"""Groups without controllers: our slave acts while our master is away, and unmodified Java clients go on.

It starts our name server, two groups of our brokers, and a Java program that sends timers and receives them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import attrs
import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.java.settings import Value
from harness.processes.ports import reserved
from harness.scenarios.interop.ha import FILES, same_logs, topic_everywhere, topics_of
from harness.scenarios.interop.metrics import exporter, read
from harness.scenarios.interop.scenario import NotRun, Stage, expect, scenario
from harness.scenarios.interop.waiting import FAR_MS, LATER, PAIRS, Clients, followed, transacting
from harness.scenarios.interop.watch import create_topic, tool

ACTING: dict[str, Value] = {"enableSlaveActingMaster": True, "enableRemoteEscape": True, "totalReplicas": 2}
SHOWS: dict[str, Value] = {"supportActingMaster": True}
OLD = "4.9.7"
FAR = 10
TABLES_S = 4
"""Our slave copies its master's tables every 3 s."""


@attrs.frozen
class Groups:
    """Group a, a master and its slave; and the master of group b."""

    master: Broker
    slave: Broker
    other: Broker
    namesrv: str


@asynccontextmanager
async def groups(stage: Stage, *, beside: Sequence[java.Release] = (), javas: int | None = None, topic: str = LATER,
                 slaves: Mapping[str, Value] | None = None, **more: Value) -> AsyncIterator[Groups]:
    """Start the groups, with a topic made by Java's tool at both masters and at the slave.

    ``beside``: with a Java name server of each release; ``javas``: the id of the member of group a that is Java's;
    ``slaves``: settings of the slave; ``more``: settings of all."""
    def member(number: int) -> AbstractAsyncContextManager[Broker]:
        extra = {**ACTING, **more, **(slaves or {} if number else {}), "brokerId": number,
                 "brokerRole": "SLAVE" if number else "ASYNC_MASTER"}
        if number == javas:
            return java.broker(stage.release, stage.here / f"a{number}", group="a", namesrv=at, start=not number,
                               extra={**FILES, **extra, "timerWheelEnable": True})
        return ours.broker(stage.here / f"a{number}", "a", namesrv=at, start=not number, extra={
            **(FILES if javas is not None else {}), **extra})

    async with AsyncExitStack() as stack:
        at = [(await stack.enter_async_context(ours.namesrv(stage.here / "namesrv", extra=SHOWS))).address]
        at += [(await stack.enter_async_context(java.namesrv(
            each, stage.here / f"namesrv-{each.version}", extra=SHOWS))).address for each in beside]
        async with (
            ours.broker(stage.here / "b0", "b", namesrv=at, extra=more) as other,
            member(0) as master,
            member(1) as slave,
        ):
            while f'"{topic}"' not in topics_of(master):  # name servers list it some seconds after its start
                await create_topic(stage, at[0], topic)
            await topic_everywhere((master, other), topic)
            await slave.start()
            await topic_everywhere((slave,), topic)
            yield Groups(master, slave, other, ";".join(at))


async def _away(stage: Stage, up: Groups, near: int | str = 2_000, far: int | str = FAR_MS) -> None:
    """Kill the master with -9 while timers wait, and start it again; all timers come both times."""
    async with java.later(stage.release, stage.here / "later", namesrv=up.namesrv.split(";"), topic=LATER) as timers:
        made = Clients(stage, up.namesrv, timers, timers)
        await made.timer("first", 0)
        await timers.wait_for("received")
        await made.timer("near", near)
        for number in range(2 * FAR):  # each group gets half of them
            await made.timer(f"far{number}", far)
        sent = next(one for one in timers.reports("sent") if one["name"].startswith("near"))
        await timers.wait_for("received", lambda found: any(one["name"] == sent["name"] for one in found))
        if isinstance(near, int):
            await followed(stage, up.slave, sent["due_ms"])
        else:
            await same_logs(stage, "copied", up.master, up.slave)
            await trio.sleep(TABLES_S)
        await up.master.kill()
        await made.timer("behind", 1_000)
        await made.come("while the master was away")
        await up.master.start()
        await made.timer("back", 3_000)
        await made.come("with the master")


@scenario("5.5.0", timeout_s=300)
async def java_timers_go_on_while_our_master_is_away(stage: Stage) -> None:
    """Our plain master is killed -9: its slave delivers its timers at another group's master; then it comes back."""
    async with groups(stage) as up:
        await _away(stage, up)


@scenario("5.5.0", timeout_s=300)
async def java_delay_levels_go_on_while_our_master_is_away(stage: Stage) -> None:
    """The same with messages of delay levels, as RocketMQ's ScheduleSlaveActingMasterIT has it."""
    async with groups(stage, mappedFileSizeCommitLog=1 << 20) as up:
        await _away(stage, up, near="#2", far="#4")


@scenario("5.5.0", "5.3.3", timeout_s=300)
async def a_java_name_server_and_ours_say_that_our_master_is_away(stage: Stage) -> None:
    """The same, where one of two name servers is Java's: more than half of them are both."""
    async with groups(stage, beside=[stage.release]) as up:
        await _away(stage, up)


async def _old_namesrv(stage: Stage) -> java.Release:
    try:
        return await java.fetch_namesrv(OLD, say=stage.say)
    except java.FetchFailed as failed:
        raise NotRun(f"no name server {OLD}: {failed}") from None


@scenario("5.5.0", timeout_s=300)
async def a_name_server_4_9_and_ours_say_that_our_master_is_away(stage: Stage) -> None:
    """The same beside a name server 4.9.7, which answers neither 904 nor 901: it is asked by 322 and 105."""
    async with groups(stage, beside=[await _old_namesrv(stage)]) as up:
        await _away(stage, up)


@scenario("5.5.0", timeout_s=400)
async def name_servers_of_four_kinds_say_that_our_master_is_away(stage: Stage) -> None:
    """The same with ours, 4.9.7, 5.3.3 and 5.5.0 in one list: more than half of them are three."""
    beside = [await _old_namesrv(stage), await java.fetch("5.3.3", say=stage.say), stage.release]
    async with groups(stage, beside=beside) as up:
        await _away(stage, up)


@scenario("5.5.0", timeout_s=300)
async def our_slave_acts_for_a_java_master(stage: Stage) -> None:
    """A Java master is killed -9: our slave delivers its timers at another group's master; then it comes back."""
    async with groups(stage, javas=0) as up:
        await _away(stage, up)


@scenario("5.5.0", timeout_s=300)
async def our_slave_acts_for_a_java_master_with_delay_levels(stage: Stage) -> None:
    """The same with messages of delay levels: the Java master asks our slave by 45 how far it delivered them."""
    with reserved() as port:
        async with groups(stage, javas=0, mappedFileSizeCommitLog=1 << 20, slaves=exporter(port)) as up:
            await _away(stage, up, near="#2", far="#4")
            answered = re.search(r'^broker_request_total\{.*request_code="GET_ALL_DELAY_OFFSET".*\} (\S+)$',
                                 await read(port), re.MULTILINE)
            expect(answered is not None, "the Java master never asked our slave by code 45")


@scenario("5.5.0", timeout_s=300)
async def a_java_slave_acts_for_our_master(stage: Stage) -> None:
    """Our master is killed -9: a Java slave delivers its timers at another group's master; then it comes back."""
    async with groups(stage, javas=1) as up:
        await _away(stage, up)


@scenario("5.5.0", timeout_s=300)
async def our_slave_sends_the_halves_of_a_java_master_on(stage: Stage) -> None:
    """A Java master is killed -9 with open halves: another group's asks for them; each is decided once."""
    undecided = "/".join(["UNKNOW"] * 10 + ["COMMIT"])
    async with (
        groups(stage, javas=0, topic=PAIRS, transactionTimeOut=1_000, transactionCheckInterval=2_000) as up,
        java.receiver(stage.release, stage.here / "pairs", namesrv=[up.namesrv], topic=PAIRS) as pairs,
    ):
        made = Clients(stage, up.namesrv, pairs, pairs)
        async with transacting(made, "open", (undecided,), 2 * FAR) as halves:
            await trio.sleep(5)  # the slave has them
            await up.master.kill()
            await made.decided("while the master was away", halves)
            await up.master.start()
            while up.master.address not in (await tool(stage, "topicRoute", "-n", up.namesrv, "-t", PAIRS)).stdout:
                await trio.sleep(0.5)
            await trio.sleep(45)  # the producer finds it again, and it would ask
            await made.decided("with the master", halves)
