"""A table's file: many changes are one write, who waits hears of its own, a full disk is tried again."""

from __future__ import annotations

import errno
from collections.abc import Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.store.files import MemoryFiles
from broker.store.tables import DelayOffsets, load
from broker.tablefile import PAUSE_AFTER_FAILURE_S, TableFile


@attrs.define
class Disk:
    """Takes a second for a write; refuses while it is full."""

    full: bool = False
    writes: int = 0

    async def run_sync(self, work: Callable[[], None]) -> None:
        self.writes += 1
        await trio.sleep(1)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        work()


@attrs.define
class Owner:
    offset: int = 0

    def table(self) -> DelayOffsets:
        return DelayOffsets({1: self.offset})


async def test_many_changes_are_few_writes(autojump_clock: MockClock) -> None:
    files, disk, owner = MemoryFiles(), Disk(), Owner()
    file = TableFile(files, owner.table, disk.run_sync)
    told: list[tuple[int, float]] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        file.when_saved(lambda: told.append((-1, trio.current_time())))
        await file.saved()
        assert told == [(-1, 0)] and disk.writes == 0
        for number in range(1, 6):
            owner.offset = number
            file.changed()
            file.when_saved(lambda number=number: told.append((number, trio.current_time())))  # type: ignore[misc]
            await trio.sleep(0.1)
        await file.saved()
        assert trio.current_time() == 2
        assert load(files, DelayOffsets).offset_table == {1: 5}
        assert disk.writes == 2
        assert told[1:] == [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2)]
        nursery.cancel_scope.cancel()


async def test_a_full_disk_and_a_defect_of_who_waits(autojump_clock: MockClock) -> None:
    files, disk, owner = MemoryFiles(), Disk(full=True), Owner(7)
    file = TableFile(files, owner.table, disk.run_sync)
    told: list[float] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        file.changed()
        file.when_saved(lambda: told.append(1 // 0))
        file.when_saved(lambda: told.append(trio.current_time()))
        file.when_written(lambda: told.append(-trio.current_time()))
        with pytest.raises(OSError, match="No space left"):
            await file.saved()
        await trio.lowlevel.checkpoint()
        assert told == [1]  # it does not wait for better times
        disk.full = False
        await file.saved()
        assert trio.current_time() == 2 + PAUSE_AFTER_FAILURE_S
        assert load(files, DelayOffsets).offset_table == {1: 7}
        await trio.lowlevel.checkpoint()
        assert told == [1, -3]
        nursery.cancel_scope.cancel()


async def test_writes_keep_their_distance_and_the_last_is_not_forgotten(autojump_clock: MockClock) -> None:
    files, disk, owner = MemoryFiles(), Disk(), Owner()
    file = TableFile(files, owner.table, disk.run_sync, pause_ms=5_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        for owner.offset in range(1, 70):
            file.changed()
            await trio.sleep(0.2)
        assert disk.writes == 3
        nursery.cancel_scope.cancel()
    assert load(files, DelayOffsets).offset_table == {1: 69}


async def test_who_waits_ends_the_pause_between_two_writes(autojump_clock: MockClock) -> None:
    files, disk, owner = MemoryFiles(), Disk(), Owner()
    file = TableFile(files, owner.table, disk.run_sync, pause_ms=60_000)
    async with trio.open_nursery() as nursery:
        await nursery.start(file.run)
        for number in (1, 2):
            owner.offset = number
            file.changed()
            await trio.sleep(5)
        assert disk.writes == 1
        await file.saved()
        assert trio.current_time() == 11
        assert load(files, DelayOffsets).offset_table == {1: 2}
        nursery.cancel_scope.cancel()
