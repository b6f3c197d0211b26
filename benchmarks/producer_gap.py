"""What an unmodified Java producer sees when its master is killed: the gap between two successful sends.

    python -m benchmarks.producer_gap                              # our controllers and name server, and Java's
    python -m benchmarks.producer_gap --systems ours --phases 5,15

Three Java brokers in controller mode either way; the producer sends every 20 ms, retries nothing and gives up a send
after 300 ms. Its route is refreshed every 30 s from its start on, so the kill's phase in that period decides: it is
given in seconds after the start of the client. Needs Java and Maven.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.handle import start_all
from harness.scenarios.interop.scenario import Stage
from harness.scenarios.interop.watch import create_topic, until
from remoting.client import open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import RemotingError
from remoting.headers.controller import GetReplicaInfoRequest, GetReplicaInfoResponse

GROUP, TOPIC = "broker-a", "orders"
ROUTE_POLL_S = 30.0
PATIENCE_S = 75.0


@asynccontextmanager
async def _cluster(stage: Stage, system: str, size: int) -> AsyncIterator[tuple[list[str], str, list[Broker]]]:
    """Controllers' addresses, name server's address, brokers; all in sync, the topic on all."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        if system == "ours":
            controllers = await enter(ours.controllers(stage.here / "controllers"))
            namesrv = await enter(ours.namesrv(stage.here / "namesrv"))
        else:
            controllers = await enter(java.controllers(stage.release, stage.here / "controllers"))
            namesrv = await enter(java.namesrv(stage.release, stage.here / "namesrv"))
        addresses = [each.address for each in controllers]
        brokers = [await enter(java.broker(
            stage.release, stage.here / f"b{number}", group=GROUP, namesrv=[namesrv.address], controllers=addresses,
            start=False)) for number in range(size)]
        await start_all(brokers)
        await until(stage, addresses, GROUP, lambda seen: len(seen.in_sync) == size, "all in sync", timeout_s=120)
        await create_topic(stage, namesrv.address, TOPIC)
        await trio.sleep(15)  # slaves fetch topics every 10 s
        yield addresses, namesrv.address, brokers


async def _master_address(controllers: list[str]) -> str:
    """Asked directly: Java's tool takes longer to start than the earliest phase lasts."""
    async with open_client() as client:
        while True:
            for address in controllers:
                with suppress(RemotingError):
                    answer = await client.call(address, request(
                        RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(GROUP)))
                    if answer.code == ResponseCode.SUCCESS:
                        found = GetReplicaInfoResponse.from_ext(answer.ext).master_address
                        if found:
                            return found
            await trio.sleep(0.1)


async def gap(stage: Stage, system: str, phase_s: float, size: int) -> dict[str, Any]:
    """One kill. ``next_poll_s``: until the client asks for routes again, which only a living old address can beat."""
    async with (
        _cluster(stage, system, size) as (controllers, namesrv, brokers),
        java.sender(stage.release, stage.here / "sender", namesrv=[namesrv], topic=TOPIC, interval_ms=20,
                    timeout_ms=300, retries=0) as sender,
    ):
        began = time.time()
        await sender.wait_for("sent", lambda found: any(each["ok"] for each in found))
        master = await _master_address(controllers)
        victim = next(broker for broker in brokers if broker.announced == master)
        await trio.sleep(max(began + phase_s - time.time(), 0))
        killed = time.time()
        await victim.kill()
        killed_us = int(killed * 1e6)
        with trio.move_on_after(PATIENCE_S):
            await sender.wait_for("sent", lambda found: any(each["ok"] and each["begun_us"] > killed_us + 200_000
                                                           for each in found))
        sends = [each for each in sender.reports("sent") if each["ok"]]
        before = max((each["ended_us"] for each in sends if each["ended_us"] <= killed_us + 200_000), default=killed_us)
        after = min((each["ended_us"] for each in sends if each["begun_us"] > killed_us + 200_000), default=0)
        phase = killed - began
        return {"system": system, "phase_s": round(phase, 1),
                "gap_s": round((after - before) / 1e6, 2) if after else None,
                "next_poll_s": round(ROUTE_POLL_S - phase % ROUTE_POLL_S, 1)}


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    release = await java.fetch(java.CURRENT)
    found = []
    for phase in options.phases:
        for system in options.systems:
            with tempfile.TemporaryDirectory(prefix="producer-gap-") as folder:
                stage = Stage(release, Path(folder), lambda line: None)
                try:
                    one = await gap(stage, system, phase, options.brokers)
                except Exception as error:  # noqa: BLE001  one kill that went wrong does not end the run
                    one = {"system": system, "phase_s": phase, "failed": repr(error)}
            print(json.dumps(one), flush=True)
            found.append(one)
    return found


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        "python -m benchmarks.producer_gap", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=lambda text: text.split(","), default=["ours", "java"])
    parser.add_argument("--phases", type=lambda text: [float(each) for each in text.split(",")],
                        default=[5.0, 15.0, 25.0, 29.9])
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = trio.run(run, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
