"""Java name servers, controllers and brokers, each an async context that ends with the process killed.

Ports come from the OS and stay reserved, so ``await broker.kill()`` and ``await broker.start()`` is a restart at the
same address from the same disk. It knows RocketMQ's main classes and what they print; what their files hold is said in
``harness.processes.java.settings``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from harness.processes.broker import FAST_PORT, HA_PORT, Broker
from harness.processes.handle import Handle, running, start_all
from harness.processes.java import settings
from harness.processes.java.jars import Release
from harness.processes.java.jvm import JVM, command
from harness.processes.java.settings import ControllerType, Value
from harness.processes.ports import reserved

HOST: Final = "127.0.0.1"
SMALL: Final = JVM(heap_mb=128)
CONTROLLER: Final = JVM(heap_mb=128, system={"dledger.disk.ratio.clean": "0.99"})
BROKER: Final = JVM(heap_mb=512, heap_first_mb=256, system={
    "rocketmq.broker.diskSpaceWarningLevelRatio": "0.99", "rocketmq.broker.diskSpaceCleanForciblyRatio": "0.99",
})


def _write(directory: Path, name: str, content: Mapping[str, Value]) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(settings.properties(content))
    return str(path)


@asynccontextmanager
async def namesrv(
    release: Release, directory: Path, *, host: str = HOST, extra: Mapping[str, Value] | None = None,
    jvm: JVM = SMALL, start: bool = True,
) -> AsyncIterator[Handle]:
    """Runs a name server of that release."""
    directory = directory.absolute()
    with reserved() as port:
        file = _write(directory, "namesrv.conf", settings.namesrv(directory, host=host, port=port, extra=extra or {}))
        (directory / "conf").mkdir(exist_ok=True)
        (directory / "conf" / "logback_namesrv.xml").write_text("<configuration/>\n")  # one of 4.9 ends without it
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        process = Handle(
            "namesrv", directory, command(release, main, ["-c", file], directory, jvm), f"{host}:{port}",
            "The Name Server boot success",
        )
        async with running(process, start=start):
            yield process


@asynccontextmanager
async def controller(
    release: Release, directory: Path, *, index: int, peers: Sequence[str], raft_peers: Sequence[str] = (),
    type: ControllerType = "DLedger", host: str = HOST, extra: Mapping[str, Value] | None = None,  # noqa: A002 - RocketMQ's word
    jvm: JVM = CONTROLLER, start: bool = True,
) -> AsyncIterator[Handle]:
    """Node ``index`` of the group at ``peers``, all ``host:port``. ``raft_peers`` are for the jRaft type alone."""
    directory = directory.absolute()
    extra = extra or {}
    content = (
        settings.dledger_controller(directory, host=host, index=index, peers=peers, extra=extra)
        if type == "DLedger" else
        settings.jraft_controller(directory, host=host, index=index, peers=peers, raft_peers=raft_peers, extra=extra)
    )
    file = _write(directory, "controller.conf", content)
    main = "org.apache.rocketmq.controller.ControllerStartup"
    process = Handle(
        f"controller n{index}", directory, command(release, main, ["-c", file], directory, jvm),
        f"{host}:{peers[index].rpartition(':')[2]}", "The Controller Server boot success",
    )
    async with running(process, start=start):
        yield process


@asynccontextmanager
async def controllers(
    release: Release, directory: Path, count: int = 3, *, type: ControllerType = "DLedger", host: str = HOST,  # noqa: A002 - RocketMQ's word
    extra: Mapping[str, Value] | None = None, jvm: JVM = SMALL,
) -> AsyncIterator[list[Handle]]:
    """A controller group, all started at once, in ``directory/n0`` and on."""
    async with AsyncExitStack() as stack:
        ports = [stack.enter_context(reserved()) for _ in range(count)]
        peers = [f"{host}:{port}" for port in ports]
        raft_peers = [f"{host}:{stack.enter_context(reserved())}" for _ in range(count)] if type == "jRaft" else []
        group = [
            await stack.enter_async_context(controller(
                release, directory / f"n{index}", index=index, peers=peers, raft_peers=raft_peers, type=type,
                host=host, extra=extra, jvm=jvm, start=False,
            ))
            for index in range(count)
        ]
        await start_all(group)
        yield group


@asynccontextmanager
async def broker(
    release: Release, directory: Path, *, group: str = "broker-a", namesrv: Sequence[str],
    controllers: Sequence[str] = (), cluster: str = "DefaultCluster", host: str = HOST, announced_host: str = "",
    extra: Mapping[str, Value] | None = None, jvm: JVM = BROKER, start: bool = True,
) -> AsyncIterator[Broker]:
    """A broker: under the rule of ``controllers`` if there are any, else a plain master (see ``extra`` for a slave)."""
    directory = directory.absolute()
    announced_host = announced_host or host
    with reserved(FAST_PORT, HA_PORT) as port:
        content = settings.broker(
            directory, host=host, announced=announced_host, port=port, ha_port=port + HA_PORT, group=group,
            cluster=cluster, namesrv=namesrv,
            extra={**(settings.controlled(controllers) if controllers else {}), **(extra or {})},
        )
        main = "org.apache.rocketmq.broker.BrokerStartup"
        process = Broker(
            f"{group} at {directory.name}", directory,
            command(release, main, ["-c", _write(directory, "broker.conf", content)], directory, jvm),
            f"{host}:{port}", "boot success", group=group, announced=f"{announced_host}:{port}",
        )
        async with running(process, start=start):
            yield process
