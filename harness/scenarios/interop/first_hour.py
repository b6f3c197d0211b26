"""An operator's first hour: files as five public tutorials have them, and what is asked every day.

The files have the keys and values of those pages, each named beside them (read in November 2026); comments are left
out, ports, addresses and paths are this machine's. What the exporter and the dashboard ask stands in
``tests/broker/query``. The servers are ours; the scenario asks them with Java's ``mqadmin``, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import trio

from harness.processes import ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.handle import Handle, running
from harness.processes.ports import reserved
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import tool
from mqcluster.plan import ROOM
from remoting.daemon.child import child

# apache/rocketmq, distribution/conf/broker.conf: the release's file for its quick start.
QUICK_START = """\
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""
# https://blog.csdn.net/weixin_42333573/article/details/139973742: docker-compose gives brokers the address.
CONTAINER = QUICK_START + """\
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
    Daily("clusterList -n {namesrv} -m", r"DefaultCluster +broker-a( +\d+){4}$"),
    Daily("updateTopic -n {namesrv} -c DefaultCluster -t orders -r 4 -w 4", rf"create topic to {ADDRESS} success\.$"),
    Daily("updateSubGroup -n {namesrv} -c DefaultCluster -g shop",
          rf"create subscription group to {ADDRESS} success\.$"),
    Daily("topicList -n {namesrv}", "orders$"),
    Daily("topicRoute -n {namesrv} -t orders", r"\s+\"readQueueNums\":4,$"),
    Daily("topicClusterList -n {namesrv} -t orders", "DefaultCluster$"),
    Daily("sendMessage -n {namesrv} -t orders -p hello -k order-1 -c paid", r"broker-a +\d +SEND_OK +[0-9A-F]{32,56}$"),
    Daily("checkMsgSendRT -n {namesrv} -t orders -a 3 -s 16", r"Avg RT: \d+\.\d\d$"),
    Daily("topicStatus -n {namesrv} -t orders", r"broker-a +0 +0 +[1-9]\d* +\d{4}-\d\d-\d\d "),
    Daily("queryMsgByKey -n {namesrv} -t orders -k order-1", r"[0-9A-F]{32,56} +\d +0 .*@orders@K@order-1@"),
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

Said = tuple[bool, str]
"""Result of a command: whether it ended well, and what it printed, errors included."""


@scenario("5.5.0", timeout_s=900)
async def an_operators_first_hour(stage: Stage) -> None:
    """Five tutorials' files each start our broker; 24 everyday commands, of our `mqadmin` and of Java's."""
    for number, page in enumerate(FILES):
        await starts(page, stage.here / f"page-{number}")
        stage.say(f"starts with the file of: {page}")

    async def of_java(*arguments: str) -> Said:
        run = await tool(stage, *arguments)
        return run.ok, run.stdout + run.stderr

    await everyday(stage.here / "everyday", of_ours, of_java)


async def of_ours(*arguments: str) -> Said:
    """Run our command into a closed pipe, as behind ``| head -0``, and once more for its output."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        unread = await trio.run_process([*child("controller.admin.cli"), *arguments], stdout=writing,
                                        capture_stderr=True, check=False)
    finally:
        os.close(writing)
    well, said = await asked(*arguments)
    said += unread.stderr.decode()
    return well and "Traceback" not in said and "BrokenPipe" not in said, said


async def asked(*arguments: str) -> Said:
    """Run our command, and read all that it says."""
    run = await trio.run_process([*child("controller.admin.cli"), *arguments], capture_stdout=True, capture_stderr=True,
                                 check=False)
    return run.returncode == 0, (run.stdout + run.stderr).decode()


async def broker_of(stack: AsyncExitStack, text: str, here: Path, namesrv: str, controller: str = "") -> Handle:
    """Start a broker as the pages say, ``mqbroker -n … -c FILE``, and wait until the name server knows it."""
    port = stack.enter_context(reserved(FAST_PORT, HA_PORT))
    here.mkdir()
    file = here / "broker.conf"
    file.write_text(text.format(root=here, controller=controller, namesrv=namesrv)
                    + f"listenPort={port}\ndiskSpaceWarningLevelRatio={ROOM['diskSpaceWarningLevelRatio']}\n")
    command = [*child("broker.cli"), "-n", namesrv, "-c", str(file)]
    broker = await stack.enter_async_context(running(Handle(
        "broker", here, command, f"127.0.0.1:{port}", "boot success", variables={"HOME": str(here)})))
    with trio.fail_after(60):
        while "broker-a" not in (await asked("clusterList", "-n", namesrv))[1]:
            await trio.sleep(0.1)
    return broker


async def starts(page: str, here: Path) -> None:
    """Check that the broker of a page's file takes a message and has its store where the page says."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(ours.namesrv(here / "namesrv"))
        controllers = await stack.enter_async_context(ours.controllers(
            here / "controllers", 1, start=page == "controllers"))
        broker = await broker_of(stack, FILES[page], here / "broker", names.address, controllers[0].address)
        _, said = await of_ours("sendMessage", "-n", names.address, "-t", "TopicTest", "-p", "hello")
        expect("SEND_OK" in said, f"{page}: {said}")
        await broker.stop()
        expect("Traceback" not in broker.printed(), broker.printed())
        expect((here / "broker" / "store").is_dir(), f"{page}: its store is elsewhere")


async def everyday(here: Path, *tools: Callable[..., Awaitable[Said]]) -> None:
    """Run all everyday commands with each tool in turn, on one cluster."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(ours.namesrv(here / "namesrv"))
        broker = await broker_of(stack, QUICK_START, here / "broker", names.address)
        for ask in tools:
            for daily in DAILY:
                line = daily.arguments.format(namesrv=names.address, broker=broker.address)
                well, said = await ask(*line.split())
                ends = "\n".join(map(str.rstrip, said.splitlines()))  # Java's tool pads its last column
                expect(well and re.search(f"^{daily.says}", ends, re.MULTILINE), f"{line}: {said}")
        expect("Traceback" not in broker.printed() + names.printed(), broker.printed())
        kept = (here / "broker" / "broker.conf").read_text().replace(" ", "")
        expect("fileReservedTime=72" in kept, f"updateBrokerConfig left: {kept}")
