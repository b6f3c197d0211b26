"""A master and its slaves without controllers, whole: who acts when the master is gone, and what clients find."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from broker.config import from_properties
from broker.metrics import BrokerMetrics
from broker.settings import acting_remarks
from controller.namesrv.config import NamesrvConfig
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from harness.simulation.worlds.sending import SendMessageRequest
from remoting.codes import RequestCode, ResponseCode
from remoting.daemon.keys import ConfigError
from remoting.header import Header
from remoting.headers.namesrv import NotifyMinBrokerIdChangeRequest
from remoting.headers.pulling import QueueRequest, SearchOffsetRequest
from remoting.headers.sending import ConsumerSendMsgBackRequest, SendMessageRequestV2
from remoting.record import encode_batch

ACTING = {"enableSlaveActingMaster": "true", "totalReplicas": "3", "brokerRole": "ASYNC_MASTER"}


SEND_V2 = SendMessageRequestV2("T", 0, "P", "TBW102")
BATCH = encode_batch([(0, b"not now", b"UNIQ_KEY\x01U\x02")])


@asynccontextmanager
async def group(slaves: int = 2, **settings: str) -> AsyncGenerator[tuple[Cluster, list[Node]], None]:
    """The master first; all know each other."""
    async with cluster(namesrv=NamesrvConfig(support_acting_master=True)) as made:
        nodes = [await made.node(**{**ACTING, **settings})]
        await until(lambda: nodes[0].serves)
        for number in range(1, slaves + 1):
            nodes.append(await made.node(**{**ACTING, **settings, "brokerRole": "SLAVE", "brokerId": str(number)}))
        await made.send(nodes[0].address, b"before")
        await made.wait_route("T", {number: node.address for number, node in enumerate(nodes)})
        await until(lambda: may_deliver(nodes[0]), within_s=200)
        await until(lambda: all(node.broker.journal.confirm_offset == nodes[0].broker.journal.end for node in nodes))
        yield made, nodes


def info(node: Node) -> dict[str, str]:
    return node.broker.parts.runtime_info()


def may_deliver(node: Node) -> bool:
    return info(node)["deliveryWaitsFor"] == ""


async def test_the_smallest_slave_acts_until_the_master_is_back(autojump_clock: trio.abc.Clock) -> None:
    async with group() as (made, (master, first, second)):
        assert not may_deliver(first)
        assert info(second)["groupMembers"] == f"0={master.address};1={first.address};2={second.address}"
        assert first.broker.standing.role.master_address == master.address
        killed = trio.current_time()
        await master.kill()
        await until(lambda: may_deliver(first))
        assert trio.current_time() - killed < 2.5
        assert first.broker.standing.role.acts
        assert first.broker.standing.role.master_address == "", "nothing is copied from it when it comes back"
        assert not may_deliver(second)
        assert not second.broker.standing.role.acts
        await made.wait_route("T", {0: first.address, 2: second.address})
        assert (await made.pull(first.address)).code == ResponseCode.SUCCESS, "whatever slaveReadEnable says"
        assert (await made.pull(second.address)).code == ResponseCode.SYSTEM_BUSY
        refused = await made.send(first.address, b"not now")
        assert (refused.code, refused.remark) == (
            ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. this broker is not the master of its group")

        await first.kill()
        await until(lambda: may_deliver(second))
        await first.start()
        await until(lambda: may_deliver(first))
        assert not second.broker.standing.role.acts

        await master.start()
        await until(lambda: master.broker.standing.role.listed)
        back = trio.current_time()
        await until(lambda: not first.broker.standing.role.acts, within_s=2)
        assert not may_deliver(master)
        await until(lambda: may_deliver(master))
        assert 3 <= trio.current_time() - back < 6
        await until(lambda: first.broker.standing.role.master_address == master.address)
        assert not may_deliver(first)


@pytest.mark.parametrize(("code", "header", "body", "answer"), [
    (RequestCode.SEND_MESSAGE, SendMessageRequest("T", 0, "P", "TBW102"), b"not now",
     ResponseCode.SERVICE_NOT_AVAILABLE),
    (RequestCode.SEND_MESSAGE_V2, SEND_V2, b"not now", ResponseCode.SERVICE_NOT_AVAILABLE),
    (RequestCode.SEND_BATCH_MESSAGE, attrs.evolve(SEND_V2, batch=True), BATCH, ResponseCode.SERVICE_NOT_AVAILABLE),
    (RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequest(0, "G", 0), b"", ResponseCode.SYSTEM_ERROR)])
async def test_the_slave_that_acts_takes_no_message_by_whatever_code(
        code: int, header: Header, body: bytes, answer: int, autojump_clock: trio.abc.Clock) -> None:
    async with group(1) as (made, (master, slave)):
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts)
        end = slave.broker.journal.end
        refused = await made.ask(slave.address, code, header, body)
        assert refused.code == answer, refused
        assert "this broker is not the master of its group" in (refused.remark or "")
        assert slave.broker.journal.end == end


async def test_positions_of_queues_are_answered_in_the_masters_place(autojump_clock: trio.abc.Clock) -> None:
    async with group(1) as (made, (master, slave)):
        await trio.sleep(1)
        await made.send(master.address, b"later")
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        queue = QueueRequest("T", 0)
        first = await made.ask(master.address, RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
        born_ms = int(first.ext["timestamp"])
        asked = [(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequest("T", 0, born_ms + 1)),
                 (RequestCode.GET_MAX_OFFSET, queue), (RequestCode.GET_MIN_OFFSET, queue),
                 (RequestCode.GET_EARLIEST_MSG_STORETIME, queue)]
        told = [(await made.ask(master.address, *each)).ext for each in asked]
        assert [each["offset"] for each in told[:3]] == ["1", "2", "0"]
        await master.kill()
        await until(lambda: slave.broker.standing.role.acts)
        for each, by_master in zip(asked, told, strict=True):
            answer = await made.ask(slave.address, *each)
            assert (answer.code, answer.ext) == (ResponseCode.SUCCESS, by_master), each


PAGE = Path(__file__).parents[3] / "docs/reference/acting.md"


def metrics(node: Node) -> dict[str, float]:
    """By name, without what the page of metrics puts behind counters."""
    page = BrokerMetrics(node.broker).exposition().decode()
    return {name.removesuffix("_total"): float(value) for name, value in re.findall(
        r"^(broker_\w+)(?:\{.*\})? (\S+)$", page, re.MULTILINE)}


async def test_each_number_of_the_manual_is_on_the_page_of_metrics(autojump_clock: trio.abc.Clock) -> None:
    """But for those of a container, which other brokers do not have."""
    said = {name for name in re.findall(r"`(broker_\w+)`", PAGE.read_text(encoding="utf-8"))
            if not name.startswith("broker_siblings_")}
    async with group() as (made, (master, first, second)):
        assert said <= metrics(first).keys()
        notice = NotifyMinBrokerIdChangeRequest(min_broker_id=1, min_broker_addr=first.address)
        await made.ask(first.address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice)

        def told(node: Node) -> tuple[float, ...]:
            found = metrics(node)
            return tuple(found[f"broker_{name}"] for name in ("group_members", "acts", "may_deliver"))

        assert [told(node) for node in (master, first, second)] == [(3, 0, 1), (3, 0, 0), (3, 0, 0)]
        assert metrics(first)["broker_min_id_notices"] == 1
        await master.kill()
        await until(lambda: may_deliver(first) and told(second)[0] == 2)
        assert [told(node) for node in (first, second)] == [(2, 1, 1), (2, 0, 0)]
        assert (info(first)["actsForMaster"], info(second)["actsForMaster"]) == ("true", "false")


async def test_a_notice_has_the_name_servers_asked_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with group(syncBrokerMemberGroupPeriod="30000", actingRightMs="70000",
                     brokerNotActiveTimeoutMillis="80000") as (made, (master, first, _)):
        await master.kill()
        await trio.sleep(2)
        assert not first.broker.standing.role.acts
        notice = NotifyMinBrokerIdChangeRequest(min_broker_id=1, min_broker_addr=first.address)
        await made.ask(first.address, RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, notice)
        await until(lambda: first.broker.standing.role.acts, within_s=1)


async def test_who_is_no_longer_listed_registers_again_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with group() as (made, (master, first, _)):
        await made.kill_namesrv()
        await made.start_namesrv()
        await until(lambda: not first.broker.standing.role.acts and may_deliver(master))
        await trio.sleep(20)
        assert may_deliver(master)
        assert not may_deliver(first), "it heard its master all the time"


async def test_without_name_servers_nobody_delivers_for_long(autojump_clock: trio.abc.Clock) -> None:
    async with group() as (made, (master, first, _)):
        await made.kill_namesrv()
        await trio.sleep(7.5)
        assert may_deliver(master)
        await trio.sleep(4)
        assert not may_deliver(master)
        assert "0 of 1 name servers" in info(master)["deliveryWaitsFor"]
        assert not may_deliver(first)
        assert not first.broker.standing.role.acts, "nobody said that the master is gone"


@pytest.mark.parametrize(("settings", "words"), [
    ({"enableControllerMode": "true"}, "a slave becomes master instead"),
    ({}, "give the group's real totalReplicas"),
    ({"totalReplicas": "2"}, "without name servers"),
    ({"totalReplicas": "2", "namesrvAddr": "n:1"}, ""),
])
def test_what_is_said_at_the_start(settings: dict[str, str], words: str) -> None:
    said = list(acting_remarks(from_properties({"enableSlaveActingMaster": "true", **settings})))
    assert len(said) == bool(words)
    assert words in "".join(said)
    assert not list(acting_remarks(from_properties(settings)))


@pytest.mark.parametrize("right_ms", ["2000", "10000"])
async def test_a_right_that_would_not_do(right_ms: str) -> None:
    async with cluster() as made:
        with pytest.raises(ConfigError, match="actingRightMs"):
            await made.node(**ACTING, actingRightMs=right_ms)
