"""Unmodified Java consumers and producers while our slave acts for our master, and when that is back.

RocketMQ has these scenarios as tests of replicas in one JVM, which are switched off there; each says which ones it has.
It starts our name server, two groups of our brokers and Java clients, and kills the master of one group with -9.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

import attrs
import trio

from harness.processes import java
from harness.processes.broker import Broker
from harness.processes.program import Program
from harness.scenarios.interop.acting import FAR, TABLES_S, Groups, groups
from harness.scenarios.interop.ha import same_logs
from harness.scenarios.interop.popping import (
    INVISIBLE_MS,
    REVIVED_S,
    SLACK_S,
    acknowledged,
    all_received,
    counted,
    told,
)
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.waiting import PAIRS, Clients, transacting
from remoting.bodies.namesrv import TopicRouteData
from remoting.client import Client, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.header import Header
from remoting.headers.namesrv import GetRouteInfoRequest
from remoting.headers.pulling import QueryConsumerOffsetRequest, QueueRequest

READ, POPPED = "Read", "Popped"
COUNT = 400
LOG_FILE_BYTES = 1 << 20
QUEUES = 8
READERS = "readers"
PATIENCE_S = 120.0
"""A Java client asks for routes every 30 s."""
DECIDED_S = 45
"""Time in which a producer finds the master again, which would ask it by then."""


@attrs.frozen
class Servers:
    """The servers of the groups, asked by requests."""

    client: Client
    up: Groups

    async def _number(self, broker: Broker, code: int, header: Header) -> int | None:
        answer = await self.client.call(broker.address, request(code, header), 10_000)
        return int(answer.ext["offset"]) if answer.code == ResponseCode.SUCCESS else None

    async def ends(self, broker: Broker) -> list[int | None]:
        """Return where each queue of a topic ends."""
        return [await self._number(broker, RequestCode.GET_MAX_OFFSET, QueueRequest(READ, queue))
                for queue in range(QUEUES)]

    async def offsets(self, broker: Broker, group: str = READERS) -> list[int | None]:
        """How far the group is in the queues."""
        return [await self._number(broker, RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequest(
            group, READ, queue, set_zero_if_not_found=False)) for queue in range(QUEUES)]

    async def comes_back(self, topic: str) -> None:
        """Start the master again; returns when clients find it."""
        await self.up.master.start()
        with trio.fail_after(PATIENCE_S):
            while True:
                answer = await self.client.call(
                    self.up.namesrv, request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic)), 10_000)
                route = TopicRouteData.from_json(answer.body)
                if any(self.up.master.address in each.broker_addrs.values() for each in route.broker_datas):
                    return
                await trio.sleep(0.2)


async def stored(stage: Stage, up: Groups, name: str, topic: str) -> set[int]:
    """Send messages to both groups, and wait until the slave has those of its own."""
    async with java.sender(stage.release, stage.here / name, namesrv=[up.namesrv], topic=topic, count=COUNT,
                           interval_ms=1) as sender:
        wanted = await acknowledged(sender, COUNT)
        shares = Counter(one["broker"] for one in sender.reports("sent") if one["ok"])
    expect(shares["a"] and shares["b"], f"both groups store some: {shares}")
    if up.master.running:
        await same_logs(stage, name, up.master, up.slave)
    return wanted


def in_order(program: Program) -> None:
    """Check that first deliveries of each queue are in its order."""
    seen: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in program.reports("received"):
        queue = seen[one["broker"], one["queue"]]
        if one["offset"] not in queue:
            queue.append(one["offset"])
    expect(all(queue == sorted(queue) for queue in seen.values()), f"out of order: {dict(seen)}")


@scenario("5.5.0", timeout_s=400)
async def java_consumers_read_and_lock_at_our_acting_slave(stage: Stage) -> None:
    """Our master is killed -9: its slave is read, in order too; then it is back, and knows it (RebalanceLockOnSlaveIT).

    PushMultipleReplicasIT, GetMaxOffsetFromSlaveIT, and the offsets of GetMetadataReverseIT, too.
    """
    await _read_and_lock(stage)


@scenario("5.5.0", timeout_s=500)
async def java_consumers_read_and_lock_while_our_slave_acts_for_a_java_master(stage: Stage) -> None:
    """The same where the master is Java's: it asks our slave by 43 what it was told meanwhile."""
    await _read_and_lock(stage, javas=0)


@scenario("5.5.0", timeout_s=500)
async def java_consumers_read_and_lock_while_a_java_slave_acts_for_our_master(stage: Stage) -> None:
    """The same where the slave is Java's: our master asks it by 43."""
    await _read_and_lock(stage, javas=1)


