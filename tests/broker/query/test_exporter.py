"""What rocketmq-exporter asks of a cluster, asked one by one as it does, and read as it reads the answers.

It is in no registry, so it cannot be run here. Source: ``MetricsCollectTask`` and ``BrokerRuntimeStats`` of
apache/rocketmq-exporter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson
import pytest
import trio
from trio.testing import MockClock

from broker.client import Message, Start
from harness.simulation.worlds.brokers import CLUSTER, NAMESRV, Cluster
from harness.simulation.worlds.brokers import cluster as brokers
from remoting.bodies.namesrv import ClusterInfo, KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from tests.broker.client.test_ours import created

WHOLE = (
    "msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning", "msgGetTotalTodayMorning",
    "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning", "sendThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize",
    "pullThreadPoolQueueSize", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity", "bootTimestamp", "commitLogMinOffset",
    "commitLogMaxOffset", "dispatchMaxBuffer", "brokerVersion", "pageCacheLockTimeMills", "getMessageEntireTimeMax",
    "putMessageTimesTotal", "startAcceptSendRequestTimeStamp", "putMessageEntireTimeMax", "earliestMessageTimeStamp",
    "remainTransientStoreBufferNumbs", "dispatchBehindBytes", "putMessageSizeTotal")
"""Read by ``Long.parseLong``, which ends the whole collection where there is none."""
RATES = ("putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps")


async def asked(made: Cluster, address: str, code: int, **ext: str) -> bytes:
    """The body of the answer, which is a success."""
    command = request(code)
    command.ext = ext
    answer = await made.client.call(address, command)
    assert answer.code == ResponseCode.SUCCESS, f"{code} {ext}: {answer.code} {answer.remark}"
    return bytes(answer.body)


def read_as_the_exporter(table: Mapping[str, str]) -> None:
    """``new BrokerRuntimeStats(table)``."""
    for name in WHOLE:
        int(table[name])
    for name in ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize"):
        float(table[name])
    for name in RATES:
        assert len([float(rate) for rate in table[name].split(" ")]) == 3, name
    amount, unit = table["remainHowManyDataToFlush"].split(" ")[:2]
    assert float(amount) >= 0 and unit
    words = table["commitLogDirCapacity"].split(" ")
    for amount, unit in ((words[2], words[3]), (words[6], words[7])):
        assert float(amount) > 0 and re.fullmatch("([KMGTPE]i?)?B[,.]", unit), words
    for share in table["putMessageDistributeTime"].split(" "):
        name, count = share.split(":")
        assert name.strip("[]") and int(count) >= 0
    for name, text in table.items():
        if name.startswith("scheduleMessageOffset"):
            int(text.split(",")[0]), int(text.split(",")[1])


async def test_each_request_of_the_exporter_is_answered_with_what_it_reads(autojump_clock: MockClock) -> None:
    async with brokers() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        async with made.connect() as client:
            await created(client, "orders")
            async with client.consume("shop", "orders", start=Start.FIRST) as messages:
                for number in range(30):
                    await client.send(Message("orders", b"%d" % number))
                    message = await anext(messages)
                    if number:
                        message.ack()
                    else:
                        await message.retry_later(-1)
                await trio.sleep(70)  # counters are sampled

                info = ClusterInfo.from_json(await asked(made, NAMESRV, RequestCode.GET_BROKER_CLUSTER_INFO))
                assert info.cluster_addr_table == {CLUSTER: ["a"]}
                topics = orjson.loads(await asked(made, NAMESRV, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
                assert {"orders", "%RETRY%shop", "%DLQ%shop"} <= set(topics["topicList"])
                here = node.address
                for topic in ("orders", "%RETRY%shop", "%DLQ%shop"):
                    await asked(made, NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
                    assert b"offsetTable" in await asked(made, here, RequestCode.GET_TOPIC_STATS_INFO, topic=topic)
                groups = orjson.loads(await asked(made, here, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders"))
                assert groups["groupList"] == ["shop"]
                found = orjson.loads(await asked(
                    made, here, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="shop"))
                [member] = found["connectionSet"]
                assert found["messageModel"] == "CLUSTERING"
                assert member["clientId"] == client.id and member["clientAddr"]
                assert b"offsetTable" in await asked(
                    made, here, RequestCode.GET_CONSUME_STATS, consumerGroup="shop", topic="orders")
                assert b"mqTable" in await asked(
                    made, here, RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="shop", clientId=client.id,
                    jstackEnable="false")
                for name, key in (
                        ("TOPIC_PUT_NUMS", "orders"), ("TOPIC_PUT_SIZE", "orders"), ("GROUP_GET_NUMS", "orders@shop"),
                        ("GROUP_GET_SIZE", "orders@shop"), ("SNDBCK_PUT_NUMS", "orders@shop"),
                        ("BROKER_PUT_NUMS", CLUSTER), ("BROKER_GET_NUMS", CLUSTER)):
                    shown = orjson.loads(await asked(
                        made, here, RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key))
                    for span in ("statsMinute", "statsHour", "statsDay"):
                        assert {"sum", "tps", "avgpt"} <= shown[span].keys(), (name, span)
                    assert shown["statsMinute"]["sum"] >= 0
                read_as_the_exporter(KVTable.from_json(
                    await asked(made, here, RequestCode.GET_BROKER_RUNTIME_INFO)).table)


@pytest.mark.parametrize("broken", ["msgPutTotalTodayNow", "putTps", "commitLogDirCapacity"])
def test_a_field_that_is_missing_would_end_its_collection(broken: str) -> None:
    with pytest.raises(KeyError):
        read_as_the_exporter({name: "1" for name in WHOLE if name != broken})
