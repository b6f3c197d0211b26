"""A topic that is deleted and made again, and a group that goes with its positions: no message is passed over."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from broker.offsets import OffsetsConfig, OffsetTable
from broker.store.files import write_whole
from broker.store.tables import ConsumerOffsets, load
from harness.simulation.worlds.brokers import Cluster, Node, cluster, new_master, three, until
from remoting.codes import RequestCode, ResponseCode
from remoting.header import Header
from remoting.headers.consumers import DeleteSubscriptionGroupRequest
from remoting.headers.queries import TopicRequest
from remoting.record import Message, encode
from tests.broker.test_server import send_all

DELETIONS: dict[int, Header] = {
    RequestCode.DELETE_TOPIC_IN_BROKER: TopicRequest("T"),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: DeleteSubscriptionGroupRequest("G", clean_offset=True),
}
DURABLE = {"flushDiskType": "SYNC_FLUSH", "allAckInSyncStateSet": "true"}


async def read_by_group(made: Cluster, node: Node) -> None:
    """Two messages, which the group has read."""
    await send_all(made, node.address, b"old one", b"old two")
    node.groups.find("G")
    node.offsets.commit("G", "T", 0, 2)


async def delete(made: Cluster, node: Node, code: int) -> None:
    assert (await made.ask(node.address, code, DELETIONS[code])).code == 0


def position(node: Node) -> int | None:
    return node.offsets.query("G", "T", 0)


@pytest.mark.parametrize("code", DELETIONS)
async def test_positions_are_gone_on_disk_when_the_deletion_is_answered(autojump_clock: MockClock, code: int) -> None:
    """Whoever kills the process then finds none of them after the start."""
    async with cluster() as made:
        node = await made.node()
        await read_by_group(made, node)
        await until(lambda: load(node.store, ConsumerOffsets).offset_table)
        await send_all(made, node.address, b"old three")
        node.offsets.commit("G", "T", 0, 3)
        await delete(made, node, code)
        assert "T@G" not in load(node.store, ConsumerOffsets).offset_table


@pytest.mark.parametrize("code", DELETIONS)
async def test_a_slave_that_becomes_master_at_once_has_no_old_position(autojump_clock: MockClock, code: int) -> None:
    """It copied no table since the deletion: messages of the topic that was made again are all that it heard of it."""
    async with cluster(controllers=3) as made:
        master, *others = await three(made, **DURABLE)
        await read_by_group(made, master)
        await until(lambda: all(position(node) == 2 for node in others))
        await delete(made, master, code)
        await send_all(made, master.address, b"new one", b"new two")
        await master.kill()
        master = await new_master(*others)
        await until(lambda: not master.broker.journal.veil.on)
        assert position(master) is None


@pytest.mark.parametrize("code", DELETIONS)
async def test_a_deletion_that_replicas_cannot_hear_of_is_answered_so(autojump_clock: MockClock, code: int) -> None:
    """Killed, this master would not say it again, and the next one would have the old positions."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, minInSyncReplicas="2", **DURABLE)
        await read_by_group(made, master)
        for slave in slaves:
            made.network.silent.add(slave.address)
        with trio.fail_after(5):
            answer = await made.ask(master.address, code, DELETIONS[code])
        assert answer.code == ResponseCode.SYSTEM_ERROR and position(master) is None
        assert (answer.remark or "").startswith("deleted here, and perhaps not on the next master: not all replicas")


def disk_of(node: Node) -> dict[str, bytes]:
    """Its tables, as a kill at this moment leaves them: ``Node.kill`` lets them be written."""
    return {path: bytes(file.data) for path, file in node.store.content.items() if path.startswith("config/")}


async def killed_at(node: Node, disk: dict[str, bytes]) -> None:
    """Kill it, and start it with the tables that it had then."""
    await node.kill()
    for path in [path for path in node.store.content if path.startswith("config/") and path not in disk]:
        node.store.remove(path)
    for path, data in disk.items():
        write_whole(node.store, path, data)
    await node.start()


@pytest.mark.parametrize("code", DELETIONS)
async def test_a_slave_killed_before_it_wrote_its_file_forgets_all_the_same(
    autojump_clock: MockClock, code: int,
) -> None:
    async with cluster(controllers=3) as made:
        master, slave, other = await three(made, **DURABLE)
        await read_by_group(made, master)
        await until(lambda: "T@G" in load(slave.store, ConsumerOffsets).offset_table)
        await trio.sleep(11)  # what it heard of the log so far is on disk
        await delete(made, master, code)
        await send_all(made, master.address, b"new one")
        await until(lambda: position(slave) is None)
        disk = disk_of(slave)
        assert b"T@G" in disk["config/consumerOffset.json"], "it is written later"
        await other.kill()
        await master.kill()
        await killed_at(slave, disk)
        await until(lambda: position(slave) is None, within_s=1)


