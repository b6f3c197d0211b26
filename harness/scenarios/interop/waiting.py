"""Timers, halves and popped messages that wait while the mastership goes from ours to Java's or back, or a store does.

It starts brokers of both kinds and unmodified Java clients, reads the checkpoints that slaves keep of timers, and kills
masters with -9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from broker.pop.requests import TakingConfig
from broker.timer.checkpoint import PATH as CHECKPOINT
from broker.timer.checkpoint import TimerCheckpoint
from broker.timer.metrics import PATH as METRICS
from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.java.settings import COMMITLOG_FILE_BYTES, Value
from harness.processes.program import Program, Report
from harness.scenarios.interop.ha import ALL_ACK, GROUP, mixed, seen, topic_everywhere
from harness.scenarios.interop.popped import AGAIN_S, Got, RawPopper
from harness.scenarios.interop.scenario import Lost, Stage, expect, scenario
from harness.scenarios.interop.transactions import committed
from harness.scenarios.interop.watch import create_topic
from remoting.client import open_client
from remoting.codes import ResponseCode

LATER, PAIRS, POPPED = "Later", "Pairs", "Popped"
WAITS: dict[str, Value] = {
    "timerWheelEnable": True, "mappedFileSizeTimerLog": 1 << 20, "recallMessageEnable": True,
    "transactionTimeOut": 1_000, "transactionCheckInterval": 6_000}
"""A Java broker records decisions after 3 s: a check before that would deliver twice."""
SIZES: dict[str, Value] = {
    "mappedFileSizeCommitLog": COMMITLOG_FILE_BYTES, "mappedFileSizeConsumeQueue": 20 * 3_000,
    "maxHashSlotNum": 10_000, "maxIndexNum": 40_000}
"""File sizes of the harness's Java brokers."""
PLANS = ("COMMIT", "ROLLBACK", "UNKNOW/COMMIT", "UNKNOW/ROLLBACK", "UNKNOW/UNKNOW/COMMIT")
FAR_MS = 25_000
PATIENCE_S = 120.0
OUT_MS = 40_000
"""Invisible time of messages that no consumer acknowledges."""
COPIED_S = 15
"""A Java slave copies offsets every 10 s."""


@attrs.frozen
class Clients:
    """Java clients of timers and of transactions."""

    stage: Stage
    namesrv: str
    timers: Program
    pairs: Program
    """The consumer of transactions."""

    async def timer(self, name: str, delay: int | str) -> None:
        await send_timer(self.timers, name, delay)

    async def come(self, what: str) -> None:
        """Wait for all acknowledged timers, except those whose name says that they were recalled."""
        await come(self.stage, self.timers, what)

    async def decided(self, what: str, *sent: set[int]) -> None:
        """Check that these messages of several producers come, each once, and no others."""
        wanted = Counter(sequence for each in sent for sequence in each)
        with trio.move_on_after(PATIENCE_S):
            await self.pairs.wait_for(
                "received", lambda found: wanted <= _sequences(found), timeout_s=PATIENCE_S)
        await trio.sleep(8)  # another round of checks would bring wrong messages
        got = _sequences(self.pairs.reports("received"))
        if wanted - got:
            raise Lost(f"{what}: committed, and never delivered: {wanted - got}")
        expect(got == wanted, f"{what}: wanted {wanted}, got {got}")
        self.stage.say(f"{what}: {wanted.total()} transactions were committed, each came once")


async def send_timer(timers: Program, name: str, delay: int | str) -> None:
    """Send a timer until a master takes it. ``delay``: ms, or ``#`` and a delay level."""
    with trio.fail_after(PATIENCE_S):
        for number in range(1_000):
            await timers.tell(f"{name}-{number} {delay}")
            sent = await timers.wait_for("sent", _has(f"{name}-{number}"))
            if sent[-1]["ok"]:
                return
            await trio.sleep(0.5)


