"""Groups of three, partly ours and partly Java's, whose masters are killed again and again while a producer sends.

After each kill, and at the end, every broker in sync must hold all acknowledged messages; a loss is reported with its
evidence, whether the defect is ours or Java's.
"""

from __future__ import annotations

import random

import trio

from harness.processes import java
from harness.processes.broker import Broker
from harness.processes.handle import start_all
from harness.processes.program import Program
from harness.scenarios.interop.ha import TOPIC, log_of, mixed, same_logs, seen, sending, topic_everywhere
from harness.scenarios.interop.losses import SHOWN, acknowledged, evidence, missing
from harness.scenarios.interop.scenario import Lost, Stage, expect, scenario
from harness.scenarios.interop.watch import SyncState, create_topic

KILLS = 4
SETTLE_S = 120.0


def _epochs(brokers: list[Broker]) -> dict[str, str]:
    found = {}
    for broker in brokers:
        path = broker.store / "epochFileCheckpoint"
        found[broker.announced] = path.read_text() if path.exists() else "none"
    return found


def _held(stage: Stage, what: str, brokers: list[Broker], state: SyncState, sender: Program) -> None:
    """Check that all members in sync have all messages acknowledged so far. Raises ``Lost``."""
    promised = acknowledged(sender.reports("sent"))
    theirs = {broker.announced for broker in brokers if broker.name.startswith("broker-")}
    in_sync = {state.replicas[number] for number in state.in_sync}
    for broker in brokers:
        if broker.announced in in_sync:
            gone = missing(promised.values(), log_of(broker), TOPIC)
            if gone:
                raise Lost(evidence(what, gone, theirs, broker.announced, _epochs(brokers)))
    stage.say(f"{what}: {len(promised)} acknowledged, all of them on each of {len(in_sync)} in sync")


async def _masters_killed(stage: Stage, kinds: str) -> None:
    """Kill the master again and again, each time two or all three are in sync; each comes back after a while."""
    rng = random.Random(kinds)
    async with mixed(stage, kinds) as (controllers, namesrv, brokers):
        await start_all(brokers)
        state = await seen(stage, controllers, lambda state: len(state.in_sync) == len(brokers), "all in sync")
        await create_topic(stage, namesrv, TOPIC)
        await topic_everywhere(brokers)
        async with sending(stage, "sender", namesrv, 0, interval_ms=20, retries=0) as sender:
            await sender.wait_for("sent", lambda found: any(one["ok"] for one in found))
            for number in range(1, KILLS + 1):
                master = next(broker for broker in brokers if broker.announced == state.master_address)
                stage.say(f"kill {number}: {master.name}")
                await master.kill()
                await trio.sleep(rng.random() * 3)
                await master.start()
                least = len(brokers) if number == KILLS else rng.choice((2, len(brokers)))
                state = await seen(
                    stage, controllers,
                    lambda state, least=least, epoch=state.master_epoch:  # type: ignore[misc]
                        state.master is not None and state.master_epoch > epoch and len(state.in_sync) >= least,
                    f"{least} in sync")
                _held(stage, f"after kill {number}", brokers, state, sender)
                await trio.sleep(rng.random() * 2)
            reports = sender.reports("sent")
            count = len(acknowledged(reports))
            await sender.wait_for("sent", lambda found: len(acknowledged(found[len(reports):])) > 10)
        expect(count > 10 * KILLS, f"only {count} of {len(reports)} were acknowledged")
        await same_logs(stage, "in the end", *brokers, timeout_s=SETTLE_S)
        _held(stage, "in the end", brokers, state, sender)
        promised = acknowledged(sender.reports("sent"))
        async with java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv], topic=TOPIC) as receiver:
            got = await receiver.wait_for(
                "received", lambda found: promised.keys() <= {each["sequence"] for each in found})
        places = {(each["sequence"], each["queue"], each["offset"]) for each in got}
        moved = [each for each in promised.values() if (each.number, *each.place) not in places]
        expect(not moved, f"a Java consumer got {len(moved)} from elsewhere than its sender was told: {moved[:SHOWN]}")


@scenario("5.5.0", timeout_s=480)
async def two_of_ours_and_a_java_broker_lose_nothing(stage: Stage) -> None:
    """Two of ours and one of Java's: each master is killed -9 while a producer sends; all in sync have all of it."""
    await _masters_killed(stage, "ooj")


@scenario("5.5.0", timeout_s=480)
async def one_of_ours_and_two_java_brokers_lose_nothing(stage: Stage) -> None:
    """One of ours and two of Java's: the same."""
    await _masters_killed(stage, "ojj")
