"""``mqadmin`` against brokers: topics and sends at a real one on a store in memory, the rest from a script.

The lines are those of the original, with its columns.
"""

from __future__ import annotations

import json
import re

import pytest
from trio.testing import MockClock

from controller.admin.cli import FAILED
from controller.admin.command import AdminError
from controller.admin.consumers import parse_time
from remoting.bodies.namesrv import TopicConfig
from remoting.record import decode_properties
from tests.controller.admin.shop import STAMP, shop

# --- topics --------------------------------------------------------------------------------------------------


async def test_a_topic_is_made_and_deleted(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        assert (await asked.mqadmin("updateTopic", "-c", "c", "-t", "t", "-a", "+message.type=FIFO")).splitlines() == [
            "create topic to a:1 success.",
            "TopicConfig [topicName=t, readQueueNums=8, writeQueueNums=8, perm=RW-, topicFilterType=SINGLE_TAG, "
            "topicSysFlag=0, order=false, attributes={+message.type=FIFO}]"]
        assert asked.world.topics.get("t") == TopicConfig("t", 8, 8, 6, attributes={"message.type": "FIFO"})
        assert await asked.data("updateTopic", "-b", "a:1", "-t", "t", "-r", "4", "-w", "2", "-p", "4", "-u", "true",
                                "-s", "true") == {"topic": "t", "brokers": ["a:1"]}
        assert asked.world.topics.get("t") == TopicConfig(
            "t", 4, 2, 4, topic_sys_flag=3, attributes={"message.type": "FIFO"})
        assert (await asked.mqadmin("deleteTopic", "-c", "c", "-t", "t")).splitlines() == [
            "delete topic [t] from cluster [c] success.", "delete topic [t] from NameServer success."]
        assert asked.world.topics.get("t") is None and asked.names.deleted == [("t", "c")]


async def test_ordered_topics_are_told_to_the_name_servers(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        lines = (await asked.mqadmin("updateTopic", "-c", "c", "-t", "t", "-o", "true")).splitlines()
        assert lines[:2] == ["create topic to a:1 success.", "set cluster orderConf. isOrder=true, orderConf=[a:8]"]
        assert asked.names.kept == {"t": "a:8"} and asked.world.topics.is_ordered("t")
        asked.names.kept["t"] = "other:3;a:8"
        lines = (await asked.mqadmin("updateTopic", "-b", "a:1", "-t", "t", "-w", "5", "-o", "true")).splitlines()
        assert lines[:2] == ["set broker orderConf. isOrder=true, orderConf=[a:5]", "create topic to a:1 success."]
        assert asked.names.kept == {"t": "other:3;a:5"}
        await asked.mqadmin("updateTopic", "-b", "a:1", "-t", "u", "-o", "true")
        assert asked.names.kept["u"] == "a:8"


async def test_how_far_a_topic_is(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t")])
        lines = (await asked.mqadmin("topicStatus", "-t", "t")).splitlines()
        assert lines[0] == (
            "#Broker Name                      #QID  #Min Offset           #Max Offset             #Last Updated")
        assert lines[1] == f"{'a':<32}  0     {'0':<20}  {'0':<20}    "
        assert re.fullmatch(rf"{'a':<32}  1     {'1':<20}  {'12':<20}    {STAMP},123", lines[2])
        assert lines[3:] == ["", "Topic Put TPS: 2.5"]
        found = await asked.data("topicStatus", "-t", "t", "-c", "DefaultCluster")
        assert [queue["maxOffset"] for queue in found["queues"]] == [0, 12] and found["putTps"] == 2.5


# --- messages ------------------------------------------------------------------------------------------------


async def test_sending(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("sendMessage", "-t", "new", "-p", "привет", "-k", "k", "-c", "tag")
        header, row = said.splitlines()
        assert header == "#Broker Name                      #QID  #Send Result            #MsgId"
        assert re.fullmatch(r"a {31}  [0-3] {3}  SEND_OK {13}    [0-9A-F]{32}", row)
        record = (await asked.world.records())[-1]
        assert record.message.body.decode() == "привет"
        properties = decode_properties(record.message.properties)
        assert (properties["KEYS"], properties["TAGS"], properties["UNIQ_KEY"]) == ("k", "tag", row[-32:])
        sent = await asked.data("sendMessage", "-t", "new", "-p", "x", "-b", "a", "-i", "2")
        assert (sent["brokerName"], sent["queueId"], sent["status"]) == ("a", 2, "SEND_OK")
        assert sent["offsetMsgId"] == (await asked.world.records())[-1].message_id


@pytest.mark.parametrize(("arguments", "words"), [
    (["-t", "t", "-p", "x", "-i", "1"], "Broker name must be set if the queue is chosen!"),
    (["-t", "t", "-p", "x", "-b", "nobody"], "no master of group nobody takes messages of topic t"),
    (["-t", "closed", "-p", "x"], "no master takes messages of topic closed"),
    (["-t", "t", "-p", "x", "-b", "a", "-i", "99"], "queueId[99] is illegal"),
    (["-t", "BenchmarkTest", "-p", ""], "It has no body"),
])
async def test_what_cannot_be_sent(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str,
) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t"), TopicConfig("closed", perm=4)])
        assert words in await asked.mqadmin("sendMessage", *arguments, code=FAILED)


# --- groups --------------------------------------------------------------------------------------------------


async def test_a_group_is_made(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        assert (await asked.mqadmin("updateSubGroup", "-c", "c", "-g", "g", "-r", "3", "-o", "true")).splitlines() == [
            "create subscription group to a:1 success.",
            "SubscriptionGroupConfig{groupName=g, consumeEnable=true, consumeFromMinEnable=false, "
            "consumeBroadcastEnable=false, consumeMessageOrderly=true, retryQueueNums=1, retryMaxTimes=3, "
            "groupRetryPolicy=GroupRetryPolicy{type=CUSTOMIZED, exponentialRetryPolicy=null, "
            "customizedRetryPolicy=null}, brokerId=0, whichBrokerWhenConsumeSlowly=1, "
            "notifyConsumerIdsChangedEnable=true, groupSysFlag=0, consumeTimeoutMinute=15, subscriptionDataSet=null, "
            "attributes={}}"]
        group = asked.groups.get("g")
        assert group is not None and (group.retry_max_times, group.consume_message_orderly) == (3, True)
        policy = '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000]}}'
        await asked.mqadmin("updateSubGroup", "-b", "a:1", "-g", "g", "-p", policy)
        group = asked.groups.get("g")
        assert group is not None and group.group_retry_policy == json.loads(policy)


async def test_how_far_a_group_is(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.create_for_retry("g")
        lines = (await asked.mqadmin("consumerProgress", "-g", "g")).splitlines()
        assert lines[0] == (f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  {'#Broker Offset':<20}  "
                            f"{'#Consumer Offset':<20}  {'#Diff':<20} {'#Inflight':<20}#LastTime")
        assert lines[1] == f"{'t':<64}  {'a':<32}  0     {5:<20}  {5:<20}  {0:<20} {0:<20} N/A"
        assert re.fullmatch(
            rf"{'t':<64}  {'a':<32}  1     {12:<20}  {10:<20}  {2:<20} {1:<20} {STAMP}", lines[2])
        assert lines[3:] == ["", "Consume TPS: 1.25", "Consume Diff Total: 2", "Consume Inflight Total: 1"]
        lines = (await asked.mqadmin("consumerProgress", "-g", "g", "-s", "true")).splitlines()
        assert lines[0] == (f"{'#Topic':<64}  {'#Broker Name':<32}  #QID  {'#Broker Offset':<20}  "
                            f"{'#Consumer Offset':<20}  {'#Client IP':<20}  {'#Diff':<20} {'#Inflight':<20}#LastTime")
        assert lines[1] == f"{'t':<64}  {'a':<32}  0     {5:<20}  {5:<20}  {'N/A':<20}  {0:<20} {0:<20} N/A"
        assert f"{10:<20}  {'id':<20}  {2:<20}" in lines[2]


async def test_how_far_all_groups_are(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.create_for_retry("g")
        asked.world.topics.create_for_retry("gone")
        header, first, second = (await asked.mqadmin("consumerProgress")).splitlines()
        assert header == (f"{'#Group':<64}  #Count  {'#Version':<24} #Type  {'#Model':<14}  {'#TPS':<7}  #Diff Total")
        assert first == f"{'g':<64}  {1:<6}  {'V5_3_3':<24} PUSH   {'CLUSTERING':<14}  {1:<7}  2"
        assert second == f"{'gone':<64}  {0:<6}  {'OFFLINE':<24} {'':<5}  {'':<14}  {0:<7}  0"


async def test_setting_back(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        asked.world.topics.update([TopicConfig("t")])
        lines = (await asked.mqadmin("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "17", "-f", "false")).splitlines()
        assert lines == [
            "start reset consumer offset by specified, group[g], topic[t], force[false], timestamp(string)[17], "
            "timestamp(long)[17]",
            f"{'#brokerName':<40}  {'#queueId':<40}  #offset", f"{'a':<40}  {0:<40}  3", f"{'a':<40}  {1:<40}  7"]
        assert asked.script.asked[-1].ext == {
            "topic": "t", "group": "g", "timestamp": "17", "isForce": "false", "queueId": "-1"}
        lines = (await asked.mqadmin("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "17", "-b", "a:1", "-q", "1",
                                     "-o", "7", namesrv="")).splitlines()
        assert lines == ["start reset consumer offset by specified, group[g], topic[t], queueId[1], broker[a:1], "
                         "timestamp(string)[17], timestamp(long)[17]", "reset consumer offset to 3",
                         "reset consumer offset to 7"]
        assert asked.script.asked[-1].ext == {
            "topic": "t", "group": "g", "timestamp": "17", "isForce": "true", "queueId": "1", "offset": "7"}
        for wrong, words in ((["-b", "a:1"], "-b and -q go together"), (["-o", "1"], "-b and -q go together")):
            said = await asked.mqadmin("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "17", *wrong, code=FAILED)
            assert words in said


def test_times() -> None:
    assert parse_time("1700000000123") == 1_700_000_000_123
    assert parse_time("2023-11-14#22:13:20:123") % 1_000 == 123
    day = parse_time("2023-11-15#00:00:00:000") - parse_time("2023-11-14#00:00:00:000")
    assert day == 86_400_000
    assert parse_time("now") > 1_700_000_000_000
    for wrong in ("", "yesterday", "2023-11-14#22:13:20", "2023-13-14#22:13:20:123"):
        with pytest.raises(AdminError, match="is no time"):
            parse_time(wrong)


# --- brokers -------------------------------------------------------------------------------------------------


async def test_the_state_of_brokers(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        assert (await asked.mqadmin("brokerStatus", "-b", "a:1", namesrv="")).splitlines() == [
            f"{'brokerActive':<32}: true", f"{'putTps':<32}: 1 2 3"]
        assert (await asked.mqadmin("brokerStatus", "-c", "c")).splitlines() == [
            f"{'a:1':<24} {'brokerActive':<32}: true", f"{'a:1':<24} {'putTps':<32}: 1 2 3",
            f"{'slave:1':<24} {'brokerActive':<32}: true", f"{'slave:1':<24} {'putTps':<32}: 1 2 3"]


async def test_a_key_is_changed(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("updateBrokerConfig", "-c", "c", "-k", "fileReservedTime", "-v", "48 h")
        assert said == "update broker config success, a:1\n"
        assert asked.script.asked[-1].body == b"fileReservedTime=48 h\n"
        said = await asked.mqadmin("updateBrokerConfig", "-c", "c", "-a", "true", "-k", "k", "-v", "v")
        assert said.splitlines() == [f"update broker config success, {address}" for address in (
            "a:1", "slave:1", "slave:1")]


async def test_what_a_master_had_flushed_is_set(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str],
) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin("resetMasterFlushOffset", "-b", "slave:1", "-o", "77", namesrv="")
        assert said == "reset master flush offset to 77 success\n"
        assert asked.script.asked[-1].ext == {"masterFlushOffset": "77"}


async def test_who_replicates(autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]) -> None:
    async with shop(capsys) as asked:
        lines = (await asked.mqadmin("haStatus", "-c", "c")).splitlines()
        assert lines[:5] == ["", "#MasterAddr\ta:1", "#MasterCommitLogMaxOffset\t900", "#SlaveNum\t2",
                             "#InSyncSlaveNum\t1"]
        assert lines[5] == (f"{'#SlaveAddr':<32}  {'#SlaveAckOffset':<16} {'#Diff':>16} {'#TransferSpeed(KB/s)':>16} "
                            f"{'#Status':>16} {'#TransferFromWhere':>16}")
        assert lines[6] == f"{'1.2.3.4:5':<32}  {800:<16} {100:>16} {'2.00':>16} {'OK':>16} {7:>16}"
        assert lines[7] == f"{'1.2.3.4:6':<32}  {0:<16} {900:>16} {'0.00':>16} {'Fall Behind':>16} {0:>16}"
        asked.script.role = "slave"
        lines = (await asked.mqadmin("haStatus", "-b", "slave:1", namesrv="")).splitlines()
        assert lines[:4] == ["", "#MasterAddr\ta:2", "#CommitLogMaxOffset\t900", "#TransferSpeed(KB/s)\t1.00"]
        assert re.fullmatch(rf"#LastReadTime\t{STAMP},123", lines[4])
        assert lines[6] == "#MasterFlushOffset\t800"


@pytest.mark.parametrize("arguments", [
    ["updateTopic", "-c", "elsewhere", "-t", "t"], ["haStatus", "-c", "elsewhere"],
    ["updateSubGroup", "-c", "elsewhere", "-g", "g"]])
async def test_a_cluster_that_nobody_knows(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str], arguments: list[str],
) -> None:
    async with shop(capsys) as asked:
        said = await asked.mqadmin(*arguments, code=FAILED)
        assert said == f"mqadmin {arguments[0]}: the name server knows no cluster elsewhere; it knows c\n"
        assert "-n is needed" in await asked.mqadmin(*arguments, code=FAILED, namesrv="")
