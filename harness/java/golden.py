"""Golden frames: real peers made to say everything once, through relays, and a few frames of each kind kept.

The peers bind 127.0.0.1 and are announced as 127.0.0.2, where the relays listen at the same ports; so every frame
between them goes through a relay, unchanged (on Linux all of 127.0.0.0/8 is the loopback interface). Headers are
decoded here in the plainest way and not by ``remoting``, whose tests these frames are for.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Literal

import trio
from attrs import evolve, frozen

from harness.java import servers
from harness.java.admin import TOOL, mqadmin
from harness.java.jars import Release, Say
from harness.java.ports import reserved
from harness.java.process import JVM, JavaProcess
from harness.java.programs import CLIENT, operate
from harness.java.record import Recorded, Recorder, Splitter
from remoting.codes import RequestCode

Encoding = Literal["json", "rocketmq"]

RELAYED_HOST: Final = "127.0.0.2"
KINDS_MAX: Final = 8
"""Exchanges kept of one request code in one encoding, each of another shape."""
FRAME_KEPT_BYTES_MAX: Final = 24 << 10
RESPONSE: Final = 1
ONEWAY: Final = 2
REPLAY_S: Final = 6.0
ENCODINGS: Final[tuple[Encoding, ...]] = ("json", "rocketmq")
KEPT: Final = frozenset({
    *range(100, 107), 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, *range(904, 908),
    *range(1001, 1014),
})
"""What name servers and controllers serve, what they send, and what their admin tools ask of brokers."""
LEADER_ONLY: Final = frozenset({
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_GET_REPLICA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, RequestCode.CLEAN_BROKER_DATA,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID,
})

@frozen
class Peeked:
    """What sorting frames needs of a header. ``ext`` holds the fields' names; a boolean's with its value."""

    code: int
    opaque: int
    flag: int
    encoding: Encoding
    ext: frozenset[str]
    has_body: bool


def peek(frame: bytes) -> Peeked:
    """Decode as much of a frame as sorting needs.

    Raises:
        ValueError: it is no RocketMQ frame.
    """
    if len(frame) < 8:
        raise ValueError(f"a frame of {len(frame)} bytes")
    word = int.from_bytes(frame[4:8], "big")
    kind, size = word >> 24, word & 0xFFFFFF
    header, has_body = frame[8:8 + size], len(frame) > 8 + size
    if kind == 0:
        read: dict[str, Any] = json.loads(header)
        ext = _names((read.get("extFields") or {}).items())
        return Peeked(read["code"], read["opaque"], read["flag"], "json", ext, has_body)
    if kind != 1:
        raise ValueError(f"serialize type {kind}")
    code, _, _, opaque, flag, remark = struct.unpack_from(">hbhiii", header)
    return Peeked(code, opaque, flag, "rocketmq", _names(_pairs(header[21 + remark:])), has_body)


def _pairs(ext: bytes) -> Iterator[tuple[str, str]]:
    """Fields and values of a binary header, from after the four bytes that give their length."""
    at = 0
    while at < len(ext):
        pair = []
        for width in (2, 4):
            length = int.from_bytes(ext[at:at + width], "big")
            pair.append(ext[at + width:at + width + length].decode())
            at += width + length
        yield pair[0], pair[1]


def _names(fields: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(f"{name}={value}" if value in ("true", "false") else name for name, value in fields)


@frozen
class Exchange:
    """A request and its response, if it had one."""

    request: bytes
    response: bytes | None
    link: str

    @property
    def code(self) -> int:
        return peek(self.request).code

    @property
    def shape(self) -> tuple[object, ...]:
        """Exchanges of one shape teach a codec the same."""
        parts: list[object] = []
        for frame in (self.request, self.response):
            if frame is not None:
                seen = peek(frame)
                parts += [seen.encoding, seen.ext, seen.has_body, seen.flag]
        if self.response is not None:
            parts.append(peek(self.response).code)
        return tuple(parts)


def exchanges(recorded: Iterable[Recorded]) -> list[Exchange]:
    """Requests paired with their responses, by connection and opaque, in the order of the requests."""
    waiting: dict[tuple[int, str, int], int] = {}
    found: list[Exchange] = []
    for one in recorded:
        seen = peek(one.frame)
        if seen.flag & RESPONSE:
            other = "to_server" if one.direction == "to_client" else "to_client"
            asked = waiting.pop((one.connection, other, seen.opaque), None)
            if asked is not None:
                found[asked] = evolve(found[asked], response=one.frame)
        else:
            if not seen.flag & ONEWAY:
                waiting[one.connection, one.direction, seen.opaque] = len(found)
            found.append(Exchange(one.frame, None, one.link))
    return [one for one in found if one.response is not None or peek(one.request).flag & ONEWAY]


def pick(found: Iterable[Exchange]) -> dict[RequestCode, list[Exchange]]:
    """Of each code in ``KEPT``, the first exchange of each shape."""
    kept: dict[RequestCode, dict[tuple[object, ...], Exchange]] = {}
    for one in found:
        if one.code not in KEPT or max(len(one.request), len(one.response or b"")) > FRAME_KEPT_BYTES_MAX:
            continue
        shapes = kept.setdefault(RequestCode(one.code), {})
        encoding = peek(one.request).encoding
        if one.shape not in shapes and sum(shape[0] == encoding for shape in shapes) < KINDS_MAX:
            shapes[one.shape] = one
    return {code: list(shapes.values()) for code, shapes in sorted(kept.items())}


def golden_lines(code: RequestCode, kept: Sequence[Exchange], version: str) -> str:
    """The content of one golden file: a line for each frame, a response right after its request."""
    lines = []
    for one in kept:
        for direction, frame in (("request", one.request), ("response", one.response)):
            if frame is not None:
                lines.append(json.dumps({
                    "code": int(code), "name": code.name, "direction": direction, "version": version,
                    "frame": frame.hex(),
                }) + "\n")
    return "".join(lines)


def file_name(code: RequestCode) -> str:
    return f"{int(code)}-{code.name.lower().replace('_', '-')}.ndjson"


def write(kept: dict[RequestCode, list[Exchange]], folder: Path, version: str) -> None:
    """One file for each request code in ``folder/version``; files of codes not seen this time stay."""
    (folder / version).mkdir(parents=True, exist_ok=True)
    for code, some in kept.items():
        (folder / version / file_name(code)).write_text(golden_lines(code, some, version))


# --- making real peers talk ----------------------------------------------------------------------------------


@frozen
class Stage:
    """Where the peers of one recording run, and how they write headers."""

    release: Release
    directory: Path
    encoding: Encoding
    recorder: Recorder
    nursery: trio.Nursery
    stack: AsyncExitStack
    recorded: list[Recorded]

    def jvm(self, plain: JVM) -> JVM:
        return evolve(plain, system={**plain.system, "rocketmq.serialize.type": self.encoding.upper()})

    async def relay(self, name: str, process: JavaProcess) -> str:
        """A relay in front of a process; the address to give to others."""
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
        """Three of the DLedger type; one in binary, whose 16 bits for a code are too few for DLedger's own requests."""
        peers = [
            f"{RELAYED_HOST}:{self.stack.enter_context(reserved())}" for _ in range(3 if self.encoding == "json" else 1)
        ]
        group = []
        for index in range(len(peers)):
            process = await self.stack.enter_async_context(servers.controller(
                self.release, self.directory / f"n{index}", index=index, peers=peers,
                jvm=self.jvm(servers.SMALL), start=False,
            ))
            await self.relay(process.name, process)
            group.append(process)
        await servers.start_all(group)
        return peers

    async def broker(self, name: str, namesrv: str, **settings: Any) -> servers.Broker:
        process = await self.stack.enter_async_context(servers.broker(
            self.release, self.directory / name, namesrv=[namesrv], announced_host=RELAYED_HOST,
            jvm=self.jvm(servers.BROKER), start=False, **settings,
        ))
        await self.relay(name, process)
        await process.start()
        return process