async def _read_and_lock(stage: Stage, javas: int | None = None) -> None:
    receiver = partial(java.receiver, stage.release, topic=READ)
    async with (
        groups(stage, javas=javas, topic=READ, slaves={"slaveReadEnable": True} if javas == 1 else None,
               mappedFileSizeCommitLog=LOG_FILE_BYTES) as up,
        open_client() as client,
    ):
        asked = Servers(client, up)
        before = await stored(stage, up, "before", READ)
        ends = await asked.ends(up.master)
        await up.master.kill()
        async with receiver(stage.here / "ordered", namesrv=[up.namesrv], group="in-order", ordered=True) as ordered:
            async with receiver(stage.here / "reader", namesrv=[up.namesrv], group=READERS) as reader:
                await all_received((reader,), before, "read while the master is away", timeout_s=PATIENCE_S)
                await all_received((ordered,), before, "in order while the master is away", timeout_s=PATIENCE_S)
                expect(await asked.ends(up.slave) == ends, "the slave knows where queues end")
                with trio.fail_after(60):
                    while await asked.offsets(up.slave) != ends or await asked.offsets(up.slave, "in-order") != ends:
                        await trio.sleep(0.5)
            await asked.comes_back(READ)
            expect(await asked.offsets(up.master) == ends, "what was said to the slave is the master's")
            after = await stored(stage, up, "after", READ)
            async with receiver(stage.here / "again", namesrv=[up.namesrv], group=READERS) as again:
                await all_received((again,), after, "read with the master", timeout_s=PATIENCE_S)
                with trio.move_on_after(PATIENCE_S):
                    while counted((ordered,)).total() < len(before) + len(after):
                        await trio.sleep(0.5)
                await trio.sleep(SLACK_S)
                expect(counted((again,)) == Counter(after), "it goes on where the slave was told: nothing comes again")
            in_order(ordered)
            twice = counted((ordered,)).total() - len(before) - len(after)
            expect(twice >= 0, f"in order: {-twice} did not come with the master")
            stage.say(f"{len(before)} read and {len(before)} in order at the slave, {len(after)} more with the master; "
                      f"in order {twice} came again")


@scenario("5.5.0", timeout_s=400)
async def java_push_consumers_pop_at_our_acting_slave(stage: Stage) -> None:
    """The same for who pops: what is acknowledged stays away, the rest is at another group (PopSlaveActingMasterIT)."""
    await _pop(stage)


@scenario("5.5.0", timeout_s=500)
async def java_push_consumers_pop_while_our_slave_acts_for_a_java_master(stage: Stage) -> None:
    """The same where the master is Java's."""
    await _pop(stage, javas=0)


async def _pop(stage: Stage, javas: int | None = None) -> None:
    async with (
        groups(stage, javas=javas, topic=POPPED, mappedFileSizeCommitLog=LOG_FILE_BYTES) as up,
        open_client() as client,
    ):
        for line in (("updateSubGroup",), ("setConsumeMode", "-t", POPPED, "-m", "POP", "-q", "0")):
            await told(stage, line[0], "-n", up.namesrv, "-c", "DefaultCluster", "-g", "G", *line[1:])
        wanted = await stored(stage, up, "before", POPPED)
        await trio.sleep(TABLES_S)
        await up.master.kill()
        async with java.popper(stage.release, stage.here / "popper", namesrv=[up.namesrv], topic=POPPED, group="G",
                               refuse=4, invisible_ms=INVISIBLE_MS) as popper:
            await all_received((popper,), wanted, "popped while the master is away", timeout_s=PATIENCE_S)
            refused = Counter(sequence for sequence in wanted if sequence % 4 == 0)
            due = Counter(wanted) + refused
            with trio.move_on_after(PATIENCE_S):
                while due - counted((popper,)):
                    await trio.sleep(0.5)
            expect(not due - counted((popper,)), f"refused, and not again: {due - counted((popper,))}")
            for what in ("while the master is away", "with the master"):
                await trio.sleep(INVISIBLE_MS / 1e3 + REVIVED_S + SLACK_S)
                more = counted((popper,)) - due
                expect(not more, f"acknowledged, and again {what}: {more}")
                if not up.master.running:
                    await Servers(client, up).comes_back(POPPED)
            where = Counter(one["broker"] for one in popper.reports("received") if one["again"])
            expect(where.keys() <= {"b"}, f"what comes again is at the other group: {where}")
            stage.say(f"{len(wanted)} popped, {refused.total()} refused ones again, and none more; from {where}")


@scenario("5.5.0", timeout_s=400)
async def java_transactions_are_decided_at_our_acting_slave(stage: Stage) -> None:
    """The same of halves: it asks their producer; each commit comes once, then and later (TransactionMessageIT)."""
    plans = ("/".join(["UNKNOW"] * 8 + ["COMMIT"]), "/".join(["UNKNOW"] * 8 + ["ROLLBACK"]))
    async with (
        groups(stage, topic=PAIRS, transactionTimeOut=1_000, transactionCheckInterval=3_000,
               mappedFileSizeCommitLog=LOG_FILE_BYTES) as up,
        java.receiver(stage.release, stage.here / "pairs", namesrv=[up.namesrv], topic=PAIRS) as pairs,
        open_client() as client,
    ):
        made = Clients(stage, up.namesrv, pairs, pairs)
        async with transacting(made, "open", plans, 2 * FAR) as halves:
            await same_logs(stage, "halves", up.master, up.slave)
            await up.master.kill()
            await made.decided("while the master was away", halves)
            await Servers(client, up).comes_back(PAIRS)
            await trio.sleep(DECIDED_S)
            await made.decided("with the master", halves)
