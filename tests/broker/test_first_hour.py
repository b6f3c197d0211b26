"""An operator's first hour: files as five public tutorials have them, and what is asked every day, with real processes.

The files have the keys and values of those pages, each named beside them (read in November 2026); comments are left
out, ports, addresses and paths are this machine's. What the exporter and the dashboard ask stands in
``tests/broker/query``.
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

# apache/rocketmq, distribution/conf/broker.conf: what the release brings along for its quick start.
QUICK_START = """\
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""
# https://blog.csdn.net/weixin_42333573/article/details/139973742: by docker-compose, which gives brokers the address.
CONTAINER = """\
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
brokerIP1 = localhost
diskMaxUsedSpaceRatio=95
"""
# https://github.com/foxiswho/docker-rocketmq, rocketmq/conf/broker.conf: keys of 4.1, as many pages repeat them.
OF_FOUR = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
namesrvAddr={namesrv}
brokerIP1=127.0.0.1
defaultTopicQueueNums=4
autoCreateTopicEnable=true
autoCreateSubscriptionGroup=true
deleteWhen=04
fileReservedTime=120
mapedFileSizeCommitLog=1073741824
mapedFileSizeConsumeQueue=300000
diskMaxUsedSpaceRatio=88
storePathRootDir={root}/store
maxMessageSize=65536
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""
# apache/rocketmq, distribution/conf/controller/quick-start/broker-n0.conf, of docs/cn/controller/quick_start.md.
CONTROLLERS = """\
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = -1
brokerRole = SLAVE
deleteWhen = 04
fileReservedTime = 48
enableControllerMode = true
controllerAddr = {controller}
namesrvAddr = {namesrv}
allAckInSyncStateSet=true
storePathRootDir={root}/store/node00
storePathCommitLog={root}/store/node00/commitlog
"""
# apache/rocketmq, docs/cn/msg_trace/user_guide.md: a broker that keeps traces, its log beside its store.
TRACES = """\
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
storePathRootDir={root}/store/rootdir-a-m
storePathCommitLog={root}/store/commitlog-a-m
autoCreateSubscriptionGroup=true
traceTopicEnable=true
brokerIP1=127.0.0.1
namesrvAddr={namesrv}
"""
FILES = {"quick start": QUICK_START, "container": CONTAINER, "keys of RocketMQ 4": OF_FOUR,
         "controllers": CONTROLLERS, "traces": TRACES}


@attrs.frozen
class Daily:
    """A command of ``mqadmin``, and a pattern of a line that it prints."""

    arguments: str
    says: str


ADDRESS = r"[\d.]+:\d+"
DAILY = [
    Daily("clusterList -n {namesrv}", rf"DefaultCluster +broker-a +0 +{ADDRESS} +V5_5_0 "),
    Daily("clusterList -n {namesrv} -m", r"DefaultCluster +broker-a +0 +0 +0 +0$"),
    Daily("updateTopic -n {namesrv} -c DefaultCluster -t orders -r 4 -w 4", rf"create topic to {ADDRESS} success\.$"),
    Daily("updateSubGroup -n {namesrv} -c DefaultCluster -g shop",
          rf"create subscription group to {ADDRESS} success\.$"),
    Daily("topicList -n {namesrv}", "orders$"),
    Daily("topicRoute -n {namesrv} -t orders", r"\s+\"readQueueNums\":4,$"),
    Daily("topicClusterList -n {namesrv} -t orders", "DefaultCluster$"),
    Daily("sendMessage -n {namesrv} -t orders -p hello -k order-1 -c paid", r"broker-a +\d +SEND_OK +[0-9A-F]{32}$"),
    Daily("checkMsgSendRT -n {namesrv} -t orders -a 3 -s 16", r"Avg RT: \d+\.\d\d$"),
    Daily("topicStatus -n {namesrv} -t orders", r"broker-a +0 +0 +[1-9]\d* +\d{4}-\d\d-\d\d "),
    Daily("queryMsgByKey -n {namesrv} -t orders -k order-1", r"[0-9A-F]{32} +\d +0 .*@orders@K@order-1@"),
    Daily("printMsg -n {namesrv} -t orders -d true", r"MSGID: .* BODY: hello$"),
    Daily("consumeMessage -n {namesrv} -t orders", r"MSGID: .* BODY: hello$"),
    Daily("resetOffsetByTime -n {namesrv} -g shop -t orders -s -1", r"broker-a +0 +[1-9]\d*$"),
    Daily("consumerProgress -n {namesrv}", "#Group +#Count +#Version +#Type +#Model +#TPS +#Diff Total$"),
    Daily("brokerStatus -n {namesrv} -b {broker}", "brokerVersionDesc +: V5_5_0$"),
    Daily("getBrokerConfig -n {namesrv} -b {broker}", "brokerName += +broker-a$"),
    Daily("updateBrokerConfig -n {namesrv} -b {broker} -k fileReservedTime -v 72",
          rf"update broker config success, {ADDRESS}$"),
    Daily("statsAll -n {namesrv}", r"orders +shop +0 "),
    Daily("getNamesrvConfig -n {namesrv}", r"listenPort += +\d+$"),
    Daily("wipeWritePerm -n {namesrv} -b broker-a",
          rf"wipe write perm of broker\[broker-a\] in name server\[{ADDRESS}\] OK, [1-9]\d*$"),
    Daily("addWritePerm -n {namesrv} -b broker-a",
          rf"add write perm of broker\[broker-a\] in name server\[{ADDRESS}\] OK, [1-9]\d*$"),
    Daily("deleteSubGroup -n {namesrv} -c DefaultCluster -g shop",
          rf"delete subscription group \[shop\] from broker \[{ADDRESS}\] in cluster \[DefaultCluster\] success\.$"),
    Daily("deleteTopic -n {namesrv} -c DefaultCluster -t orders",
          r"delete topic \[orders\] from NameServer success\.$"),
]


async def broker_of(stack: AsyncExitStack, text: str, here: Path, namesrv: str, controller: str = "") -> Handle:
    """Started as the pages say, ``mqbroker -n … -c FILE``, with the home of this test."""
    port = stack.enter_context(reserved(FAST_PORT, HA_PORT))
    file = _written(here, text.format(root=here, controller=controller, namesrv=namesrv) + f"listenPort={port}\n")
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
        assert b"SEND_OK" in sent.stdout, sent
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
            assert re.search(f"^{daily.says}", said, re.MULTILINE), f"{line}: {said}"
            unread = await mqadmin(line, unread=True)
            assert b"Traceback" not in unread.stderr and b"BrokenPipe" not in unread.stderr, unread
        assert "Traceback" not in broker.printed() + names.printed()
        assert "fileReservedTime=72" in (tmp_path / "broker" / "broker.conf").read_text().replace(" ", "")
