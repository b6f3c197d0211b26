"""Who is here, as clients and administrators are told."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from remoting.bodies.consumers import (
    ConsumerConnection,
    ConsumerIdList,
    GroupList,
    ProducerConnection,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from remoting.bodies.namesrv import TopicList
from remoting.codes import RequestCode, ResponseCode
from tests.broker.consumers.world import running


async def test_members_of_groups(autojump_clock: MockClock) -> None:
    async with running() as world:
        for code, ext, failure in (
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}, ResponseCode.SYSTEM_ERROR),
            (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"}, ResponseCode.CONSUMER_NOT_ONLINE),
            (RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p-g"}, ResponseCode.SYSTEM_ERROR),
        ):
            answer = await world.ask(code, ext)
            assert (answer.code, bool(answer.remark)) == (failure, True)
        await world.heartbeat("g", "t", client="b", expression="x")
        await world.heartbeat("g", "t", client="a", wire=await world.dial(), expression="x")
        await trio.sleep(2)
        ids = await world.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
        assert ConsumerIdList.from_json(ids.body).consumer_id_list == ["a", "b"]
        found = await world.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        group = ConsumerConnection.from_json(found.body)
        assert sorted((one.client_id, one.client_addr, one.language, one.version) for one in group.connection_set) == [
            ("a", "client:2", "JAVA", 513), ("b", "client:1", "JAVA", 513)]
        assert (group.subscription_table["t"].sub_string, group.consume_type, group.message_model,
                group.consume_from_where) == ("x", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")
        producers = await world.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "p-g"})
        assert len(ProducerConnection.from_json(producers.body).connection_set) == 2
        everyone = ProducerTableInfo.from_json((await world.ask(RequestCode.GET_ALL_PRODUCER_INFO)).body).data
        assert {info.client_id for info in everyone["p-g"]} == {"a", "b"}
        assert all(1_000_000 <= info.last_update_timestamp <= 1_000_010 for info in everyone["p-g"])


async def test_topics_groups_and_subscriptions(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.heartbeat("online", "t", expression="x")
        world.offsets.commit("offline", "t", 0, 1)
        world.offsets.commit("offline", "u", 0, 1)
        groups = await world.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "t"})
        assert GroupList.from_json(groups.body).group_list == ["offline", "online"]
        topics = await world.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "offline"})
        assert TopicList.from_json(topics.body) == TopicList(["t", "u"], "10.0.0.1:10911")
        for group, expression in (("online", "x"), ("offline", None)):
            answer = await world.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": group, "topic": "t"})
            body = QuerySubscriptionResponseBody.from_json(answer.body)
            assert (body.group, body.topic) == (group, "t")
            assert (body.subscription_data.sub_string if body.subscription_data else None) == expression
