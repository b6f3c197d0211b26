"""What administrators ask of clients through the broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from broker.consumers.clientcalls import ClientCalls
from harness.simulation.worlds.streams import Wire
from remoting.bodies.consumers import (
    ConsumerStatus,
    MessageQueue,
    QueueOffset,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RESPONSE, Command, response
from remoting.headers.consumers import ResetOffsetRequest
from remoting.record import decode
from tests.broker.consumers.world import World, running

WHO = {"consumerGroup": "g", "clientId": "c1"}
QUEUE = MessageQueue("t", "b", 0)


def serve(world: World) -> ClientCalls:
    calls = ClientCalls(world.consumers, groups=world.groups, topics=world.topics, log=world.journal.log,
                  standing=world.standing)
    world.handlers |= calls.handlers()
    return calls


async def answering(wire: Wire, answer: Callable[[Command], Command | None]) -> None:
    """A client that answers what the broker asks."""
    while (asked := await wire.receive()) is not None:
        if not asked.flag & RESPONSE and not asked.is_oneway and (made := answer(asked)) is not None:
            await wire.send(made)


async def test_a_client_is_asked_and_its_answer_goes_back(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        serve(world)
        client, asked = await world.dial(), list[Command]()
        await world.heartbeat("g", "t", wire=client)

        def answer(command: Command) -> Command:
            asked.append(command)
            return response(command, body=b'{"properties":{}}', remark="fine")

        nursery.start_soon(answering, client, answer)
        got = await world.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**WHO, "jstackEnable": "true"})
        assert (got.code, got.body, got.remark, got.opaque) == (0, b'{"properties":{}}', "fine", 1)
        assert (asked[0].code, asked[0].ext["jstackEnable"]) == (RequestCode.GET_CONSUMER_RUNNING_INFO, "true")
        await world.put("a")
        record = world.journal.log.record(0)
        direct = {**WHO, "topic": "t", "msgId": record.message_id}
        assert (await world.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)).code == ResponseCode.SUCCESS
        assert decode(asked[1].body) == record
        assert {"brokerName": "b", "topicSysFlag": "0", "groupSysFlag": "0"}.items() <= asked[1].ext.items()
        for bad in ("zz", record.message_id[:-1] + "9"):
            refused = await world.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**direct, "msgId": bad})
            assert (refused.code, bool(refused.remark), len(asked)) == (ResponseCode.SYSTEM_ERROR, True, 2)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["offline", "old", "silent", "gone"])
async def test_a_client_that_cannot_answer(autojump_clock: MockClock, why: str) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        serve(world)
        client = await world.dial()
        if why != "offline":
            await world.heartbeat("g", "t", wire=client)
            world.consumers.groups["g"].members[next(iter(world.consumers.groups["g"].members))].version = (
                61 if why == "old" else 62)
        if why == "gone":
            @nursery.start_soon
            async def _() -> None:
                await trio.sleep(1)
                await client.stream.aclose()

        answer = await world.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, WHO)
        code = ResponseCode.CONSUME_MSG_TIMEOUT if why == "silent" else ResponseCode.SYSTEM_ERROR
        assert (answer.code, bool(answer.remark)) == (code, True)
        assert trio.current_time() == {"silent": 10, "gone": 1}.get(why, 0)
        nursery.cancel_scope.cancel()


async def test_the_status_of_all_clients_that_answer(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        serve(world)
        asked = {"topic": "t", "group": "g"}
        nobody = await world.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
        assert (nobody.code, bool(nobody.remark)) == (ResponseCode.SYSTEM_ERROR, True)
        for client in ("a", "b"):
            wire = await world.dial()
            await world.heartbeat("g", "t", client=client, wire=wire)
            table = ConsumerStatus({QUEUE: ord(client)}).to_json() if client == "a" else b"nonsense"
            nursery.start_soon(answering, wire, lambda command, table=table: response(command, body=table))
        silent = await world.dial()
        await world.heartbeat("g", "t", client="c", wire=silent)
        answer = await world.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, asked)
        assert answer.body == b'{"consumerTable":{"a":{{"brokerName":"b","queueId":0,"topic":"t"}:97}}}'
        one = await world.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {**asked, "clientAddr": "b"})
        assert one.body == b'{"consumerTable":{}}'
        nursery.cancel_scope.cancel()


async def test_a_reset_is_pushed_in_the_form_that_is_asked_for(autojump_clock: MockClock) -> None:
    async with running() as world:
        calls, asked = serve(world), ResetOffsetRequest("t", "g", timestamp=5)
        assert "not online" in (calls.push_reset(asked, {QUEUE: 3}, as_list=False) or "")
        client = await world.dial()
        await world.heartbeat("g", "t", wire=client)
        for as_list in (False, True):
            assert calls.push_reset(asked, {QUEUE: 3}, as_list=as_list) is None
            while (push := await client.receive()) is not None and push.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
            assert push is not None and (push.code, push.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
            assert ResetOffsetRequest.from_ext(push.ext) == asked
            if as_list:
                assert ResetOffsetBodyForC.from_json(push.body).offset_table == [QueueOffset("t", "b", 0, 3)]
            else:
                assert ResetOffsetBody.from_json(push.body).offset_table == {QUEUE: 3}
        for member in world.consumers.groups["g"].members.values():
            member.version = 27
        assert "not support" in (calls.push_reset(asked, {QUEUE: 3}, as_list=False) or "")
