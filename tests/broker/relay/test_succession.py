"""A broker that cannot serve finds who does, without being told: alone, and as a whole broker under controllers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import attrs
import trio
import trio.abc

from broker.relay.finding import Master, MasterFinder
from broker.relay.forwarding import Forwarder
from broker.relay.succession import SuccessionPart
from broker.standing import Role
from harness.simulation.worlds.brokers import Cluster, Node, cluster, controlled, until
from remoting.codes import ResponseCode

OWN, OTHER, THIRD = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


@attrs.define(eq=False)
class Known:
    """Stands for the finder: ``master`` is what it finds."""

    master: Master | None = None
    asked: int = 0

    async def find(self) -> Master | None:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        return self.master


@asynccontextmanager
async def part() -> AsyncGenerator[tuple[SuccessionPart, Forwarder, Known], None]:
    known, forwarder = Known(), Forwarder()
    made = SuccessionPart(cast(MasterFinder, known), forwarder, OWN)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        yield made, forwarder, known
        nursery.cancel_scope.cancel()


async def test_who_has_no_role_passes_clients_on_until_it_is_told_one(autojump_clock: trio.abc.Clock) -> None:
    async with part() as (made, forwarder, known):
        await trio.sleep(1)
        assert known.asked > 2
        assert not forwarder.on, "to nobody while nobody is known"
        known.master = Master(OTHER, 7)
        await trio.sleep(1)
        assert forwarder.target == OTHER
        known.master = Master(THIRD, 8)
        await trio.sleep(1)
        assert forwarder.target == THIRD, "the master changed again"
        made.role_changed(Role.slave(2, 8, THIRD))
        asked, known.master = known.asked, Master(OTHER, 9)
        await trio.sleep(1)
        assert (known.asked, forwarder.target) == (asked, THIRD), "from now on its role says where clients go"


async def test_a_master_whose_writes_close_for_a_moment_asks_nobody(autojump_clock: trio.abc.Clock) -> None:
    async with part() as (made, forwarder, known):
        known.master = Master(OTHER, 7)
        made.role_changed(Role.master(6))
        made.writes_opened()
        made.writes_closed()
        await trio.sleep(0.1)
        made.writes_opened()
        await trio.sleep(10)
        assert (known.asked, forwarder.on) == (0, False)


async def test_a_master_whose_lease_is_renewed_answers_for_itself_again(autojump_clock: trio.abc.Clock) -> None:
    async with part() as (made, forwarder, known):
        made.role_changed(Role.master(6))
        made.writes_opened()
        made.writes_closed()
        known.master = Master(OTHER, 7)
        await trio.sleep(1)
        assert forwarder.on
        made.writes_opened()
        assert not forwarder.on


async def test_it_does_not_pass_clients_on_to_itself(autojump_clock: trio.abc.Clock) -> None:
    async with part() as (_, forwarder, known):
        known.master = Master(OWN, 7)
        await trio.sleep(1)
        assert known.asked
        assert not forwarder.on


async def test_a_broker_that_stops_looks_for_nobody(autojump_clock: trio.abc.Clock) -> None:
    async with part() as (made, forwarder, known):
        made.stopping()
        known.master = Master(OTHER, 7)
        await trio.sleep(10)
        assert (known.asked, forwarder.on) == (0, False)


# --- whole brokers ---------------------------------------------------------------------------------------------------


async def two(made: Cluster) -> tuple[Node, Node]:
    """A master and a slave, in sync, with a message."""
    nodes = [await made.node(**controlled(), allAckInSyncStateSet="true") for _ in range(2)]
    await until(lambda: any(node.serves for node in nodes))
    master, slave = sorted(nodes, key=lambda node: not node.serves)
    await until(lambda: master.broker.roles.runtime_info().in_sync_slave_nums == 1)
    assert (await made.send(master.address, b"before")).code == ResponseCode.SUCCESS
    return master, slave


def cut_from_controllers(made: Cluster, node: Node) -> None:
    made.network.cuts |= {frozenset((node.address, f"n{number}:1")) for number in range(3)}


async def taken_by(made: Cluster, asked: Node, master: Node) -> None:
    """Sends to ``asked`` are stored by ``master``."""
    before = master.broker.journal.end
    with trio.fail_after(30):
        while (await made.send(asked.address, b"after")).code != ResponseCode.SUCCESS:
            await trio.sleep(0.05)
    assert master.broker.journal.end > before
    assert not asked.serves


async def test_a_master_that_lost_its_controllers_passes_clients_on_to_its_successor(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with cluster(controllers=3) as made:
        master, slave = await two(made)
        cut_from_controllers(made, master)
        await until(lambda: slave.serves)
        await taken_by(made, master, slave)


async def test_a_broker_that_restarts_without_controllers_passes_clients_on(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, slave = await two(made)
        await slave.stop()
        cut_from_controllers(made, slave)
        await slave.start()
        await taken_by(made, slave, master)


async def test_once_it_is_told_its_role_it_copies_and_ends_passing_on(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, slave = await two(made)
        cut_from_controllers(made, master)
        await until(lambda: slave.serves)
        await taken_by(made, master, slave)
        made.network.cuts.clear()
        await until(lambda: slave.broker.roles.runtime_info().in_sync_slave_nums == 1)
        await taken_by(made, master, slave)
        await trio.sleep(61)
        refused = await made.send(master.address, b"much later")
        assert refused.code != ResponseCode.SUCCESS, "clients have asked for their routes by then"


async def test_a_former_master_that_comes_back_passes_sends_on_and_nothing_else(
    autojump_clock: trio.abc.Clock,
) -> None:
    """Clients of RocketMQ ask for routes each 30 s: some still send to it."""
    async with cluster(controllers=3) as made:
        master, slave = await two(made)
        await master.kill()
        await until(lambda: slave.serves)
        await master.start()
        await until(lambda: slave.broker.roles.runtime_info().in_sync_slave_nums == 1)
        await taken_by(made, master, slave)
        assert (await made.pull(slave.address)).code == ResponseCode.SUCCESS
        assert (await made.pull(master.address)).code == ResponseCode.SYSTEM_BUSY, "a slave's own answer"
        await trio.sleep(61)
        assert (await made.send(master.address, b"late")).code != ResponseCode.SUCCESS
        roles = master.broker.roles
        await master.stop()
        assert not roles.handed_over
