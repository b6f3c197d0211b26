"""Scenes that make real peers send every kind of frame, through relays that record them.

The peers bind 127.0.0.1 and are announced as 127.0.0.2, where the relays listen at the same ports; so every frame
between them goes through a relay, unchanged (on Linux all of 127.0.0.0/8 is the loopback interface). Which frames are
kept is decided in ``harness.scenarios.golden.frames``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import trio
from attrs import evolve, frozen

from harness.processes.broker import Broker
from harness.processes.handle import Handle, start_all
from harness.processes.java import servers
from harness.processes.java.admin import TOOL, mqadmin
from harness.processes.java.jars import Release, Say
from harness.processes.java.jvm import JVM, wait_log
from harness.processes.java.programs import CLIENT, operate
from harness.processes.ports import reserved
from harness.scenarios.golden.frames import Encoding, exchanges, pick
from harness.scenarios.golden.record import Recorded, Recorder, Splitter
from remoting.codes import RequestCode

RELAYED_HOST: Final = "127.0.0.2"
REPLAY_S: Final = 6.0
ENCODINGS: Final[tuple[Encoding, ...]] = ("json", "rocketmq")
LEADER_ONLY: Final = frozenset({
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, RequestCode.CLEAN_BROKER_DATA,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID,
})


@frozen
class Recording:
    """One recording: the directory of its peers, and their encoding of headers."""

    release: Release
    directory: Path
    encoding: Encoding
    recorder: Recorder
    nursery: trio.Nursery
    stack: AsyncExitStack
    recorded: list[Recorded]

    def jvm(self, plain: JVM) -> JVM:
        return evolve(plain, system={**plain.system, "rocketmq.serialize.type": self.encoding.upper()})

    async def relay(self, name: str, process: Handle) -> str:
        """Start a relay in front of a process; returns the address for its peers."""
        port = int(process.address.rpartition(":")[2])
        await self.recorder.relay(self.nursery, name, (RELAYED_HOST, port), (servers.HOST, port))
        return f"{RELAYED_HOST}:{port}"

    async def namesrv(self) -> str:
        process = await self.stack.enter_async_context(servers.namesrv(
            self.release, self.directory / "namesrv", jvm=self.jvm(servers.SMALL),
            extra={"supportActingMaster": True, "notifyMinBrokerIdChanged": True},
        ))
        return await self.relay("namesrv", process)

    async def controllers(self) -> list[str]:
        """Run three controllers of the DLedger type; in binary one, as its 16-bit codes cannot hold DLedger's own."""
        peers = [
            f"{RELAYED_HOST}:{self.stack.enter_context(reserved())}" for _ in range(3 if self.encoding == "json" else 1)
        ]
        group = []
        for index in range(len(peers)):
            process = await self.stack.enter_async_context(servers.controller(
                self.release, self.directory / f"n{index}", index=index, peers=peers,
                jvm=self.jvm(servers.CONTROLLER), start=False,
            ))
            await self.relay(process.name, process)
            group.append(process)
        await start_all(group)
        return peers

    async def broker(self, name: str, namesrv: str, **settings: Any) -> Broker:
        process = await self.stack.enter_async_context(servers.broker(
            self.release, self.directory / name, namesrv=[namesrv], announced_host=RELAYED_HOST,
            jvm=self.jvm(servers.BROKER), start=False, **settings,
        ))
        await self.relay(name, process)
        await process.start()
        return process


async def _controlled(stage: Recording) -> None:
    """Play two brokers under three controllers: registration, SyncStateSet, all admin calls, a master's death."""
    namesrv = await stage.namesrv()
    peers = await stage.controllers()
    settings = {"controllers": peers, "extra": {"syncControllerMetadataPeriod": 2_000}}
    first = await stage.broker("a1", namesrv, **settings)
    second = await stage.broker("a2", namesrv, **settings)
    await wait_log(first, r"alter.*[sS]yncStateSet|[sS]yncStateSet.*\[1, ?2\]")
    await trio.sleep(6)  # registration and metadata poll come again by then
    await operate(
        stage.release, stage.directory / "operate", namesrv=[namesrv], broker=first.group, topic="TBW102",
        controllers=peers, replica=2, jvm=stage.jvm(CLIENT),
    )
    await second.kill()
    await trio.sleep(6)
    asked = [
        one.request for code, kept in pick(exchanges(stage.recorded)).items() if code in LEADER_ONLY for one in kept
    ]
    for address in peers:
        await _replay(asked, address)
    await first.stop()


async def _acting(stage: Recording) -> None:
    """Play a plain master with an acting slave: member groups, data versions, single topics, lowest ids."""
    namesrv = await stage.namesrv()
    common = {
        "enableSlaveActingMaster": True, "brokerNotActiveTimeoutMillis": 3_000, "forceRegister": False,
        "enableSingleTopicRegister": True, "totalReplicas": 2,
    }
    master = await stage.broker(
        "m", namesrv, group="broker-p", extra={**common, "compatibleWithOldNameSrv": False})  # by 901 and 904, not 322
    await stage.broker("s", namesrv, group="broker-p", extra={**common, "brokerId": 1, "brokerRole": "SLAVE"})
    await trio.sleep(6)
    made = await mqadmin(
        stage.release, "updateTopic", "-n", namesrv, "-b", master.announced, "-t", "single", jvm=stage.jvm(TOOL))
    assert made.ok, made
    await trio.sleep(2)
    await master.kill()
    await trio.sleep(8)
    await master.start()
    await trio.sleep(4)


async def _replay(requests: Sequence[bytes], address: str) -> None:
    """Send recorded requests once more, in order: they are stale by now, or go to the wrong node."""
    host, _, port = address.rpartition(":")
    for frame in requests:
        splitter = Splitter()
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            with trio.move_on_after(REPLAY_S):
                await stream.send_all(frame)
                async for data in stream:
                    if splitter.feed(data):
                        break


async def record(
    release: Release, directory: Path, *, encodings: Sequence[Encoding] = ENCODINGS, say: Say,
) -> list[Recorded]:
    """Run every scene in each encoding; returns all recorded frames."""
    recorded: list[Recorded] = []
    for encoding in encodings:
        for scene in (_controlled, _acting):
            say(f"{release.version} {encoding}: {scene.__name__.strip('_')}")
            frames: list[Recorded] = []
            async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
                place = directory / f"{encoding}-{scene.__name__.strip('_')}"
                await scene(Recording(release, place, encoding, Recorder(frames.append), nursery, stack, frames))
                await stack.aclose()
                nursery.cancel_scope.cancel()
            say(f"  {len(frames)} frames")
            offset = max((one.connection for one in recorded), default=0)
            recorded += [evolve(one, connection=one.connection + offset) for one in frames]
    return recorded
