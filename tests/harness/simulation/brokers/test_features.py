"""The simulated file of a table is true to the shipped one: what waits for it, when, and what it hears of a disk."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.store.files import MemoryFiles
from broker.store.tables import ConsumerOffsets
from broker.tablefile import PAUSE_AFTER_FAILURE_S
from harness.simulation.brokers.features import NO_TASK, TurnedTable
from raft.config import MS
from raft.sim.world import World

PAUSE_MS = 5_000


class Bench:
    """A table in a world of its own, and what became of each that waits for it."""

    def __init__(self) -> None:
        self.world = World()
        self.host = SimpleNamespace(disk=SimpleNamespace(late_ns=0))
        self.fault: OSError | None = None
        self.files = MemoryFiles(hook=self._hook)
        self.table = TurnedTable(self.files, ConsumerOffsets, NO_TASK, pause_ms=PAUSE_MS)
        self.table.begin(self)  # type: ignore[arg-type]
        self.ends: list[tuple[int, OSError | None]] = []

    def _hook(self, *_: Any) -> None:
        if self.fault is not None:
            raise self.fault

    def later(self, delay_ns: int, kind: int, call: Callable[[], None]) -> None:
        self.world.at(self.world.now + delay_ns, lambda call: call(), call)

    def run(self, ms: int) -> None:
        self.world.run(self.world.now + ms * MS)

    def wait(self) -> None:
        self.table._tasks.run(self._wait())

    async def _wait(self) -> None:
        error = None
        try:
            await self.table.saved()
        except OSError as found:
            error = found
        self.ends.append((self.world.now // MS, error))


@pytest.fixture
def at() -> Bench:
    return Bench()


def test_saved_cuts_the_pause_between_two_writes_short(at: Bench) -> None:
    at.table.changed()
    at.later(0, 0, at.table.changed)  # during the first write
    at.run(2_000)
    assert at.table._written == 1, "it pauses"
    at.wait()
    at.run(10)
    assert at.ends == [(2_001, None)]


def test_when_saved_cuts_no_pause_short(at: Bench) -> None:
    at.table.changed()
    at.later(0, 0, at.table.changed)
    at.run(2_000)
    called: list[int] = []
    at.table.when_saved(lambda: called.append(at.world.now // MS))
    at.run(PAUSE_MS)
    assert called == [PAUSE_MS + 2]


def test_who_waits_hears_that_the_disk_failed(at: Bench) -> None:
    called: list[int] = []
    at.fault = OSError(28, "no space")
    at.table.changed()
    at.table.when_saved(lambda: called.append(at.world.now // MS))
    at.wait()
    at.run(10)
    assert at.ends == [(1, at.fault)] and called == [1], "both after the attempt"
    at.fault = None
    at.wait()
    at.run(2_000)
    assert at.ends[1:] == [(round(PAUSE_AFTER_FAILURE_S * 1_000) + 2, None)], "the pause behind a failure is whole"
