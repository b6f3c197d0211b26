"""Configuration files as operators have them, and the command started with them: what it serves, and what it says."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from broker.client import Message, Start, connect
from harness.processes import ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running
from harness.processes.ports import reserved
from remoting.client import checked, open_client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request

pytestmark = pytest.mark.slow


@asynccontextmanager
async def command(here: Path, text: str, *, namesrv: str = "") -> AsyncGenerator[Handle, None]:
    """``mqbroker -c`` with a file of this text, and of what a test needs, not started yet."""
    file = here / "broker.conf"
    with reserved(FAST_PORT, HA_PORT) as port:
        file.write_text(f"""\
brokerName = broker-a
brokerIP1 = {ours.HOST}
bindAddress = {ours.HOST}
listenPort = {port}
haListenPort = {port + HA_PORT}
namesrvAddr = {namesrv}
storePathRootDir = {here}/store
mappedFileSizeCommitLog = 8192
diskSpaceWarningLevelRatio = 100
diskSpaceCleanForciblyRatio = 99
diskMaxUsedSpaceRatio = 95
{text}
""")
        program = "import sys; from broker.cli import main; sys.exit(main())"
        process = Handle("mqbroker", here, [sys.executable, "-c", program, "-c", str(file)], f"{ours.HOST}:{port}",
                         "boot success")
        async with running(process, start=False):
            yield process


async def sent(namesrv: str, *bodies: bytes) -> None:
    async with connect([namesrv]) as client:
        for body in bodies:
            await client.send(Message("T", body))


async def read(namesrv: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with connect([namesrv]) as client, client.pull("reader", start=Start.FIRST) as puller:
        await puller.assign(await client.queues("T"))
        with trio.fail_after(60):
            while len(found) < count:
                found += [message.body for message in await puller.poll()]
    return sorted(found)


async def test_a_log_that_the_file_puts_elsewhere_is_opened(tmp_path: Path) -> None:
    bodies = [b"%02d" % number + bytes(1_000) for number in range(24)]
    one, two = tmp_path / "disk1" / "log", tmp_path / "disk2" / "log"
    async with ours.namesrv(tmp_path / "namesrv") as namesrv:
        async with command(tmp_path, "", namesrv=namesrv.address) as broker:
            await broker.start()
            await sent(namesrv.address, *bodies[:12])
            await broker.stop()
        log = tmp_path / "store" / "commitlog"
        names = sorted(path.name for path in log.iterdir())
        elsewhere = f"storePathCommitLog = {one},{two}\nstorePathEpochFile = {tmp_path}/epochs/broker-a\n"
        async with command(tmp_path, elsewhere, namesrv=namesrv.address) as broker:
            await broker.launch()
            assert await broker.wait() == 1
            assert f"storePathCommitLog names {one}, {two}: move its files there" in broker.printed()
            for number, name in enumerate(names):
                (log / name).rename((one, two)[number % 2] / name)
            await broker.start()
            await sent(namesrv.address, *bodies[12:])
            await broker.kill()
            await broker.start()
            assert await read(namesrv.address, 24) == bodies
            await broker.stop()
    evens, odds = ([int(path.name) // 8192 for path in place.iterdir()] for place in (one, two))
    assert len(evens) > 1 and len(odds) > 1
    assert {number % 2 for number in evens} == {0} and {number % 2 for number in odds} == {1}
    assert list(log.iterdir()) == []


OLD = """\
# as many that are passed around
deleteWhen = 04
fileReservedTime = 120
mapedFileSizeCommitLog = 1073741824
mapedFileSizeConsumeQueue = 300000
destroyMapedFileIntervalForcibly = 120000
checkTransactionMessageEnable = false
haSlaveFallbehindMax = 268435456
storePathConsumerQueue = /nowhere/consumequeue
diskMaxUsedSpaceRatio = 88
diskSpaceCleanForciblyRatio = 85
transientStorePoolEnable = true
lockInStrictMode = true
sendMessageThreadPoolNums = 128
brokerIP1 = localhost
"""


async def test_a_file_of_rocketmq_4_starts_and_is_told_what_means_nothing(tmp_path: Path) -> None:
    async with ours.namesrv(tmp_path / "namesrv") as namesrv, command(
            tmp_path, OLD, namesrv=namesrv.address) as broker:
        await broker.start()
        await sent(namesrv.address, b"m")
        assert await read(namesrv.address, 1) == [b"m"]
        lines = broker.printed().splitlines()
        file = tmp_path / "broker.conf"
        before = await trio.Path(file).read_text()
        async with open_client() as client:
            checked(await client.call(broker.address, request(
                RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=48\n")))
            barred = await client.call(broker.address, request(
                RequestCode.UPDATE_BROKER_CONFIG, body=b"storePathCommitLog=/elsewhere\n"))
        assert barred.code == ResponseCode.NO_PERMISSION
        assert await trio.Path(file).read_text() == before.replace("fileReservedTime = 120", "fileReservedTime=48")
        await broker.stop()
    warned = {word.removeprefix("key=") for line in lines if " WARNING " in line for word in line.split()
              if word.startswith("key=")}
    assert warned == {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue", "checkTransactionMessageEnable",
                      "haSlaveFallbehindMax", "storePathConsumerQueue", "transientStorePoolEnable"}
    assert any("perhaps_meant=mappedFileSizeCommitLog" in line for line in lines)
    assert any("INFO" in line and "key=sendMessageThreadPoolNums" in line for line in lines)
    port = broker.address.rpartition(":")[2]
    assert any(f"localhost:{port}] boot success" in line for line in lines), "told as given"
