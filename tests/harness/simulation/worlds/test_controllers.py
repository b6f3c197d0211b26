"""Controllers and simple brokers in one program: who dies, falls silent or loses its disk, and what the others hear."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from harness.simulation.worlds.controllers import group_of, world
from remoting.codes import ResponseCode


async def test_a_silent_master_is_replaced_and_the_others_are_told(autojump_clock: MockClock) -> None:
    async with world() as made:
        master, *others = await group_of(made, "g", 3)
        assert (await made.master_of("g")).master_broker_id == master.broker_id == 1
        others[1].deaf, heard = True, list(others[1].told)
        master.fall_silent()
        with trio.fail_after(60):
            while (led := await made.master_of("g")).master_broker_id in (1, None):
                await trio.sleep(0.1)
            while not others[0].told:
                await trio.sleep(0.1)
        assert led.master_broker_id in {2, 3}
        assert others[0].told[-1].master_broker_id == led.master_broker_id
        assert others[1].told == heard


async def test_a_broker_that_is_killed_comes_back_with_its_id(autojump_clock: MockClock) -> None:
    async with world() as made:
        master, slave = await group_of(made, "g", 2)
        await slave.kill()
        beats = len(slave.renewed)
        await trio.sleep(5)
        assert len(slave.renewed) == beats
        await slave.come_back()
        assert slave.broker_id == 2 and slave.renewed[beats:] == [False], "it leads nothing"
        await master.beat()
        assert (await master.alter({1}, 1, 2)).code == ResponseCode.SUCCESS


async def test_controllers_that_are_killed_lose_nothing_while_most_live(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "g", 2)
        for _ in range(3):
            victim = await made.active()
            await made.kill(victim)
            assert victim not in made.running
            with trio.fail_after(60):
                assert (await made.wait_master("g", 1)).master_epoch == 1
            await made.start(victim)
        assert len(made.starts) == 6


async def test_one_that_lost_its_disk_begins_with_an_empty_one(autojump_clock: MockClock) -> None:
    async with world() as made:
        await group_of(made, "g", 1)
        active = await made.active()
        victim = next(name for name in made.names if name != active)
        await made.kill(victim)
        before = made.disks[victim]
        made.wipe(victim)
        assert victim not in made.disks
        await made.start(victim)
        assert made.disks[victim] is not before and not made.failed
        assert (await made.master_of("g")).master_broker_id == 1


async def test_late_controllers_are_started_by_the_test(autojump_clock: MockClock) -> None:
    async with world(late=1) as made:
        assert sorted(made.starts) == ["n0", "n1"] and "n2" not in made.running
        await made.start("n2")
        assert sorted(made.running) == ["n0", "n1", "n2"]
