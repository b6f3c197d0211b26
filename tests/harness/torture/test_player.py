"""Groups of a run start one by one."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from harness.torture.player import StartLine


async def test_a_group_that_fails_in_its_turn_is_the_only_one_that_fails() -> None:
    line = StartLine(2)

    async def fails() -> None:
        await line.turn.acquire()
        await trio.testing.wait_all_tasks_blocked()
        raise ValueError("it does not start")

    with pytest.RaisesGroup(ValueError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(line.turn.acquire)
