"""``mqadmin`` on clients of ours that are connected to a broker of ours, and what it makes of their words."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.client import Message
from controller.admin.cli import FAILED
from controller.admin.clients import agree, complaints, info_lines
from remoting.bodies.consumers import ConsumerRunningInfo, MessageQueue, SubscriptionData
from tests.controller.admin.place import GROUP, TOPIC, place


async def test_who_consumes(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    async with place(capsys) as asked:
        await asked.topic()
        await asked.mqadmin("updateSubGroup", "-b", asked.a, "-g", GROUP)
        async with asked.made.connect("one") as client, client.consume(GROUP, {TOPIC: "a || b"}):
            await trio.sleep(5)
            head, member, blank, below, _, *topics, _, kind, model, _ = await asked.lines(
                "consumerConnection", "-g", GROUP)
            assert head == f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version"
            assert member.split()[0] == "one" and blank == "" and below == "Below is subscription:"
            assert f"{TOPIC:<20} a || b" in topics
            assert (kind, model) == ("ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING")
            found = await asked.data("consumerConnection", "-g", GROUP, "-b", asked.a)
            assert found["subscriptions"][TOPIC] == "a || b"

            head, row, *rest = await asked.lines("consumerStatus", "-g", GROUP)
            assert head == f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile"
            path = row.split()[-1]
            assert "#Consumer Properties#" in (tmp_path / path).read_text()
            assert rest[2:] == ["Same subscription in the same group of consumer", "", "", "Rebalance OK"]
            lines = await asked.lines("consumerStatus", "-g", GROUP, "-i", "one", "-b", asked.a, "-s")
            assert "#Consumer Subscription#" in lines
            assert [line for line in lines if line.startswith(f"001 Topic: %RETRY%{GROUP}")]
            said = await asked.mqadmin("consumerStatus", "-g", GROUP, "-i", "two", code=FAILED)
            assert "two" in said
        said = await asked.mqadmin("consumerConnection", "-g", GROUP, code=FAILED)
        assert "not online" in said.lower() or "offline" in said.lower()
        await asked.mqadmin("consumerStatus", "-g", "nobody", code=FAILED)


async def test_who_produces(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with place(capsys) as asked:
        await asked.topic()
        await asked.mqadmin("producerConnection", "-g", "producers", "-t", TOPIC, code=FAILED)
        async with asked.made.connect("one") as client:
            await client.send(Message(TOPIC, b"x"))
            await trio.sleep(5)
            (line,) = await asked.lines("producerConnection", "-g", "producers", "-t", TOPIC)
            assert line.startswith(f"0001  {'one':<32} ")
            (line,) = await asked.lines("producer", "-b", asked.a)
            assert line.startswith("producer group (producers) instance : clientId=one,remoteIP=")
            found = await asked.data("producer", "-b", asked.a)
            assert [each["clientId"] for each in found["producers"]] == ["one"]


NOW_MS = 1_700_000_000_000
QUEUE = MessageQueue("t", "a", 3)
INFO = ConsumerRunningInfo(
    {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": str(NOW_MS - 200_000)},
    {QUEUE: {"commitOffset": 7, "cachedMsgCount": 1, "lastConsumeTimestamp": NOW_MS - 61_000}},
    [SubscriptionData("t", "*")], status_table={"t": {"consumeOKTPS": 2.5}}, user_consumer_info={"k": "v"},
    jstack="main")


def test_members_that_want_different_things_do_not_agree() -> None:
    other = attrs.evolve(INFO, subscription_set=[SubscriptionData("t", "tag")])
    assert agree({"1": INFO, "2": INFO}, NOW_MS) and not agree({"1": INFO, "2": other}, NOW_MS)
    assert agree({"1": INFO, "2": other}, NOW_MS - 100_000), "it has just started"
    pulling = attrs.evolve(INFO, properties=INFO.properties | {"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"})
    assert agree({"1": pulling, "2": other}, NOW_MS)


def test_queues_that_stand_still_are_complained_of() -> None:
    assert complaints({"1": INFO}, NOW_MS) == [
        "1 MessageQueue [topic=t, brokerName=a, queueId=3] can't consume for a while, maybe blocked, 61000ms"]
    assert complaints({"1": INFO}, NOW_MS - 2_000) == []
    ordered = attrs.evolve(INFO, properties=INFO.properties | {"PROP_CONSUMEORDERLY": "true"})
    assert "can't lock for a while" in complaints({"1": ordered}, NOW_MS)[0]
    locked = attrs.evolve(ordered, mq_table={QUEUE: {"locked": True, "droped": True, "tryUnlockTimes": 4}})
    assert complaints({"1": locked}, NOW_MS)[0].endswith("unlock 4 times, still failed")


def test_the_words_of_a_member_are_those_of_the_original() -> None:
    lines = info_lines(INFO).splitlines()
    assert f"{'PROP_CONSUME_TYPE':<40}: CONSUME_PASSIVELY" in lines
    assert f"001 Topic: {'t':<40} ClassFilter: {'false':<8} SubExpression: *" in lines
    assert f"{'t':<32}  {'a':<32}  3     {7:<20}" in lines
    (detail,) = (line for line in lines if "ProcessQueueInfo [" in line and "Pop" not in line)
    assert "commitOffset=7, cachedMsgMinOffset=0" in detail and detail.endswith("]")
    assert [line.split() for line in lines if "2.50" in line] == [["t", "0.00", "0.00", "0.00", "2.50", "0.00", "0"]]
    assert lines[-2:] == ["#Consumer jstack#", "main"]
