"""RocketMQ's proxy, and clients that speak gRPC to it: each with jars of its own, which do not go together.

It knows their main classes and settings; what they do above which brokers is for scenarios.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from harness.processes.handle import Handle, running
from harness.processes.java.jars import GRPC_PROGRAMS, Release, Say, fetch_part
from harness.processes.java.jvm import JVM, command
from harness.processes.java.programs import CLIENT, Settings, with_settings
from harness.processes.java.servers import HOST
from harness.processes.ports import reserved
from harness.processes.program import Program

CLIENT_VERSION: Final = "5.0.8"
PROXY: Final = JVM(heap_mb=384)


@frozen
class Grpc:
    """The proxy of a release, and the gRPC client with our program."""

    proxy: Release
    client: Release


async def fetch_grpc(release: Release, *, say: Say) -> Grpc:
    """Return proxy and gRPC client, from the cache or Maven. Raises as ``fetch``."""
    proxy = await fetch_part(release.version, "proxy", say=say)
    return Grpc(
        evolve(proxy, classes=release.classes),
        await fetch_part(CLIENT_VERSION, "client-java", say=say, programs=GRPC_PROGRAMS))


@asynccontextmanager
async def proxy(grpc: Grpc, directory: Path, *, namesrv: str) -> AsyncIterator[Handle]:
    """A running proxy in cluster mode: it keeps nothing, and asks the brokers that the name server knows."""
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    with reserved() as port, reserved() as remoting_port:
        settings = directory / "proxy.json"
        settings.write_text(json.dumps({
            "rocketMQClusterName": "DefaultCluster", "proxyClusterName": "DefaultCluster", "namesrvAddr": namesrv,
            "proxyMode": "CLUSTER", "grpcServerPort": port, "remotingListenPort": remoting_port}))
        process = Handle(
            "proxy", directory,
            command(grpc.proxy, "org.apache.rocketmq.proxy.ProxyStartup", ["-pc", str(settings)], directory, PROXY),
            f"{HOST}:{port}", "rocketmq-proxy startup successfully")
        async with running(process):
            yield process


@asynccontextmanager
async def remote(
    grpc: Grpc, directory: Path, *, endpoints: str, plain: str = "", delayed: str = "", pairs: str = "",
    ordered: str = "",
) -> AsyncIterator[Program]:
    """A gRPC producer that takes commands; events ``done``, ``checked``. Each topic is for its kind of messages."""
    directory = directory.absolute()
    async with _speaking_grpc(grpc, directory, "Remote", {
            "endpoints": endpoints, "plain": plain, "delayed": delayed, "pairs": pairs, "ordered": ordered}) as process:
        yield process


@asynccontextmanager
async def distant(
    grpc: Grpc, directory: Path, *, endpoints: str, topic: str, group: str, kind: str, refuse: int = 0,
    refusals: int = 1, invisible_ms: int = 10_000,
) -> AsyncIterator[Program]:
    """A gRPC consumer, ``kind`` push or simple; events ``received``, and ``acked`` of a simple one."""
    async with _speaking_grpc(grpc, directory, "Distant", {
            "endpoints": endpoints, "topic": topic, "group": group, "kind": kind, "refuse": refuse,
            "refusals": refusals, "invisible_ms": invisible_ms}) as process:
        yield process


@asynccontextmanager
async def _speaking_grpc(grpc: Grpc, directory: Path, main: str, values: Settings) -> AsyncIterator[Program]:
    directory = directory.absolute()
    line = [grpc.client.java, *with_settings(CLIENT, values).options(directory), "-cp", grpc.client.classpath, main]
    process = Program(main.lower(), directory, line, "", '"started"')  # it ends when its input closes
    async with running(process):
        yield process
