"""A bell wakes the task that waits for it once for all rings before it has its turn, and keeps a later one."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from raft.wakeup import Bell


async def test_rings_before_the_task_has_its_turn_are_one(autojump_clock: trio.abc.Clock) -> None:
    bell, turns = Bell(), list[int]()
    rung = 0

    async def work() -> None:
        while True:
            await bell.wait()
            turns.append(rung)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        for count in (1, 3):
            await wait_all_tasks_blocked()
            for _ in range(count):
                rung += 1
                bell.ring()
        await wait_all_tasks_blocked()
        assert turns == [1, 4], "the task sees in its turn whatever rang before that"
        nursery.cancel_scope.cancel()


async def test_a_ring_while_nobody_waits_is_kept(autojump_clock: trio.abc.Clock) -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    with trio.fail_after(1):
        await bell.wait()
    with trio.move_on_after(1) as scope:
        await bell.wait()
    assert scope.cancelled_caught, "two rings are one"
    bell.ring()
    with trio.fail_after(1):
        await bell.wait()
