"""How soon delayed messages go on when a master without controllers dies: ours and Java's 5.5.0, under one schedule.

    python -m benchmarks.acting --kills 5

Group a is a master and a slave, group b a master. A message of delay level 1 is sent to a's master ten times a second,
the master is killed with -9, and b's queues are looked at until the first message that the slave sent there. Each kill
has a cluster of its own; both systems and both values of ``notifyMinBrokerIdChanged`` take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import trio

from harness.processes import java, ours
from harness.processes.broker import Broker
from harness.processes.java.settings import Value
from harness.scenarios.interop.ha import topic_everywhere
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.client import Client, open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.headers.pulling import OffsetResponse, QueueRequest
from remoting.headers.topics import CreateTopicRequest
from remoting.record import encode_properties

TOPIC: Final = "Later"
QUEUES: Final = 4
EVERY_S: Final = 0.1
SENT_S: Final = 4.0
LOOK_S: Final = 0.005
PATIENCE_S: Final = 60.0
SYSTEMS: Final = ("ours", "java")
ACTING: Final[Mapping[str, Value]] = {
    "enableSlaveActingMaster": True, "enableRemoteEscape": True, "totalReplicas": 2}


async def _started(stack: AsyncExitStack, system: str, here: Path, *, notify: bool) -> tuple[Broker, Broker]:
    """Start the name server and three brokers; return a's master and b's once all know the topic."""
    shows: dict[str, Value] = {"supportActingMaster": True, "notifyMinBrokerIdChanged": notify}
    members = [("a", 0), ("a", 1), ("b", 0)]
    release = await java.fetch(java.CURRENT) if system == "java" else None
    place = here / "namesrv"
    names = await stack.enter_async_context(
        java.namesrv(release, place, extra=shows) if release else ours.namesrv(place, extra=shows))
    brokers = []
    for group, number in members:
        extra = {**ACTING, "brokerId": number, "brokerRole": "SLAVE" if number else "ASYNC_MASTER"}
        place = here / f"{group}{number}"
        brokers.append(await stack.enter_async_context(
            java.broker(release, place, group=group, namesrv=[names.address], extra=extra) if release
            else ours.broker(place, group, namesrv=[names.address], extra=extra)))
    async with open_client() as client:
        for broker in brokers:
            await client.call(broker.address, request(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest(
                TOPIC, QUEUES, QUEUES, 6)))
    await topic_everywhere(brokers, TOPIC)
    return brokers[0], brokers[2]


async def _send(client: Client, master: Broker) -> None:
    properties = encode_properties({"DELAY": "1"}).decode()
    end = trio.current_time() + SENT_S
    while trio.current_time() < end:
        answer = await client.call(master.address, request(RequestCode.SEND_MESSAGE, SendMessageRequest(
            TOPIC, 0, producer_group="p", born_timestamp=int(time.time() * 1e3), properties=properties), b"x"))
        assert answer.code == 0, answer
        await trio.sleep(EVERY_S)


async def _arrived(client: Client, broker: Broker) -> int:
    ends = [await client.call(broker.address, request(RequestCode.GET_MAX_OFFSET, QueueRequest(TOPIC, queue_id)))
            for queue_id in range(QUEUES)]
    return sum(OffsetResponse.from_ext(answer.ext).offset for answer in ends)


async def gap_ms(system: str, *, notify: bool) -> float:
    """Kill one master; return the time until the first delayed message of its slave."""
    with tempfile.TemporaryDirectory(prefix="quorate-acting-") as here:
        async with AsyncExitStack() as stack:
            master, other = await _started(stack, system, Path(here), notify=notify)
            client = await stack.enter_async_context(open_client())
            await trio.sleep(5)  # a slave acts for a master that it has heard of
            await _send(client, master)
            assert await _arrived(client, other) == 0, "a master that lives sends nothing elsewhere"
            await master.kill()
            killed = time.perf_counter()
            with trio.fail_after(PATIENCE_S):
                while True:
                    if await _arrived(client, other):
                        return (time.perf_counter() - killed) * 1e3
                    await trio.sleep(LOOK_S)


async def _run(systems: Sequence[str], kills: int) -> None:
    found: dict[tuple[str, bool], list[float]] = {(each, notify): [] for each in systems for notify in (False, True)}
    for number in range(kills):
        for (system, notify), gaps in found.items():
            gaps.append(await gap_ms(system, notify=notify))
            print(f"{number + 1}/{kills} {system}, notifyMinBrokerIdChanged={str(notify).lower()}: "
                  f"{gaps[-1]:,.0f} ms", file=sys.stderr, flush=True)
    for (system, notify), gaps in found.items():
        print(json.dumps({"system": system, "notifyMinBrokerIdChanged": notify, "kills": kills, "ms": {
            "median": round(statistics.median(gaps)), "least": round(min(gaps)), "most": round(max(gaps))}}))


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5, help="of each kind; default: %(default)s")
    parser.add_argument("--only", choices=SYSTEMS, help="one of the two")
    options = parser.parse_args()
    trio.run(_run, [options.only] if options.only else list(SYSTEMS), options.kills)
    return 0


if __name__ == "__main__":
    sys.exit(main())
