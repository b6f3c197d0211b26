"""The broker beside the Java one, in one run: the same unmodified Java client puts the same load on both in turn.

    python -m benchmarks.broker                                   # everything; ours alone where Java is not found
    python -m benchmarks.broker --short                           # fewer and shorter rounds
    python -m benchmarks.broker --parts send,kill --rounds 3 --json benchmarks/results/broker.json

A cluster is three controllers, a name server and three brokers of one maker, as processes on the loopback interface
with their default flush mode. Both makers' clusters run at the same time and one is loaded at a time, round after
round, so what else the machine does meets both alike. Java's is warmed up until its compiler is done. Gaps are those
that this project's client sees on this project's cluster. Without Java there is no load, and only they are measured.
It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks import broker_figures as figures
from benchmarks import broker_popping as popping
from benchmarks import broker_waiting as waiting
from benchmarks.broker_figures import ROWS, Row
from benchmarks.processes import anonymous_mb, cpu_s
from broker.client import Client, ClientError, Message, MessageQueue, connect
from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.processes.java import JVM, FetchFailed, JavaMissing, Release
from harness.processes.java.load import Load, load
from harness.processes.java.servers import BROKER
from mqcluster.looking import until_settled
from remoting.bodies.namesrv import KVTable
from remoting.client import Client as Remoting
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError
from remoting.headers.topics import CreateTopicRequest

GROUP: Final = "broker-a"
QUEUES: Final = 8
REPLICAS: Final = 3
PATIENCE_S: Final = 180.0
MODES: Final[Mapping[str, Mapping[str, object]]] = {
    "all": {"allAckInSyncStateSet": True, "minInSyncReplicas": 2},
    "none": {"allAckInSyncStateSet": False, "minInSyncReplicas": 1},
    "waiting": {"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "timerWheelEnable": True,
                "transactionTimeOut": 1_000, "transactionCheckInterval": 6_000},
    "popping": {"allAckInSyncStateSet": True, "minInSyncReplicas": 2, "timerWheelEnable": True,
                "enablePropertyFilter": True},
}
"""Whether a send waits for every replica in the SyncStateSet (as in the demo), or for none, which is the default; the
first one again for what waits. A Java broker notes decisions 3 s after them, and asks no sooner."""
COMMON: Final[Mapping[str, object]] = {
    "totalReplicas": REPLICAS, "mappedFileSizeCommitLog": 256 << 20, "flushDiskType": "ASYNC_FLUSH",
    "diskMaxUsedSpaceRatio": 95,
}
JAVA_DEFAULTS: Final[Mapping[str, object]] = {
    "mappedFileSizeConsumeQueue": 6_000_000, "maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000}
"""Which the harness makes smaller for its scenarios, and measurements must not."""
JAVA_BROKER: Final = attrs.evolve(BROKER, heap_mb=1_024, heap_first_mb=512, quick_start=False)
JAVA_SERVER: Final = JVM(heap_mb=256, quick_start=False)


@attrs.define(eq=False)
class System:
    """The cluster of one maker."""

    name: str
    here: Path
    namesrv: Handle
    controllers: Sequence[Handle]
    brokers: list[Broker]
    remoting: Remoting
    settings: Mapping[str, object]
    release: Release | None

    @property
    def addresses(self) -> list[str]:
        return [each.address for each in self.controllers]

    async def settled(self, replicas: int = REPLICAS) -> Broker:
        """The master, once so many are in sync."""
        view = await until_settled(self.remoting, self.addresses, [GROUP], replicas, PATIENCE_S)
        address = view.groups[GROUP].master
        return next(broker for broker in self.brokers if broker.announced == address)

    async def create(self, topic: str) -> None:
        """On the master, and known to the name server."""
        header = CreateTopicRequest(topic, QUEUES, QUEUES, 6, "TBW102")
        while True:
            master = await self.settled()
            try:
                answer = await self.remoting.call(
                    master.address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
            except RemotingError:
                continue
            if answer.code == ResponseCode.SUCCESS:
                break
            await trio.sleep(0.1)
        async with connect([self.namesrv.address]) as client:
            await _queue(client, topic)

    async def runtime(self, broker: Broker) -> dict[str, str]:
        """Answer to code 28; empty while it does not answer."""
        try:
            answer = await self.remoting.call(broker.address, request(RequestCode.GET_BROKER_RUNTIME_INFO))
            return dict(KVTable.from_json(answer.body).table)
        except RemotingError:
            return {}

    @asynccontextmanager
    async def another(self, number: int) -> AsyncIterator[Broker]:
        """One more replica, empty and not started; its directory goes when it ends."""
        directory = self.here / f"more{number}"
        async with self.replica(directory) as broker:
            yield broker
        shutil.rmtree(directory, ignore_errors=True)

    @asynccontextmanager
    async def replica(self, directory: Path) -> AsyncIterator[Broker]:
        if self.release is None:
            async with ours.broker(directory, GROUP, namesrv=[self.namesrv.address], controllers=self.addresses,
                                   extra=self.settings, start=False) as broker:
                yield broker
        else:
            extra = {key: value for key, value in {**self.settings, **JAVA_DEFAULTS}.items()
                     if isinstance(value, str | int | bool)}
            async with java.broker(self.release, directory, group=GROUP, namesrv=[self.namesrv.address],
                                   controllers=self.addresses, extra=extra, jvm=JAVA_BROKER, start=False) as broker:
                yield broker

    def cpu_s(self) -> float:
        """Of all its brokers that run, so far."""
        return sum(cpu_s(each.pid) for each in self.brokers if each.running)


@asynccontextmanager
async def cluster(name: str, here: Path, mode: str, release: Release | None) -> AsyncIterator[System]:
    """All up, all replicas in sync; ``release`` None: ours."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        remoting = await enter(open_client())
        if release is None:
            namesrv = await enter(ours.namesrv(here / "namesrv"))
            controllers = await enter(ours.controllers(here / "controllers"))
        else:
            namesrv = await enter(java.namesrv(release, here / "namesrv", jvm=JAVA_SERVER))
            controllers = await enter(java.controllers(release, here / "controllers", jvm=JAVA_SERVER))
        system = System(name, here, namesrv, controllers, [], remoting, {**COMMON, **MODES[mode]}, release)
        for number in range(REPLICAS):
            system.brokers.append(await enter(system.replica(here / f"b{number}")))
        await start_all(system.brokers)
        await system.settled()
        yield system


