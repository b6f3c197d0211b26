"""What an unmodified Java producer sees of a failover of our brokers: the longest pause between successful sends.

    python -m benchmarks.broker_gap                                    # killed and switched, at four phases, once each
    python -m benchmarks.broker_gap --rounds 5 --how killed --json gap.json
    python -m benchmarks.broker_gap --rounds 50 --how together --phases 5
    python -m benchmarks.broker_gap --rounds 50 --how together --phases 5 --balanced

Three of our brokers under guardians, acknowledged by all in the SyncStateSet. `killed`: the broker's process, kill
-9, not its guardian, which passes clients on to the new master. `together`: the same, and the active controller in
the same moment. `switched`: `mqadmin electMaster`, after which the deposed master passes them on. With `--balanced`
clients reach the brokers by haproxy, as the how-to on losing a host has it, and a guardian is killed with its broker.
The producer has RocketMQ's defaults and sends every 5 ms; it looks for new routes 30 s after its start and every 30 s
from then on, so the phase is given in seconds after its start: right after a look, and right before. A line of JSON
for each failover, and one for all. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.failover_timeline import said
from benchmarks.measure import quantile
from harness.processes import balanced, java, ours
from harness.processes.balanced import BrokerHost
from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.processes.program import Report
from harness.scenarios.interop.scenario import Stage
from harness.scenarios.interop.tools import our_mqadmin
from harness.scenarios.interop.watch import create_topic
from mqcluster.looking import look, until_settled
from remoting.client import Client, open_client

GROUP: Final = "broker-a"
TOPIC: Final = "Gaps"
REPLICAS: Final = 3
INTERVAL_MS: Final = 5
AFTER_S: Final = 5.0
"""So long it is watched after a failover: a deposed master that comes back may cost a pause as well."""
PATIENCE_S: Final = 75.0
SETTINGS: Final[dict[str, object]] = {
    "allAckInSyncStateSet": True, "minInSyncReplicas": 2, "totalReplicas": REPLICAS, "enableGuardian": True}


@attrs.frozen
class Cluster:
    controllers: list[Handle]
    namesrv: str
    brokers: Sequence[Broker | BrokerHost]
    remoting: Client

    async def roles(self) -> tuple[Broker | BrokerHost, dict[str, int]]:
        """The master and everybody's ids, once all are in sync."""
        view = (await until_settled(
            self.remoting, ours.addresses(self.controllers), [GROUP], REPLICAS, PATIENCE_S)).groups[GROUP]
        return next(broker for broker in self.brokers if broker.announced == view.master), dict(view.ids)


@asynccontextmanager
async def cluster(stage: Stage) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        processes = await enter(ours.controllers(stage.here / "controllers"))
        controllers = ours.addresses(processes)
        namesrv = await enter(ours.namesrv(stage.here / "namesrv"))
        brokers = [await enter(ours.broker(stage.here / f"b{number}", GROUP, namesrv=[namesrv.address],
                                           controllers=controllers, extra=SETTINGS, start=False))
                   for number in range(REPLICAS)]
        await start_all(brokers)
        made = Cluster(processes, namesrv.address, brokers, await enter(open_client()))
        await made.roles()
        await create_topic(stage, namesrv.address, TOPIC)
        yield made


@asynccontextmanager
async def balanced_cluster(stage: Stage) -> AsyncIterator[Cluster]:
    """Three hosts behind a balancer."""
    if reason := balanced.missing():
        raise RuntimeError(reason)
    async with balanced.balanced(stage.here / "balanced") as group, open_client() as remoting:
        made = Cluster(list(group.controllers), group.namesrv.address, group.hosts, remoting)
        await made.roles()
        await create_topic(stage, made.namesrv, TOPIC)
        yield made