async def come(stage: Stage, timers: Program, what: str, beginning: str = "") -> None:
    """Wait for all acknowledged timers whose names have this beginning, and judge them."""
    wanted = due_ms(named(timers.reports("sent"), beginning))
    with trio.move_on_after(PATIENCE_S):
        await timers.wait_for(
            "received", lambda found: wanted.keys() <= {one["name"] for one in found}, timeout_s=PATIENCE_S)
    sent, received = (named(timers.reports(event), beginning) for event in ("sent", "received"))
    stage.say(f"{what}: {judged(what, sent, received)}")


def named(reports: Sequence[Report], beginning: str) -> list[Report]:
    return [one for one in reports if one["name"].startswith(beginning)]


def due_ms(sent: Sequence[Report]) -> dict[str, int]:
    """Due times of the timers that were acknowledged and not recalled."""
    return {one["name"]: one["due_ms"] for one in sent if one["ok"] and "taken" not in one["name"]}


def judged(what: str, sent: Sequence[Report], received: Sequence[Report]) -> str:
    """Judge timers; returns the result in words. Raises ``Lost``, or ``Unexpected`` if one came early or twice."""
    wanted, moments = due_ms(sent), {one["name"]: one["due_ms"] for one in sent}
    came = Counter(one["name"] for one in received)
    if wanted.keys() - came.keys():
        raise Lost(f"{what}: acknowledged, and never delivered: {sorted(wanted.keys() - came.keys())}")
    early = [one for one in received if one["at_ms"] < moments[one["name"]]]
    expect(not early, f"{what}: delivered before they were due: {early}")
    expect(not [name for name in came if "taken" in name], f"{what}: taken back, and delivered: {came}")
    expect(max(came.values()) <= 2, f"{what}: a timer comes again once at most: {came}")
    late_ms = max(one["at_ms"] - moments[one["name"]] for one in received)
    return (f"{len(wanted)} timers came, {came.total() - len(came)} of them again; the latest {late_ms / 1e3:.1f} s "
            "behind its time")


def _has(name: str) -> Callable[[Sequence[Report]], bool]:
    return lambda found: any(one["name"] == name for one in found)


def _sequences(reports: Sequence[Report]) -> Counter[int]:
    return Counter(one["sequence"] for one in reports)


@asynccontextmanager
async def clients(stage: Stage, namesrv: str) -> AsyncIterator[Clients]:
    async with (
        java.later(stage.release, stage.here / "later", namesrv=[namesrv], topic=LATER) as timers,
        java.receiver(stage.release, stage.here / "pairs", namesrv=[namesrv], topic=PAIRS) as pairs,
    ):
        made = Clients(stage, namesrv, timers, pairs)
        await made.timer("first", 0)
        await timers.wait_for("received")
        yield made


@asynccontextmanager
async def transacting(made: Clients, name: str, plans: Sequence[str], count: int) -> AsyncIterator[set[int]]:
    """Send so many transactions; the producer answers checks during the block. Yields those that commit."""
    async with java.transactor(made.stage.release, made.stage.here / name, namesrv=[made.namesrv], topic=PAIRS,
                               plans=plans, count=count) as producer:
        sent = await producer.wait_for("sent", lambda found: len(found) == count)
        expect(all(one["ok"] for one in sent), f"not stored: {[one for one in sent if not one['ok']][:3]}")
        yield committed(sent, plans)


async def followed(stage: Stage, slave: Broker, done_ms: int) -> None:
    """Wait until a slave knows from its master that slots up to then are done, and how many timers wait."""
    found: TimerCheckpoint | None = None
    text = ""
    with trio.move_on_after(60):
        while True:
            found, text = _checkpoint(slave.store / CHECKPOINT), _text(slave.store / METRICS)
            if found is not None and found.read_time_ms >= done_ms and f'"{LATER}"' in text:
                stage.say(f"{slave.name} knows that timers are done up to {found.read_time_ms}, and who waits: {text}")
                return
            await trio.sleep(0.3)
    expect(False, f"{slave.name} did not follow its master: {found}, {text!r}, wanted {done_ms}")