@asynccontextmanager
async def clusters(run: Run, mode: str) -> AsyncIterator[list[System]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-broker-", dir=run.directory)))
        systems = [await stack.enter_async_context(cluster("ours", folder / "ours", mode, None))]
        if run.release is not None:
            systems.append(await stack.enter_async_context(cluster("java", folder / "java", mode, run.release)))
        yield systems


@attrs.define(eq=False)
class Run:
    """One run of the benchmark: what was asked for, and what was found."""

    options: argparse.Namespace
    release: Release | None
    load: Load | None
    results: dict[str, Any]

    @property
    def directory(self) -> str | None:
        directory: str | None = self.options.directory
        return directory

    def note(self, row: str, system: str, found: Mapping[str, Any]) -> None:
        self.results["rounds"].setdefault(row, {}).setdefault(system, []).append(dict(found))
        print(f"{row:<16} {system:<5} {json.dumps(found)}", flush=True)
        self.save()

    def save(self) -> None:
        """After each figure: a run that is cut off has what it has found."""
        if self.options.json:
            self.options.json.write_text(json.dumps(self.results, indent=1) + "\n")


# --- load ------------------------------------------------------------------------------------------------------------


async def loaded(run: Run) -> None:
    """Rows with the Java client, one mode after the other, both systems in turn."""
    if run.load is None:
        return
    for mode in MODES:
        rows = [ROWS[name] for name in run.options.rows if ROWS[name].mode == mode and "send" in run.options.parts]
        others = [each for each in LOADED if mode == "none" and each in run.options.parts]
        if not rows and not others:
            continue
        async with clusters(run, mode) as systems:
            for system in systems:
                await system.create("load")
                await warm(run, system)
            for number in range(run.options.rounds):
                for row in rows:
                    for system in systems if number % 2 == 0 else reversed(systems):
                        run.note(row.name, system.name, await send(run, system, row))
            for part in others:
                await LOADED[part](run, systems)


async def warm(run: Run, system: System) -> None:
    """Until the compilers of both sides have seen every kind of request, of the sizes that are measured."""
    assert run.load is not None
    seconds = run.options.warm_s / 4
    for threads, batch, size in ((32, 1, 128), (8, 32, 128), (32, 1, 1_024), (1, 1, 128)):
        await run.load.ask(f"send {system.namesrv.address} load {threads} {batch} {size} {seconds} 0")


async def send(run: Run, system: System, row: Row) -> dict[str, Any]:
    """One round: first so short a time that nothing is measured, then the measured one."""
    assert run.load is not None
    line = f"send {system.namesrv.address} load {row.threads} {row.batch} {row.body_bytes}"
    await run.load.ask(f"{line} {run.options.seconds / 8} 0")
    before, client = system.cpu_s(), cpu_s(run.load.pid)
    found = await run.load.ask(f"{line} {run.options.seconds} 0")
    count = max(1, found["messages"])
    return {key: _rounded(found[key]) for key in ("per_second", "p50_us", "p99_us", "max_us", "failed")} | {
        "cpu_us": _rounded((system.cpu_s() - before) / count * 1e6),
        "client_cpu_us": _rounded((cpu_s(run.load.pid) - client) / count * 1e6)}


async def consume(run: Run, systems: Sequence[System]) -> None:
    """Messages of 128 B that lie there, read from the first one on by the Java push consumer with its defaults."""
    assert run.load is not None
    count = run.options.consumed
    for system in systems:
        await system.create("consumed")
        await run.load.ask(f"send {system.namesrv.address} consumed 8 32 128 {PATIENCE_S} {count}")
    for number in range(run.options.consume_rounds + 1):
        for system in systems:
            before = system.cpu_s()
            found = await run.load.ask(f"consume {system.namesrv.address} consumed reader-{number} {count} 60")
            if number:  # the first one warms up
                run.note("consume", system.name, {
                    "per_second": _rounded(found["per_second"]), "failed": found["failed"],
                    "cpu_us": _rounded((system.cpu_s() - before) / max(1, found["messages"]) * 1e6)})


async def memory(run: Run, systems: Sequence[System]) -> None:
    """Growth of a master's memory over so many messages of 128 B; files that it maps do not count."""
    assert run.load is not None
    for system in systems:
        master = await system.settled()
        before = anonymous_mb(master.pid)
        found = await run.load.ask(f"send {system.namesrv.address} load 8 32 128 {PATIENCE_S} {run.options.stored}")
        run.note("memory", system.name, {
            "mb_per_million": _rounded((anonymous_mb(master.pid) - before) / found["messages"] * 1e6),
            "resident_mb": _rounded(anonymous_mb(master.pid))})


async def waited(run: Run) -> None:
    """Rows of what waits, and of POP, on clusters of their own."""
    for mode, parts in (("waiting", waiting.WAITING), ("popping", popping.POPPING)):
        wanted = [part for part in parts if part in run.options.parts]
        if run.load is None or not wanted:
            continue
        async with clusters(run, mode) as systems:
            for system in systems:
                await system.create("load")
                await warm(run, system)
            for part in wanted:
                await parts[part](run, systems)


async def catch_up(run: Run) -> None:
    """Empty replicas beside logs of their own, each of bodies of one size, which alone says what a copy costs."""
    if run.load is None:
        return
    for row, body_bytes in figures.CATCH_UPS.items():
        async with clusters(run, "none") as systems:
            for system in systems:
                await system.create("load")
                master = await system.settled()
                while int((await system.runtime(master)).get("commitLogMaxOffset", 0)) < run.options.megabytes << 20:
                    await run.load.ask(f"send {system.namesrv.address} load 8 64 {body_bytes} 3 0")
            await trio.to_thread.run_sync(os.sync)
            for number in range(run.options.catch_up_rounds + 1):
                for system in systems:
                    found = await copied(system, number)
                    if number:  # the first one warms up
                        run.note(row, system.name, found)


async def copied(system: System, number: int) -> dict[str, Any]:
    master = await system.settled()
    end = int((await system.runtime(master))["commitLogMaxOffset"])
    began = await _behind(system, master)
    async with system.another(number) as slave:
        await slave.launch()
        first: tuple[float, int] | None = None
        done = level = 0.0
        cpu = 0.0
        with trio.fail_after(PATIENCE_S):
            while not level:
                await trio.sleep(0.01)
                asked = time.perf_counter()
                table = await system.runtime(slave)
                now = (asked + time.perf_counter()) / 2
                at = int(table.get("commitLogMaxOffset", 0))
                if at <= 0:
                    continue
                if first is None:
                    first, cpu = (now, at), system.cpu_s() + cpu_s(slave.pid)
                if at >= end and not done:
                    done = now
                    cpu = system.cpu_s() + cpu_s(slave.pid) - cpu
                if done and int(table.get("dispatchBehindBytes", 0)) <= began:
                    level = now
        assert first is not None
        copied_bytes = end - first[1]
        return {"mb_per_second": _rounded(copied_bytes / 1e6 / max(done - first[0], 1e-3)),
                "megabytes": round(copied_bytes / 1e6), "level_s": _rounded(level - done),
                "cpu_ms_per_mb": _rounded(cpu * 1e3 / max(1, copied_bytes / 1e6))}


async def _behind(system: System, master: Broker) -> int:
    """What a broker whose queues are level is behind: nothing, but for how it counts."""
    return int((await system.runtime(master)).get("dispatchBehindBytes", 0))


LOADED: Final[Mapping[str, Callable[[Run, Sequence[System]], Awaitable[None]]]] = {
    "consume": consume, "memory": memory}


# --- gaps ------------------------------------------------------------------------------------------------------------


async def gaps(run: Run) -> None:
    """Masters of our cluster are killed, and made to stop, under a producer of ours that sends all the time."""
    for mode in MODES:
        wanted = [part for part in ("kill", "switch")
                  if part in run.options.parts and f"{part}, {mode}" in figures.GAPS]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="bench-broker-", dir=run.directory) as folder:
            async with cluster("ours", Path(folder), mode, None) as system:
                await system.create("gaps")
                for part in wanted:
                    await _gaps(run, system, part, f"{part}, {mode}")


