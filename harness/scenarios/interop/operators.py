"""The two ``mqadmin``, the original's and ours, on queues, settings and name servers: the same words of one cluster."""

from __future__ import annotations

from itertools import zip_longest

import trio

from harness.processes import ours
from harness.scenarios.interop.failover import GROUP
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.tools import our_mqadmin, unordered
from harness.scenarios.interop.watch import create_topic, tool

TOPIC = "Orders"


@scenario("5.5.0", timeout_s=600)
async def both_tools_say_the_same_of_queues_and_settings(stage: Stage) -> None:
    """Lists, printed messages, settings and name servers, of our broker with both tools: equal after masking numbers.
    """
    async with (
        ours.namesrv(stage.here / "namesrv") as namesrv,
        ours.broker(stage.here / "broker", GROUP, namesrv=[namesrv.address]) as broker,
    ):
        named = ("-n", namesrv.address)
        await create_topic(stage, namesrv.address, TOPIC)
        for group in ("readers", "others"):
            await our_mqadmin("updateSubGroup", *named, "-b", broker.address, "-g", group)
        for body in ("first", "second", "third"):
            sent = await our_mqadmin(
                "sendMessage", *named, "-t", TOPIC, "-p", body, "-c", "tag", "-k", "k", "-b", GROUP, "-i", "0")
            expect(sent.exit_code == 0, f"{sent}")
        await trio.sleep(1)
        topic, at, queue = ("-t", TOPIC), ("-b", broker.address), ("-b", GROUP, "-i", "0")
        others: list[str] = []
        for arguments in (
            ("topicList",), ("topicList", "-c"), ("topicClusterList", *topic), ("getNamesrvConfig",),
            ("getBrokerConfig", *at), ("getBrokerConfig", "-c", "DefaultCluster"),
            ("getConsumerConfig", "-g", "readers"), ("printMsg", *topic),
            ("printMsgByQueue", *topic, "-a", GROUP, "-i", "0", "-p", "true", "-d", "true", "-f", "true"),
            ("consumeMessage", *topic, *queue), ("queryMsgByOffset", *topic, *queue, "-o", "1"),
            ("queryCq", *topic, "-q", "0", "-i", "0", "-c", "2"), ("statsAll", *topic),
            ("allocateMQ", *topic, "-i", "a,b"), ("cleanExpiredCQ", *at),
            ("skipAccumulatedMessage", *topic, "-g", "readers"), ("brokerConsumeStats", *at),
            ("updateTopicPerm", *at, *topic, "-p", "6"), ("setConsumeMode", *at, *topic, "-g", "readers", "-m", "PULL"),
            ("updateKvConfig", "-s", "ORDER_TOPIC_CONFIG", "-k", "x", "-v", "a:1"),
            ("updateOrderConf", "-t", "x", "-m", "get"), ("wipeWritePerm", "-b", GROUP), ("addWritePerm", "-b", GROUP),
            ("getColdDataFlowCtrInfo", *at), ("setCommitLogReadAheadMode", *at, "-m", "0"),
        ):
            original, own = await tool(stage, *arguments, *named), await our_mqadmin(*arguments, *named)
            theirs, mine = unordered(original.stdout), unordered(own.stdout)
            if original.ok and own.exit_code == 0 and theirs == mine:
                stage.say(f"{arguments[0]}: the same {len(mine)} lines")
            else:
                others.append(f"{original}\nours: {own}\n" + "\n".join(
                    f"original: {one}\nours:     {two}" for one, two in zip_longest(theirs, mine) if one != two))
        expect(not others, "\n".join(others))
