"""Brokers and a name server for tests of ``mqadmin``: sends, topics and queries are real, the rest is a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.groups.admin import GroupAdmin
from broker.groups.table import GroupsConfig, GroupTable
from broker.query.messages import MessageQueries, QueryConfig
from controller.admin.cli import DONE, parser, run
from harness.simulation.worlds.streams import Net, net
from remoting.address import join_address
from remoting.bodies.broker import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from remoting.bodies.consumers import (
    ClientConnection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    GroupList,
    MessageQueue,
    ResetOffsetBody,
)
from remoting.bodies.namesrv import BrokerData, ClusterInfo, KVTable, QueueData, TopicList, TopicRouteData
from remoting.bodies.queries import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.headers.namesrv import KVValueResponse
from remoting.record import unpacked_host
from remoting.server import Server
from tests.broker.sending.world import STORE_HOST, World, running

STAMP_MS = 1_700_000_000_123
STAMP = r"2023-11-1[45] \d\d:13:20"
"""Its local time, in any zone."""


STORED_AT = join_address(*unpacked_host(STORE_HOST))
"""As messages name the broker that stored them."""


class NameServer:
    """Two groups of one cluster; topics are where the masters have them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kept: dict[str, str] = {}
        self.deleted: list[tuple[str, str]] = []
        self.master = "a:1"

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters, RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.PUT_KV_CONFIG: self.put, RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics}

    def clusters(self, _: Connection, command: Command) -> Command:
        groups = {"a": BrokerData("a", "c", {0: self.master, 2: "slave:1"}), "b": BrokerData("b", "c", {3: "slave:1"})}
        return response(command, body=ClusterInfo(groups, {"c": ["b", "a"]}).to_json())

    def route(self, _: Connection, command: Command) -> Command:
        topic = self.world.topics.get(command.ext["topic"])
        if topic is None:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        queues = QueueData("a", topic.read_queue_nums, topic.write_queue_nums, topic.perm)
        return response(command, body=TopicRouteData([queues], [BrokerData("a", "c", {0: self.master})]).to_json())

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
        self.readers: list[str] = []
        self.members = ConsumerConnection([ClientConnection("id", "1.2.3.4:5", "JAVA", 479)], {}, "CONSUME_PASSIVELY",
                                          "CLUSTERING")

    def handlers(self) -> dict[int, Handler]:
        return dict.fromkeys((
            RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_HA_STATUS, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
            RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY), self.answer)

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
            return self.members.to_json()
        if code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO:
            return GroupList(self.readers).to_json()
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return ConsumerRunningInfo({"PROP_CONSUME_TYPE": str(self.members.consume_type)},
                                       {QUEUES[0]: {}}).to_json()
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return ConsumeMessageDirectlyResult(consume_result="CR_SUCCESS", spent_time_mills=3).to_json()
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

        real = {**world.handlers(), **GroupAdmin(opened.groups, saved).handlers(),
                **MessageQueries(QueryConfig(), world.journal.messages, world.journal.visible).handlers()}
        await made.serve("ns:1", Server(opened.names.handlers()))
        for address in ("a:1", STORED_AT):
            await made.serve(address, Server(real | opened.script.handlers()))
        await made.serve("slave:1", Server(opened.script.handlers()))
        yield opened
