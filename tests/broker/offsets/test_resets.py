"""Resets of groups, forward and back: they outlive kills and failovers, and what clients commit before they pulled."""

from __future__ import annotations

import copy

import pytest
import trio
from trio.testing import MockClock

from broker.offsets.table import OffsetsConfig, OffsetTable
from broker.pop.part import PopPart
from broker.store.tables import ConsumerOffsets, load
from harness.simulation.worlds.brokers import Cluster, Node, cluster, new_master, three, until
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.consumers import ResetOffsetRequest
from remoting.headers.pulling import SUBSCRIPTION, PullMessageRequest, UpdateConsumerOffsetRequest
from tests.broker.escape.test_part import two_groups
from tests.broker.pop.world import Popper
from tests.broker.standin.test_part import may_deliver

DURABLE = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}
END = 6


async def prepared(made: Cluster, node: Node, slaves: list[Node], at: int = 2) -> None:
    """The group is at ``at`` of six messages, and slaves have copied it."""
    for number in range(END):
        assert (await made.send(node.address, b"%d" % number)).code == ResponseCode.SUCCESS
    node.groups.find("G")
    assert (await commit(made, node, at)) == ResponseCode.SUCCESS
    await until(lambda: all(position(each) == at for each in slaves))


async def commit(made: Cluster, node: Node, offset: int) -> int:
    header = UpdateConsumerOffsetRequest("G", "T", 0, offset)
    return (await made.ask(node.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code


async def reset(made: Cluster, node: Node, offset: int) -> None:
    answer = await made.ask(node.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest(
        "T", "G", 0, offset))
    assert answer.code == ResponseCode.SUCCESS, answer


def position(node: Node) -> int | None:
    return node.offsets.query("G", "T", 0)


async def pulled(made: Cluster, node: Node, offset: int) -> tuple[int, str]:
    """Code, and where a member that pulls at ``offset`` is to go on."""
    answer = await made.ask(node.address, RequestCode.PULL_MESSAGE, PullMessageRequest(
        "G", "T", 0, offset, 32, SUBSCRIPTION, 0, 0, "*", 0))
    return answer.code, answer.ext["nextBeginOffset"]


@pytest.mark.parametrize("to", [END, 0])
async def test_a_reset_is_on_disk_when_it_is_answered(autojump_clock: MockClock, to: int) -> None:
    """Its record in the log is not, under asynchronous flush."""
    async with cluster() as made:
        node = await made.node()
        await prepared(made, node, [])
        await trio.sleep(10)
        await reset(made, node, 3)  # the next writing of the file is 5 s away
        await reset(made, node, to)
        left = copy.deepcopy((node.store.content, node.store._durable))
        await node.kill()
        node.store.content, node.store._durable = left
        node.store.crash(lambda size: 0)
        await node.start()
        assert position(node) == to


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_reset_holds_on_a_master_that_was_started_again(autojump_clock: MockClock, is_killed: bool) -> None:
    """Its members, which have not pulled since, may commit what they had; each is sent back once."""
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        await prepared(made, node, [])
        await reset(made, node, 0)
        for _ in range(2):  # what was told of once is told of again
            await trio.sleep(20)
            await (node.kill() if is_killed else node.stop())
            await node.start()
        await commit(made, node, 5)
        assert position(node) == 0
        assert await pulled(made, node, 5) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        await trio.sleep(6)
        assert load(node.store, ConsumerOffsets).reset_table is None
        assert await commit(made, node, 4) == ResponseCode.SUCCESS and position(node) == 4
        await trio.sleep(6)
        await node.kill()
        await node.start()
        assert position(node) == 4 and (await pulled(made, node, 4))[0] == ResponseCode.SUCCESS


@pytest.mark.parametrize("to", [END, 0])
@pytest.mark.parametrize("later_s", [0, 30])
async def test_a_reset_holds_on_the_next_master_against_late_commits_until_the_next_pull(
        autojump_clock: MockClock, to: int, later_s: int) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **DURABLE)
        await prepared(made, master, slaves)
        await reset(made, master, to)
        await trio.sleep(later_s)
        await master.kill()
        leader = await new_master(*slaves)
        await until(lambda: not leader.broker.journal.veil.on)
        await until(lambda: position(leader) == to, within_s=1)
        assert await commit(made, leader, 3) == ResponseCode.SUCCESS
        assert position(leader) == to, "its members have not pulled since"
        assert await pulled(made, leader, 3) == (ResponseCode.PULL_OFFSET_MOVED, str(to))
        assert await commit(made, leader, 4) == ResponseCode.SUCCESS
        assert position(leader) == 4


async def test_a_reset_that_members_have_heard_of_is_none_on_the_next_master(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **DURABLE)
        await prepared(made, master, slaves)
        await reset(made, master, 0)
        assert await pulled(made, master, 2) == (ResponseCode.PULL_OFFSET_MOVED, "0")
        assert await commit(made, master, 5) == ResponseCode.SUCCESS
        await until(lambda: all(position(each) == 5 for each in slaves))
        await master.kill()
        leader = await new_master(*slaves)
        await until(lambda: not leader.broker.journal.veil.on)
        assert await pulled(made, leader, 5) == (ResponseCode.SUCCESS, "6")
        assert position(leader) == 5


async def test_a_group_that_goes_back_by_itself_is_not_taken_forward_again(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **DURABLE)
        await prepared(made, master, slaves)
        await reset(made, master, END)
        await pulled(made, master, 2)
        assert await commit(made, master, 1) == ResponseCode.SUCCESS
        await until(lambda: all(position(each) == 1 for each in slaves))
        await master.kill()
        leader = await new_master(*slaves)
        await until(leader.broker.parts[PopPart]._is_ready)
        assert position(leader) == 1


async def test_a_reset_that_replicas_cannot_hear_of_is_answered_so(autojump_clock: MockClock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **DURABLE)
        await prepared(made, master, slaves)
        for slave in slaves:
            made.network.silent.add(slave.address)
        with trio.fail_after(5):
            answer = await made.ask(master.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequest(
                "T", "G", 0, END))
        assert answer.code == ResponseCode.SYSTEM_ERROR and position(master) == END
        assert "reset here, and perhaps not on the next master" in (answer.remark or "")


async def test_POPs_that_went_on_from_a_reset_do_not_go_back_to_it(autojump_clock: MockClock) -> None:
    """Neither forward nor back do they depend on a copy of the table: it is as old as can be."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **DURABLE)
        await prepared(made, master, slaves, 0)
        popper = Popper(made)
        assert len(await popper.pop(master, queue=0, count=1)) == 1
        await reset(made, master, 4)
        for slave in slaves:
            slave.offsets.merge = lambda table: None  # type: ignore[method-assign]
        assert [each.body for each in await popper.pop(master, queue=0, count=1)] == [b"4"]
        await trio.sleep(1)
        await master.kill()
        leader = await new_master(*slaves)
        await until(leader.broker.parts[PopPart]._is_ready)
        assert [each.body for each in await popper.pop(leader, queue=0)] == [b"5"]


def test_a_copy_that_is_older_than_a_reset_does_not_undo_it_and_a_newer_one_does() -> None:
    table = OffsetTable(OffsetsConfig(), lambda: 5)
    before, during, after = (ConsumerOffsets({"T@G": {0: offset}}) for offset in (2, 6, 7))
    table.merge(before)
    table.heard_reset("G", "T", 0, 6)
    table.merge(before)
    assert table.query("G", "T", 0) == 6
    table.merge(during)
    table.merge(after)
    assert table.query("G", "T", 0) == 7
    table.serves()
    assert not table.is_reset("G", "T", 0), "the group has gone on"
    table.heard_reset("G", "T", 0, 6)
    for _ in range(3):
        table.merge(before)
    assert table.query("G", "T", 0) == 2, "no copy is so old"
    table.heard_reset("G", "T", 0, 6)
    table.forget_topic("T")
    table.serves()
    assert table.query("G", "T", 0) is None


async def test_a_reset_holds_where_a_slave_acts_and_when_its_master_is_back(autojump_clock: MockClock) -> None:
    async with two_groups() as (made, master, slave, _):
        await prepared(made, master, [slave], 1)
        end = master.broker.journal.messages.max_offset(b"T", 0)
        await trio.sleep(20)
        await reset(made, master, end)
        await until(lambda: slave.broker.journal.confirm_offset == master.broker.journal.end)
        await master.kill()
        await until(lambda: may_deliver(slave))
        assert await commit(made, slave, 3) == ResponseCode.SUCCESS
        assert position(slave) == end
        assert await pulled(made, slave, 3) == (ResponseCode.PULL_OFFSET_MOVED, str(end))
        await master.start()
        await until(lambda: not slave.broker.standing.role.acts)
        await trio.sleep(5)
        assert (position(master), position(slave)) == (end, end)
