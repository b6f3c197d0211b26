"""Pulls, POPs and notifications that wait for a message are answered at once when none can come any more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.store.tables import SubscriptionGroup
from harness.simulation.worlds.brokers import CLUSTER, Cluster, Node, cluster, three, until, wall_ms
from remoting.body import Body
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.header import Header
from remoting.headers.consumers import DeleteSubscriptionGroupRequest
from remoting.headers.controller import ElectMasterRequest
from remoting.headers.popping import NotificationRequest, PopMessageRequest
from remoting.headers.pulling import SUBSCRIPTION, SUSPEND, PullMessageRequest
from remoting.headers.queries import TopicRequest
from remoting.headers.topics import CreateTopicRequest
from tests.broker.escape.test_part import two_groups
from tests.broker.standin.test_part import may_deliver

POLL_MS = 25_000
POP, NOTIFICATION, PULL = RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION, RequestCode.PULL_MESSAGE
Codes = dict[RequestCode, int]
ENDED: Codes = {
    POP: ResponseCode.POLLING_TIMEOUT, NOTIFICATION: ResponseCode.SUCCESS, PULL: ResponseCode.PULL_NOT_FOUND}
"""The answers at the end of a wait."""


def asked() -> dict[RequestCode, Header]:
    return {POP: PopMessageRequest("G", "W", 0, 32, 60_000, POLL_MS, wall_ms()),
            NOTIFICATION: NotificationRequest("G", "W", 0, POLL_MS, wall_ms()),
            PULL: PullMessageRequest("G", "W", 0, 0, 32, SUSPEND | SUBSCRIPTION, 0, POLL_MS, "*", 0)}


@asynccontextmanager
async def waiting(made: Cluster, node: Node) -> AsyncGenerator[dict[RequestCode, Command], None]:
    """One of each waits at the node; what each is answered. At the end all must be answered, in a tenth of a second."""
    answers: dict[RequestCode, Command] = {}

    async def wait(code: RequestCode, header: Header) -> None:
        answers[code] = await made.ask(node.address, code, header)

    async with trio.open_nursery() as nursery:
        for code, header in asked().items():
            nursery.start_soon(wait, code, header)
        await trio.sleep(1)
        assert not answers
        yield answers
        await until(lambda: len(answers) == 3, within_s=0.1)


def codes(answers: dict[RequestCode, Command]) -> Codes:
    return {code: answer.code for code, answer in answers.items()}


async def ready(made: Cluster, node: Node) -> None:
    """Topic and group are there, and queue 0 has no message."""
    await made.send(node.address, b"x", "W", queue=1)
    node.groups.find("G")


async def test_their_topic_is_deleted(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await ready(made, node)
        async with waiting(made, node) as answers:
            assert (await made.ask(node.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("W"))).code == 0
        assert set(codes(answers).values()) == {ResponseCode.TOPIC_NOT_EXIST}
        assert answers[POP].remark == "topic[W] not exist, apply first please!"


@pytest.mark.parametrize("clean", [True, False])
async def test_their_group_is_deleted(autojump_clock: MockClock, clean: bool) -> None:
    """Tried again, they would make it anew, where clients' groups are made by themselves."""
    async with cluster() as made:
        node = await made.node()
        await ready(made, node)
        async with waiting(made, node) as answers:
            assert (await made.ask(node.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest(
                "G", clean))).code == 0
        assert set(codes(answers).values()) == {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST}
        assert answers[PULL].remark == "subscription group [G] does not exist"
        assert node.groups.get("G") is None


async def test_the_topic_or_group_of_others_is_deleted(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await ready(made, node)
        await made.send(node.address, b"x", topic="U")
        node.groups.find("H")
        node.groups.update([SubscriptionGroup("H", consume_enable=False), SubscriptionGroup("G", retry_max_times=3)])
        async with waiting(made, node) as answers:
            await made.ask(node.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("U"))
            await made.ask(node.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequest("H"))
            await trio.sleep(5)
            assert not answers
            await node.stop()
        assert codes(answers) == ENDED


@pytest.mark.parametrize(("code", "change", "answered"), [
    (RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("W", 0, 4, 6), ResponseCode.INVALID_PARAMETER),
    (RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequest("W", 4, 4, 2), ResponseCode.NO_PERMISSION),
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, SubscriptionGroup("G", consume_enable=False),
     ResponseCode.NO_PERMISSION),
], ids=["fewer queues", "not to be read", "may not consume"])
async def test_they_may_not_read_any_more(
    autojump_clock: MockClock, code: RequestCode, change: Header | Body, answered: ResponseCode,
) -> None:
    async with cluster() as made:
        node = await made.node()
        await ready(made, node)
        async with waiting(made, node) as answers:
            if isinstance(change, Body):
                answer = await made.ask(node.address, code, body=change.to_json())
            else:
                answer = await made.ask(node.address, code, change)
            assert answer.code == ResponseCode.SUCCESS
        assert set(codes(answers).values()) == {answered}


async def test_the_configuration_forbids_them(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await ready(made, node)
        async with waiting(made, node) as answers:
            answer = await made.ask(node.address, RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2")
            assert answer.code == ResponseCode.SUCCESS
        assert set(codes(answers).values()) == {ResponseCode.NO_PERMISSION}


async def test_the_broker_stops(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await ready(made, node)
        async with waiting(made, node) as answers:
            await node.stop()
        assert codes(answers) == ENDED


async def test_another_broker_is_elected(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *others = await three(made)
        await ready(made, master)
        await trio.sleep(5)
        async with waiting(made, master) as answers:
            for number in range(3):
                await made.ask(f"n{number}:1", RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequest(
                    CLUSTER, "a", broker_id=others[0].broker.standing.role.broker_id, designate_elect=True))
            await until(lambda: not master.broker.standing.role.takes_puts)
        assert set(codes(answers).values()) == {ResponseCode.SYSTEM_BUSY}


async def test_the_master_in_whose_place_they_wait_is_back(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, _):
        await ready(made, master)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await trio.sleep(20)
        await master.kill()
        await until(lambda: may_deliver(slave))
        async with waiting(made, slave) as answers:
            await master.start()
            await until(lambda: not slave.broker.standing.role.acts)
        assert set(codes(answers).values()) == {ResponseCode.SYSTEM_BUSY}


async def test_a_slave_that_is_read_copies_that_the_topic_is_gone(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, slave, _ = await three(made, slaveReadEnable="true")
        await ready(made, master)
        await until(lambda: slave.topics.get("W") is not None)
        answers: list[int] = []

        async def wait() -> None:
            answers.append((await made.ask(slave.address, PULL, asked()[PULL])).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            await made.ask(master.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("W"))
            await until(lambda: slave.topics.get("W") is None)
            await until(lambda: answers == [ResponseCode.TOPIC_NOT_EXIST], within_s=0.1)
