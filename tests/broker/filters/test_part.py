"""Filters of a whole broker: kept in Java's file, copied by replicas before a switch, keys that follow a change."""

from __future__ import annotations

import json

import trio
from trio.testing import MockClock

from broker.filters.part import FiltersPart
from broker.filters.table import PATH
from broker.store.files import read_whole
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, until
from remoting.bodies.consumers import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.pulling import PullMessageRequest
from remoting.record import decode_all

ON = {"enablePropertyFilter": "true"}


async def beat(made: Cluster, node: Node, text: str = "a > 3", version: int = 7) -> None:
    data = ConsumerData("G", subscription_data_set=[
        SubscriptionData("T", text, sub_version=version, expression_type="SQL92")])
    await made.ask(node.address, RequestCode.HEART_BEAT, body=HeartbeatData("c", [], [data]).to_json())


async def pull(made: Cluster, node: Node) -> Command:
    return await made.ask(node.address, RequestCode.PULL_MESSAGE, PullMessageRequest(
        consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0, commit_offset=0,
        suspend_timeout_millis=0, sub_version=7))


async def test_filters_outlive_a_restart_and_die_when_nobody_comes_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**ON, filterDataCleanTimeSpan="60000")
        await made.send(node.address, b"x", properties="a\x015\x02")
        await beat(made, node)
        await node.stop()
        raw = read_whole(node.store, PATH)
        assert raw is not None
        assert json.loads(raw)["filterDataByTopic"]["T"]["groupFilterData"]["G"]["expression"] == "a > 3"
        await node.start()
        found = node.broker.parts[FiltersPart].filters.get("G", "T")
        assert found is not None and found.dead_ms, "until a member says so"
        await beat(made, node)
        assert not found.dead_ms and (await pull(made, node)).code == ResponseCode.SUCCESS
        await node.stop()
        await node.start()
        await trio.sleep(700)
        assert len(node.broker.parts[FiltersPart].filters) == 0


async def test_a_new_master_has_the_filters_that_only_the_old_one_heard_of(autojump_clock: MockClock) -> None:
    """Its consumers go on with what they registered, and wait for no heartbeat."""
    async with cluster(controllers=1) as made:
        settings = {**controlled(), **ON, "allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
        nodes = [await made.node(**settings), await made.node(**settings)]
        await until(lambda: any(node.serves for node in nodes))
        master = next(node for node in nodes if node.serves)
        (other,) = [node for node in nodes if node is not master]
        await beat(made, master)
        await until(lambda: len(other.broker.parts[FiltersPart].filters))
        found = other.broker.parts[FiltersPart].filters.get("G", "T")
        assert found is not None and (found.expression.text, found.version, found.dead_ms) == ("a > 3", 7, 0)
        await until(lambda: read_whole(other.store, PATH) is not None)
        await until(lambda: master.serves)
        sent = await made.send(master.address, b"x", properties="a\x015\x02")
        assert sent.code == ResponseCode.SUCCESS
        await until(lambda: other.topics.get("T"))
        await master.kill()
        await until(lambda: other.broker.standing.role.leads)
        data = ConsumerData("G", subscription_data_set=[
            SubscriptionData("T", "a >", sub_version=7, expression_type="SQL92")])
        await made.ask(other.address, RequestCode.HEART_BEAT, body=HeartbeatData("c", [], [data]).to_json())
        answer = await pull(made, other)
        assert (answer.code, len(decode_all(answer.body))) == (ResponseCode.SUCCESS, 1), "of the filter that was copied"
