"""What waits, in the broker's benchmark: timers that come due, transactions, and both when a master is killed.

    python -m benchmarks.broker --short --parts due,burst,transactions,first,idle
    python -m benchmarks.broker --parts due,burst,transactions,first,idle --burst 1000000 --pending 10000000

Timers are stored beforehand by the Java client. How late one was is what its broker noted as it delivered it, less when
it was due, so no consumer adds to it. Both makers deliver within the second that follows the time. It measures; it
judges nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count as numbers
from typing import TYPE_CHECKING, Any, Final

import trio

from benchmarks.measure import quantile
from benchmarks.processes import anonymous_mb
from broker.client import Decision, Message, Received, Start, connect

if TYPE_CHECKING:
    from benchmarks.broker import Run, System

RATES: Final = (1_000, 10_000)
"""Timers due in a second."""
DELIVERED_PER_SECOND: Final = 2_000
"""So many of a burst surely come in a second."""
MARGIN_S: Final = 5.0
THREADS: Final = 32
BODY_BYTES: Final = 128
DUE_MS: Final = "TIMER_DELIVER_MS"
HALVES: Final = 5
FIRST_EACH_MS: Final = 50
"""Between two timers that are due while a master is killed."""
FIRST_S: Final = 40
_DAY_MS: Final = 86_400_000
_names = numbers()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def store(run: Run, system: System, topic: str, count: int, first_ms: int, per_second: float) -> int:
    """So many timers, the first one due then; how many were stored."""
    assert run.load is not None
    found = await run.load.ask(f"send {system.namesrv.address} {topic} {THREADS} 1 {BODY_BYTES} 100000 {count} "
                               f"{first_ms} {per_second}", timeout_s=100_000)
    return int(found["messages"])


async def delivered(system: System, topic: str, count: int, patience_s: float) -> list[Received]:
    """All that came, once so many are there or the patience is over."""
    found: dict[tuple[int, int], Received] = {}
    async with connect([system.namesrv.address]) as client:
        with trio.move_on_after(patience_s):
            async with client.pull(f"late-{next(_names)}", start=Start.FIRST) as puller:
                await puller.assign(await client.queues(topic))
                while len(found) < count:
                    for message in await puller.poll(timeout_ms=1_000, most=1_000):
                        found[message.queue.queue_id, message.queue_offset] = message
    return list(found.values())


def late_ms(came: Sequence[Received]) -> list[float]:
    return sorted(float(each.store_time_ms - int(each.properties[DUE_MS])) for each in came)


async def new_topic(system: System, what: str) -> str:
    topic = f"{what}-{next(_names)}"
    await system.create(topic)
    return topic


async def until_ms(moment_ms: int) -> None:
    await trio.sleep(max(0, moment_ms - now_ms()) / 1e3)


async def due(run: Run, systems: Sequence[System]) -> None:
    """Timers that come due at a steady rate, one system at a time."""
    for _ in range(run.options.waiting_rounds):
        for rate in RATES:
            for system in systems:
                topic = await new_topic(system, "due")
                count = int(rate * run.options.seconds)
                first_ms = now_ms() + int((MARGIN_S + count / run.options.stored_per_second) * 1e3)
                stored = await store(run, system, topic, count, first_ms, rate)
                in_time = now_ms() < first_ms
                await until_ms(first_ms + int(run.options.seconds * 1e3))
                came = await delivered(system, topic, stored, 60)
                late = late_ms(came)
                run.note(f"due, {rate}", system.name, {
                    "p50_ms": quantile(late, 0.5), "p99_ms": quantile(late, 0.99), "max_ms": late[-1],
                    "missing": stored - len(came), "stored_in_time": in_time})


async def burst(run: Run, systems: Sequence[System]) -> None:
    """Many timers that are all due in one second, while the Java producer sends on."""
    assert run.load is not None
    for _ in range(run.options.waiting_rounds):
        for system in systems:
            topic, count = await new_topic(system, "burst"), run.options.burst
            first_ms = now_ms() + int((MARGIN_S + run.options.seconds + count / run.options.stored_per_second) * 1e3)
            stored = await store(run, system, topic, count, first_ms, count)
            line = f"send {system.namesrv.address} load 8 1 {BODY_BYTES}"
            before = await run.load.ask(f"{line} {run.options.seconds} 0")
            await until_ms(first_ms)
            during = await run.load.ask(f"{line} {run.options.seconds} 0")
            late = late_ms(await delivered(system, topic, stored, 120 + count / DELIVERED_PER_SECOND))
            run.note("burst", system.name, {
                "p99_us_before": before["p99_us"], "p99_us": during["p99_us"],
                "times": round(during["p99_us"] / max(1, before["p99_us"]), 2), "last_ms": late[-1],
                "missing": stored - len(late), "failed": during["failed"]})


async def transactions(run: Run, systems: Sequence[System]) -> None:
    """Halves that the Java producer commits at once, one after the other in each thread."""
    assert run.load is not None
    for number in range(run.options.waiting_rounds + 1):
        for system in systems:
            before = system.cpu_s()
            found = await run.load.ask(
                f"transact {system.namesrv.address} load {THREADS} 1 {BODY_BYTES} {run.options.seconds} 0")
            each_us = (system.cpu_s() - before) / max(1.0, found["per_second"] * run.options.seconds) * 1e6
            if number:  # the first one warms up
                run.note("transactions", system.name, {
                    key: float(f"{value:.4g}") for key, value in {**found, "cpu_us": each_us}.items()
                    if key in ("per_second", "p50_us", "p99_us", "failed", "cpu_us")})


async def first(run: Run, systems: Sequence[System]) -> None:
    """A master is killed with -9: how long until the next one delivers a timer, and asks for a half."""
    for system in systems:
        master = await system.settled()
        topic = await new_topic(system, "first")
        first_ms = now_ms() + 8_000
        stored = await store(run, system, topic, FIRST_S * 1_000 // FIRST_EACH_MS, first_ms, 1_000 / FIRST_EACH_MS)
        asked_ms: list[int] = []

        async def check(_: Received, asked_ms: list[int] = asked_ms) -> Decision:
            asked_ms.append(now_ms())
            return Decision.COMMIT

        async with connect([system.namesrv.address], producer_group=topic) as client:
            async with client.transactions(check, topics=[topic]) as halves:
                await until_ms(first_ms + 3_000)
                for _ in range(HALVES):
                    async with halves.begin(Message(topic, b"half")) as half:
                        half.leave()
                killed_ms = now_ms()
                await master.kill()
                await until_ms(first_ms + FIRST_S * 1_000)
                with trio.move_on_after(60):
                    while not asked_ms:  # noqa: ASYNC110  # a figure each minute is worth no event
                        await trio.sleep(0.01)
                asked = asked_ms[0] - killed_ms if asked_ms else None
        came = [each for each in await delivered(system, topic, stored + HALVES, 60) if DUE_MS in each.properties]
        run.note("first", system.name, {
            "timer_ms": min((each.store_time_ms for each in came if each.store_time_ms >= killed_ms),
                            default=killed_ms) - killed_ms,
            "check_ms": asked, "again": len(came) - len({each.message_id for each in came}),
            "missing": stored - len({each.message_id for each in came})})
        await master.start()
        await system.settled()


async def idle(run: Run, systems: Sequence[System]) -> None:
    """What the brokers take of a core while many timers wait that are due another day, and of memory for them."""
    for system in systems:
        master = await system.settled()
        before_mb, count = anonymous_mb(master.pid), run.options.pending
        stored = await store(run, system, await new_topic(system, "idle"), count, now_ms() + _DAY_MS,
                             max(1, count / 86_400))
        await trio.sleep(10)
        before_s = system.cpu_s()
        await trio.sleep(run.options.idle_s)
        run.note("idle", system.name, {
            "percent": round((system.cpu_s() - before_s) / len(system.brokers) / run.options.idle_s * 100, 2),
            "mb": round(anonymous_mb(master.pid) - before_mb, 1), "stored": stored})


WAITING: Final[Mapping[str, Callable[[Run, Sequence[System]], Awaitable[None]]]] = {
    "due": due, "burst": burst, "transactions": transactions, "first": first, "idle": idle}


def rows(rounds: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Of the table: what was measured, the figure, and in words."""
    said = [(f"due, {rate}", key, f"timers due at {rate:,} a second: lateness, {name}, ms{aim}")
            for rate in RATES for key, name, aim in (("p50_ms", "p50", ""), ("p99_ms", "p99", " (ratio ≤ 2)"))]
    said += [
        ("burst", "p99_us_before", "sends, 8 threads, p99, µs"),
        ("burst", "p99_us", "the same while many timers come due in one second"),
        ("burst", "times", "the second by the first (≤ 2)"),
        ("burst", "last_ms", "the last of those timers, ms behind its time"),
        ("transactions", "per_second", "transactions a second, 32 threads (ratio ≥ 0.5)"),
        ("transactions", "p50_us", "the same, p50 of a send with its local transaction, µs"),
        ("transactions", "cpu_us", "the same, CPU of the brokers for each, µs"),
        ("first", "timer_ms", "master killed with -9: until the first timer that was due, ms"),
        ("first", "check_ms", "the same, until the first check of a half, ms (transactionCheckInterval=6000)"),
        ("idle", "percent", "a broker in which many timers wait: percent of a core (≤ 1)"),
        ("idle", "mb", "its memory for them, MB (≤ 100 for ten million)"),
    ]
    return [row for row in said if row[0] in rounds]