async def _gaps(run: Run, system: System, part: str, row: str) -> None:
    acks: list[float] = []
    async with connect([system.namesrv.address]) as client, trio.open_nursery() as nursery:
        nursery.start_soon(send_all_the_time, client, await _queue(client, "gaps"), acks)
        for _ in range(run.options.kills):
            master = await system.settled()
            await trio.sleep(1)
            began = time.perf_counter()
            if part == "kill":
                await master.kill()
            else:
                await master.stop()
            with trio.fail_after(PATIENCE_S):
                while acks[-1] < began + 1:  # noqa: ASYNC110  # a figure each second is worth no event
                    await trio.sleep(0.02)
            run.note(row, system.name, {"gap_ms": _rounded(figures.longest_gap(acks, began - 0.1) * 1e3)})
            await system.settled(2)
            await master.start()
        nursery.cancel_scope.cancel()


async def send_all_the_time(
    client: Client, queue: MessageQueue, acks: list[float], clock: Callable[[], float] = time.perf_counter,
) -> None:
    """``acks`` gets when each message was acknowledged, by ``clock``."""
    while True:
        try:
            await client.send(Message(queue.topic, b"." * 128), queue=queue, timeout_ms=10_000)
        except ClientError as error:
            print(f"a send failed: {error}", flush=True)
        else:
            acks.append(clock())
        await trio.sleep(0.001)