@pytest.mark.parametrize("is_master", [True, False])
async def test_a_record_is_followed_again_while_the_file_cannot_be_written(
    autojump_clock: MockClock, is_master: bool,
) -> None:
    """Positions are gone in memory alone, on the master as well: the next process reads the record again."""
    async with cluster(controllers=3) as made:
        master, slave, other = await three(made, **DURABLE)
        full, survivor = (master, slave) if is_master else (slave, master)
        await read_by_group(made, master)
        await until(lambda: "T@G" in load(full.store, ConsumerOffsets).offset_table)
        await trio.sleep(11)  # what it heard of the log so far is on disk
        full.store.open("config/consumerOffset.json.tmp", create=True).fault = OSError(28, "No space left on device")
        answer = await made.ask(master.address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest("T"))
        assert ("positions in memory only" in (answer.remark or "")) is is_master
        await send_all(made, master.address, b"new one")
        await trio.sleep(11)
        full.store.remove("config/consumerOffset.json.tmp")
        disk = disk_of(full)
        assert b"T@G" in disk["config/consumerOffset.json"]
        await other.kill()
        await survivor.kill()
        await killed_at(full, disk)
        await until(lambda: position(full) is None, within_s=1)


@pytest.mark.parametrize("is_master", [True, False])
async def test_positions_in_the_topic_that_was_made_again_outlive_a_kill(
    autojump_clock: MockClock, is_master: bool,
) -> None:
    """The record that the old one is gone stands in the log that the next process reads again."""
    async with cluster(controllers=3) as made:
        master, slave, other = await three(made, **DURABLE)
        await read_by_group(made, master)
        await until(lambda: position(slave) == 2)
        await delete(made, master, RequestCode.DELETE_TOPIC_IN_BROKER)
        await send_all(made, master.address, b"new one")
        master.offsets.commit("G", "T", 0, 1)
        await until(lambda: position(slave) == 1)
        await trio.sleep(6)  # tables are written, the progress in the log is not
        killed = master if is_master else slave
        disk = disk_of(killed)
        await other.kill()
        await (slave if is_master else master).kill()
        await killed_at(killed, disk)
        await trio.sleep(2)
        assert position(killed) == 1


def test_a_copy_that_was_on_its_way_brings_nothing_back_for_good() -> None:
    table = OffsetTable(OffsetsConfig(), lambda: 5)
    before = ConsumerOffsets({"T@G": {0: 2}, "T@H": {0: 2}, "U@G": {0: 7}})
    table.merge(before)
    table.forget_topic("T")
    table.drop_copied("T", "")
    table.merge(before)
    table.merge(ConsumerOffsets({"T@H": {0: 1}}))
    assert [table.query(group, topic, 0) for group, topic in (("G", "T"), ("H", "T"), ("G", "U"))] == [None, 1, 7]
    table.take("G", "T", 0, 4)
    table.merge(ConsumerOffsets())
    assert table.query("G", "T", 0) == 4, "as ever: what a master does not know stays"


async def test_a_master_lowers_positions_behind_the_end_of_their_queues(
    autojump_clock: MockClock,
) -> None:
    """What lay there was deleted here while another master knew nothing of it, or was lost with the power.

    A group that stayed there would pass over the next messages of the queue."""
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        await read_by_group(made, node)
        node.offsets.commit("G", "T", 1, 0)
        await until(lambda: load(node.store, ConsumerOffsets).offset_table)
        disk = {**disk_of(node), "config/consumerOffset.json": b'{"offsetTable":{"T@G":{0:5,1:0},"Gone@G":{3:9}}}'}
        await killed_at(node, disk)
        await send_all(made, node.address, b"third")
        assert position(node) == 2 and node.offsets.query("G", "T", 1) == 0 and node.offsets.query("G", "Gone", 3) == 0
        await until(lambda: load(node.store, ConsumerOffsets).offset_table["T@G"] == {0: 2, 1: 0})


async def test_a_master_lowers_positions_though_consumers_do_not_see_all_of_its_log_yet(
    autojump_clock: MockClock,
) -> None:
    """The end of a log that was copied is confirmed later, and in no queue until then: none of their ends was known."""
    async with cluster() as made:
        node = await made.node(flushDiskType="SYNC_FLUSH")
        await read_by_group(made, node)
        journal, parts = node.broker.journal, node.broker.parts
        await until(lambda: journal.visible.offset == journal.end)
        journal.append_raw(encode(Message(b"T", b"copied", 0), 2, journal.end, 0), journal.end)
        assert journal.visible.offset < journal.end
        node.offsets.take("G", "T", 0, 21)
        node.offsets.take("G", "T", 1, 21)
        parts.writes_opened()
        assert [node.offsets.query("G", "T", queue_id) for queue_id in (0, 1)] == [3, 0]
