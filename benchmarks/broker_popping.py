"""POP, filters and request-reply, in the broker's benchmark: the same Java client on both makers' clusters in turn.

    python -m benchmarks.broker --short --parts popping,filtered,asked,first-pop,unacked

A pop takes up to 32 messages, and acknowledges each by a request of its own before the next one. A filtered pull is
that of the Java push consumer, whose broker evaluates SQL92; its rate is that of the messages that are looked at. It
measures; it judges nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count as numbers
from typing import TYPE_CHECKING, Any, Final

import trio

from benchmarks.processes import anonymous_mb, cpu_s
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError
from remoting.headers.popping import PopMessageRequest

if TYPE_CHECKING:
    from benchmarks.broker import Run, System

CONSUMERS: Final = (1, 32)
SHARES: Final = (1, 50)
"""Percent of the messages that a filter wants."""
PATIENCE_S: Final = 180
_HOUR_MS: Final = 3_600_000
_names = numbers()


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


async def filled(run: Run, system: System, what: str, count: int, name: str = "") -> str:
    """A topic with so many messages of 128 bytes; with ``name`` they have a property, 0 to 99 in turn."""
    assert run.load is not None
    topic = f"{what}-{next(_names)}"
    await system.create(topic)
    batch = 1 if name else 32
    await run.load.ask(f"send {system.namesrv.address} {topic} {32 if name else 8} {batch} 128 {PATIENCE_S} {count} "
                       f"{name}".strip())
    return topic


async def popping(run: Run, systems: Sequence[System]) -> None:
    """Receive and acknowledge, with one consumer and with many."""
    assert run.load is not None
    for number in range(run.options.popping_rounds + 1):
        for consumers in CONSUMERS:
            for system in systems:
                count = run.options.popped
                topic = await filled(run, system, "popped", count)
                master = await system.settled()
                before = system.cpu_s()
                found = await run.load.ask(
                    f"pop {master.address} {topic} g{topic} {consumers} {count} {PATIENCE_S} 60000 true "
                    f"{master.group}")
                if number:  # the first one warms up
                    run.note(f"popping, {consumers}", system.name, {
                        **{key: rounded(found[key]) for key in ("per_second", "p50_us", "p99_us", "failed")},
                        "cpu_us": rounded((system.cpu_s() - before) / max(1, found["messages"]) * 1e6)})


async def filtered(run: Run, systems: Sequence[System]) -> None:
    """The Java push consumer with a filter that wants some of the messages."""
    assert run.load is not None
    for system in systems:
        topic = await filled(run, system, "filtered", run.options.popped, "p")
        for number in range(run.options.popping_rounds + 1):
            for share in SHARES:
                wanted = run.options.popped * share // 100
                before = system.cpu_s()
                found = await run.load.ask(f"consume {system.namesrv.address} {topic} {topic}-{share}-{number} "
                                           f"{wanted} {PATIENCE_S} p<{share}")
                if number:
                    run.note(f"filtered, {share}", system.name, {
                        "per_second": rounded(found["per_second"] * 100 / share), "failed": found["failed"],
                        "cpu_us": rounded((system.cpu_s() - before) / max(1, run.options.popped) * 1e6)})


async def asked(run: Run, systems: Sequence[System]) -> None:
    """Requests, one after the other, that a Java consumer answers."""
    assert run.load is not None
    for system in systems:
        await system.create("asked")
    for number in range(run.options.popping_rounds + 1):
        for system in systems:
            found = await run.load.ask(f"ask {system.namesrv.address} asked {run.options.asked}")
            if number:
                run.note("asked", system.name, {
                    key: rounded(found[key]) for key in ("per_second", "p50_us", "p99_us", "failed")})


async def first_pop(run: Run, systems: Sequence[System]) -> None:
    """A master is killed with -9: how long until another broker gives a message by POP."""
    for system in systems:
        topic = await filled(run, system, "first", 3_200)
        master = await system.settled()
        others = [broker for broker in system.brokers if broker is not master]
        await trio.sleep(15)  # a Java slave copies topics and groups every ten seconds
        began = time.perf_counter()
        await master.kill()
        with trio.fail_after(PATIENCE_S):
            while not any([await _gives(system, broker.address, topic) for broker in others]):  # noqa: ASYNC110
                await trio.sleep(0.005)
        run.note("first-pop", system.name, {"pop_ms": rounded((time.perf_counter() - began) * 1e3)})
        await master.start()
        await system.settled()


async def _gives(system: System, address: str, topic: str) -> bool:
    header = PopMessageRequest("first", topic, -1, 1, 60_000, 0, time.time_ns() // 1_000_000)
    try:
        answer = await system.remoting.call(address, request(RequestCode.POP_MESSAGE, header), 1_000)
    except RemotingError:
        return False
    return answer.code == ResponseCode.SUCCESS


async def unacked(run: Run, systems: Sequence[System]) -> None:
    """Our master's memory for messages that are out and that nobody acknowledges, and what it takes of a core then."""
    assert run.load is not None
    system = systems[0]
    count = run.options.unacked
    topic = await filled(run, system, "unacked", count)
    master = await system.settled()
    before_mb = anonymous_mb(master.pid)
    found = await run.load.ask(f"pop {master.address} {topic} unacked 32 {count} 1000 {_HOUR_MS} false {master.group}",
                               timeout_s=1_100)
    await trio.sleep(10)
    mb, before_s = anonymous_mb(master.pid) - before_mb, cpu_s(master.pid)
    await trio.sleep(run.options.idle_s)
    run.note("unacked", system.name, {
        "mb": round(mb, 1), "popped": found["messages"],
        "percent": round((cpu_s(master.pid) - before_s) / run.options.idle_s * 100, 2)})


POPPING: Final[Mapping[str, Callable[[Run, Sequence[System]], Awaitable[None]]]] = {
    "popping": popping, "filtered": filtered, "asked": asked, "first-pop": first_pop, "unacked": unacked}


def rows(rounds: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Of the table: what was measured, the figure, and in words."""
    said = []
    for consumers in CONSUMERS:
        who = f"{consumers} consumer{'s' * (consumers > 1)}"
        said += [
            (f"popping, {consumers}", "per_second", f"popped and acknowledged, {who}, messages/s (ratio ≥ 0.5)"),
            (f"popping, {consumers}", "p50_us", "the same, p50 of a pop of 32 with its acknowledgements, µs"),
            (f"popping, {consumers}", "cpu_us", "the same, CPU of the brokers for each message, µs")]
    for share in SHARES:
        said += [
            (f"filtered, {share}", "per_second", f"a filter that wants {share} %, messages looked at/s (ratio ≥ 0.5)"),
            (f"filtered, {share}", "cpu_us", "the same, CPU of the brokers for each message, µs")]
    said += [
        ("asked", "p50_us", "a request until its answer, p50, µs (ratio ≤ 2)"),
        ("asked", "p99_us", "the same, p99"),
        ("first-pop", "pop_ms", "master killed with -9: until another broker gives a message by POP, ms"),
        ("unacked", "mb", "memory for messages that are out, MB (≤ 300 for a million)"),
        ("unacked", "percent", "the same: percent of a core while nothing happens (≤ 1)"),
    ]
    return [row for row in said if row[0] in rounds]
