"""Unmodified Java push consumers that filter by properties, with our brokers.

It starts our servers and Java programs, sends messages with properties, and compares what each consumer got.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import trio

from broker.client import Client, ClientError, Message, connect
from harness.processes import java, ours
from harness.processes.errors import StartFailed
from harness.processes.java.settings import Value
from harness.processes.program import Program, Report
from harness.scenarios.interop.clients import group_of_three
from harness.scenarios.interop.popped import RawPopper, make
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.vectors import FALSE, ILLEGAL, PROPERTIES, TRUE, UNKNOWN, UNREADABLE, each
from harness.scenarios.interop.watch import create_topic
from remoting.client import open_client

TOPIC = "Prices"
COUNT = 20
FOUND, NONE = "FOUND", "NO_MATCHED_MSG"
ILLEGALS = {"java": FOUND, "ours": "CODE 23"}
"""Java's broker returns all messages for an illegal filter; ours refuses the pull."""
EMPTY = {"e = ''": NONE, "e IS NULL": FOUND}
"""A property without a value is dropped when it is read."""
COPIED_S = 4
"""Replicas copy tables every three seconds."""
GOES_ON_S = 35
"""Longest time from a kill of the master until a filtered group gets a message: Java's clients ask for routes every
30 s."""


async def send(client: Client, numbers: range) -> None:
    """Send each message until it is acknowledged; its property is its last digit."""
    for number in numbers:
        while True:
            try:
                await client.send(Message(TOPIC, b"%d x" % number, properties={"price": str(number % 10)}))
                break
            except ClientError:
                await trio.sleep(0.2)


async def received(stage: Stage, program: Program, digits: set[int], count: int, what: str) -> None:
    """Wait for all messages up to ``count`` with these digits; others must not come, repeated ones may."""
    wanted = {number for number in range(count) if number % 10 in digits}
    found = await program.wait_for(
        "received", lambda found: wanted <= {one["sequence"] for one in found}, timeout_s=90)
    got = {one["sequence"] for one in found}
    expect(got == wanted, f"{what}: wanted {sorted(wanted)}, got {sorted(got)}")
    stage.say(f"{what}: {len(wanted)} came, of {count}")


async def refused(stage: Stage, namesrv: str, sql: str, words: str) -> None:
    """Check that a Java consumer with this filter does not start, and says so."""
    try:
        async with java.receiver(stage.release, stage.here / "refused", namesrv=[namesrv], topic=TOPIC,
                                 group="refused", sql=sql):
            pass
    except StartFailed as failed:
        expect(words in str(failed), f"a consumer with filter {sql!r} is refused otherwise: {failed}")
    else:
        expect(False, f"a consumer with filter {sql!r} starts")


@scenario("5.5.0", timeout_s=120)
async def java_consumers_without_enable_property_filter_are_refused(stage: Stage) -> None:
    """`enablePropertyFilter=false`: no Java consumer starts that filters by properties; one without a filter does."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "ours", namesrv=[namesrv.address]),
        connect([namesrv.address]) as client,
    ):
        await create_topic(stage, namesrv.address, TOPIC)
        await send(client, range(COUNT))
        for sql in ("price > 7", "price >"):  # Java asks for the key before it looks at the filter
            await refused(stage, namesrv.address, sql, "CODE: 1 ")
        async with java.receiver(stage.release, stage.here / "all", namesrv=[namesrv.address], topic=TOPIC,
                                 group="all") as everything:
            await received(stage, everything, set(range(10)), COUNT, "no filter")


def _many(count: int) -> Callable[[Sequence[Report]], bool]:
    return lambda found: len(found) == count


@scenario("5.5.0", timeout_s=300)
async def both_brokers_say_the_same_of_filters(stage: Stage) -> None:
    """A Java consumer pulls with 200 filters from a Java broker and from ours: the same of all that are filters."""
    matches = {text: said for texts, said in (
        (TRUE, FOUND), (FALSE, NONE), (UNKNOWN, NONE), (UNREADABLE, NONE)) for text in each(texts)} | EMPTY
    illegal = [text for text in each(ILLEGAL) if text]  # Java's client refuses ""
    key: dict[str, Value] = {"enablePropertyFilter": True}
    async with (
        java.namesrv(stage.release, stage.here / "namesrv") as namesrv,
        java.broker(stage.release, stage.here / "java", group="java", namesrv=[namesrv.address], extra=key) as theirs,
        ours.broker(stage.here / "ours", "ours", namesrv=[namesrv.address], extra=key) as mine,
        open_client() as client,
    ):
        for whose, broker in (("java", theirs), ("ours", mine)):
            wanted = matches | dict.fromkeys(illegal, ILLEGALS[whose])
            popper = RawPopper(client, broker.address, whose, whose.title())
            await make(popper)
            await popper.send("1", **PROPERTIES)
            async with java.filtering(stage.release, stage.here / f"filtering-{whose}", namesrv=[namesrv.address],
                                      topic=popper.topic, filters=list(wanted)) as program:
                reports = await program.wait_for("pulled", _many(len(wanted)), timeout_s=120)
            said = {report["filter"]: report["said"] for report in reports}
            wrong = {text: said[text] for text in wanted if said[text] != wanted[text]}
            expect(not wrong, f"{whose} says of filters: {wrong}")
            stage.say(f"{whose}: {len(said)} filters, {dict(Counter(said.values()))}")


@scenario("5.5.0", "5.3.3", timeout_s=300)
async def java_consumers_filter_across_a_failover_of_our_brokers(stage: Stage) -> None:
    """Two Java groups with SQL92 filters, and one whose filter is none; our master is killed -9 meanwhile."""
    async with (
        group_of_three(stage, TOPIC, enablePropertyFilter=True) as group,
        connect([group.namesrv]) as client,
    ):
        await send(client, range(COUNT))
        await refused(stage, group.namesrv, "price >", "CODE: 23")
        async with (
            java.receiver(stage.release, stage.here / "high", namesrv=[group.namesrv], topic=TOPIC, group="high",
                          sql="price > 7") as high,
            java.receiver(stage.release, stage.here / "low", namesrv=[group.namesrv], topic=TOPIC, group="low",
                          sql="price BETWEEN 0 AND 1") as low,
        ):
            await received(stage, high, {8, 9}, COUNT, "price > 7")
            await received(stage, low, {0, 1}, COUNT, "price BETWEEN 0 AND 1")
            await trio.sleep(COPIED_S)
            killed_us = time.time_ns() // 1_000
            await group.kill_master()
            await send(client, range(COUNT, 2 * COUNT))
            await received(stage, high, {8, 9}, 2 * COUNT, "price > 7, the master killed")
            await received(stage, low, {0, 1}, 2 * COUNT, "price BETWEEN 0 AND 1, the master killed")
            for name, program in (("high", high), ("low", low)):
                new_s = [(one["at_us"] - killed_us) / 1e6 for one in program.reports("received")
                         if one["sequence"] >= COUNT]
                stage.say(f"{name} goes on {min(new_s):.1f} s after the kill")
                expect(min(new_s) <= GOES_ON_S, f"{name} goes on {min(new_s):.1f} s after the kill")