async def _controlled(stage: Stage) -> None:
    """Two brokers under three controllers: registration, SyncStateSet, every admin call, then a master that dies."""
    namesrv = await stage.namesrv()
    peers = await stage.controllers()
    settings = {"controllers": peers, "extra": {"syncControllerMetadataPeriod": 2_000}}
    first = await stage.broker("a1", namesrv, **settings)
    second = await stage.broker("a2", namesrv, **settings)
    await first.wait_log(r"alter.*[sS]yncStateSet|[sS]yncStateSet.*\[1, ?2\]")
    await trio.sleep(6)  # the next regular registration and metadata poll
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


async def _acting(stage: Stage) -> None:
    """A plain master with a slave that acts for it: member groups, data versions, single topics, least ids."""
    namesrv = await stage.namesrv()
    common = {
        "enableSlaveActingMaster": True, "brokerNotActiveTimeoutMillis": 3_000, "forceRegister": False,
        "enableSingleTopicRegister": True, "totalReplicas": 2,
    }
    master = await stage.broker(
        "m", namesrv, group="broker-p", extra={**common, "compatibleWithOldNameSrv": False})  # 901 and 904, not 322
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
    """Send recorded requests once more, in order: what was true then is stale by now, or asked of the wrong node."""
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
    """Run every scene in each encoding; all frames that went by."""
    recorded: list[Recorded] = []
    for encoding in encodings:
        for scene in (_controlled, _acting):
            say(f"{release.version} {encoding}: {scene.__name__.strip('_')}")
            frames: list[Recorded] = []
            async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
                place = directory / f"{encoding}-{scene.__name__.strip('_')}"
                await scene(Stage(release, place, encoding, Recorder(frames.append), nursery, stack, frames))
                await stack.aclose()
                nursery.cancel_scope.cancel()
            say(f"  {len(frames)} frames")
            offset = max((one.connection for one in recorded), default=0)
            recorded += [evolve(one, connection=one.connection + offset) for one in frames]
    return recorded
