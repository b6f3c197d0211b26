"""Queues shared out by the broker."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.consumers.assignment import AssignmentKeys, Assignments
from broker.store.files import MemoryFiles
from broker.store.tables import load, save
from harness.simulation.worlds.brokers import Node, cluster, controlled, in_sync, new_master, until
from remoting.bodies.consumers import (
    ConsumerData,
    HeartbeatData,
    MessageQueue,
    MessageRequestMode,
    MessageRequestModes,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SubscriptionData,
)
from remoting.codes import RequestCode, ResponseCode
from tests.broker.consumers.world import World, running

QUEUES = [MessageQueue("t", name, number) for name in ("b1", "b2") for number in range(3)]


def serve(world: World, kept: MessageRequestModes | None = None) -> Assignments:
    async def queues_of(topic: str) -> Sequence[MessageQueue] | None:
        return {"t": QUEUES, "%RETRY%g": [MessageQueue("%RETRY%g", "b1", 0)]}.get(topic)

    async def saved() -> None:
        pass

    made = Assignments(world.consumers, world.groups, world.topics, queues_of, saved, kept)
    world.handlers |= made.handlers()
    return made


async def share(world: World, client: str, strategy: str = "AVG", *, topic: str = "t", group: str = "g",
                model: str = "CLUSTERING", mode: str = "PULL") -> list[MessageQueue] | None:
    asked = QueryAssignmentRequestBody(topic, group, client, strategy, model)
    answer = await world.ask(RequestCode.QUERY_ASSIGNMENT, body=asked.to_json())
    found = QueryAssignmentResponseBody.from_json(answer.body).message_queue_assignments
    assert found is None or all(one.mode == mode for one in found)
    return None if found is None else [one.message_queue for one in found]


async def test_every_member_gets_its_share(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        assert await share(world, "a") is None, "nobody is there"
        for client in ("a", "b", "c", "d"):
            await world.heartbeat("g", "t", client=client, wire=await world.dial())
        for strategy in ("AVG", "AVG_BY_CIRCLE"):
            shares = [await share(world, client, strategy) or [] for client in "abcd"]
            assert [len(mine) for mine in shares] == [2, 2, 1, 1]
            assert sorted((queue.broker_name, queue.queue_id) for mine in shares for queue in mine) == [
                (queue.broker_name, queue.queue_id) for queue in QUEUES]
        assert await share(world, "stranger") == [], "it has nothing"
        assert await share(world, "a", "MACHINE_ROOM") is None
        assert await share(world, "a", topic="nowhere") is None
        assert await share(world, "a", model="BROADCASTING") == QUEUES


async def test_modes_are_checked_kept_and_listed(autojump_clock: MockClock) -> None:
    async with running() as world:
        made, changes = serve(world), list[int]()
        made.on_change = lambda: changes.append(1)
        for mode, code in (
            (MessageRequestMode("%RETRY%g", "g"), ResponseCode.NO_PERMISSION),
            (MessageRequestMode("u", "g"), ResponseCode.TOPIC_NOT_EXIST),
            (MessageRequestMode("t", "g !"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            (MessageRequestMode("t", "g", "PUSH"), ResponseCode.SYSTEM_ERROR),
            (MessageRequestMode("t", "g", "POP", 2), ResponseCode.SUCCESS),
        ):
            answer = await world.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.to_json())
            assert (answer.code, len(changes)) == (code, int(code == ResponseCode.SUCCESS))
        listed = await world.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        expected = MessageRequestModes({"t": {"g": MessageRequestMode("t", "g", "POP", 2)}})
        assert MessageRequestModes.from_json(listed.body) == expected
        files = MemoryFiles()
        save(files, made.snapshot())
        assert serve(world, load(files, MessageRequestModes)).snapshot() == expected


async def test_a_group_that_pops_shares_queues_as_its_mode_says(autojump_clock: MockClock) -> None:
    async with running() as world:
        made = serve(world)
        for client in ("a", "b", "c", "d"):
            await world.heartbeat("g", "t", client=client, wire=await world.dial())

        async def pops(neighbours: int) -> list[list[MessageQueue]]:
            mode = MessageRequestMode("t", "g", "POP", neighbours)
            assert (await world.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.to_json())).code == 0
            return [await share(world, client, mode="POP") or [] for client in "abcd"]

        assert await pops(0) == [[MessageQueue("t", "b1", -1), MessageQueue("t", "b2", -1)]] * 4, "one for each broker"
        assert [len(mine) for mine in await pops(1)] == [4, 3, 2, 3], "its own and the next one's"
        made.keys = attrs.evolve(made.keys, server_load_balancer_enable=False)
        assert await pops(1) == [QUEUES] * 4
        made.keys = attrs.evolve(made.keys, server_load_balancer_enable=True)
        mode = MessageRequestMode("t", "g", "PULL")
        await world.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.to_json())
        assert len(await share(world, "a") or []) == 2


async def test_the_default_mode_is_for_topics_of_which_nothing_was_said(autojump_clock: MockClock) -> None:
    async with running() as world:
        made = serve(world)
        for client in ("a", "b", "c"):
            await world.heartbeat("g", "t", client=client, wire=await world.dial())
        made.keys = AssignmentKeys(default_message_request_mode="POP")
        assert await share(world, "a", mode="POP") == [MessageQueue("t", "b1", -1), MessageQueue("t", "b2", -1)]
        made.keys = AssignmentKeys(default_message_request_mode="POP", default_pop_share_queue_num=1)
        assert len(await share(world, "a", mode="POP") or []) == 4
        assert await share(world, "a", topic="%RETRY%g") == [MessageQueue("%RETRY%g", "b1", 0)], "is pulled"
        await world.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=MessageRequestMode("t", "g", "PULL").to_json())
        assert len(await share(world, "a") or []) == 2


@pytest.mark.parametrize("mode", ["PULL", "POP"])
async def test_a_broker_answers_with_the_mode_that_its_file_says(autojump_clock: MockClock, mode: str) -> None:
    async with cluster() as made:
        node = await made.node(defaultMessageRequestMode=mode)
        await made.send(node.address, b"x")
        beat = HeartbeatData("c1", consumer_data_set=[
            ConsumerData("G", "CONSUME_PASSIVELY", "CLUSTERING", subscription_data_set=[SubscriptionData("T", "*")])])
        assert (await made.ask(node.address, RequestCode.HEART_BEAT, body=beat.to_json())).code == 0
        asked = QueryAssignmentRequestBody("T", "G", "c1", "AVG", "CLUSTERING")
        with trio.fail_after(60):
            while True:  # it learns by its name server's route which queues there are
                answer = await made.ask(node.address, RequestCode.QUERY_ASSIGNMENT, body=asked.to_json())
                found = QueryAssignmentResponseBody.from_json(answer.body).message_queue_assignments
                if found:
                    break
                await trio.sleep(1)
        assert {each.mode for each in found} == {mode}


async def test_a_mode_that_was_answered_outlives_a_kill_and_its_master(autojump_clock: MockClock) -> None:
    """It is on disk with its answer; slaves copy it by 402, as Java's do, within 13 s."""
    wanted = MessageRequestModes({"T": {"G": MessageRequestMode("T", "G", "POP", 2)}})
    async with cluster(controllers=1) as made:
        settings = {**controlled(1), "allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
        nodes = [await made.node(**settings) for _ in range(2)]
        await until(lambda: any(node.serves for node in nodes))
        master, slave = sorted(nodes, key=lambda node: not node.serves)
        await in_sync(master, 1)
        await made.send(master.address, b"x")

        async def modes(node: Node) -> MessageRequestModes:
            answer = await made.ask(node.address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
            return MessageRequestModes.from_json(answer.body)

        body = MessageRequestMode("T", "G", "POP", 2).to_json()
        assert (await made.ask(master.address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)).code == 0
        found = load(master.store, MessageRequestModes)
        assert found == wanted, "on disk"
        with trio.fail_after(13):
            while await modes(slave) != wanted:
                await trio.sleep(0.1)
        await master.kill()
        assert await new_master(slave) is slave
        assert await modes(slave) == wanted
