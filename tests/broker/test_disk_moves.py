"""A master whose disk is full or stands still gives way to a member whose disk is well, and sends go on there.

Whole servers on virtual time. What an append makes of a disk that hangs, no loop can tell: real processes show it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.store.files import Space
from broker.store.health import DiskHealth
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, in_sync, new_master, until
from harness.simulation.worlds.disks import StallingDisk
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.headers.sending import SendMessageResponse
from remoting.record import decode
from tests.campaigns import campaign

MODES: Final = {
    "all-ack": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"},
    "all-ack, synced": {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "flushDiskType": "SYNC_FLUSH"},
    "all-ack, alone": {"allAckInSyncStateSet": "true"},
    "default": {},
}
STALL_S: Final = 3.0
"""``diskStallMs``, as it is by default."""
LEASE_S: Final = 5.0
"""``masterLeaseMs``: a master that answers alone is replaced when that is over."""
ASKED_AGAIN_S: Final = 130.0
"""1 s, 2 s, 4 s and so on after each other, and twice after the longest pause, which is 60 s."""
ROOM, NO_ROOM = Space(100, 60), Space(100, 5)


@attrs.define(eq=False)
class Group:
    """Three brokers with disks of their own, and a producer that sends to whoever serves."""

    made: Cluster
    nodes: Sequence[Node]
    disks: Sequence[StallingDisk]
    acknowledged: list[tuple[float, int, bytes]] = attrs.field(factory=list)
    """When, at which queue offset, and what."""

    def disk_of(self, node: Node) -> StallingDisk:
        return self.disks[self.nodes.index(node)]

    def trouble(self, node: Node, kind: DiskHealth) -> None:
        if kind is DiskHealth.FULL:
            node.store.disk = NO_ROOM
        else:
            self.disk_of(node).stall()

    def relieve(self, node: Node) -> None:
        node.store.disk = ROOM
        self.disk_of(node).resume()

    async def produce(self) -> None:
        number = 0
        async with trio.open_nursery() as sends:
            while True:
                number += 1
                for node in self.nodes:
                    if node.serves:
                        sends.start_soon(self._send, node, b"message %d" % number)
                await trio.sleep(0.1)

    async def _send(self, node: Node, body: bytes) -> None:
        with suppress(RemotingError):
            answer = await self.made.send(node.address, body)
            if answer.code == ResponseCode.SUCCESS:
                told = SendMessageResponse.from_ext(answer.ext)
                self.acknowledged.append((trio.current_time(), told.queue_offset, body))

    async def goes_on(self, since: float) -> float:
        """When sends were acknowledged again, and so for a second: seconds behind ``since``."""
        with trio.fail_after(120):
            while True:
                times = [when for when, *_ in self.acknowledged if when > since]
                if times and trio.current_time() - since > 1 and times[-1] - _after_gaps(times) >= 1:
                    return _after_gaps(times) - since
                await trio.sleep(0.05)

    def masters(self) -> list[Node]:
        return [node for node in self.nodes if node.serves]

    def epoch(self) -> int:
        return max(entry.epoch for node in self.nodes for entry in node.broker.roles.epochs() or ())


def _after_gaps(times: Sequence[float]) -> float:
    """The first one behind the last pause of half a second."""
    return next((later for earlier, later in zip(times[-2::-1], times[:0:-1], strict=True) if later - earlier > 0.5),
                times[0])


@asynccontextmanager
async def group(**settings: str) -> AsyncGenerator[Group]:
    disks = [StallingDisk() for _ in range(3)]
    async with cluster(controllers=3) as made:
        nodes = [await made.node(disk, **controlled(), **settings) for disk in disks]
        await in_sync(await new_master(*nodes), 2)
        found = Group(made, nodes, disks)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(found.produce)
            await until(lambda: len(found.acknowledged) > 20)
            yield found
            nursery.cancel_scope.cancel()


async def nothing_is_lost(found: Group) -> None:
    """What was acknowledged is in the last master's queue, where it was said to be."""
    master = await new_master(*found.nodes)
    await in_sync(master, 2)
    messages = master.broker.journal.messages
    for _, offset, body in found.acknowledged:
        record = messages.get(b"T", 0, offset)[0]
        assert decode(record).message.body == body


@pytest.mark.parametrize("mode", MODES)
async def test_a_full_master_gives_way_to_a_member_with_room(autojump_clock: MockClock, mode: str) -> None:
    async with group(**MODES[mode]) as found:
        [master] = found.masters()
        epoch, began = found.epoch(), trio.current_time()
        found.trouble(master, DiskHealth.FULL)
        assert await found.goes_on(began) <= (3 if mode != "default" else 3 + LEASE_S)
        assert found.masters() != [master] and found.epoch() == epoch + 1
        await trio.sleep(60)
        assert found.epoch() == epoch + 1, "it does not come back as master"
        found.relieve(master)
        await nothing_is_lost(found)


@pytest.mark.parametrize("mode", MODES)
async def test_a_stalled_master_gives_way_within_a_second_of_its_key(autojump_clock: MockClock, mode: str) -> None:
    async with group(**MODES[mode]) as found:
        [master] = found.masters()
        epoch, began = found.epoch(), trio.current_time()
        found.trouble(master, DiskHealth.STALLED)
        await until(lambda: master.broker.journal.health is DiskHealth.STALLED)
        seen = trio.current_time() - began
        await until(lambda: found.masters() not in ([], [master]))
        within_s = 1 if mode != "default" else 3 + LEASE_S
        assert trio.current_time() - began - seen <= within_s, "after it is seen"
        if "SYNC_FLUSH" in MODES[mode].values():
            assert await found.goes_on(began) <= STALL_S + 1, "a sync waits behind each send"
        assert found.epoch() == epoch + 1
        found.relieve(master)
        await nothing_is_lost(found)


@pytest.mark.parametrize(("mode", "kind"), [
    ("all-ack", DiskHealth.FULL), ("all-ack, synced", DiskHealth.STALLED), ("all-ack, alone", DiskHealth.FULL),
    ("default", DiskHealth.STALLED),
    *campaign(("all-ack", DiskHealth.STALLED), ("all-ack, synced", DiskHealth.FULL),
              ("all-ack, alone", DiskHealth.STALLED), ("default", DiskHealth.FULL))])
async def test_a_disk_that_all_share_elects_nobody_in_circles(
    autojump_clock: MockClock, mode: str, kind: DiskHealth, caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with group(**MODES[mode]) as found:
        epoch = found.epoch()
        for node in found.nodes:
            found.trouble(node, kind)
        await trio.sleep(ASKED_AGAIN_S)
        assert found.epoch() <= epoch + 1, "one at most, before all have told"
        began = trio.current_time()
        for node in found.nodes:
            found.relieve(node)
        await found.goes_on(began)
        await nothing_is_lost(found)