async def _queue(client: Client, topic: str) -> MessageQueue:
    """The first of the topic's, once its route is known."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return (await client.queues(topic))[0]
            except ClientError:
                await trio.sleep(0.1)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


# --- the command -----------------------------------------------------------------------------------------------------


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    results: dict[str, Any] = {
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()},
        "settings": {key: value for key, value in vars(options).items() if key not in ("json", "directory")},
        "rounds": {}}
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        release, client = None, None
        try:
            release = await java.fetch(java.CURRENT, say=print)
        except (JavaMissing, FetchFailed) as missing:
            results["not run"] = str(missing)
            print(f"without Java there is no load: {missing}")
        else:
            here = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-load-", dir=options.directory)))
            client = await stack.enter_async_context(load(release, here))
        run = Run(options, release if "java" in options.systems else None, client, results)
        if set(options.parts) & {"send", *LOADED}:
            await loaded(run)
        await waited(run)
        if "catch-up" in options.parts:
            await catch_up(run)
        await gaps(run)
        results["took_s"] = round(time.monotonic() - began)
        run.save()
    return results


PARTS: Final = ("send", *LOADED, *waiting.WAITING, *popping.POPPING, "catch-up", "kill", "switch")
SHORT: Final = {"rounds": 2, "seconds": 2.0, "warm_s": 12.0, "kills": 5, "consume_rounds": 1, "catch_up_rounds": 1,
                "megabytes": 512, "waiting_rounds": 1, "burst": 20_000, "pending": 20_000, "idle_s": 10.0,
                "popping_rounds": 1, "popped": 20_000, "asked": 500, "unacked": 50_000}


def parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    made = argparse.ArgumentParser(
        "python -m benchmarks.broker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--short", action="store_true", help=", ".join(f"{key}={value}" for key, value in SHORT.items()))
    made.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    made.add_argument("--rows", type=lambda text: text.split(","), default=list(ROWS), help=", ".join(ROWS))
    made.add_argument("--systems", type=lambda text: text.split(","), default=["ours", "java"], help="ours, java")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=4.0, help="of one round of one row")
    made.add_argument("--warm-s", type=float, default=24.0, help="for each cluster")
    made.add_argument("--kills", type=int, default=20, help="in each mode, and as many planned switches")
    made.add_argument("--consume-rounds", type=int, default=3)
    made.add_argument("--consumed", type=int, default=200_000, help="messages")
    made.add_argument("--stored", type=int, default=1_000_000, help="messages over which memory is looked at")
    made.add_argument("--megabytes", type=int, default=1_024, help="of the log that an empty replica copies")
    made.add_argument("--catch-up-rounds", type=int, default=3)
    made.add_argument("--waiting-rounds", type=int, default=3, help="of what waits")
    made.add_argument("--burst", type=int, default=100_000, help="timers due in one second")
    made.add_argument("--stored-per-second", type=int, default=1_500, help="timers that surely are, before any is due")
    made.add_argument("--pending", type=int, default=100_000, help="timers that wait while nothing is due")
    made.add_argument("--popping-rounds", type=int, default=3, help="of POP, filters and requests")
    made.add_argument("--popped", type=int, default=100_000, help="messages of a round of these")
    made.add_argument("--asked", type=int, default=3_000, help="requests of a round")
    made.add_argument("--unacked", type=int, default=1_000_000, help="messages that are popped and not acknowledged")
    made.add_argument("--idle-s", type=float, default=60.0, help="for which that is looked at")
    made.add_argument("--directory", help="where the servers' disks are")
    made.add_argument("--json", type=Path, help="write the figures here, as they are found")
    return made


def main() -> int:
    first = parser().parse_known_args()[0]
    made = parser()
    if first.short:
        made.set_defaults(**SHORT)
    options = made.parse_args()
    for name, known in (("parts", PARTS), ("rows", ROWS)):
        if unknown := set(getattr(options, name)) - set(known):
            made.error(f"--{name}: there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    results = trio.run(measure, options)
    print()
    print("\n".join(figures.page(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
