"""Codes 17, 18, 215, 351, 21 and 305 over the wire."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from broker.moments import WATCH
from broker.store.tables import Topics, load
from broker.topics import TopicsConfig
from broker.topics.admin import page
from remoting.bodies.namesrv import TopicConfig, TopicConfigSerializeWrapper, TopicList
from remoting.bodies.topics import CreateTopicListRequestBody
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.headers.queries import TopicRequest
from remoting.headers.topics import (
    CreateTopicRequest,
    GetAllTopicConfigRequest,
    GetAllTopicConfigResponse,
    GetTopicConfigRequest,
)
from tests.broker.sending.world import World, running

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC
CREATE_MANY = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


def create(topic: str = "Orders", read: int = 4, write: int = 4, perm: int = 6, **fields: Any) -> Command:
    return request(CREATE, CreateTopicRequest(topic, read, write, perm, **fields))


def create_many(*topics: TopicConfig) -> Command:
    return request(CREATE_MANY, body=CreateTopicListRequestBody(list(topics)).to_json())


async def on_disk(world: World) -> dict[str, TopicConfig]:
    return load(world.files, Topics).topic_config_table


async def test_made_changed_and_deleted(autojump_clock: MockClock) -> None:
    async with running() as world:
        gone: list[str] = []
        world.topics.on_delete.join(WATCH, gone.append)
        assert (await world.ask(create(order=True, attributes="+message.type=FIFO", topic_sys_flag=1))).code == 0
        made = TopicConfig("Orders", 4, 4, 6, "SINGLE_TAG", 1, True, {"message.type": "FIFO"})
        assert (await on_disk(world))["Orders"] == made
        got = await world.ask(request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest("Orders")))
        assert TopicConfig.from_json(got.body) == made
        version = world.topics.version
        again = create(order=True, attributes="+message.type=FIFO", topic_sys_flag=1)
        assert (await world.ask(again)).code == 0 and world.topics.version == version
        assert (await world.ask(create(perm=4, topic_filter_type="MULTI_TAG"))).code == 0
        assert (await on_disk(world))["Orders"] == TopicConfig(
            "Orders", 4, 4, 4, "MULTI_TAG", attributes={"message.type": "FIFO"})
        for _ in range(2):
            assert (await world.ask(request(DELETE, TopicRequest("Orders")))).code == 0
        assert "Orders" not in await on_disk(world) and gone == ["Orders", "Orders"]
        got = await world.ask(request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequest("Orders")))
        assert (got.code, got.remark) == (ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker. topic: Orders")


async def test_many_at_once_or_none(autojump_clock: MockClock) -> None:
    async with running() as world:
        one, two = TopicConfig("one", 1, 1), TopicConfig("two", 2, 2, attributes={"+message.type": "DELAY"})
        assert (await world.ask(create_many(one, TopicConfig("a b")))).code == ResponseCode.INVALID_PARAMETER
        assert world.topics.get("one") is None
        assert (await world.ask(create_many(one))).code == 0
        assert (await world.ask(create_many(one, two))).code == 0
        assert (await on_disk(world))["two"] == attrs.evolve(two, attributes={"message.type": "DELAY"})


@pytest.mark.parametrize(("command", "code", "words"), [
    (create(""), 29, "The specified topic is blank."),
    (create("a/b"), 29, "The specified topic: a/b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
    (create("TBW102"), 29, "The topic[TBW102] is conflict with system topic."),
    (create("rmq_sys_mine"), 29, "The topic[rmq_sys_mine] is conflict with system topic."),
    (create(attributes="+message.type=MIXED"), 29, "MIXED message type is not supported."),
    (create(attributes="message.type=FIFO"), 1, "attribute 'message.type=FIFO': +key=value sets it, -key removes it"),
    (create(attributes="-message.type"), 1, "only add attribute is supported while creating topic. key: message.type"),
    (create(read=-1), 29, "topic Orders: -1 queues to read and 4 to write; 0 to 65535 are allowed"),
    (create(write=1 << 20), 29, "topic Orders: 4 queues to read and 1048576 to write; 0 to 65535 are allowed"),
    (create(perm=16), 29, "topic Orders: perm 16; it is the sum of 4 to read, 2 to write, 1 to be inherited"),
    (create(topic_filter_type="NO_TAG"), 1,
     "topicFilterType = [NO_TAG] value invalid; SINGLE_TAG or MULTI_TAG is allowed"),
    (request(DELETE, TopicRequest(" ")), 29, "The specified topic is blank."),
    (request(DELETE, TopicRequest("TBW102")), 29, "The topic[TBW102] is conflict with system topic."),
    (Command(CREATE), 1, "CreateTopicRequest: topic is missing"),
    (Command(CREATE_MANY, body=b"[]"), 1, "CreateTopicListRequestBody is list; an object is needed"),
])
async def test_refusals(autojump_clock: MockClock, command: Command, code: int, words: str) -> None:
    async with running() as world:
        before = world.topics.snapshot()
        answer = await world.ask(command, flag=0)
        assert (answer.code, answer.remark) == (code, words)
        assert world.topics.snapshot() == before


async def test_what_a_configuration_allows(autojump_clock: MockClock) -> None:
    config = TopicsConfig(validate_system_topic_when_update_topic=False, enable_mixed_message_type=True)
    async with running(topics=config) as world:
        assert (await world.ask(create("TBW102", perm=7))).code == 0
        assert (await world.ask(create(attributes="+message.type=MIXED"))).code == 0


async def test_a_disk_that_takes_nothing(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.ask(create("one"))
        world.files.content["config/topics.json.tmp"] = world.files.content["config/topics.json"].__class__(
            fault=OSError(28, "No space left on device"))
        answer = await world.ask(create("two"))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            "done, and kept in memory only: topics.json cannot be written, [Errno 28] No space left on device")
        world.files.content["config/topics.json.tmp"].fault = None


async def test_a_deletion_says_that_positions_stay_on_disk(autojump_clock: MockClock) -> None:
    async def no_space() -> None:
        raise OSError(28, "No space left on device")

    async with running() as world:
        await world.ask(create("one"))
        world.admin.cleaned = no_space
        answer = await world.ask(request(DELETE, TopicRequest("one")))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "deleted, and the positions in memory only: consumerOffset.json cannot be "
            "written, [Errno 28] No space left on device")


async def test_a_deletion_says_that_the_next_master_may_not_know_of_it(autojump_clock: MockClock) -> None:
    async def untold() -> str:
        return "nobody listens"

    async with running() as world:
        await world.ask(create("one"))
        world.admin.told = untold
        answer = await world.ask(request(DELETE, TopicRequest("one")))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "deleted here, and perhaps not on the next master: nobody listens")
        assert "one" not in load(world.files, Topics).topic_config_table


async def test_the_systems_topics(autojump_clock: MockClock) -> None:
    async with running() as world:
        answer = await world.ask(request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
        found = TopicList.from_json(answer.body).topic_list
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster"} <= set(found)


# --- code 21, in one piece or in pages -----------------------------------------------------------------------


async def read_by_pages(world: World, size: int, between: Any = None) -> dict[str, TopicConfig]:
    """As a Java slave of 5.5.0 reads: on to the last but one, from the start when the version has moved."""
    found: dict[str, TopicConfig] = {}
    seq, version = 0, ""
    while True:
        answer = await world.ask(request(
            RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest(seq, version, size)))
        total = GetAllTopicConfigResponse.from_ext(answer.ext).total_topic_num
        got = TopicConfigSerializeWrapper.from_json(answer.body)
        told = got.data_version.to_json().decode()
        if version and told != version:
            found, seq, version = {}, 0, told
            continue
        version = told
        found |= got.topic_config_table
        seq += len(got.topic_config_table)
        assert total is not None
        if seq >= total - 1:
            return found
        if between is not None:
            between()
            between = None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 2_000])
async def test_pages_miss_nothing(autojump_clock: MockClock, size: int) -> None:
    async with running() as world:
        for more in range(4):
            world.topics.update([TopicConfig(f"t{more}")])
            assert await read_by_pages(world, size) == world.topics.topics
        assert await read_by_pages(world, size, lambda: world.topics.delete("t0")) == world.topics.topics


async def test_old_readers_get_everything(autojump_clock: MockClock) -> None:
    async with running(topics=TopicsConfig(split_metadata_size=2)) as world:
        answer = await world.ask(request(RequestCode.GET_ALL_TOPIC_CONFIG))
        got = TopicConfigSerializeWrapper.from_json(answer.body)
        assert (got.topic_config_table, got.data_version) == (dict(world.topics.topics), world.topics.version)
        paged = await world.ask(request(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest(max_topic_num=0)))
        assert len(TopicConfigSerializeWrapper.from_json(paged.body).topic_config_table) == 1
    async with running(topics=TopicsConfig(enable_split_metadata=False)) as world:
        answer = await world.ask(request(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopicConfigRequest(0, "", 1)))
        assert TopicConfigSerializeWrapper.from_json(answer.body).topic_config_table == world.topics.topics


@given(st.integers(0, 30), st.integers(1, 12))
def test_pages_leave_never_one_alone(total: int, size: int) -> None:
    names = [f"{number:02}" for number in range(total)]
    seq, found = 0, list[str]()
    while seq < total:
        got = page(names, seq, size)
        found += got
        seq += len(got)
        assert total - seq != 1
    assert found == names


@pytest.mark.parametrize(("clears", "left"), [(True, {"%RETRY%g"}), (False, {
    "%RETRY%g", "%RETRY%g_Orders", "%RETRY%g+Orders", "%RETRY%h+Orders"})])
async def test_a_topic_goes_with_those_through_which_groups_that_pop_it_retry(
    autojump_clock: MockClock, clears: bool, left: set[str],
) -> None:
    async with running() as world:
        world.topics.config = attrs.evolve(world.topics.config, clear_retry_topic_when_delete_topic=clears)
        world.admin.groups_of = {"Orders": ["g", "h"]}.__getitem__
        gone: list[str] = []
        world.topics.on_delete.join(WATCH, gone.append)
        for name in ("Orders", "%RETRY%g", "%RETRY%g_Orders", "%RETRY%g+Orders", "%RETRY%h+Orders"):
            world.topics.create_if_absent(name, 1)
        assert (await world.ask(request(DELETE, TopicRequest("Orders")))).code == 0
        assert {name for name in await on_disk(world) if name.startswith(("%", "Orders"))} == left
        assert gone[0] == "Orders" and len(gone) == (4 if clears else 1)
