"""Compares Java's ``mqadmin`` and ours on queues, settings, name servers and clients.

It runs both tools against our servers and against Java's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack

import trio

from harness.processes import java, ours
from harness.processes.broker import FAST_PORT, HA_PORT
from harness.processes.ours import HOST
from harness.processes.ports import reserved
from harness.scenarios.interop.failover import GROUP
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.tools import both, java_servers, our_mqadmin, our_servers
from harness.scenarios.interop.watch import create_topic
from remoting import properties

TOPIC = "Orders"
READERS = "readers"


async def _both(stage: Stage, namesrv: str, commands: Sequence[tuple[str, ...]]) -> None:
    """Run ``both`` tools against the cluster of this name server."""
    await both(stage, [(*each, "-n", namesrv) for each in commands])


async def queues_and_settings(stage: Stage, namesrv: str, broker: str) -> None:
    """Compare both tools on lists, printed messages, settings and name servers."""
    await create_topic(stage, namesrv, TOPIC)
    for group in (READERS, "others"):
        await our_mqadmin("updateSubGroup", "-n", namesrv, "-b", broker, "-g", group)
    for body in ("first", "second", "third"):
        sent = await our_mqadmin("sendMessage", "-n", namesrv, "-t", TOPIC, "-p", body, "-c", "tag", "-k", "k",
                                 "-b", GROUP, "-i", "0")
        expect(sent.exit_code == 0, f"{sent}")
    await trio.sleep(1)
    topic, at, queue = ("-t", TOPIC), ("-b", broker), ("-b", GROUP, "-i", "0")
    await _both(stage, namesrv, (
        ("topicList",), ("topicList", "-c"), ("topicClusterList", *topic), ("getNamesrvConfig",),
        ("getConsumerConfig", "-g", READERS), ("printMsg", *topic),
        ("printMsgByQueue", *topic, "-a", GROUP, "-i", "0", "-p", "true", "-d", "true", "-f", "true"),
        ("consumeMessage", *topic, *queue), ("queryMsgByOffset", *topic, *queue, "-o", "1"),
        ("queryCq", *topic, "-q", "0", "-i", "0", "-c", "2"), ("statsAll", *topic),
        ("allocateMQ", *topic, "-i", "a,b"), ("cleanExpiredCQ", *at),
        ("skipAccumulatedMessage", *topic, "-g", READERS), ("brokerConsumeStats", *at),
        ("updateTopicPerm", *at, *topic, "-p", "6"), ("setConsumeMode", *at, *topic, "-g", READERS, "-m", "PULL"),
        ("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "x", "-v", "a:1"),
        ("updateOrderConf", "-t", "x", "-m", "get"), ("wipeWritePerm", "-b", GROUP), ("addWritePerm", "-b", GROUP),
        ("getColdDataFlowCtrInfo", *at), ("setCommitLogReadAheadMode", *at, "-m", "0"),
        ("getBrokerConfig", *at), ("getBrokerConfig", "-c", "DefaultCluster"),
    ))


async def clients_and_upkeep(stage: Stage, namesrv: str, broker: str) -> None:
    """Compare both tools on connected clients, probes, cleaning, files of topics and groups, and exports."""
    topics, groups = stage.here / "topics.json", stage.here / "groups.json"
    topics.write_text(json.dumps([{"topicName": name, "readQueueNums": 4, "writeQueueNums": 4} for name in "ab"]))
    groups.write_text(json.dumps([{"groupName": "listed"}]))
    for name in ("java", "ours"):
        (stage.here / name).mkdir()
    await create_topic(stage, namesrv, TOPIC)
    topic, at, everywhere = ("-t", TOPIC), ("-b", broker), ("-c", "DefaultCluster")
    async with (
        java.sender(stage.release, stage.here / "sender", namesrv=[namesrv], topic=TOPIC, group="senders") as sender,
        java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv], topic=TOPIC,
                      group=READERS) as receiver,
    ):
        await sender.wait_for("sent", timeout_s=60)
        await receiver.wait_for("received", timeout_s=120)
        await _both(stage, namesrv, (
            ("consumerConnection", "-g", READERS), ("producerConnection", "-g", "senders", *topic),
            ("producer", *at), ("consumerConnection", "-g", READERS, *at)))
    await _both(stage, namesrv, (
        ("checkMsgSendRT", *topic, "-a", "3", "-s", "16"), ("sendMsgStatus", "-b", GROUP, "-c", "2", "-s", "16"),
        ("updateTopicList", *at, "-f", str(topics)), ("updateSubGroupList", *at, "-f", str(groups)),
        ("cloneGroupOffset", "-s", READERS, "-d", "listed", *topic), ("deleteSubGroup", *at, "-g", "listed"),
        ("resetMasterFlushOffset", *at, "-o", "1"),
        ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
        ("deleteKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "x"),
        ("deleteExpiredCommitLog", *at), ("cleanUnusedTopic", *at),
        ("updateColdDataFlowCtrGroupConfig", *at, "-g", READERS, "-v", "1000"),
        ("removeColdDataFlowCtrGroupConfig", *at, "-g", READERS),
        ("exportMetadata", *at, "-t", "-f", "{folder}"), ("exportMetadata", *everywhere, "-f", "{folder}"),
        ("exportConfigs", *everywhere, "-f", "{folder}"), ("exportMetrics", *everywhere, "-f", "{folder}"),
    ))


async def containers(stage: Stage, namesrv: str, container: str) -> None:
    """Compare both tools on adding and removing a container's broker."""
    with ExitStack() as stack:
        for name in ("java", "ours"):
            port = stack.enter_context(reserved(FAST_PORT, HA_PORT))
            (stage.here / name).mkdir()
            (stage.here / name / "broker.conf").write_text(properties.encode({
                "brokerName": name, "brokerIP1": HOST, "bindAddress": HOST, "listenPort": str(port),
                "namesrvAddr": namesrv, "storePathRootDir": str(stage.here / name / "store")}))
        await both(stage, (
            ("addBroker", "-c", container, "-b", "{folder}/broker.conf"),
            ("removeBroker", "-c", container, "-b", "DefaultCluster:{tool}:0")))


