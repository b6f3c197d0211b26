"""Each sample configuration runs as it is, but for ports and folders, and its deployment takes a message."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from shutil import copy

import pytest
import trio

from broker.client import ClientError, Message, connect
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running
from harness.processes.ours import HOST
from harness.processes.ports import reserved
from remoting.bodies.namesrv import ClusterInfo
from remoting.client import open_client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.daemon.child import child
from remoting.errors import RemotingError

SAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "conf"
TWO = ["broker-a.properties", "broker-b.properties"]
FOUR = [*TWO, "broker-a-s.properties", "broker-b-s.properties"]
THREE = [f"controller/broker-n{number}.conf" for number in range(3)]
PLAIN = {"one": ["broker.conf"], **{folder: [f"{folder}/{name}" for name in names] for folder, names in (
    ("2m-noslave", TWO), ("2m-2s-async", FOUR), ("2m-2s-sync", FOUR))}}
CONTROLLED = {"controllers": "controller", "controllers in name servers": "namesrv"}


async def started(stack: AsyncExitStack, here: Path, module: str, sample: str, port: int, **keys: object) -> Handle:
    file = here / sample.replace("/", "-")
    copy(SAMPLES / sample, file)
    given: Mapping[str, object] = {"bindAddress": HOST, **keys}
    command = [*child(module), "-c", str(file), *(part for name, value in given.items() for part in (
        "-D", f"{name}={value}"))]
    folder = here / file.stem
    return await stack.enter_async_context(running(Handle(sample, folder, command, f"{HOST}:{port}", "boot success")))


async def served(stack: AsyncExitStack, here: Path, brokers: list[str], namesrv: str, **keys: object) -> None:
    """Start the brokers; then all of them are known, and a message is taken."""
    for sample in brokers:
        port = stack.enter_context(reserved(FAST_PORT, HA_PORT))
        await started(
            stack, here, "broker.cli", sample, port, listenPort=port, haListenPort=port + HA_PORT, brokerIP1=HOST,
            namesrvAddr=namesrv, storePathRootDir=here / "store" / sample, maxHashSlotNum=1000,
            maxIndexNum=4000, **keys)
    with trio.fail_after(60):
        async with open_client() as client:
            while True:
                answer = await client.call(namesrv, request(RequestCode.GET_BROKER_CLUSTER_INFO))
                groups = ClusterInfo.from_json(answer.body).broker_addr_table.values()
                if sum(len(group.broker_addrs) for group in groups) == len(brokers):
                    break
                await trio.sleep(0.05)
        async with connect([namesrv]) as client_of_brokers:
            while True:
                try:
                    await client_of_brokers.send(Message("T", b"m"))
                except (ClientError, RemotingError):
                    await trio.sleep(0.05)
                else:
                    return


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
async def test_a_plain_deployment(tmp_path: Path, name: str) -> None:
    async with AsyncExitStack() as stack:
        port = stack.enter_context(reserved())
        namesrv = await started(stack, tmp_path, "controller.namesrv.cli", "namesrv.conf", port, listenPort=port,
                                kvConfigPath=tmp_path / "kv.json")
        await served(stack, tmp_path, PLAIN[name], namesrv.address)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLLED)
async def test_controllers_and_their_brokers(tmp_path: Path, name: str) -> None:
    kind = CONTROLLED[name]
    async with AsyncExitStack() as stack:
        ports = [stack.enter_context(reserved()) for _ in range(3)]
        peers = ";".join(f"n{number}-{HOST}:{port}" for number, port in enumerate(ports))
        port = stack.enter_context(reserved())
        if kind == "controller":
            await started(stack, tmp_path, "controller.namesrv.cli", "namesrv.conf", port, listenPort=port,
                          kvConfigPath=tmp_path / "kv.json")
        for number, own in enumerate(ports):
            more: dict[str, object] = {}
            if kind == "namesrv":
                own = port if number == 0 else stack.enter_context(reserved())
                more = {"listenPort": own, "kvConfigPath": tmp_path / f"kv{number}.json"}
            module = "controller.cli" if kind == "controller" else "controller.namesrv.cli"
            await started(
                stack, tmp_path, module, f"controller/{kind}-n{number}.conf", own, controllerDLegerPeers=peers,
                controllerStorePath=tmp_path / f"raft{number}", **more)
        await served(stack, tmp_path, THREE, f"{HOST}:{port}",
                     controllerAddr=";".join(f"{HOST}:{each}" for each in ports))


def test_every_sample_is_run() -> None:
    there = {str(path.relative_to(SAMPLES)) for path in SAMPLES.rglob("*") if path.is_file()}
    run = {"namesrv.conf", *THREE, *(sample for samples in PLAIN.values() for sample in samples), *(
        f"controller/{kind}-n{number}.conf" for kind in CONTROLLED.values() for number in range(3))}
    assert there == run
