"""Masters that live and are of no use are replaced, by whole brokers and controllers on virtual time."""

from __future__ import annotations

import pytest
import trio

from broker.roles import ControlledRole
from harness.simulation.worlds.brokers import Cluster, Node, cluster, in_sync, new_master, three, until
from remoting.codes import ResponseCode
from tests.broker.test_server import send_all
from tests.broker.test_silent_replica import QUICK, cut_copying

ALL_ACK = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "totalReplicas": "3", "slaveTimeout": "30000"}
TWO_HOLD = {"inSyncReplicas": "2", "minInSyncReplicas": "2", "totalReplicas": "3"}


def role(node: Node) -> ControlledRole:
    roles = node.broker.roles
    assert isinstance(roles, ControlledRole)
    return roles


def members(node: Node) -> frozenset[int]:
    """The SyncStateSet, as this master knows it."""
    held = role(node).member.manager.in_sync
    assert held is not None
    return held.accepted


def leads(node: Node) -> bool:
    return node.broker.roles.runtime_info().master


def cut_off(made: Cluster, master: Node, *slaves: Node) -> None:
    """Master and slaves hear nothing of each other, and everybody hears the controllers."""
    for slave in slaves:
        cut_copying(made, slave, master)
        cut_copying(made, master, slave)


@pytest.mark.parametrize(("settings", "most_s"), [({}, 3.25), (QUICK, 1.8)], ids=["default", "quick"])
async def test_a_master_cut_off_from_its_slaves_is_replaced(
    autojump_clock: trio.abc.Clock, settings: dict[str, str], most_s: float,
) -> None:
    """``haSilenceMs`` + ``yieldWaitMs`` + half a second."""
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **ALL_ACK, **settings)
        await send_all(made, master.address, b"held by three")
        await trio.sleep(5)
        cut_off(made, master, *slaves)
        began = trio.current_time()
        await until(lambda: any(leads(slave) and slave.serves for slave in slaves))
        assert trio.current_time() - began <= most_s
        await until(lambda: not leads(master))
        follows = next(slave for slave in slaves if leads(slave))
        await until(lambda: len(members(follows)) == 2)
        assert (await made.send(follows.address, b"held by two")).code == ResponseCode.SUCCESS
        assert (await made.pull(follows.address)).body.count(b"held by") == 2
        made.network.cuts.clear()
        await until(lambda: len(members(follows)) == 3)


async def test_a_master_that_acknowledges_alone_is_replaced_behind_its_lease(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, *slaves = await three(made, **TWO_HOLD)
        await send_all(made, master.address, b"held by two")
        await trio.sleep(5)
        cut_off(made, master, *slaves)
        began = trio.current_time()
        await until(lambda: any(leads(slave) and slave.serves for slave in slaves))
        assert 5 <= trio.current_time() - began <= 9
        follows = next(slave for slave in slaves if leads(slave))
        await until(lambda: not leads(master) and len(members(follows)) == 2)
        assert (await made.pull(follows.address)).body.count(b"held by two") == 1


async def test_where_members_do_not_reach_each_other_the_master_goes_on(autojump_clock: trio.abc.Clock) -> None:
    """They are asked, and the set shrinks when their time is over."""
    async with cluster(controllers=3) as made:
        master, first, second = await three(made, **ALL_ACK)
        await trio.sleep(5)
        cut_off(made, master, first, second)
        made.network.cuts.add(frozenset((first.address, second.address)))
        began = trio.current_time()
        await until(lambda: len(members(master)) == 1)
        assert 2 <= trio.current_time() - began <= 3.25
        await trio.sleep(60)
        assert leads(master) and not leads(first) and not leads(second)
        made.network.cuts.clear()
        await in_sync(master, 2)
        assert (await made.send(master.address, b"as before")).code == ResponseCode.SUCCESS


async def test_who_reaches_the_others_late_leads_on_late(autojump_clock: trio.abc.Clock) -> None:
    """The set has shrunk by then; its members of before stay electable."""
    async with cluster(controllers=3) as made:
        master, first, second = await three(made, **ALL_ACK)
        await send_all(made, master.address, b"held by three")
        await trio.sleep(5)
        cut_off(made, master, first, second)
        among = frozenset((first.address, second.address))
        made.network.cuts.add(among)
        await until(lambda: len(members(master)) == 1)
        await trio.sleep(1)
        made.network.cuts.remove(among)
        await until(lambda: leads(first) or leads(second))
        follows = first if leads(first) else second
        await until(lambda: follows.serves and len(members(follows)) == 2)
        assert (await made.pull(follows.address)).body.count(b"held by three") == 1


async def test_a_master_whose_slaves_were_killed_shrinks_at_once(autojump_clock: trio.abc.Clock) -> None:
    async with cluster(controllers=3) as made:
        master, first, second = await three(made, **ALL_ACK)
        await trio.sleep(5)
        await first.kill()
        await until(lambda: len(members(master)) == 2)
        await second.kill()
        began = trio.current_time()
        await until(lambda: len(members(master)) == 1)
        assert trio.current_time() - began < 0.3
        assert leads(master) and await new_master(master) is master
        for node in (first, second):
            await node.start()
        await in_sync(master, 2)
