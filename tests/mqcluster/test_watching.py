"""What is seen of brokers in memory, with controllers and without, and of what is not there."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from controller.admin.asking import Admin
from harness.simulation.worlds.brokers import NAMESRV, three
from harness.simulation.worlds.brokers import cluster as brokers
from mqcluster import watching
from mqcluster.watching import Sight, see
from remoting.client import Client
from remoting.errors import ConnectFailed


async def seen(client: Client, when: str) -> Sight:
    """Once it is so, told by the roles of the brokers."""
    with trio.fail_after(60):
        while True:
            sight = await see(client, [NAMESRV])
            roles = "".join(
                "M" if each.address == group.master else "-" if each.log_end is None else "s"
                for group in sight.groups for each in group.brokers)
            if roles == when and sight.well:
                return sight
            await trio.sleep(0.1)


async def test_a_group_under_controllers_and_its_next_master(autojump_clock: MockClock) -> None:
    async with brokers(controllers=3) as made:
        master, *_ = await three(made)
        for _ in range(3):
            await made.send(master.address, b"1")
        sight = await seen(made.client, "Mss")
        [group] = sight.groups
        assert (group.name, group.master, group.epoch) == ("a", master.address, 1)
        assert [each.in_sync for each in group.brokers] == [True] * 3
        assert set(sight.controllers) == {"n0:1", "n1:1", "n2:1"}
        assert sight.active in sight.controllers
        await master.kill()
        with trio.fail_after(60):
            while not (later := await see(made.client, [NAMESRV])).well:
                await trio.sleep(0.1)
        [group] = later.groups
        assert group.epoch == 2 and group.master != master.address
        gone = next(each for each in group.brokers if each.address == master.address)
        assert gone.log_end is None and group.lag_bytes(gone) is None


async def test_an_active_controller_that_died_is_not_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As followers of Java's name it for seconds: two of them say it leads, and it answers nobody."""
    says = {"n0:1": None, "n1:1": "n0:1", "n2:1": "n0:1"}

    async def leader(_: Admin, address: str) -> str:
        said = says[address]
        if said is None:
            raise ConnectFailed(address, "gone")
        return said

    monkeypatch.setattr(watching, "_leader", leader)
    async with brokers(controllers=3) as made:
        master, *_ = await three(made)
        began = trio.current_time()
        sight = await see(made.client, [NAMESRV], [*says])
        assert (sight.active, dict(sight.controllers)) == (None, says)
        assert trio.current_time() - began < watching.TIMEOUT_MS / 1e3
        says["n0:1"] = "n0:1"
        assert (await see(made.client, [NAMESRV], [*says])).active == "n0:1"
        assert (await see(made.client, [NAMESRV], ["n1:1"])).active == "n0:1", "nobody asked the one that it names"
        assert master.broker.standing.role.leads


async def test_a_master_without_controllers_and_a_name_server_that_is_silent(autojump_clock: MockClock) -> None:
    async with brokers() as made:
        node = await made.node()
        sight = await seen(made.client, "M")
        [group] = sight.groups
        assert (group.master, group.epoch, group.brokers[0].in_sync) == (node.address, None, None)
        assert (dict(sight.controllers), sight.active, group.brokers[0].puts_per_s) == ({}, None, 0.0)
        await made.kill_namesrv()
        silent = await see(made.client, [NAMESRV])
        assert silent.trouble and not silent.well and not silent.groups