def _checkpoint(path: Path) -> TimerCheckpoint | None:
    return TimerCheckpoint.decode(path.read_bytes()) if path.exists() else None


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def _switch(stage: Stage, kinds: str) -> None:
    """Kill the master while timers and half messages wait; its slave of the other kind takes over."""
    async with mixed(stage, kinds, ALL_ACK | WAITS) as (controllers, namesrv, (first, second)):
        await first.start()
        await seen(stage, controllers, lambda state: state.master_address == first.announced, "the first is master")
        for topic in (LATER, PAIRS):
            await create_topic(stage, namesrv, topic)
        await second.start()
        await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync")
        for topic in (LATER, PAIRS):
            await topic_everywhere((first, second), topic)
        async with clients(stage, namesrv) as made:
            await made.timer("near", 2_000)
            for number in range(10):
                await made.timer(f"far{number}", FAR_MS)
            await made.timer("taken", FAR_MS)
            await made.timers.tell("recall taken-0")
            await made.timers.wait_for("recalled", lambda found: any(one["ok"] for one in found))
            near = next(one for one in made.timers.reports("sent") if one["name"].startswith("near"))
            await made.timers.wait_for("received", _has(near["name"]))
            await followed(stage, second, near["due_ms"])
            async with transacting(made, "transact", PLANS, 25) as wanted:
                await first.kill()
                await seen(stage, controllers, lambda state: state.master_address == second.announced,
                           "the second is master")
                await made.timer("behind", 1_000)
                await made.come("switched")
                await made.decided("switched", wanted)


@scenario("5.5.0", timeout_s=420)
async def a_java_slave_of_our_master_takes_over_timers_and_halves(stage: Stage) -> None:
    """A Java slave follows our master's checkpoints (60, 61), and leads when that is killed: all timers, all halves."""
    await _switch(stage, "oj")


@scenario("5.5.0", timeout_s=420)
async def our_slave_of_a_java_master_takes_over_timers_and_halves(stage: Stage) -> None:
    """Our slave follows a Java master's checkpoints (60, 61), and leads when that is killed: all timers, all halves."""
    await _switch(stage, "jo")


@scenario("5.5.0", timeout_s=420)
async def a_store_with_timers_and_halves_passes_to_java_and_back(stage: Stage) -> None:
    """Killed -9 with timers and halves that wait, ours leaves its store to Java's, and that one to ours again."""
    here = stage.here / "store"
    slow: dict[str, Value] = {**WAITS, "transactionTimeOut": 20_000}
    async with ours.namesrv(stage.here / "namesrv") as namesrv:
        async with ours.broker(here, namesrv=[namesrv.address], extra={**slow, **SIZES}) as broker:
            for topic in (LATER, PAIRS):
                await create_topic(stage, namesrv.address, topic)
            async with clients(stage, namesrv.address) as made:
                for number in range(10):
                    await made.timer(f"ours{number}", FAR_MS)
                plans = ("UNKNOW/COMMIT", "UNKNOW/ROLLBACK")
                async with transacting(made, "to-java", plans, 10) as first:
                    await broker.kill()
                    async with java.broker(stage.release, here, namesrv=[namesrv.address], extra=slow) as other:
                        await made.come("ours to Java's")
                        await made.decided("ours to Java's", first)
                        for number in range(10):
                            await made.timer(f"javas{number}", FAR_MS)
                        async with transacting(made, "to-ours", plans, 10) as second:
                            await other.kill()
                            async with ours.broker(here, namesrv=[namesrv.address], extra={**slow, **SIZES}):
                                await made.come("Java's to ours")
                                await made.decided("Java's to ours", first, second)


# --- popped messages ------------------------------------------------------------------------------------------


