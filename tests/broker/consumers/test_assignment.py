"""Queues shared out by the broker."""

from __future__ import annotations

from collections.abc import Sequence

from trio.testing import MockClock

from broker.consumers.assignment import Assignments
from broker.store.files import MemoryFiles
from broker.store.tables import load, save
from remoting.bodies.consumers import (
    MessageQueue,
    MessageRequestMode,
    MessageRequestModes,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from remoting.codes import RequestCode, ResponseCode
from tests.broker.consumers.world import World, running

QUEUES = [MessageQueue("t", name, number) for name in ("b1", "b2") for number in range(3)]


def serve(world: World, kept: MessageRequestModes | None = None) -> Assignments:
    async def queues_of(topic: str) -> Sequence[MessageQueue] | None:
        return QUEUES if topic == "t" else None

    async def saved() -> None:
        pass

    made = Assignments(world.consumers, world.groups, world.topics, queues_of, saved, kept)
    world.handlers |= made.handlers()
    return made


async def share(world: World, client: str, strategy: str = "AVG", *, topic: str = "t", group: str = "g",
                model: str = "CLUSTERING") -> list[MessageQueue] | None:
    asked = QueryAssignmentRequestBody(topic, group, client, strategy, model)
    answer = await world.ask(RequestCode.QUERY_ASSIGNMENT, body=asked.to_json())
    found = QueryAssignmentResponseBody.from_json(answer.body).message_queue_assignments
    assert found is None or all(one.mode == "PULL" for one in found)
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
            (MessageRequestMode("t", "g", "POP", 2), ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
            (MessageRequestMode("t", "g", "PULL"), ResponseCode.SUCCESS),
        ):
            answer = await world.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.to_json())
            assert (answer.code, len(changes)) == (code, int(code == ResponseCode.SUCCESS))
        listed = await world.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        expected = MessageRequestModes({"t": {"g": MessageRequestMode("t", "g", "PULL")}})
        assert MessageRequestModes.from_json(listed.body) == expected
        files = MemoryFiles()
        save(files, made.snapshot())
        assert serve(world, load(files, MessageRequestModes)).snapshot() == expected