def child_of(pid: int) -> int:
    """The only child of a process, which for a guardian is its broker; whichever thread started it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    (child,) = (int(each) for found in tasks for each in found.read_text().split())
    return child


def strike(master: Broker | BrokerHost) -> None:
    if isinstance(master, BrokerHost):
        master.lose()
    else:
        os.kill(child_of(master.pid), signal.SIGKILL)


async def kill(made: Cluster) -> None:
    master, _ = await made.roles()
    strike(master)


async def kill_together(made: Cluster) -> None:
    master, _ = await made.roles()
    active = (await look(made.remoting, ours.addresses(made.controllers), [GROUP])).active
    (controller,) = [each for each in made.controllers if each.address == active]
    strike(master)
    os.kill(controller.pid, signal.SIGKILL)


async def raise_the_dead(made: Cluster) -> None:
    """Guardians that live start their brokers themselves."""
    for process in (*made.controllers, *(each.broker for each in made.brokers if isinstance(each, BrokerHost))):
        if not process.running:
            await process.kill()  # takes note of its end
            await process.start()


async def switch(made: Cluster) -> None:
    master, ids = await made.roles()
    other = next(number for address, number in sorted(ids.items()) if address != master.announced)
    run = await our_mqadmin("electMaster", "-a", made.controllers[0].address, "-c", "DefaultCluster", "-bn", GROUP,
                            "-b", str(other))
    if run.exit_code:
        raise RuntimeError(run.stdout + run.stderr)


HOW: Final = {"killed": kill, "switched": switch, "together": kill_together}


def longest_pause_ms(sent: Sequence[Report], from_us: int, to_us: int) -> float:
    """Between two successful sends of which the later one ended in this time."""
    ends = [each["ended_us"] for each in sent if each["ok"]]
    return max((later - sooner for sooner, later in pairwise(ends) if from_us <= later <= to_us), default=0) / 1e3


def error(report: Report) -> str:
    """What the application was told instead, without numbers, which differ each time."""
    told = str(report.get("cause") or report.get("error") or report.get("status"))
    return re.sub(r"\d+", "0", told.partition("\n")[0])[:160]


async def gap(stage: Stage, made: Cluster, how: str, phase_s: float, number: int) -> dict[str, Any]:
    """One failover, with a client of its own."""
    await made.roles()
    async with java.sender(stage.release, stage.here / f"sender-{number}", namesrv=[made.namesrv], topic=TOPIC,
                           interval_ms=INTERVAL_MS) as sender:
        began = (await sender.wait_for("started"))[0]["at_us"] / 1e6
        await sender.wait_for("sent", lambda found: any(each["ok"] for each in found))
        await trio.sleep(max(0.0, began + phase_s - time.time()))
        struck_us = int(time.time() * 1e6)
        await HOW[how](made)
        sent = await sender.wait_for(
            "sent", lambda found: found[-1]["ok"] and found[-1]["begun_us"] > struck_us + AFTER_S * 1e6,
            timeout_s=PATIENCE_S)
        after = [each for each in sent if each["ended_us"] >= struck_us]
        elections = [at for each in made.controllers
                     if (at := said(each.printed(), "^master elected", struck_us / 1e6)) is not None]
        await raise_the_dead(made)
        return {"how": how, "phase_s": phase_s,
                "gap_ms": longest_pause_ms(sent, struck_us, struck_us + int(PATIENCE_S * 1e6)),
                "before_ms": longest_pause_ms(sent, struck_us - 2_000_000, struck_us),
                "elected_ms": round(min(elections) * 1e3 - struck_us / 1e3, 1) if elections else None,
                "failed": len([each for each in after if not each["ok"]]), "sent_after": len(after),
                "errors": sorted({error(each) for each in after if not each["ok"]})}


def summary(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By kind of failover, in milliseconds; of all phases together."""
    kinds = {}
    for how in HOW:
        gaps = sorted(each["gap_ms"] for each in found if each["how"] == how and "gap_ms" in each)
        if gaps:
            kinds[how] = {"n": len(gaps), "p50_ms": quantile(gaps, 0.5), "max_ms": gaps[-1]}
            beyond = sorted(each["gap_ms"] - each["elected_ms"] for each in found
                            if each["how"] == how and each.get("gap_ms") and each.get("elected_ms") is not None)
            if beyond:
                kinds[how] |= {f"{name}_after_the_election_ms": round(quantile(beyond, share), 1)
                               for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {"summary": kinds}


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    release = await java.fetch(java.CURRENT)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="broker-gap-") as folder:
        stage = Stage(release, Path(folder), lambda line: None)
        async with (balanced_cluster if options.balanced else cluster)(stage) as made:
            for number in range(options.rounds):
                for phase in options.phases:
                    for how in options.how:
                        try:
                            one = await gap(stage, made, how, phase, len(found))
                        except Exception as error:  # noqa: BLE001  one failover that went wrong does not end the run
                            one = {"how": how, "phase_s": phase, "error": repr(error)}
                        found.append({"round": number, **one})
                        print(json.dumps(found[-1]), flush=True)
    found.append(summary(found))
    print(json.dumps(found[-1]), flush=True)
    return found


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "python -m benchmarks.broker_gap", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", type=lambda text: text.split(","), default=["killed", "switched"],
                        help=",".join(HOW))
    parser.add_argument("--phases", type=lambda text: [float(each) for each in text.split(",")],
                        default=[5.0, 15.0, 25.0, 29.9])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--balanced", action="store_true", help="clients reach the brokers by a balancer")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = trio.run(run, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if any("error" in each for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
