"""``mqadmin`` against brokers: topics and sends at a real one on a store in memory, the rest from a script.

The lines are those of the original, with its columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from trio.testing import MockClock

from broker.groups.admin import GroupAdmin
from broker.groups.table import GroupsConfig, GroupTable
from controller.admin.cli import DONE, FAILED, parser, run
from controller.admin.command import AdminError
from controller.admin.consumers import parse_time
from remoting.bodies.broker import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.bodies.consumers import ClientConnection, ConsumerConnection, MessageQueue, ResetOffsetBody
from remoting.bodies.namesrv import BrokerData, ClusterInfo, KVTable, QueueData, TopicConfig, TopicList, TopicRouteData
from remoting.bodies.queries import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.namesrv import KVValueResponse
from remoting.record import decode_properties
from remoting.server import Server
from tests.broker.sending.world import World, running
from tests.remoting.memory import Net, net

STAMP_MS = 1_700_000_000_123
STAMP = r"2023-11-1[45] \d\d:13:20"
"""Its local time, in any zone."""


class NameServer:
    """Two groups of one cluster; topics are where the masters have them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kept: dict[str, str] = {}
        self.deleted: list[tuple[str, str]] = []

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters, RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.PUT_KV_CONFIG: self.put, RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics}

    def clusters(self, _: Connection, command: Command) -> Command:
        groups = {"a": BrokerData("a", "c", {0: "a:1", 2: "slave:1"}), "b": BrokerData("b", "c", {3: "slave:1"})}
        return response(command, body=ClusterInfo(groups, {"c": ["b", "a"]}).to_json())

    def route(self, _: Connection, command: Command) -> Command:
        topic = self.world.topics.get(command.ext["topic"])
        if topic is None:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        queues = QueueData("a", topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        return response(command, body=TopicRouteData([queues], [BrokerData("a", "c", {0: "a:1"})]).to_json())

    def put(self, _: Connection, command: Command) -> Command:
        assert command.ext["namespace"] == "ORDER_TOPIC_CONFIG"
        self.kept[command.ext["key"]] = command.ext["value"]
        return response(command)

    def get(self, _: Connection, command: Command) -> Command:
        if command.ext["key"] not in self.kept:
            return response(command, ResponseCode.QUERY_NOT_FOUND)
        return response(command, header=KVValueResponse(self.kept[command.ext["key"]]))

    def delete(self, _: Connection, command: Command) -> Command:
        self.deleted.append((command.ext["topic"], command.ext["clusterName"]))
        return response(command)

    def topics(self, _: Connection, command: Command) -> Command:
        return response(command, body=TopicList(["t", "%RETRY%g", "%RETRY%gone"]).to_json())


QUEUES = [MessageQueue("t", "a", number) for number in (1, 0)]


class Scripted:
    """What the real one here does not have, with what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.role = "master"

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys((
            RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_HA_STATUS), self.answer)

    def answer(self, _: Connection, command: Command) -> Command:
        self.asked.append(command)
        if command.ext.get("consumerGroup") == "gone":
            return response(command, ResponseCode.CONSUMER_NOT_ONLINE, remark="not online")
        return response(command, body=self.body(command.code))

    def body(self, code: int) -> bytes:
        if code == RequestCode.GET_TOPIC_STATS_INFO:
            return TopicStatsTable({QUEUES[0]: TopicOffset(1, 12, STAMP_MS), QUEUES[1]: TopicOffset()}, 2.5).to_json()
        if code == RequestCode.GET_CONSUME_STATS:
            return ConsumeStats({QUEUES[0]: OffsetWrapper(12, 10, 11, STAMP_MS), QUEUES[1]: OffsetWrapper(5, 5, 5)},
                                1.25).to_json()
        if code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
            return ResetOffsetBody({QUEUES[0]: 7, QUEUES[1]: 3}).to_json()
        if code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            return ConsumerConnection([ClientConnection("id", "1.2.3.4:5", "JAVA", 479)], {}, "CONSUME_PASSIVELY",
                                      "CLUSTERING").to_json()
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return KVTable({"putTps": "1 2 3", "brokerActive": "true"}).to_json()
        if code == RequestCode.GET_BROKER_HA_STATUS and self.role == "master":
            return HARuntimeInfo(True, 900, 1, [
                HAConnectionRuntimeInfo("1.2.3.4:5", 800, 100, True, 2_048, 7),
                HAConnectionRuntimeInfo("1.2.3.4:6", 0, 900, False, 0, 0)]).to_json()
        if code == RequestCode.GET_BROKER_HA_STATUS:
            return HARuntimeInfo(False, 0, 0, [], HAClientRuntimeInfo(
                "a:2", 1_024, 900, STAMP_MS, STAMP_MS, 800)).to_json()
        return b""


class Shop:
    def __init__(self, made: Net, world: World, capsys: pytest.CaptureFixture[str]) -> None:
        self.made, self.world, self._capsys = made, world, capsys
        self.names = NameServer(world)
        self.script = Scripted()
        self.groups = GroupTable(GroupsConfig(), world.wall_ms)

    async def mqadmin(self, *arguments: str, code: int = DONE, namesrv: str = "ns:1") -> str:
        options = parser().parse_args([*arguments, "-n", namesrv])
        assert await run(options, self.made.connect) == code
        out, err = self._capsys.readouterr()
        return out if code == DONE else err

    async def data(self, *arguments: str) -> Any:
        return json.loads(await self.mqadmin(*arguments, "--json"))


@asynccontextmanager
async def shop(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shop]:
    async with running() as world, net() as made:
        opened = Shop(made, world, capsys)

        async def saved() -> None:
            """The groups are in memory alone."""

        real = {**world.handlers(), **GroupAdmin(opened.groups, saved).handlers()}
        await made.serve("ns:1", Server(opened.names.handlers()))
        await made.serve("a:1", Server(real | opened.script.handlers()))
        await made.serve("slave:1", Server(opened.script.handlers()))
        yield opened


# --- topics --------------------------------------------------------------------------------------------------


async def test_a_topic_is_made_and_deleted(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        assert (await asked.mqadmin("updateTopic", "-c", "c", "-t", "t", "-a", "+message.type=FIFO")).splitlines() == [
            "create topic to a:1 success.",
            "TopicConfig [topicName=t, readQueueNums=8, writeQueueNums=8, perm=RW-, topicFilterType=SINGLE_TAG, "
            "topicSysFlag=0, order=false, attributes={+message.type=FIFO}]"]
        assert asked.world.topics.get("t") == TopicConfig("t", 8, 8, 6, attributes={"message.type": "FIFO"})
        assert await asked.data("updateTopic", "-b", "a:1", "-t", "t", "-r", "4", "-w", "2", "-p", "4", "-u", "true",
                                "-s", "true") == {"topic": "t", "brokers": ["a:1"]}
        assert asked.world.topics.get("t") == TopicConfig(
            "t", 4, 2, 4, topic_sys_flag=3, attributes={"message.type": "FIFO"})
        assert (await asked.mqadmin("deleteTopic", "-c", "c", "-t", "t")).splitlines() == [
            "delete topic [t] from cluster [c] success.", "delete topic [t] from NameServer success."]
        assert asked.world.topics.get("t") is None and asked.names.deleted == [("t", "c")]


async def test_ordered_topics_are_told_to_the_name_servers(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        lines = (await asked.mqadmin("updateTopic", "-c", "c", "-t", "t", "-o", "true")).splitlines()
        assert lines[:2] == ["create topic to a:1 success.", "set cluster orderConf. isOrder=true, orderConf=[a:8]"]
        assert asked.names.kept == {"t": "a:8"} and asked.world.topics.is_ordered("t")
        asked.names.kept["t"] = "other:3;a:8"
        lines = (await asked.mqadmin("updateTopic", "-b", "a:1", "-t", "t", "-w", "5", "-o", "true")).splitlines()
        assert lines[:2] == ["set broker orderConf. isOrder=true, orderConf=[a:5]", "create topic to a:1 success."]
        assert asked.names.kept == {"t": "other:3;a:5"}
        await asked.mqadmin("updateTopic", "-b", "a:1", "-t", "u", "-o", "true")
        assert asked.names.kept["u"] == "a:8"


async def test_how_far_a_topic_is(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t")])
        lines = (await asked.mqadmin("topicStatus", "-t", "t")).splitlines()
        assert lines[0] == (
            "#Broker Name                      #QID  #Min Offset           #Max Offset             #Last Updated")
        assert lines[1] == f"{'a':<32}  0     {'0':<20}  {'0':<20}    "
        assert re.fullmatch(rf"{'a':<32}  1     {'1':<20}  {'12':<20}    {STAMP},123", lines[2])
        assert lines[3:] == ["", "Topic Put TPS: 2.5"]
        found = await asked.data("topicStatus", "-t", "t", "-c", "DefaultCluster")
        assert [queue["maxOffset"] for queue in found["queues"]] == [0, 12] and found["putTps"] == 2.5


# --- messages ------------------------------------------------------------------------------------------------


async def test_sending(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("sendMessage", "-t", "new", "-p", "привет", "-k", "k", "-c", "tag")
        header, row = said.splitlines()
        assert header == "#Broker Name                      #QID  #Send Result            #MsgId"
        assert re.fullmatch(r"a {31}  [0-3] {3}  SEND_OK {13}    [0-9A-F]{32}", row)
        record = (await asked.world.records())[-1]
        assert record.message.body.decode() == "привет"
        properties = decode_properties(record.message.properties)
        assert (properties["KEYS"], properties["TAGS"], properties["UNIQ_KEY"]) == ("k", "tag", row[-32:])
        sent = await asked.data("sendMessage", "-t", "new", "-p", "x", "-b", "a", "-i", "2")
        assert (sent["brokerName"], sent["queueId"], sent["status"]) == ("a", 2, "SEND_OK")
        assert sent["offsetMsgId"] == (await asked.world.records())[-1].message_id


@pytest.mark.parametrize(("arguments", "words"), [
    (["-t", "t", "-p", "x", "-i", "1"], "Broker name must be set if the queue is chosen!"),
    (["-t", "t", "-p", "x", "-b", "nobody"], "no master of group nobody takes messages of topic t"),
    (["-t", "closed", "-p", "x"], "no master takes messages of topic closed"),
    (["-t", "t", "-p", "x", "-b", "a", "-i", "99"], "queueId[99] is illegal"),
    (["-t", "BenchmarkTest", "-p", ""], "It has no body"),
])
async def test_what_cannot_be_sent(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str,
) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t"), TopicConfig("closed", perm=4)])
        assert words in await asked.mqadmin("sendMessage", *arguments, code=FAILED)


# --- groups --------------------------------------------------------------------------------------------------


async def test_a_group_is_made(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        assert (await asked.mqadmin("updateSubGroup", "-c", "c", "-g", "g", "-r", "3", "-o", "true")).splitlines() == [
            "create subscription group to a:1 success.",
            "SubscriptionGroupConfig{groupName=g, consumeEnable=true, consumeFromMinEnable=false, "
            "consumeBroadcastEnable=false, consumeMessageOrderly=true, retryQueueNums=1, retryMaxTimes=3, "
            "groupRetryPolicy=GroupRetryPolicy{type=CUSTOMIZED, exponentialRetryPolicy=null, "
            "customizedRetryPolicy=null}, brokerId=0, whichBrokerWhenConsumeSlowly=1, "
            "notifyConsumerIdsChangedEnable=true, groupSysFlag=0, consumeTimeoutMinute=15, subscriptionDataSet=null, "
            "attributes={}}"]
        group = asked.groups.get("g")
        assert group is not None and (group.retry_max_times, group.consume_message_orderly) == (3, True)
        policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
        await asked.mqadmin("updateSubGroup", "-b", "a:1", "-g", "g", "-p", policy)
        group = asked.groups.get("g")
        assert group is not None and group.group_retry_policy == json.loads(policy)


async def test_how_far_a_group_is(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.create_for_retry("g")
        lines = (await asked.mqadmin("consumerProgress", "-g", "g")).splitlines()
        assert lines[0] == (f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  {'#Broker Offset':<20}  "
                            f"{'#Consumer Offset':<20}  {'#Diff':<20} {'#Inflight':<20}#LastTime")
        assert lines[1] == f"{'t':<64}  {'a':<32}  0     {5:<20}  {5:<20}  {0:<20} {0:<20} N/A"
        assert re.fullmatch(
            rf"{'t':<64}  {'a':<32}  1     {12:<20}  {10:<20}  {2:<20} {1:<20} {STAMP}", lines[2])
        assert lines[3:] == ["", "Consume TPS: 1.25", "Consume Diff Total: 2", "Consume Inflight Total: 1"]


async def test_how_far_all_groups_are(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.create_for_retry("g")
        asked.world.topics.create_for_retry("gone")
        header, first, second = (await asked.mqadmin("consumerProgress")).splitlines()
        assert header == (f"{'#Group':<64}  #Count  {'#Version':<24} #Type  {'#Model':<14}  {'#TPS':<7}  #Diff Total")
        assert first == f"{'g':<64}  {1:<6}  {479:<24} PUSH   {'CLUSTERING':<14}  {1:<7}  2"
        assert second == f"{'gone':<64}  {0:<6}  {'OFFLINE':<24} {'':<5}  {'':<14}  {0:<7}  0"


async def test_setting_back(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t")])
        lines = (await asked.mqadmin("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "17", "-f", "false")).splitlines()
        assert lines == [
            "start reset consumer offset by specified, group[g], topic[t], force[false], timestamp(string)[17], "
            "timestamp(long)[17]",
            f"{'#brokerName':<40}  {'#queueId':<40}  #offset", f"{'a':<40}  {0:<40}  3", f"{'a':<40}  {1:<40}  7"]
        assert asked.script.asked[-1].ext == {
            "topic": "t", "group": "g", "timestamp": "17", "isForce": "false", "queueId": "-1"}
        await asked.mqadmin("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "17", "-b", "a:1", "-q", "1", "-o", "7",
                            namesrv="")
        assert asked.script.asked[-1].ext == {
            "topic": "t", "group": "g", "timestamp": "17", "isForce": "true", "queueId": "1", "offset": "7"}
        for wrong, words in ((["-b", "a:1"], "-b and -q go together"), (["-o", "1"], "-b and -q go together")):
            said = await asked.mqadmin("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "17", *wrong, code=FAILED)
            assert words in said


def test_times() -> None:
    assert parse_time("1700000000123") == 1_700_000_000_123
    assert parse_time("2023-11-14#22:13:20:123") % 1_000 == 123
    day = parse_time("2023-11-15#00:00:00:000") - parse_time("2023-11-14#00:00:00:000")
    assert day == 86_400_000
    assert parse_time("now") > 1_700_000_000_000
    for wrong in ("", "yesterday", "2023-11-14#22:13:20", "2023-13-14#22:13:20:123"):
        with pytest.raises(AdminError, match="is no time"):
            parse_time(wrong)


# --- brokers -------------------------------------------------------------------------------------------------


async def test_the_state_of_brokers(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        assert (await asked.mqadmin("brokerStatus", "-b", "a:1", namesrv="")).splitlines() == [
            f"{'brokerActive':<32}: true", f"{'putTps':<32}: 1 2 3"]
        assert (await asked.mqadmin("brokerStatus", "-c", "c")).splitlines() == [
            f"{'a:1':<24} {'brokerActive':<32}: true", f"{'a:1':<24} {'putTps':<32}: 1 2 3",
            f"{'slave:1':<24} {'brokerActive':<32}: true", f"{'slave:1':<24} {'putTps':<32}: 1 2 3"]


async def test_a_key_is_changed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("updateBrokerConfig", "-c", "c", "-k", "fileReservedTime", "-v", "48 h")
        assert said == "update broker config success, a:1\n"
        assert asked.script.asked[-1].body == b"fileReservedTime=48 h\n"
        said = await asked.mqadmin("updateBrokerConfig", "-c", "c", "-a", "true", "-k", "k", "-v", "v")
        assert said.splitlines() == [f"update broker config success, {address}" for address in (
            "a:1", "slave:1", "slave:1")]


async def test_who_replicates(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        lines = (await asked.mqadmin("haStatus", "-c", "c")).splitlines()
        assert lines[:5] == ["", "#MasterAddr\ta:1", "#MasterCommitLogMaxOffset\t900", "#SlaveNum\t2",
                             "#InSyncSlaveNum\t1"]
        assert lines[5] == (f"{'#SlaveAddr':<32}  {'#SlaveAckOffset':<16} {'#Diff':>16} {'#TransferSpeed(KB/s)':>16} "
                            f"{'#Status':>16} {'#TransferFromWhere':>16}")
        assert lines[6] == f"{'1.2.3.4:5':<32}  {800:<16} {100:>16} {'2.00':>16} {'OK':>16} {7:>16}"
        assert lines[7] == f"{'1.2.3.4:6':<32}  {0:<16} {900:>16} {'0.00':>16} {'Fall Behind':>16} {0:>16}"
        asked.script.role = "slave"
        lines = (await asked.mqadmin("haStatus", "-b", "slave:1", namesrv="")).splitlines()
        assert lines[:4] == ["", "#MasterAddr\ta:2", "#CommitLogMaxOffset\t900", "#TransferSpeed(KB/s)\t1.00"]
        assert re.fullmatch(rf"#LastReadTime\t{STAMP},123", lines[4])
        assert lines[6] == "#MasterFlushOffset\t800"


@pytest.mark.parametrize("arguments", [
    ["updateTopic", "-c", "elsewhere", "-t", "t"], ["haStatus", "-c", "elsewhere"],
    ["updateSubGroup", "-c", "elsewhere", "-g", "g"]])
async def test_a_cluster_that_nobody_knows(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], arguments: list[str],
) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin(*arguments, code=FAILED)
        assert said == f"mqadmin {arguments[0]}: the name server knows no cluster elsewhere; it knows c\n"
        assert "-n is needed" in await asked.mqadmin(*arguments, code=FAILED, namesrv="")
