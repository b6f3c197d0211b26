"""Each code of RocketMQ 5.5.0 is sent to each server of ours: 3 is the answer where Java's server says so, and nowhere
else but for the features that the docs name as absent."""

from __future__ import annotations

import re

import pytest
import trio

from broker.runtimeinfo import _readable
from harness.scenarios.interop.codes import ABSENT, CODES
from harness.simulation.worlds.brokers import cluster
from remoting.bodies.namesrv import KVTable
from remoting.bodies.queries import BrokerStatsData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.headers.queries import ViewBrokerStatsRequest
from remoting.headers.sending import ConsumerSendMsgBackRequest
from remoting.record import decode_all
from tests.broker.codes import answers, recorded
from tests.broker.pop.world import Popper

NAMESRV_ANSWERS = {
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, 904}
CONTROLLER_ANSWERS = {904, *range(1001, 1007), *range(1009, 1014)}
NOBODY_OR_OTHERS = {
    13, 22, 23, 27, 39, 40, 47, 209, 210, 211, 212, 213, 214, 220, 221, 301, 302, 326, 902, 903, 200072, 200073}
"""Dead in Java too, or of clients and of containers of brokers. By ``registerProcessor`` of each of Java's servers."""
BROKER_ANSWERS = set(CODES) - NOBODY_OR_OTHERS - (NAMESRV_ANSWERS | CONTROLLER_ANSWERS)
NOT_HERE = set().union(*ABSENT.values())
JAVAS = {
    "broker": BROKER_ANSWERS, "name server": NAMESRV_ANSWERS, "controller": CONTROLLER_ANSWERS,
    "container": {25, 26, 902, 903}, "client": {39, 40, 220, 221, 307, 309, 326, 200073}}
OURS_TOO = {"container": {28}}
"""What a server of ours answers and Java's does not."""


CLUSTER = "c"


def test_java_s_codes_are_all_known() -> None:
    assert len(CODES) == 164
    assert len(BROKER_ANSWERS) == 108


async def test_each_code_at_each_server(autojump_clock: trio.abc.Clock) -> None:
    found = await answers()
    for seat, wanted in JAVAS.items():
        expected = wanted - NOT_HERE | OURS_TOO.get(seat, set())
        assert found[seat].keys() == expected, f"{seat}: {sorted(found[seat].keys() ^ expected)}"
    assert found == recorded(), "`python -m tests.broker.codes` and `make fix` write what is answered now"


@pytest.mark.parametrize("code", [200056, *range(200070, 200080)])
async def test_codes_of_what_is_not_here_are_refused_in_words(autojump_clock: trio.abc.Clock, code: int) -> None:
    """POP's records in RocksDB, and lite topics."""
    async with cluster() as made:
        answer = await made.ask((await made.node()).address, code)
        assert (answer.code, answer.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")


READ_BY_EXPORTERS = frozenset((
    "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "ackThreadPoolQueueSize", "bootTimestamp",
    "brokerVersionDesc", "commitLogDirCapacity", "commitLogDiskRatio", "commitLogMaxOffset", "commitLogMinOffset",
    "consumeQueueDiskRatio", "dispatchBehindBytes", "dispatchMaxBuffer", "earliestMessageTimeStamp", "getFoundTps",
    "getMessageEntireTimeMax", "getMissTps", "getTotalTps", "getTransferedTps", "getTransferredTps",
    "msgGetTotalTodayMorning", "msgGetTotalTodayNow", "msgGetTotalYesterdayMorning", "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow", "msgPutTotalYesterdayMorning", "pageCacheLockTimeMills", "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "putMessageAverageSize",
    "putMessageDistributeTime", "putMessageEntireTimeMax", "putMessageFailedTimes", "putMessageSizeTotal",
    "putMessageTimesTotal", "putTps", "queryThreadPoolQueueCapacity", "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize", "remainHowManyDataToCommit", "remainHowManyDataToFlush",
    "remainTransientStoreBufferNumbs", "runtime", "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills", "sendThreadPoolQueueSize", "startAcceptSendRequestTimeStamp",
    "timerCongestNum", "timerDequeueTps", "timerEnqueueTps", "timerOffsetBehind", "timerReadBehind"))
"""Of code 28, as ``prepareRuntimeInfo`` of Java writes them; exporters take each for granted."""


async def test_the_state_has_all_that_exporters_read(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x" * 100)
        await made.send(node.address, b"x" * 300)
        await trio.sleep(2)
        for offset in (0, 9):
            await made.pull(node.address, offset)
        await trio.sleep(3)
        found = KVTable.from_json((await made.ask(node.address, 28)).body).table
        assert not READ_BY_EXPORTERS - found.keys()
        size = int(found["putMessageSizeTotal"])
        assert size > 400 and float(found["putMessageAverageSize"]) == size / 2
        assert re.fullmatch(r"Total : [\d.]+ \w+, Free : [\d.]+ \w+\.", found["commitLogDirCapacity"])
        rates = {name: float(found[name].split()[0]) for name in ("getTotalTps", "getFoundTps", "getMissTps")}
        assert rates["getTotalTps"] == pytest.approx(rates["getFoundTps"] + rates["getMissTps"], abs=0.02)
        assert rates["getFoundTps"] > 0 and rates["getMissTps"] > 0


async def test_statistics_of_bytes_and_of_what_was_given_back(autojump_clock: trio.abc.Clock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"x" * 100)
        await trio.sleep(15)
        await made.send(node.address, b"x" * 300)
        (record, *_) = decode_all((await made.pull(node.address)).body)
        await made.ask(node.address, RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(
            offset=record.offset, group="G", delay_level=1))
        await trio.sleep(15)

        async def counted(name: str, key: str) -> int:
            answer = await made.ask(node.address, 315, ViewBrokerStatsRequest(name, key))
            assert answer.code == ResponseCode.SUCCESS, answer
            return BrokerStatsData.from_json(answer.body).stats_minute.sum_

        assert await counted("TOPIC_PUT_SIZE", "T") > 400
        assert await counted("SNDBCK_PUT_NUMS", "T@G") == 1
        of_users = await counted("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)
        assert 0 < of_users < await counted("BROKER_PUT_NUMS", CLUSTER), "delays have a topic of the system"
        (message,) = await Popper(made, "pops").pop(node, queue=0, count=1)
        await Popper(made, "pops").ack(node, message)
        await trio.sleep(15)
        assert await counted("BROKER_CK_NUMS", CLUSTER) == await counted("BROKER_ACK_NUMS", CLUSTER) == 1


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 60, "3.0 EiB")])
def test_sizes_are_written_as_in_java(size: int, text: str) -> None:
    assert _readable(size) == text


@pytest.mark.parametrize(("code", "ext", "wanted", "words"), [
    (354, {}, 1, "no"), (513, {}, 1, "static topics are not offered"), (905, {"minBrokerId": "1"}, 0, ""),
    (1008, {}, 0, ""),
    (355, {"configType": "topics;consumerOffsets"}, 0, ""), (355, {}, 1, "nothing is no table"),
    (355, {"configType": "Topics;users"}, 1, "users is no table"),
])
async def test_what_means_little_here_is_answered(
    autojump_clock: trio.abc.Clock, code: int, ext: dict[str, str], wanted: int, words: str,
) -> None:
    async with cluster() as made:
        node = await made.node()
        command = request(code)
        command.ext.update(ext)
        answer = await made.client.call(node.address, command)
        assert answer.code == wanted and words in (answer.remark or "")
