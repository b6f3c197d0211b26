"""Our master resigns under Java controllers: at a planned stop, or when it is back after its machine went down.

It starts servers of both kinds; the Java controllers say who leads, and Java clients what was kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.processes.java.settings import Value
from harness.processes.program import Program, Report
from harness.scenarios.interop.clients import longest_pause_ms
from harness.scenarios.interop.ha import FILES, GROUP, TOPIC, log_of, same_logs, sending, topic_everywhere
from harness.scenarios.interop.losses import acknowledged, evidence, missing
from harness.scenarios.interop.scenario import Lost, Stage, expect, scenario
from harness.scenarios.interop.watch import SyncState, create_topic, until

ALL_ACK: dict[str, Value] = {**FILES, "allAckInSyncStateSet": True}
RETRY: dict[str, Value] = {"electRetryMs": 1_000}
FEW = 50
STOP_S = 90.0
"""Longest stop, with a guardian that serves clients for 35 s more."""
BOOT = "epochFileCheckpoint.boot"


@attrs.frozen
class MixedGroup:
    """Brokers, ``o`` for ours and ``j`` for Java's, not started, under Java controllers and a Java name server."""

    stage: Stage
    controllers: list[Handle]
    namesrv: str
    brokers: list[Broker]

    async def seen(self, what: str, master: Broker | None, in_sync: int, above: int = 0) -> SyncState:
        """Wait until the controllers report this master and set; ``above``: with a later epoch than this."""
        return await until(
            self.stage, [each.address for each in self.controllers], GROUP,
            lambda state: state.master is not None and state.master_epoch > above and len(state.in_sync) >= in_sync
            and (master is None or state.master_address == master.announced), what)

    def has(self, what: str, broker: Broker, reports: list[Report]) -> None:
        """Check that a broker has all acknowledged messages. Raises ``Lost``."""
        promised = acknowledged(reports)
        gone = missing(promised.values(), log_of(broker), TOPIC)
        if gone:
            java_ones = {each.announced for each in self.brokers if not each.name.startswith("our")}
            raise Lost(evidence(what, gone, java_ones, broker.announced, {}))
        self.stage.say(f"{what}: {len(promised)} acknowledged, all of them at {broker.name}")

    async def consumed(self, reports: list[Report]) -> None:
        """Check that a Java consumer gets all acknowledged messages, at the places in their acknowledgements."""
        wanted = {(each.number, *each.place) for each in acknowledged(reports).values()}
        async with java.receiver(
                self.stage.release, self.stage.here / "receiver", namesrv=[self.namesrv], topic=TOPIC) as receiver:
            await receiver.wait_for("received", lambda found: wanted <= {
                (each["sequence"], each["queue"], each["offset"]) for each in found})


@asynccontextmanager
async def _group(
    stage: Stage, kinds: str, extra: Mapping[str, Value], *, guardian: bool = False,
) -> AsyncIterator[MixedGroup]:
    async with AsyncExitStack() as stack:
        controllers = await stack.enter_async_context(java.controllers(stage.release, stage.here / "controllers"))
        namesrv = await stack.enter_async_context(java.namesrv(stage.release, stage.here / "namesrv"))
        led_by = [each.address for each in controllers]
        brokers = [await stack.enter_async_context(
            ours.broker(stage.here / f"o{number}", GROUP, namesrv=[namesrv.address], controllers=led_by,
                        extra={**extra, **RETRY, "enableGuardian": guardian}, start=False)
            if kind == "o" else
            java.broker(stage.release, stage.here / f"j{number}", group=GROUP, namesrv=[namesrv.address],
                        controllers=led_by, extra=extra, start=False)) for number, kind in enumerate(kinds, 1)]
        yield MixedGroup(stage, controllers, namesrv.address, brokers)


async def _more(sender: Program, count: int = FEW) -> list[Report]:
    """Wait for so many more acknowledgements; returns all reports."""
    before = len(sender.reports("sent"))
    return await sender.wait_for("sent", lambda found: sum(each["ok"] for each in found[before:]) >= count)


# --- a planned stop ------------------------------------------------------------------------------------------


