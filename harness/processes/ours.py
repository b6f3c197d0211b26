"""Starts this project's own servers as processes, with the same handles as Java's.

Knows their commands and keys.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from harness.processes.broker import FAST_PORT, HA_PORT, Broker
from harness.processes.handle import Handle, running, start_all
from harness.processes.ports import reserved
from mqcluster.plan import ROOM
from remoting.daemon.child import child

HOST = "127.0.0.1"
_LEASH = ("import os, threading; "
          "threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()")
"""Ends the server when the program that started it dies in any way, as the pipe closes then."""


def _command(module: str, settings: Mapping[str, object]) -> list[str]:
    return [*child(module, _LEASH), *(part for key, value in settings.items() for part in ("-D", f"{key}={value}"))]


@asynccontextmanager
async def namesrv(
    directory: Path, *, extra: Mapping[str, object] | None = None, start: bool = True,
) -> AsyncIterator[Handle]:
    """Run our name server as a process."""
    directory = directory.absolute()
    with reserved() as port:
        settings = {
            "listenPort": port, "bindAddress": HOST, "kvConfigPath": directory / "kvConfig.json",
            "configStorePath": directory / "namesrv.properties", **(extra or {})}
        process = Handle("our namesrv", directory, _command("controller.namesrv.cli", settings), f"{HOST}:{port}",
                              "boot success")
        async with running(process, start=start):
            yield process


@asynccontextmanager
async def controllers(
    directory: Path, count: int = 3, *, extra: Mapping[str, object] | None = None, start: bool = True,
) -> AsyncIterator[list[Handle]]:
    """Run a group of our controllers, in ``directory/n0`` and on."""
    directory = directory.absolute()
    async with AsyncExitStack() as stack:
        ports = [stack.enter_context(reserved()) for _ in range(count)]
        peers = ";".join(f"n{index}-{HOST}:{port}" for index, port in enumerate(ports))
        group = [
            await stack.enter_async_context(running(
                _controller(directory / f"n{index}", index, port, peers, extra or {}), start=False))
            for index, port in enumerate(ports)
        ]
        if start:
            await start_all(group)
        yield group


def _controller(
    directory: Path, index: int, port: int, peers: str, extra: Mapping[str, object]
) -> Handle:
    settings = {
        "controllerDLegerGroup": "ours", "controllerDLegerPeers": peers, "controllerDLegerSelfId": f"n{index}",
        "controllerStorePath": directory / "store", "configStorePath": directory / "controller.properties",
        "bindAddress": HOST, **extra}
    return Handle(f"our controller n{index}", directory, _command("controller.cli", settings), f"{HOST}:{port}",
                       "boot success")


@asynccontextmanager
async def broker(
    directory: Path, group: str = "broker-a", *, namesrv: Sequence[str] = (), controllers: Sequence[str] = (),
    extra: Mapping[str, object] | None = None, start: bool = True,
) -> AsyncIterator[Broker]:
    """Run one of our brokers: a single master, or with ``controllers`` a replica of its group."""
    directory = directory.absolute()
    with reserved(FAST_PORT, HA_PORT) as port:
        settings: dict[str, object] = {
            "brokerName": group, "brokerIP1": HOST, "bindAddress": HOST, "listenPort": port,
            "haListenPort": port + HA_PORT, "namesrvAddr": ";".join(namesrv), "storePathRootDir": directory / "store",
            "configStorePath": directory / "broker.properties", "mappedFileSizeCommitLog": 64 << 20, **ROOM}
        if controllers:
            settings |= {"enableControllerMode": True, "controllerAddr": ";".join(controllers),
                         "enableGuardian": False}  # the handle must be the broker's own process
        process = Broker(f"our {group} {directory.name}", directory,
                         _command("broker.cli", {**settings, **(extra or {})}), f"{HOST}:{port}", "boot success",
                         group=group, announced=f"{HOST}:{port}")
        async with running(process, start=start):
            yield process


@asynccontextmanager
async def container(directory: Path, *, namesrv: Sequence[str] = ()) -> AsyncIterator[Handle]:
    """Run a container without brokers: ``mqadmin addBroker`` adds some, and its caller must remove them."""
    directory = directory.absolute()
    with reserved(FAST_PORT) as port:
        settings = {"bindAddress": HOST, "listenPort": port, "namesrvAddr": ";".join(namesrv),
                    "containerStorePath": directory / "kept"}
        process = Handle("our container", directory, _command("broker.container.cli", settings), f"{HOST}:{port}",
                         "container boot success")
        async with running(process):
            yield process


def addresses(processes: Sequence[Handle]) -> list[str]:
    return [process.address for process in processes]