async def a_member(stage: Stage, namesrv: str) -> None:
    """Compare both tools on a consumer's report of itself."""
    await create_topic(stage, namesrv, TOPIC)
    async with java.receiver(stage.release, stage.here / "receiver", namesrv=[namesrv], topic=TOPIC, group=READERS):
        with trio.fail_after(120):
            while (run := await our_mqadmin("consumerConnection", "-n", namesrv, "-g", READERS, "--json")).exit_code:
                await trio.sleep(0.5)
        (member,) = json.loads(run.stdout)["members"]
        await _both(stage, namesrv, (("consumerStatus", "-g", READERS, "-i", member["clientId"]),))


@scenario("5.5.0", timeout_s=400)
async def both_tools_say_the_same_of_a_consumer(stage: Stage) -> None:
    """Both tools tell the same of a Java consumer through our broker, after numbers are masked."""
    async with our_servers(stage) as (namesrv, _):
        await a_member(stage, namesrv)


@scenario("5.5.0", timeout_s=400)
async def both_tools_say_the_same_of_a_consumer_of_java(stage: Stage) -> None:
    """The same through a Java broker and a Java name server."""
    async with java_servers(stage) as (namesrv, _):
        await a_member(stage, namesrv)


@scenario("5.5.0", timeout_s=300)
async def both_tools_say_the_same_of_our_container(stage: Stage) -> None:
    """A broker is added to our container and removed, by Java's mqadmin and by ours: equal after masking numbers."""
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.container(stage.here / "container", namesrv=[namesrv.address]) as process,
    ):
        await containers(stage, namesrv.address, process.address)


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_queues_and_settings(stage: Stage) -> None:
    """Lists, printed messages, settings and name servers, of our broker with both tools: equal after masking numbers.
    """
    async with our_servers(stage) as (namesrv, broker):
        await queues_and_settings(stage, namesrv, broker)


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_queues_and_settings_of_java(stage: Stage) -> None:
    """The same against a Java broker and a Java name server."""
    async with java_servers(stage) as (namesrv, broker):
        await queues_and_settings(stage, namesrv, broker)


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_clients_and_upkeep(stage: Stage) -> None:
    """Clients, probes, cleaning, files and exports, of our broker with both tools: equal after masking numbers."""
    async with our_servers(stage) as (namesrv, broker):
        await clients_and_upkeep(stage, namesrv, broker)


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_clients_and_upkeep_of_java(stage: Stage) -> None:
    """The same against a Java broker and a Java name server."""
    async with java_servers(stage) as (namesrv, broker):
        await clients_and_upkeep(stage, namesrv, broker)
