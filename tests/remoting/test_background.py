"""Tasks behind a block: they end with it, and what it raises comes out as it is."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from remoting.background import background


async def block_that_fails(scope: trio.CancelScope) -> None:
    async with background() as nursery:
        nursery.start_soon(trio.sleep_forever)
        scope.cancel()
        raise KeyError("mine")


async def test_its_tasks_end_with_the_block(autojump_clock: MockClock) -> None:
    ended = trio.Event()

    async def task() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with background() as nursery:
        nursery.start_soon(task)
        await trio.sleep(1)
        assert not ended.is_set()
    assert ended.is_set()


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):  # no group around it
        await block_that_fails(trio.CancelScope())


async def test_a_cancellation_from_outside_does_not_hide_what_the_block_raised() -> None:
    with trio.CancelScope() as scope:
        with pytest.raises(KeyError, match="mine"):
            await block_that_fails(scope)
        raised = True
    assert raised and not scope.cancelled_caught


async def test_a_cancellation_ends_block_and_tasks() -> None:
    with trio.CancelScope() as scope:
        async with background() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_the_block_may_end_its_tasks_itself() -> None:
    async with background() as nursery, background() as inner:
        inner.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)
        nursery.cancel_scope.cancel()


async def test_what_a_task_raises_ends_the_block(autojump_clock: MockClock) -> None:
    async def task() -> None:
        await trio.sleep(1)
        raise KeyError("the task's")

    async def block() -> None:
        async with background() as nursery:
            nursery.start_soon(task)
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await block()
    assert caught.group_contains(KeyError, match="the task's")