async def out(popper: RawPopper, name: str) -> set[str]:
    """Pop by twos until each revive queue has a checkpoint, and acknowledge a third; returns the others."""
    count = 2 * TakingConfig().revive_queue_num
    await popper.send(*(f"{name}{number}" for number in range(count)))
    found = list[Got]()
    with trio.move_on_after(OUT_MS / 2e3):
        while len(found) < count:
            found += await popper.pop(invisible_ms=OUT_MS, count=2)
    expect(len(found) == count, f"{name}: {len(found)} of {count} are given")
    for got in found[::3]:
        code = await popper.ack(got)
        expect(code == ResponseCode.SUCCESS, f"{name}: an acknowledgement is answered with {code}")
    return {got.body for number, got in enumerate(found) if number % 3}


async def come_back(stage: Stage, popper: RawPopper, wanted: set[str], what: str) -> None:
    """Check that these messages come back, and no others."""
    with trio.fail_after(60):
        while (await popper.popping(group="Probe", count=1)).code not in (
                ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT):
            await trio.sleep(0.5)
    found = Counter(await popper.back(OUT_MS / 1e3 + AGAIN_S))
    if wanted - found.keys():
        raise Lost(f"{what}: not acknowledged, and did not come back: {sorted(wanted - found.keys())}")
    expect(found.keys() == wanted, f"{what}: acknowledged, and came back: {sorted(found.keys() - wanted)}")
    stage.say(f"{what}: {len(wanted)} came back, {found.total() - len(found)} of them again")


async def _checkpoints_switch(stage: Stage, kinds: str) -> None:
    async with (
        mixed(stage, kinds, ALL_ACK | WAITS) as (controllers, namesrv, (first, second)),
        open_client() as client,
    ):
        await first.start()
        await seen(stage, controllers, lambda state: state.master_address == first.announced, "the first is master")
        await create_topic(stage, namesrv, POPPED)
        await second.start()
        await seen(stage, controllers, lambda state: len(state.in_sync) == 2, "both in sync")
        await topic_everywhere((first, second), POPPED)
        popper = RawPopper(client, first.announced, GROUP, POPPED)
        wanted = await out(popper, "out")
        await trio.sleep(COPIED_S)
        await first.kill()
        await seen(stage, controllers, lambda state: state.master_address == second.announced, "the second is master")
        await come_back(stage, attrs.evolve(popper, address=second.announced), wanted, "switched")


@scenario("5.5.0", timeout_s=420)
async def a_java_slave_of_our_master_takes_over_open_checkpoints(stage: Stage) -> None:
    """Popped at our master, which is killed: a Java slave leads, and brings back what nobody acknowledged, no more."""
    await _checkpoints_switch(stage, "oj")


@scenario("5.5.0", timeout_s=420)
async def our_slave_of_a_java_master_takes_over_open_checkpoints(stage: Stage) -> None:
    """Popped at a Java master, which is killed: our slave leads, and brings back what nobody acknowledged, no more."""
    await _checkpoints_switch(stage, "jo")


@scenario("5.5.0", timeout_s=400)
async def a_store_with_open_checkpoints_passes_to_java_and_back(stage: Stage) -> None:
    """Killed -9 with popped messages out, ours leaves its store to Java's, and that one to ours again."""
    here = stage.here / "store"
    async with ours.namesrv(stage.here / "namesrv") as namesrv, open_client() as client:
        async with ours.broker(here, namesrv=[namesrv.address], extra={**WAITS, **SIZES}) as broker:
            await create_topic(stage, namesrv.address, POPPED)
            popper = RawPopper(client, broker.announced, GROUP, POPPED)
            first = await out(popper, "ours")
            await trio.sleep(COPIED_S)  # offsets are on disk by then
            await broker.kill()
            async with java.broker(stage.release, here, namesrv=[namesrv.address], extra=WAITS) as other:
                theirs = attrs.evolve(popper, address=other.announced)
                await come_back(stage, theirs, first, "ours to Java's")
                second = await out(theirs, "javas")
                await trio.sleep(COPIED_S)
                await other.kill()
                async with ours.broker(here, namesrv=[namesrv.address], extra={**WAITS, **SIZES}) as last:
                    await come_back(stage, attrs.evolve(popper, address=last.announced), second, "Java's to ours")
