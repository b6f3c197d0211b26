"""A topic that is deleted and made again, and a group that goes with its positions: no message is passed over."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from broker.store.tables import ConsumerOffsets, load
from harness.simulation.worlds.brokers import Cluster, Node, cluster, in_sync, new_master, three, until
from remoting.codes import RequestCode
from remoting.header import Header
from remoting.headers.consumers import DeleteSubscriptionGroupRequest
from remoting.headers.queries import TopicRequest
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
