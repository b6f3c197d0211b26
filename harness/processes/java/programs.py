"""Runs our small Java programs in place of RocketMQ's users.

A sender, a receiver, a poller, a popper, a program of everyday use, a route finder and an operator: they are
unmodified Java clients. Each reports in lines of JSON, which come out here as dictionaries. The head of each program
in ``src`` says what a line holds. Times are microseconds of the wall clock, which all processes share.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from attrs import evolve

from harness.processes.errors import StartFailed
from harness.processes.handle import running
from harness.processes.java.jars import Release
from harness.processes.java.jvm import JVM, command
from harness.processes.program import WAIT_S, Program, Report

CLIENT: Final = JVM(heap_mb=128)

Settings = dict[str, str | int]


def with_settings(jvm: JVM, values: Settings) -> JVM:
    """A program takes its settings as system properties."""
    return evolve(jvm, system={**jvm.system, **{key: str(value) for key, value in values.items()}})


@asynccontextmanager
async def _program(
    release: Release, directory: Path, main: str, values: Settings, jvm: JVM, ready: str,
) -> AsyncIterator[Program]:
    directory = directory.absolute()
    line = command(release, main, [], directory, with_settings(jvm, values))
    process = Program(main.lower(), directory, line, "", ready)
    async with running(process):
        yield process


@asynccontextmanager
async def sender(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, count: int = 0, interval_ms: int = 20,
    timeout_ms: int = 3_000, retries: int = 2, body_bytes: int = 64, group: str = "sender", trace: bool = False,
    jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``DefaultMQProducer`` sending numbered messages in a loop; events ``sent``.

    ``count`` 0: until it is killed; ``trace``: with the hook that sends traces.
    """
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "count": count, "interval_ms": interval_ms,
        "timeout_ms": timeout_ms, "retries": retries, "body_bytes": body_bytes, "group": group,
        "trace": str(trace).lower(),
    }
    async with _program(release, directory, "Send", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def receiver(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, group: str = "receiver",
    sql: str = "", ordered: bool = False, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``DefaultMQPushConsumer`` from the first offset on, of all or of what ``sql`` wants; events ``received``.

    ``ordered``: in the order of each queue, which it locks.
    """
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "group": group, "sql": sql, "ordered": str(ordered).lower()}
    async with _program(release, directory, "Receive", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def popper(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, group: str, tags: str = "*",
    invisible_ms: int = 60_000, refuse: int = 0, hold_ms: int = 0, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``DefaultMQPushConsumer`` that pops where the broker says so; events ``received``.

    ``refuse``: it refuses the first delivery of each number that divides by it.
    """
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "group": group, "name": directory.name, "tags": tags,
        "invisible_ms": invisible_ms, "refuse": refuse, "hold_ms": hold_ms}
    async with _program(release, directory, "Pop", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def poller(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, group: str = "poller",
    jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``DefaultLitePullConsumer`` from the last offset on; events ``received``."""
    values: Settings = {"namesrv": ";".join(namesrv), "topic": topic, "group": group}
    async with _program(release, directory, "Poll", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def filtering(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, filters: Sequence[str],
    jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``DefaultMQPullConsumer`` that pulls the first message of a topic with each of these; events ``pulled``."""
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic,
        "filters": " ".join(b64encode(each.encode()).decode() for each in filters)}
    async with _program(release, directory, "Filter", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def later(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """A producer of messages that come later, and their consumer.

    It takes commands; events ``sent``, ``received``, ``recalled``.
    """
    directory = directory.absolute()
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "rocketmq.client.rebalance.waitInterval": 1_000}
    line = [release.java, *with_settings(jvm, values).options(directory), "-cp", release.classpath, "Later"]
    process = Program("later", directory, line, "", '"started"')  # it ends when its input closes
    async with running(process):
        yield process


@asynccontextmanager
async def decoder(release: Release, directory: Path, *, jvm: JVM = CLIENT) -> AsyncIterator[Program]:
    """It reads bytes as RocketMQ's classes do. It takes lines, as the head of ``Decode.java`` says; events ``read``."""
    directory = directory.absolute()
    line = [release.java, *jvm.options(directory), "-cp", release.classpath, "Decode"]
    process = Program("decoder", directory, line, "", '"started"')  # it ends when its input closes
    async with running(process):
        yield process


@asynccontextmanager
async def transactor(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, plans: Sequence[str], count: int,
    group: str = "transactor", interval_ms: int = 20, local_ms: int = 0, immunity_s: int = 0, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``TransactionMQProducer`` whose transactions end as ``plans`` say; events ``sent``, ``checked``."""
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "plans": ";".join(plans), "count": count, "group": group,
        "interval_ms": interval_ms, "local_ms": local_ms, "immunity_s": immunity_s}
    async with _program(release, directory, "Transact", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def exercise(
    release: Release, directory: Path, *, namesrv: Sequence[str], rounds: int, interval_ms: int = 50,
    patience_s: int = 90, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """A producer and consumers of every kind, which judge themselves; events ``sent``, ``verdict``."""
    values: Settings = {
        "namesrv": ";".join(namesrv), "rounds": rounds, "interval_ms": interval_ms, "patience_s": patience_s}
    async with _program(release, directory, "Exercise", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def asker(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, count: int = 0, interval_ms: int = 20,
    ttl_ms: int = 3_000, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """``DefaultMQProducer.request`` and a consumer that replies; events ``answered`` and ``replied``.

    ``count`` 0: until it is killed.
    """
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "count": count, "interval_ms": interval_ms, "ttl_ms": ttl_ms}
    async with _program(release, directory, "Ask", values, jvm, '"started"') as program:
        yield program


@asynccontextmanager
async def router(
    release: Release, directory: Path, *, namesrv: Sequence[str], topic: str, interval_ms: int = 100,
    timeout_ms: int = 3_000, jvm: JVM = CLIENT,
) -> AsyncIterator[Program]:
    """A client that asks for the route of a topic every ``interval_ms``; events ``route``."""
    values: Settings = {
        "namesrv": ";".join(namesrv), "topic": topic, "interval_ms": interval_ms, "timeout_ms": timeout_ms,
    }
    async with _program(release, directory, "Route", values, jvm, '"route"') as program:
        yield program


async def operate(
    release: Release, directory: Path, *, namesrv: Sequence[str], broker: str, topic: str,
    controllers: Sequence[str] = (), replica: int = 1, cluster: str = "DefaultCluster", jvm: JVM = CLIENT,
) -> dict[str, Report]:
    """Every call of the Java admin API to name servers and controllers, once; what each came to, by its name.

    It elects ``replica`` as master of ``broker`` on the way, so do not use it on a group that must stay as it is.

    Raises:
        StartFailed: the program ended with an error of its own.
        trio.TooSlowError: it did not end.
    """
    values: Settings = {
        "namesrv": ";".join(namesrv), "broker": broker, "topic": topic, "cluster": cluster, "replica": replica,
    }
    if controllers:
        values["controllers"] = ";".join(controllers)
    async with _program(release, directory, "Operate", values, jvm, '"called"') as program:
        with trio.fail_after(WAIT_S):
            code = await program.wait()
        if code:
            raise StartFailed(f"{program.name} ended with exit code {code}\n{program.tail()}")
        return {report["call"]: report for report in program.reports("called")}
