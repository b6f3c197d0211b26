"""Who asks whether there is a message, and how many POPs wait for one: whole brokers in virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.pop.part import PopPart
from broker.store.tables import SubscriptionGroup
from broker.topics.names import pop_retry_topic
from harness.simulation.worlds.brokers import Cluster, Node, cluster, wall_ms
from remoting.bodies.namesrv import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.popping import (
    NotificationRequest,
    NotificationResponse,
    PollingInfoRequest,
    PollingInfoResponse,
)
from remoting.record import Message
from tests.broker.pop.test_requests import BAD_EXPRESSIONS
from tests.broker.pop.world import Popper


async def notify(made: Cluster, node: Node, *, queue: int = -1, poll_ms: int = 0, **change: Any) -> Command:
    header = NotificationRequest("G", "T", queue, poll_ms, wall_ms())
    return await made.ask(node.address, RequestCode.NOTIFICATION, attrs.evolve(header, **change))


async def has(made: Cluster, node: Node, **asked: Any) -> bool:
    answer = await notify(made, node, **asked)
    assert answer.code == ResponseCode.SUCCESS, answer
    told = NotificationResponse.from_ext(answer.ext)
    assert not told.polling_full
    return told.has_msg


async def test_a_message_is_there_until_it_is_given_to_somebody(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node, popper = await made.node(), Popper(made)
        await made.send(node.address, b"x", queue=1)
        assert [await has(made, node, queue=queue) for queue in (-1, 0, 1)] == [True, False, True]
        assert await has(made, node, consumer_group="other")
        assert await popper.pop(node)
        assert [await has(made, node, queue=queue) for queue in (-1, 0, 1)] == [False, False, False]
        assert await has(made, node, consumer_group="other"), "which takes nothing"


async def test_what_comes_back_is_a_message_too_but_not_in_order(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x", queue=1)
        assert await Popper(made).pop(node)
        retry = pop_retry_topic("T", "G")
        node.topics.update([TopicConfig(retry, 1, 1)])
        node.broker.journal.append([Message(retry.encode(), b"x")])
        await trio.sleep(0.1)
        assert await has(made, node)
        assert await has(made, node, queue=3), "each POP looks there"
        assert not await has(made, node, order=True)


async def test_who_asks_waits_for_a_message_that_is_wanted(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        await made.send(node.address, b"x", queue=1)
        await Popper(made).pop(node)
        told: list[tuple[str, float]] = []

        async def wait(name: str, asked: dict[str, Any]) -> None:
            assert await has(made, node, poll_ms=10_000, **asked)
            told.append((name, trio.current_time()))

        for name, queue in (("any", -1), ("one", 1), ("two", 2)):
            nursery.start_soon(wait, name, {"queue": queue})
        nursery.start_soon(wait, "other", {"consumer_group": "H"})
        nursery.start_soon(wait, "tagged", {"exp": "b", "exp_type": "TAG", "consumer_group": "H"})
        await trio.sleep(1)
        began = trio.current_time()
        assert [each for each, _ in told] == ["other"], "another group has the first message before it"
        await made.send(node.address, b"y", queue=1)
        await trio.sleep(0.05)
        assert sorted(each for each, _ in told) == ["any", "one", "other"]
        assert max(at for _, at in told) - began < 0.05
        await made.send(node.address, b"y", queue=2, properties="TAGS\x01b\x02")
        await trio.sleep(0.05)
        assert sorted(each for each, _ in told) == ["any", "one", "other", "tagged", "two"]


TAGGED: dict[str, Any] = {"exp": "b || c", "exp_type": "TAG"}


@pytest.mark.parametrize("order", [False, True])
async def test_of_few_messages_that_are_left_one_must_have_a_wanted_tag(
        autojump_clock: MockClock, order: bool) -> None:
    async with cluster() as made:
        node = await made.node(maxMessageFilterNumForNotification="4")
        for tag in "aaa":
            await made.send(node.address, b"x", queue=1, properties=f"TAGS\x01{tag}\x02")

        async def told(queue: int = -1, **asked: str) -> bool:
            return await has(made, node, queue=queue, order=order, **asked)

        assert [await told(queue, **TAGGED) for queue in (-1, 0, 1)] == [False, False, False]
        assert await told(exp="a", exp_type="TAG") and await told(exp="*", exp_type="TAG") and await told()
        assert await told(exp="b"), "no kind, no filter"
        assert await told(exp="n > 1", exp_type="SQL92"), "properties are not looked at"
        await made.send(node.address, b"x", queue=1, properties="TAGS\x01a\x02")
        assert [await told(queue, **TAGGED) for queue in (-1, 0, 1)] == [True, False, True], "one among many, maybe"
        assert len(await Popper(made).pop(node, count=1, exp="a")) == 1
        if order:
            return
        assert not await told(**TAGGED)
        await made.send(node.address, b"x", queue=1, properties="TAGS\x01c\x02")
        assert await told(**TAGGED)
        await Popper(made).pop(node)
        retry = pop_retry_topic("T", "G")
        node.topics.update([TopicConfig(retry, 1, 1)])
        node.broker.journal.append([Message(retry.encode(), b"x", properties=b"TAGS\x01a\x02")])
        await trio.sleep(0.1)
        assert await told(**TAGGED), "what comes back was wanted"


async def test_without_the_key_filters_of_who_asks_are_not_looked_at(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node(useMessageFilterForNotification="false")
        await made.send(node.address, b"x", properties="TAGS\x01a\x02")
        assert await has(made, node, **TAGGED)
        await Popper(made).pop(node)
        assert not await has(made, node, **TAGGED)
        told: list[bool] = []

        async def wait() -> None:
            told.append(await has(made, node, poll_ms=10_000, **TAGGED))

        nursery.start_soon(wait)
        await trio.sleep(1)
        await made.send(node.address, b"x", properties="TAGS\x01a\x02")
        await trio.sleep(0.1)
        assert told == [True]


async def test_the_wait_ends_with_no(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        node.topics.update([TopicConfig("T", 1, 1)])
        began = trio.current_time()
        assert not await has(made, node, poll_ms=5_000)
        assert 4.9 <= trio.current_time() - began <= 5.1
        assert not await has(made, node)


async def test_when_too_many_wait_it_says_so(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node(popPollingSize="1")
        node.topics.update([TopicConfig("T", 1, 1)])
        nursery.start_soon(lambda: notify(made, node, poll_ms=3_000))
        await trio.sleep(0.1)
        answer = await notify(made, node, poll_ms=3_000)
        assert NotificationResponse.from_ext(answer.ext) == NotificationResponse(False, True)


async def test_pops_that_wait_are_counted_by_the_queue_that_they_name(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node, popper = await made.node(), Popper(made)
        node.topics.update([TopicConfig("T", 4, 4)])
        for queue in (-1, -1, 2):
            nursery.start_soon(partial(popper.pop, node, queue=queue, poll_ms=5_000))
        nursery.start_soon(lambda: notify(made, node, queue=2, poll_ms=5_000))
        await trio.sleep(0.1)
        counts = []
        for queue in (-1, 0, 2):
            answer = await made.ask(node.address, RequestCode.POLLING_INFO, PollingInfoRequest("G", "T", queue))
            counts.append(PollingInfoResponse.from_ext(answer.ext).polling_num)
        assert counts == [2, 0, 1]
        assert len(node.broker.parts[PopPart].room) == 4


@pytest.mark.parametrize(("change", "code", "words"), [
    ({"topic": "unknown"}, 17, "not exist"), ({"topic": "W"}, 16, "forbidden"), ({"queue_id": 4}, 29, "queueId[4]"),
    ({"consumer_group": "no group!"}, 26, "does not exist"),
    ({"consumer_group": "stopped"}, 16, "subscription group no permission, stopped"),
    *(({"exp": text, "exp_type": "SQL92"}, 23, "parse the consumer's subscription failed")
      for text in ("a ||", *(each for each, _ in BAD_EXPRESSIONS)))])
async def test_what_is_refused(autojump_clock: MockClock, change: dict[str, Any], code: int, words: str) -> None:
    async with cluster() as made:
        node = await made.node()
        node.topics.update([TopicConfig("W", 1, 1, 2), TopicConfig("T", 4, 4)])
        node.groups.update([SubscriptionGroup("stopped", consume_enable=False)])
        answer = await notify(made, node, **change)
        assert (answer.code, words in (answer.remark or "")) == (code, True), answer
        if "exp" not in change:
            asked = attrs.evolve(PollingInfoRequest("G", "T", 0), **change)
            answer = await made.ask(node.address, RequestCode.POLLING_INFO, asked)
            assert (answer.code, words in (answer.remark or "")) == (code, True), answer


async def test_who_waits_is_answered_when_the_broker_is_master_no_longer(autojump_clock: MockClock) -> None:
    async with cluster() as made, trio.open_nursery() as nursery:
        node = await made.node()
        node.topics.update([TopicConfig("T", 1, 1)])
        codes: list[int] = []

        async def wait() -> None:
            codes.append((await notify(made, node, poll_ms=60_000)).code)

        nursery.start_soon(wait)
        await trio.sleep(0.5)
        node.broker.parts[PopPart].stopping()
        await trio.sleep(0.1)
        assert codes == [ResponseCode.SUCCESS], "there is none, and nobody waits any more"
