"""An operator's first hour: files as five public tutorials have them, and what is asked every day, with real processes.

The files have the keys and values that readers copy from such pages; ports and paths are this machine's. What the
exporter and the dashboard ask stands in ``tests/broker/query``.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import pytest
import trio

from harness.processes import ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running
from harness.processes.ports import reserved
from remoting.daemon.child import child

QUICK_START = """\
# quick start: a single master
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""
CONTAINER = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
brokerIP1=localhost
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
"""
TWO_MASTERS_TWO_SLAVES = """\
#所属集群名字
brokerClusterName=rocketmq-cluster
brokerName=broker-a
#0 表示 Master，>0 表示 Slave
brokerId=0
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
deleteWhen=04
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
#destroyMapedFileIntervalForcibly=120000
#redeleteHangedFileInterval=120000
diskMaxUsedSpaceRatio=88
storePathRootDir={root}/store
storePathCommitLog={root}/store/commitlog
storePathConsumeQueue={root}/store/consumequeue
storePathIndex={root}/store/index
storeCheckpoint={root}/store/checkpoint
abortFile={root}/store/abort
maxMessageSize=65536
#flushCommitLogLeastPages=4
#flushConsumeQueueLeastPages=2
brokerRole=SYNC_MASTER
flushDiskType=SYNC_FLUSH
#checkTransactionMessageEnable=false
sendMessageThreadPoolNums=128
pullMessageThreadPoolNums=128
"""
CONTROLLERS = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=-1
deleteWhen=04
fileReservedTime=48
brokerRole=SLAVE
flushDiskType=ASYNC_FLUSH
storePathRootDir={root}/store/node00
storePathCommitLog={root}/store/node00/commitlog
autoCreateTopicEnable=false
enableControllerMode=true
controllerAddr={controller}
allAckInSyncStateSet=true
"""
WAITING_AND_TRACES = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
storePathRootDir={root}/store
timerWheelEnable=true
enablePropertyFilter=true
traceTopicEnable=true
transactionTimeOut=6000
transactionCheckMax=15
transactionCheckInterval=60000
messageDelayLevel=1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
aclEnable=false
slaveReadEnable=true
"""
FILES = {"quick start": QUICK_START, "container": CONTAINER, "two masters, two slaves": TWO_MASTERS_TWO_SLAVES,
         "controllers": CONTROLLERS, "waiting and traces": WAITING_AND_TRACES}


@attrs.frozen
class Daily:
    """A command of ``mqadmin``, and words of what it prints."""

    arguments: str
    says: str


DAILY = [
    Daily("clusterList -n {namesrv}", "broker-a"),
    Daily("clusterList -n {namesrv} -m", "InTotalToday|OutTotalToday"),
    Daily("updateTopic -n {namesrv} -c DefaultCluster -t orders -r 4 -w 4", "success"),
    Daily("updateSubGroup -n {namesrv} -c DefaultCluster -g shop", "success"),
    Daily("topicList -n {namesrv}", "orders"),
    Daily("topicRoute -n {namesrv} -t orders", "broker-a"),
    Daily("topicClusterList -n {namesrv} -t orders", "DefaultCluster"),
    Daily("sendMessage -n {namesrv} -t orders -p hello -k order-1 -c paid", "SEND_OK"),
    Daily("checkMsgSendRT -n {namesrv} -t orders -a 3 -s 16", "Avg RT"),
    Daily("topicStatus -n {namesrv} -t orders", "broker-a"),
    Daily("queryMsgByKey -n {namesrv} -t orders -k order-1", "orders|Message ID|Message"),
    Daily("printMsg -n {namesrv} -t orders -d true", "hello"),
    Daily("consumeMessage -n {namesrv} -t orders", "hello"),
    Daily("consumerProgress -n {namesrv}", "shop|Group"),
    Daily("resetOffsetByTime -n {namesrv} -g shop -t orders -s -1", "orders|broker-a"),
    Daily("brokerStatus -n {namesrv} -b {broker}", "brokerVersionDesc"),
    Daily("getBrokerConfig -n {namesrv} -b {broker}", "brokerName"),
    Daily("updateBrokerConfig -n {namesrv} -b {broker} -k fileReservedTime -v 72", "success"),
    Daily("statsAll -n {namesrv}", "orders"),
    Daily("getNamesrvConfig -n {namesrv}", "listenPort"),
    Daily("wipeWritePerm -n {namesrv} -b broker-a", "OK|success|wipe"),
    Daily("addWritePerm -n {namesrv} -b broker-a", "OK|success|add"),
    Daily("deleteSubGroup -n {namesrv} -c DefaultCluster -g shop", "success"),
    Daily("deleteTopic -n {namesrv} -c DefaultCluster -t orders", "success"),
]
READS = ("clusterList", "topicList", "topicRoute", "topicStatus", "brokerStatus", "getBrokerConfig", "getNamesrvConfig")
"""Of these the first lines may be all that somebody wants."""


async def broker_of(stack: AsyncExitStack, text: str, here: Path, namesrv: str, controller: str = "") -> Handle:
    """Started as the pages say, ``mqbroker -n … -c FILE``, with the home of this test."""
    port = stack.enter_context(reserved(FAST_PORT, HA_PORT))
    file = _written(here, text.format(root=here, controller=controller) + f"listenPort={port}\n")
    command = [*child("broker.cli"), "-n", namesrv, "-c", str(file)]
    return await stack.enter_async_context(running(Handle(
        "broker", here, command, f"127.0.0.1:{port}", "boot success", variables={"HOME": str(here)})))


def _written(here: Path, text: str) -> Path:
    here.mkdir()
    file = here / "broker.conf"
    file.write_text(text, encoding="utf-8")
    return file


async def mqadmin(line: str, *, unread: bool = False) -> subprocess.CompletedProcess[bytes]:
    """``unread``: nobody reads what it prints, as behind ``| head -0``."""
    command = [*child("controller.admin.cli"), *line.split()]
    if not unread:
        return await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return await trio.run_process(command, stdout=writing, capture_stderr=True, check=False)
    finally:
        os.close(writing)


@pytest.mark.slow
@pytest.mark.parametrize("page", FILES)
async def test_a_file_of_a_tutorial_starts_a_broker(page: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(ours.namesrv(tmp_path / "namesrv"))
        controllers = await stack.enter_async_context(ours.controllers(
            tmp_path / "controllers", 1, start=page == "controllers"))
        broker = await broker_of(stack, FILES[page], tmp_path / "broker", names.address, controllers[0].address)
        with trio.fail_after(30):
            while b"broker-a" not in (await mqadmin(f"clusterList -n {names.address}")).stdout:
                await trio.sleep(0.1)
        sent = await mqadmin(f"sendMessage -n {names.address} -t TopicTest -p hello")
        made = "autoCreateTopicEnable=false" not in FILES[page]
        assert (b"SEND_OK" in sent.stdout) == made, sent
        await broker.stop()
        assert "Traceback" not in broker.printed(), broker.printed()
        assert (tmp_path / "broker" / "store").is_dir(), "its messages are where the page says"


@pytest.mark.slow
async def test_what_is_asked_every_day_is_answered(tmp_path: Path) -> None:
    assert len(DAILY) >= 20
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(ours.namesrv(tmp_path / "namesrv"))
        broker = await broker_of(stack, QUICK_START, tmp_path / "broker", names.address)
        with trio.fail_after(30):
            while b"broker-a" not in (await mqadmin(f"clusterList -n {names.address}")).stdout:
                await trio.sleep(0.1)
        for daily in DAILY:
            line = daily.arguments.format(namesrv=names.address, broker=broker.address)
            run = await mqadmin(line)
            said = run.stdout.decode()
            assert run.returncode == 0 and b"Traceback" not in run.stderr, f"{line}: {run}"
            assert re.search(daily.says, said), f"{line}: {said}"
            if line.split()[0] in READS:
                unread = await mqadmin(line, unread=True)
                assert b"Traceback" not in unread.stderr and b"BrokenPipe" not in unread.stderr, unread
        assert "Traceback" not in broker.printed() + names.printed()
        assert "fileReservedTime=72" in (tmp_path / "broker" / "broker.conf").read_text().replace(" ", "")
