"""Unmodified Java producers of transactions with our brokers: a committed message is seen once, others never.

It starts our servers and Java programs, and compares the producers' decisions with the messages of a consumer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from broker.client import Client, NoRoute, Received, Start, connect
from broker.topics.names import CHECK_MAX_TIME, HALF
from harness.processes import go, java, ours
from harness.processes.program import Program, Report
from harness.scenarios.interop.clients import GroupOfThree, group_of_three
from harness.scenarios.interop.scenario import NotRun, Stage, expect, scenario
from harness.scenarios.interop.watch import create_topic
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.transactions import EndTransactionRequest, ResumeCheckHalfMessageRequest
from remoting.record import COMMIT, parse_message_id

FAST: dict[str, object] = {"transactionTimeOut": 1_000, "transactionCheckInterval": 2_000}
HURRIED: dict[str, object] = {"transactionTimeOut": 200, "transactionCheckInterval": 400}
CHECKS = 15
"""Default of ``transactionCheckMax``."""
MATRIX = ("COMMIT", "ROLLBACK", "UNKNOW/COMMIT", "UNKNOW/ROLLBACK", "UNKNOW/UNKNOW/COMMIT")
COUNT = 25
THREE = ("COMMIT", "ROLLBACK", "UNKNOW/COMMIT")
OLD = "4.9.8"
"""A client of the release line before 5."""


def committed(sent: Sequence[Report], plans: Sequence[str]) -> set[int]:
    """Sequences of the transactions that end in a commit."""
    return {report["sequence"] for report in sent
            if report["ok"] and plans[report["sequence"] % len(plans)].endswith("COMMIT")}


async def once_each(stage: Stage, receiver: Program, wanted: set[int], what: str, *, timeout_s: float = 90) -> None:
    """Check that these messages come, each once, and no others."""
    await receiver.wait_for("received", lambda found: wanted <= {each["sequence"] for each in found},
                            timeout_s=timeout_s)
    await trio.sleep(5)  # wrong messages would come by then
    got = Counter(report["sequence"] for report in receiver.reports("received"))
    expect(got == Counter(dict.fromkeys(wanted, 1)),
           f"{what}: wanted {sorted(wanted)} once each, got {sorted(got.items())}")
    stage.say(f"{what}: {len(wanted)} came, each once")


@scenario("5.5.0", "5.3.3")
async def java_transactions_with_our_single_master(stage: Stage) -> None:
    """A Java producer commits, rolls back, or is asked; dies and another one answers; comes too late (604)."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", namesrv=[namesrv.address], extra=FAST) as broker,
    ):
        for topic in ("Matrix", "Orphans", "Other", "Late"):
            await create_topic(stage, namesrv.address, topic)

        @asynccontextmanager
        async def transacting(
            topic: str, plans: Sequence[str], count: int, *, group: str = "", local_ms: int = 0, immunity_s: int = 0,
        ) -> AsyncIterator[Program]:
            async with java.transactor(
                    stage.release, stage.here / f"produce-{topic}", namesrv=[namesrv.address], topic=topic, plans=plans,
                    count=count, group=group or f"P{topic}", local_ms=local_ms, immunity_s=immunity_s) as program:
                yield program

        def reading(topic: str) -> AbstractAsyncContextManager[Program]:
            return java.receiver(stage.release, stage.here / f"read-{topic}", namesrv=[namesrv.address], topic=topic,
                                 group=f"R{topic}")

        async with reading("Matrix") as receiver, transacting("Matrix", MATRIX, COUNT) as producer:
            sent = await producer.wait_for("sent", lambda found: len(found) == COUNT)
            await broker.kill()
            await broker.start()
            await once_each(stage, receiver, committed(sent, MATRIX), "matrix, the broker killed -9 and started again")
            checks = Counter(MATRIX[each["sequence"] % len(MATRIX)] for each in producer.reports("checked"))
            expect(not checks["COMMIT"] and not checks["ROLLBACK"], f"what was decided was asked for: {checks}")

        async with reading("Orphans") as receiver:
            async with transacting("Orphans", ["UNKNOW/COMMIT"], 5, local_ms=200) as producer:
                sent = await producer.wait_for("sent", lambda found: len(found) == 2)
                await producer.kill()
            async with transacting("Other", ["COMMIT"], 1, group="POrphans"):
                await receiver.wait_for("received", lambda found: {0, 1} <= {each["sequence"] for each in found})
                stage.say("another instance of the group answered for the one that was killed")

        async with reading("Late") as receiver, transacting(
                "Late", ["COMMIT"], 1, local_ms=6_000, immunity_s=4) as producer:
            await once_each(stage, receiver, {0}, "a commit that came too late was asked for")
            (check, *_) = producer.reports("checked")
            expect(check["at_us"] - check["born_us"] > 4_000_000, f"asked within the time it gave itself: {check}")


