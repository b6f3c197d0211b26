"""What RocketMQ's dashboard asks of a cluster, screen by screen, asked one by one as it does.

It is in no registry, so it cannot be run here. Source: the services of apache/rocketmq-dashboard 2.1, which call the
admin client of RocketMQ; its screens of users and policies (ACL) are of a feature that is not here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import orjson
import trio
from trio.testing import MockClock

from broker.client import Message, Messages, Start
from harness.simulation.worlds.brokers import CLUSTER, NAMESRV, Cluster
from harness.simulation.worlds.brokers import cluster as brokers
from remoting.bodies.namesrv import KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from tests.broker.client.test_ours import created
from tests.broker.query.test_exporter import asked

ROWS_OF_A_BROKER = ("brokerVersionDesc", "putTps", "getTransferedTps", "msgPutTotalTodayNow", "msgPutTotalTodayMorning",
                    "msgPutTotalYesterdayMorning", "msgGetTotalTodayNow", "msgGetTotalTodayMorning",
                    "msgGetTotalYesterdayMorning")
"""Of code 28, in the screen of the cluster."""


async def answered(made: Cluster, address: str, code: int, body: bytes = b"", **ext: str) -> Command:
    command = request(code)
    command.ext = ext
    command.body = body
    return await made.client.call(address, command)


async def does(made: Cluster, address: str, code: int, body: bytes = b"", **ext: str) -> Command:
    """The answer, which is a success."""
    answer = await answered(made, address, code, body, **ext)
    assert answer.code == ResponseCode.SUCCESS, f"{code} {ext}: {answer.code} {answer.remark}"
    return answer


async def json_of(made: Cluster, address: str, code: int, **ext: str) -> Mapping[str, object]:
    found: dict[str, object] = orjson.loads(await asked(made, address, code, **ext))
    return found


async def test_each_screen_of_the_dashboard_gets_what_it_asks_for(autojump_clock: MockClock) -> None:
    async with brokers() as made:
        node = await made.node()
        here = node.address
        await made.wait_route("TBW102", {0: here})
        async with made.connect() as client:
            await created(client, "orders")
            async with client.consume("shop", "orders", start=Start.FIRST) as messages:
                sent = [await client.send(Message("orders", b"%d" % number, keys=("k",))) for number in range(4)]
                for _ in range(4):
                    (await anext(messages)).ack()
                await trio.sleep(70)  # counters are sampled, offsets written
                await screens_of_the_cluster(made, here)
                await screens_of_topics(made, here)
                await screens_of_groups(made, here, client.id)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(consume, messages)
                    await screens_of_messages(made, here, client.id, sent[0].offset_message_id)
                    nursery.cancel_scope.cancel()
            await deletions(made, here)


async def consume(messages: Messages) -> None:
    """Whatever comes: what the dashboard sends again, too."""
    async for message in messages:
        message.ack()


async def screens_of_the_cluster(made: Cluster, here: str) -> None:
    table = (await json_of(made, NAMESRV, RequestCode.GET_BROKER_CLUSTER_INFO))["brokerAddrTable"]
    assert isinstance(table, dict) and table["a"]["brokerAddrs"] == {"0": here}
    state = KVTable.from_json(await asked(made, here, RequestCode.GET_BROKER_RUNTIME_INFO)).table
    assert set(ROWS_OF_A_BROKER) <= state.keys()
    assert all(float(state[name].split(" ")[0]) >= 0 for name in ("putTps", "getTransferedTps", "getTotalTps"))
    config = await asked(made, here, RequestCode.GET_BROKER_CONFIG)
    assert b"brokerName=a" in config
    for name, key in (("TOPIC_PUT_NUMS", "orders"), ("GROUP_GET_NUMS", "orders@shop")):  # its collector, each minute
        shown = await json_of(made, here, RequestCode.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        assert "statsMinute" in shown


async def screens_of_topics(made: Cluster, here: str) -> None:
    assert "orders" in str((await json_of(made, NAMESRV, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"])
    for address, code in ((NAMESRV, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS),
                          (here, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)):
        assert "topicList" in await json_of(made, address, code)
    types = (await json_of(made, here, RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
    assert isinstance(types, dict) and types["orders"]["topicName"] == "orders"
    await does(made, here, RequestCode.UPDATE_AND_CREATE_TOPIC, topic="fifo", defaultTopic="TBW102",
                           readQueueNums="3", writeQueueNums="3", perm="6", topicFilterType="SINGLE_TAG",
                           topicSysFlag="0", order="false", attributes="+message.type=FIFO")
    config = await json_of(made, here, RequestCode.GET_TOPIC_CONFIG, topic="fifo", lo="true")
    assert (config["readQueueNums"], config["attributes"]) == (3, {"message.type": "FIFO"})
    assert b"offsetTable" in await asked(made, here, RequestCode.GET_TOPIC_STATS_INFO, topic="orders")
    assert "queueDatas" in await json_of(made, NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
    assert (await json_of(made, here, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="orders"))["groupList"] == ["shop"]


async def screens_of_groups(made: Cluster, here: str, client_id: str) -> None:
    groups = (await json_of(made, here, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))["subscriptionGroupTable"]
    assert isinstance(groups, dict) and "shop" in groups
    body = orjson.dumps({"groupName": "made", "consumeEnable": True, "retryQueueNums": 2, "retryMaxTimes": 5})
    await does(made, here, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    config = await json_of(made, here, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="made")
    assert (config["retryQueueNums"], config["retryMaxTimes"]) == (2, 5)
    online = await json_of(made, here, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="shop")
    assert online["consumeType"] and online["messageModel"] == "CLUSTERING"
    assert "orders" in str(online["subscriptionTable"])
    away = await answered(made, here, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="made")
    assert away.code == ResponseCode.CONSUMER_NOT_ONLINE, "which it shows as no client"
    for topic in ({}, {"topic": "orders"}):
        stats = await asked(made, here, RequestCode.GET_CONSUME_STATS, consumerGroup="shop", **topic)
        assert b"orders" in stats and b"consumeTps" in stats
    for stacks in ("false", "true"):
        assert b"mqTable" in await asked(made, here, RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="shop",
                                         clientId=client_id, jstackEnable=stacks)
    producers = await answered(made, here, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="nobody")
    assert producers.code == ResponseCode.SYSTEM_ERROR and "not exist" in (producers.remark or ""), "as Java says it"
    reset = await answered(made, here, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic="orders", group="shop",
                           timestamp="-1", isForce="true")
    assert reset.code == ResponseCode.SUCCESS and b"offsetTable" in bytes(reset.body)


async def screens_of_messages(made: Cluster, here: str, client_id: str, offset_id: str) -> None:
    now_ms = str(int(time.time() * 1e3) + 10**9)
    assert len(await asked(made, here, RequestCode.VIEW_MESSAGE_BY_ID, offset=str(int(offset_id[-16:], 16)))) > 91
    found = await answered(made, here, RequestCode.QUERY_MESSAGE, topic="orders", key="k", maxNum="64",
                           beginTimestamp="0", endTimestamp=now_ms)
    assert found.code == ResponseCode.SUCCESS and len(bytes(found.body)) > 4 * 91, "all four"
    pulled = 0
    for queue in ("0", "1"):  # a page of a topic is scanned by a group of its own, which no broker knows
        begin = await answered(made, here, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="orders", queueId=queue,
                               timestamp="0")
        assert begin.ext["offset"] == "0"
        answer = await answered(made, here, RequestCode.PULL_MESSAGE, consumerGroup="TOOLS_CONSUMER", topic="orders",
                                queueId=queue, queueOffset="0", maxMsgNums="32", sysFlag="4", commitOffset="0",
                                suspendTimeoutMillis="0", subscription="*", subVersion="0", expressionType="TAG")
        pulled += len(bytes(answer.body)) if answer.code == ResponseCode.SUCCESS else 0
    assert pulled > 4 * 91
    again = await asked(made, here, RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="shop", clientId=client_id,
                        msgId=offset_id, brokerName="a")
    assert b"CR_SUCCESS" in again
    trace = await answered(made, NAMESRV, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="RMQ_SYS_TRACE_TOPIC")
    assert trace.code == ResponseCode.TOPIC_NOT_EXIST, "until traceTopicEnable"


async def deletions(made: Cluster, here: str) -> None:
    await does(made, here, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="made",
                           cleanOffset="true")
    for topic in ("%RETRY%made", "%DLQ%made", "fifo"):
        await does(made, here, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
        await does(made, NAMESRV, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic,
                               clusterName=CLUSTER)
    gone = await answered(made, here, RequestCode.GET_TOPIC_CONFIG, topic="fifo", lo="true")
    assert gone.code != ResponseCode.SUCCESS
