"""The codes about offsets over the wire: what a new group gets, who may commit, resets in both ways."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.offsets import OffsetsConfig
from broker.offsets.requests import NOT_FOUND, OffsetRequests
from broker.standing import Role
from broker.store.files import MemoryFiles
from broker.store.tables import ConsumerOffsets, SubscriptionGroup, load
from broker.tablefile import TableFile
from remoting.bodies.consumers import CorrectionOffsets, MessageQueue, ResetOffsetBody
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.consumers import ResetOffsetRequest
from remoting.record import Message
from tests.broker.consumers.world import World, running
from tests.broker.store.small import delete_before

QUERY, UPDATE, RESET = (
    RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)


class Subscribers:
    """Notes what it is to push."""

    def __init__(self) -> None:
        self.pushed: list[tuple[dict[MessageQueue, int], bool]] = []
        self.failure: str | None = None
        self.wanted = True

    def is_subscribed(self, group: str, topic: str) -> bool:
        return self.wanted

    def push_reset(self, asked: ResetOffsetRequest, offsets: dict[MessageQueue, int], *, as_list: bool) -> str | None:
        self.pushed.append((offsets, as_list))
        return self.failure


def serve(world: World, memory: int = 1 << 62) -> Subscribers:
    subscribers = Subscribers()
    world.handlers |= OffsetRequests(
        world.offsets, groups=world.groups, topics=world.topics, messages=world.journal.messages,
        queue_end=world.journal.queue_end, standing=world.standing, subscribers=subscribers, veil=world.journal.veil,
        memory=memory).handlers()
    world.groups.update([SubscriptionGroup("g")])
    return subscribers


def at(queue_id: int = 0, **more: str) -> dict[str, str]:
    return {"consumerGroup": "g", "topic": "t", "queueId": str(queue_id), **more}


@pytest.mark.parametrize(("committed", "messages", "zero", "memory", "expected"), [
    (5, 1, None, 1 << 62, 5),
    (0, 0, "false", 0, 0),
    (None, 1, None, 1 << 62, 0),
    (None, 1, "true", 1 << 62, 0),
    (None, 1, "false", 1 << 62, None),
    (None, 0, None, 1 << 62, 0),
    (None, 0, None, 0, 0),
    (None, 0, "false", 1 << 62, None),
    (None, 1, None, 0, None),
])
async def test_what_a_group_is_told_of_where_it_is(
    autojump_clock: MockClock, committed: int | None, messages: int, zero: str | None, memory: int,
    expected: int | None,
) -> None:
    """``zero``: whether the client says that it would begin at 0. Old messages are not begun with; a queue without any
    is begun with, so that a group which wants the last ones gets those that are sent while it starts."""
    async with running() as world:
        serve(world, memory)
        if committed is not None:
            world.offsets.commit("g", "t", 0, committed)
        await world.put(*["a"] * messages)
        answer = await world.ask(QUERY, at() if zero is None else at(setZeroIfNotFound=zero))
        if expected is None:
            assert (answer.code, bool(answer.remark)) == (ResponseCode.QUERY_NOT_FOUND, True)
        else:
            assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, {"offset": str(expected)})


async def test_an_empty_queue_is_begun_at_0_where_a_master_knows_that_it_is_empty(autojump_clock: MockClock) -> None:
    """A slave may lack what its master has; what nobody sees yet is there; no topic has no queue."""
    async with running() as world:
        serve(world)
        world.standing.role = Role.slave(1)
        assert (await world.ask(QUERY, at())).code == ResponseCode.QUERY_NOT_FOUND
        world.standing.role = Role.master(1)
        assert (await world.ask(QUERY, at())).ext == {"offset": "0"}
        assert (await world.ask(QUERY, at() | {"topic": "none"})).code == ResponseCode.QUERY_NOT_FOUND
        world.journal.append([Message(b"t", b"unseen", 0)])
        await trio.testing.wait_all_tasks_blocked()
        for queue_id in (0, 1):
            assert (await world.ask(QUERY, at(queue_id))).ext == {"offset": "0"}, "the one there is may be seen next"
        world.store.writer.forget_numbers()
        for queue_id in (0, 1):
            assert (await world.ask(QUERY, at(queue_id))).code == ResponseCode.QUERY_NOT_FOUND, "nobody knows yet"
        world.journal.confirm(world.journal.end)
        await trio.testing.wait_all_tasks_blocked()
        assert [(await world.ask(QUERY, at(queue_id))).ext for queue_id in (0, 1)] == [{"offset": "0"}] * 2
        assert [world.journal.queue_end(b"t", queue_id) for queue_id in (0, 1)] == [1, 0]


async def test_a_queue_whose_beginning_was_deleted_is_not_begun_at_0(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        for _ in range(10):
            await world.put(*["a" * 100] * 60)
        world.store.flush()
        delete_before(world.store, world.journal.end)
        assert world.journal.messages.min_offset(b"t", 0) > 0
        assert (await world.ask(QUERY, at())).code == ResponseCode.QUERY_NOT_FOUND


async def test_commits_and_who_may_not(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        assert (await world.ask(UPDATE, at(1, commitOffset="7"))).code == ResponseCode.SUCCESS
        assert world.offsets.query("g", "t", 1) == 7
        for ext, code in (
            (at(commitOffset="1") | {"consumerGroup": "x", "topic": "x"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            (at(commitOffset="1") | {"topic": "x"}, ResponseCode.TOPIC_NOT_EXIST),
            (at(4, commitOffset="1"), ResponseCode.INVALID_PARAMETER),
            (at(-1, commitOffset="1"), ResponseCode.INVALID_PARAMETER),
            (at(), ResponseCode.SYSTEM_ERROR),
        ):
            answer = await world.ask(UPDATE, ext)
            assert (answer.code, bool(answer.remark)) == (code, True)
        assert world.offsets.snapshot().offset_table == {"t@g": {1: 7}}
        everything = await world.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert ConsumerOffsets.from_json(everything.body) == world.offsets.snapshot()


async def test_a_reset_holds_against_late_commits_until_the_next_pull(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        await world.put("a", "a", "a")
        world.offsets.commit("g", "t", 0, 3)
        answer = await world.ask(RESET, {"topic": "t", "group": "g", "timestamp": "0", "isForce": "true"})
        body = ResetOffsetBody.from_json(answer.body)
        assert body.offset_table == {MessageQueue("t", "b", queue_id): 0 for queue_id in range(4)}
        late = await world.ask(UPDATE, at(commitOffset="3"))
        assert (late.code, late.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
        assert (await world.ask(QUERY, at())).ext["offset"] == "0"
        world.offsets.take_reset("g", "t", 0)
        assert (await world.ask(UPDATE, at(commitOffset="2"))).remark is None
        assert world.offsets.query("g", "t", 0) == 2


@pytest.mark.parametrize(("ext", "expected"), [
    ({"timestamp": "-1"}, {0: 3, 1: 0, 2: 0, 3: 0}),
    ({"timestamp": "1500"}, {0: 1, 1: 0, 2: 0, 3: 0}),
    ({"timestamp": "1500", "queueId": "0"}, {0: 1}),
    ({"timestamp": "1500", "queueId": "0", "offset": "-1"}, {0: 1}),
    ({"timestamp": "0", "queueId": "0", "offset": "2"}, {0: 2}),
    ({"timestamp": "0", "queueId": "0", "offset": "3"}, {0: 3}),
    ({"timestamp": "0", "queueId": "0", "offset": "4"}, ResponseCode.SYSTEM_ERROR),
    ({"timestamp": "0", "queueId": "4"}, ResponseCode.INVALID_PARAMETER),
    ({"timestamp": "0", "topic": "x"}, ResponseCode.TOPIC_NOT_EXIST),
    ({"timestamp": "0", "group": "x"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ({"timestamp": "0", "topic": "none"}, ResponseCode.SYSTEM_ERROR),
])
async def test_where_a_reset_leads(
    autojump_clock: MockClock, ext: dict[str, str], expected: dict[int, int] | ResponseCode,
) -> None:
    """Messages of second 1, 2 and 3."""
    async with running() as world:
        serve(world)
        world.topics.update([TopicConfig("none", 0, 0)])
        for _ in range(3):
            await trio.sleep(1)
            await world.put("a")
        answer = await world.ask(RESET, {"topic": "t", "group": "g"} | ext)
        if isinstance(expected, dict):
            assert answer.code == ResponseCode.SUCCESS
            assert world.offsets.of("g", "t") == expected
        else:
            assert (answer.code, bool(answer.remark), world.offsets.of("g", "t")) == (expected, True, {})


async def test_a_slave_resets_nothing(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        world.standing.role = Role.slave(1)
        answer = await world.ask(RESET, {"topic": "t", "group": "g", "timestamp": "0"})
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")


async def test_a_reset_that_clients_do(autojump_clock: MockClock) -> None:
    async with running(offsets=OffsetsConfig(use_server_side_reset_offset=False)) as world:
        subscribers = serve(world)
        await world.put("a", "a")
        asked = {"topic": "t", "group": "g", "timestamp": "-1"}
        assert (await world.ask(RESET, asked)).code == ResponseCode.SYSTEM_ERROR, "it never said where it is"
        for queue_id in range(4):
            world.offsets.commit("g", "t", queue_id, 1)
        for language, force, first in ((0, "false", 1), (1, "true", 2)):
            answer = await world.ask(RESET, asked | {"isForce": force}, language=language)
            offsets, as_list = subscribers.pushed.pop()
            assert (offsets[MessageQueue("t", "b", 0)], as_list) == (first, language == 1)
            assert ResetOffsetBody.from_json(answer.body).offset_table == offsets
        subscribers.failure = "nobody"
        assert (await world.ask(RESET, asked)).code == ResponseCode.CONSUMER_NOT_ONLINE
        assert (await world.ask(RESET, asked | {"topic": "x"})).code == ResponseCode.TOPIC_NOT_EXIST
        assert world.offsets.query("g", "t", 0) == 1


async def test_offsets_are_cloned(autojump_clock: MockClock) -> None:
    async with running() as world:
        subscribers = serve(world)
        world.topics.update([TopicConfig("u")])
        for topic in ("t", "u", "gone"):
            world.offsets.commit("g", topic, 0, 5)
        clone = {"srcGroup": "g", "destGroup": "h", "offline": "false"}
        await world.ask(RequestCode.CLONE_GROUP_OFFSET, {**clone, "topic": "t"})
        assert world.offsets.topics_of("h") == ["t"]
        subscribers.wanted = False
        await world.ask(RequestCode.CLONE_GROUP_OFFSET, clone)
        assert world.offsets.topics_of("h") == ["t"]
        await world.ask(RequestCode.CLONE_GROUP_OFFSET, {**clone, "offline": "true"})
        assert (world.offsets.topics_of("h"), world.offsets.query("h", "u", 0)) == (["t", "u"], 5)


async def test_corrections_of_offsets(autojump_clock: MockClock) -> None:
    async with running() as world:
        serve(world)
        for group, queue_id, offset in (("g", 0, 5), ("h", 0, 3), ("h", 1, 9), ("x", 0, 1), ("x", 2, 4)):
            world.offsets.commit(group, "t", queue_id, offset)
        ext = {"topic": "t", "filterGroups": "x,", "compareGroup": "g"}
        answer = await world.ask(RequestCode.QUERY_CORRECTION_OFFSET, ext)
        assert CorrectionOffsets.from_json(answer.body).correction_offsets == {0: 3, 1: 9}
        answer = await world.ask(RequestCode.QUERY_CORRECTION_OFFSET, {"topic": "t", "compareGroup": "x"})
        assert CorrectionOffsets.from_json(answer.body).correction_offsets == {0: 1, 1: 9, 2: 4}
        answer = await world.ask(RequestCode.QUERY_CORRECTION_OFFSET, ext | {"compareGroup": "x"})
        assert CorrectionOffsets.from_json(answer.body).correction_offsets == {0: NOT_FOUND, 1: 9, 2: NOT_FOUND}


async def test_offsets_reach_the_disk_at_intervals_and_at_the_end(autojump_clock: MockClock) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        files = MemoryFiles()
        writes: list[float] = []

        async def inline(work: object) -> None:
            assert callable(work)
            writes.append(trio.current_time())
            work()

        file = TableFile(files, world.offsets.snapshot, inline, pause_ms=5_000)
        world.offsets.on_change = file.changed
        await nursery.start(file.run)
        for offset in range(25):
            world.offsets.commit("g", "t", 0, offset)
            await trio.sleep(0.5)
        assert writes == [0, 5, 10]
        assert load(files, ConsumerOffsets).offset_table["t@g"][0] < 24
        nursery.cancel_scope.cancel()
    assert load(files, ConsumerOffsets).offset_table == {"t@g": {0: 24}}
