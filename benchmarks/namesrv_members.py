"""What the heartbeats of many broker groups take of a name server, and what the questions of their members do.

    python -m benchmarks.namesrv_members --groups 1000 --seconds 20

Each of three members a group beats once a second (904), as brokers do by default, on a connection of its own; then each
asks in every second who lives (901), too. Ours and Java's 5.5.0 run in turn, in one run; CPU is that of the server's
process, over the looking time. Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from benchmarks.processes import cpu_s
from harness.processes import java, ours
from harness.processes.handle import Handle
from harness.processes.java.jvm import JVM
from remoting.bodies.namesrv import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from remoting.codes import RequestCode
from remoting.command import RESPONSE, Command, request
from remoting.frame import FrameReader, encode
from remoting.headers.controller import BrokerHeartbeatRequest
from remoting.headers.namesrv import GetBrokerMemberGroupRequest, RegisterBrokerRequest

MEMBERS: Final = 3
CLUSTER: Final = "C"
ACTING: Final = {"supportActingMaster": "true"}
STEPS: Final = 100
"""Members beat and ask spread over the second."""
SETTLING_S: Final = 5.0


class Member:
    """One broker's connection; what comes back is counted by frames of known codes alone."""

    def __init__(self, group: int, number: int, stream: trio.SocketStream) -> None:
        self.stream, self.answers, self.refusals = stream, 0, 0
        name, address = f"b{group}", f"10.{group >> 8}.{group & 255}.{number}:10911"
        topics = {topic: TopicConfig(topic, 8, 8) for topic in (f"T{group}", f"U{group}")}
        self._registers = encode(request(RequestCode.REGISTER_BROKER, RegisterBrokerRequest(
            name, address, CLUSTER, number, f"{address[:-1]}2", heartbeat_timeout_millis=120_000,
            enable_acting_master=True),
            RegisterBrokerBody(TopicConfigSerializeWrapper(topics, DataVersion(1, 1, 1))).encode()))
        self.beat = encode(request(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequest(CLUSTER, address, name)))
        self.ask = encode(request(RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequest(CLUSTER, name)))

    async def register(self) -> None:
        await self.stream.send_all(self._registers)
        reader = FrameReader()
        while not (found := list(reader.feed(bytes(await self.stream.receive_some(1 << 16))))):
            pass
        self._counts(found)

    def _counts(self, found: Sequence[Command]) -> None:
        for command in found:
            if command.flag & RESPONSE:
                self.answers += 1
                self.refusals += command.code != 0

    async def read(self) -> None:
        """Count answers until cancelled."""
        reader = FrameReader()
        while data := await self.stream.receive_some(1 << 16):
            self._counts(list(reader.feed(bytes(data))))


async def _each_second(members: Sequence[Member], data: Callable[[Member], bytes], seconds: float) -> None:
    """Send to every member's connection once a second, a hundredth of them at a time."""
    begin = trio.current_time()
    for step in range(round(seconds * STEPS)):
        await trio.sleep_until(begin + step / STEPS)
        for member in members[step % STEPS::STEPS]:
            await member.stream.send_all(data(member))


async def _looked_at(server: Handle, members: Sequence[Member], data: Callable[[Member], bytes],
                     frames: int, seconds: float) -> dict[str, Any]:
    await _each_second(members, data, SETTLING_S)
    before, answers, at = cpu_s(server.pid), sum(each.answers for each in members), time.perf_counter()
    await _each_second(members, data, seconds)
    took = time.perf_counter() - at
    return {"core_percent": round(100 * (cpu_s(server.pid) - before) / took, 1),
            "answers_per_s": round((sum(each.answers for each in members) - answers) / took),
            "asked_per_s": round(frames * len(members) * seconds / took)}


async def measure(server: Handle, groups: int, seconds: float) -> dict[str, Any]:
    """Heartbeats alone, then with questions."""
    host, _, port = server.address.rpartition(":")
    members: list[Member] = []
    async with trio.open_nursery() as nursery:
        for group in range(groups):
            for number in range(MEMBERS):
                member = Member(group, number, await trio.open_tcp_stream(host, int(port)))
                await member.register()
                members.append(member)
                nursery.start_soon(member.read)
        found = {
            "heartbeats": await _looked_at(server, members, lambda each: each.beat, 1, seconds),
            "with 901": await _looked_at(server, members, lambda each: each.beat + each.ask, 2, seconds)}
        nursery.cancel_scope.cancel()
    refusals = sum(each.refusals for each in members)
    assert not refusals, f"{refusals} answers were refusals"
    for member in members:
        await trio.aclose_forcefully(member.stream)
    return found


@asynccontextmanager
async def _java(here: Path) -> AsyncIterator[Handle]:
    release = await java.fetch(java.CURRENT)
    async with java.namesrv(release, here, extra=ACTING, jvm=JVM(heap_mb=512, quick_start=False)) as server:
        yield server


def _ours(here: Path) -> AbstractAsyncContextManager[Handle]:
    return ours.namesrv(here, extra=ACTING)


SYSTEMS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Handle]]]] = {"ours": _ours, "java": _java}


async def _run(names: Sequence[str], groups: int, seconds: float) -> None:
    for name in names:
        with tempfile.TemporaryDirectory(prefix="quorate-members-") as here:
            async with SYSTEMS[name](Path(here)) as server:
                print(json.dumps({"system": name, "members": groups * MEMBERS,
                                  **await measure(server, groups, seconds)}), flush=True)


def main() -> int:
    """The command; returns its exit code."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000, help="of three members; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=20.0, help="to look on, each time; default: %(default)s")
    parser.add_argument("--only", choices=SYSTEMS, help="one of the two")
    options = parser.parse_args()
    trio.run(_run, [options.only] if options.only else list(SYSTEMS), options.groups, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