@scenario("5.5.0")
async def java_halves_without_an_answer_are_given_up_and_come_back(stage: Stage) -> None:
    """A Java producer leaves 15 checks undecided; strangers decide nothing; 323 brings its half back, it commits."""
    given_up = "/".join(["UNKNOW"] * (CHECKS + 1) + ["COMMIT"])
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", namesrv=[namesrv.address], extra=HURRIED) as broker,
        connect([namesrv.address]) as client, open_client() as remoting,
    ):
        await create_topic(stage, namesrv.address, "Shop")
        async with (
            java.receiver(stage.release, stage.here / "read", namesrv=[namesrv.address], topic="Shop",
                          group="R") as receiver,
            java.transactor(stage.release, stage.here / "transact", namesrv=[namesrv.address], topic="Shop",
                            plans=[given_up], count=1, group="P") as producer,
        ):
            (sent,) = await producer.wait_for("sent")
            (half, *_) = await client.query_id(HALF, sent["transaction"])
            place, offset = half.queue_offset, parse_message_id(half.offset_message_id)[1]
            for group, at, where in (("others", place, offset), ("P", place + 1, offset), ("P", place, offset + 1)):
                answer = await remoting.call(broker.address, request(
                    RequestCode.END_TRANSACTION, EndTransactionRequest(group, at, where, COMMIT)))
                expect(answer.code == ResponseCode.SYSTEM_ERROR, f"{group} {at} {where}: a stranger decided: {answer}")
            (lying,) = await _given_up(client)
            checks = producer.reports("checked")
            expect(len(checks) == CHECKS, f"{CHECKS} checks, then it is given up: {len(checks)}")
            expect(not receiver.reports("received"), "what nobody committed was delivered")
            answer = await remoting.call(broker.address, request(
                RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequest(lying.offset_message_id)))
            expect(answer.code == ResponseCode.SUCCESS, f"323 is refused: {answer}")
            await once_each(stage, receiver, {0}, f"given up after {CHECKS} checks, and resumed")


async def _given_up(client: Client) -> list[Received]:
    """Wait for halves that the broker gave up; it makes their topic with the first one."""
    with trio.fail_after(120):
        async with client.pull("given-up", start=Start.FIRST) as puller:
            while True:
                try:
                    await puller.assign(await client.queues(CHECK_MAX_TIME))
                    break
                except NoRoute:
                    await trio.sleep(0.5)
            while not (found := await puller.poll(timeout_ms=1_000)):
                pass
            return found


@scenario("5.5.0", timeout_s=360)
async def transactions_of_the_java_client_4_9_with_our_brokers(stage: Stage) -> None:
    """Producer and consumer of 4.9.8: committed, rolled back, asked for; our master is killed -9 under them."""
    try:
        old = attrs.evolve(stage, release=await java.fetch_client(OLD, stage.release, say=stage.say))
    except java.FetchFailed as failed:
        raise NotRun(f"no client {OLD}: {failed}") from None
    async with group_of_three(stage, "Shop", **FAST) as group:
        await _killed_under(old, group)


async def _killed_under(stage: Stage, group: GroupOfThree) -> None:
    """Kill the group's master while a producer of that release has transactions."""
    async with (
        java.receiver(stage.release, stage.here / "read", namesrv=[group.namesrv], topic="Shop", group="R") as receiver,
        java.transactor(stage.release, stage.here / "transact", namesrv=[group.namesrv], topic="Shop", plans=THREE,
                        count=300, interval_ms=30) as producer,
    ):
        await producer.wait_for("sent", lambda found: len(found) >= 60)
        await group.kill_master()
        sent = await producer.wait_for("sent", lambda found: len(found) == 300, timeout_s=180)
        await once_each(stage, receiver, committed(sent, THREE), "master killed", timeout_s=150)


@scenario("5.5.0", timeout_s=300)
async def transactions_of_the_go_client_with_our_brokers(stage: Stage) -> None:
    """RocketMQ's Go client 2.1.2: committed, rolled back, asked for; our master is killed -9 under it."""
    try:
        binary = await go.build(say=stage.say)
    except go.GoMissing as missing:
        raise NotRun(str(missing)) from None
    async with (
        group_of_three(stage, "Shop", **FAST) as group,
        java.receiver(stage.release, stage.here / "read", namesrv=[group.namesrv], topic="Shop", group="R") as receiver,
        go.transactor(binary, stage.here / "transact", namesrv=group.namesrv, topic="Shop", plans=THREE,
                      count=120) as producer,
    ):
        await producer.wait_for("sent", lambda found: len(found) >= 60)
        await group.kill_master()
        sent = await producer.wait_for("sent", lambda found: len(found) == 120, timeout_s=120)
        await once_each(stage, receiver, committed(sent, THREE), "the Go client's, master killed", timeout_s=120)
        stage.say(f"{len([one for one in sent if one['ok']])} of {len(sent)} halves were acknowledged, "
                  f"{len(producer.reports('checked'))} asked for")


@scenario("5.5.0", timeout_s=360)
async def java_transactions_across_a_failover_of_our_brokers(stage: Stage) -> None:
    """Our master is killed -9 under a Java producer of transactions: each commit is seen once, no half is lost."""
    async with group_of_three(stage, "Shop", **FAST) as group:
        await _killed_under(stage, group)