async def _stopped(stage: Stage, kinds: str, extra: Mapping[str, Value], *, guardian: bool) -> None:
    async with _group(stage, kinds, extra, guardian=guardian) as group:
        first, second = group.brokers
        await first.start()
        await group.seen("ours is master", first, 1)
        await create_topic(stage, group.namesrv, TOPIC)
        await second.start()
        before = await group.seen("both in sync", first, 2)
        await topic_everywhere(group.brokers)
        async with sending(stage, "sender", group.namesrv, 0, interval_ms=20) as sender, trio.open_nursery() as nursery:
            await _more(sender)
            nursery.start_soon(lambda: first.stop(timeout_s=STOP_S))
            after = await group.seen("handed over", second, 1, above=before.master_epoch)
            expect(after.master_epoch == before.master_epoch + 1, f"one election, not several: {before}, {after}")
            reports = await _more(sender)
            group.has("after the stop", second, reports)
            failed = Counter(str(each.get("status") or each.get("error"))[:80] for each in reports if not each["ok"])
            stage.say(f"{len(reports)} sends, {failed.total()} failed {dict(failed) or ''}; "
                      f"the longest pause: {longest_pause_ms(reports)} ms")
        said = first.printed()
        expect("mastership handed over" in said, f"it was not asked for, but found out:\n{first.tail()}")
        await first.start()
        await group.seen("both in sync again", second, 2)
        await same_logs(stage, "after its return", first, second)
        await group.consumed(sender.reports("sent"))


@scenario("5.5.0", "5.3.3", timeout_s=300)
async def our_master_is_stopped_under_java_controllers_and_a_java_broker_leads(stage: Stage) -> None:
    """SIGTERM: ours has the Java controllers elect the Java broker, and comes back as its slave."""
    await _stopped(stage, "oj", ALL_ACK, guardian=False)


@scenario("5.5.0", timeout_s=300)
async def our_master_with_a_guardian_is_stopped_under_java_controllers(stage: Stage) -> None:
    """SIGTERM where masters acknowledge alone: ours takes over, and the old address serves a Java producer on."""
    await _stopped(stage, "oo", FILES, guardian=True)


# --- a machine that went down --------------------------------------------------------------------------------


async def _all_down(group: MixedGroup, *brokers: Broker) -> None:
    """Kill everything with -9, controllers first, as a living one elects masters when brokers are lost.

    Our brokers then find that their machine went down meanwhile.
    """
    for process in (*group.controllers, *brokers):
        await process.kill()
    for broker in brokers:
        path = broker.store / BOOT
        if path.exists():
            path.write_text("another boot")
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            await broker.launch()
            nursery.start_soon(broker.wait_ready)
        await start_all(group.controllers)


@scenario("5.5.0", "5.3.3", timeout_s=300)
async def our_master_whose_machine_went_down_resigns_under_java_controllers(stage: Stage) -> None:
    """After a power cut of the site it asks to be replaced; alone it leads in a new epoch. Nothing is lost."""
    async with _group(stage, "oj", ALL_ACK) as group:
        first, second = group.brokers
        await first.start()
        alone = await group.seen("ours is master", first, 1)
        await create_topic(stage, group.namesrv, TOPIC)
        async with sending(stage, "alone", group.namesrv, FEW) as sender:
            reports = await sender.wait_for("sent", lambda found: len(found) >= FEW)
        await _all_down(group, first)
        again = await group.seen("a new epoch of its own", first, 1, above=alone.master_epoch)
        expect("asks for another election" in first.printed(), f"ours did not resign:\n{first.tail()}")
        group.has("alone", first, reports)
        await second.start()
        await group.seen("both in sync", first, 2)
        await topic_everywhere(group.brokers)
        async with sending(stage, "both", group.namesrv, FEW) as sender:
            both = await sender.wait_for("sent", lambda found: len(found) >= FEW)
        expect(sum(each["ok"] for each in both) > FEW // 2, f"most are acknowledged: {both[-1]}")
        await _all_down(group, first, second)
        last = await group.seen("both in sync after the power cut", None, 2, above=again.master_epoch)
        stage.say(f"epochs {alone.master_epoch}, {again.master_epoch}, {last.master_epoch}")
        await same_logs(stage, "after the power cut", first, second)
        group.has("after the power cut", second, both)
        await group.consumed(reports + both)
