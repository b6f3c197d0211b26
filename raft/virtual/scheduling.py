"""Puts trio's scheduler on a tape: the order of ready tasks is a decision, and every step is counted.

trio has a private switch for a fixed order, which Hypothesis uses through pytest-trio. This module looks for it when it
is imported. If it is missing, or if this trio is untested, ``NOT_REPLAYABLE`` says so, and programs still run.
Knows trio's run loop; knows no hosts, no network and no disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final
from zlib import crc32

import trio
from trio.abc import Instrument
from trio.lowlevel import Task

from raft.sim.tape import Chance, Stream
from raft.sim.world import World

SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
CHANCE: Final = "_r"
TRIED: Final = ((0, 27), (0, 35))
"""The oldest and the newest trio with which runs were repeated."""
STEP, BEGIN, END, SENT, STORED, NOTE = range(6)
"""Kinds of events in a run's digest."""
SHUFFLED: Final = 0.5
"""Probability that ready tasks run in another order than the one in which they were made."""


def _loop() -> Any:
    """Return trio's run loop, or None if it is no longer there."""
    try:
        from trio._core import _run
    except ImportError:
        return None
    return _run


def why_not(loop: Any, version: str) -> str:
    """Return the reason why the same seed may give another run with this trio; "" if it does not."""
    missing = [name for name in (SWITCH, CHANCE) if not hasattr(loop, name)]
    if missing:
        return f"not replayable: trio {version} has no {' and no '.join(missing)}"
    oldest, newest = (".".join(map(str, each)) for each in TRIED)
    if not TRIED[0] <= tuple(map(int, version.split(".")[:2])) <= TRIED[1]:
        return f"not replayable: tried with trio {oldest} to {newest}, and this is {version}"
    return ""


NOT_REPLAYABLE: Final = why_not(_loop(), trio.__version__)
"""Reason why the same seed may give another run here; "" if it does not."""


class Order:
    """Replaces the random numbers of trio's scheduler. The boring order is the one in which tasks were made."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def shuffle(self, batch: list[Task]) -> None:
        """Order tasks that are ready; trio takes them from the end."""
        batch.reverse()
        if len(batch) > 1:
            drawn = self._stream.seldom(SHUFFLED, _number)
            if drawn is not None:
                chance = Random(drawn).random
                batch.sort(key=lambda _: chance())

    def random(self) -> float:
        """Return 1.0, so that trio, which calls this only without the switch, never reverses a batch."""
        return 1.0


def _number(_: float, chance: Chance) -> int:
    return int(chance() * (1 << 32))


@contextmanager
def ordered(stream: Stream) -> Iterator[None]:
    """Let trio take its order of tasks from ``stream``, if this trio has the switch."""
    loop = _loop()
    before = {name: getattr(loop, name) for name in (SWITCH, CHANCE) if hasattr(loop, name)}
    try:
        for name, value in ((SWITCH, True), (CHANCE, Order(stream))):
            if name in before:
                setattr(loop, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(loop, name, value)


class Steps(Instrument):
    """Folds each step of each task into the digest of a world, and knows the living tasks."""

    def __init__(self, world: World, now_ns: Callable[[], int]) -> None:
        self._world, self._now_ns = world, now_ns
        self._begun = 0
        self.living: dict[Task, int] = {}
        """Living task -> its number, in the order in which they began."""

    def task_spawned(self, task: Task) -> None:
        self._begun += 1
        self.living[task] = self._begun
        self.fold(BEGIN, self._begun, crc32(name_of_task(task).encode()))

    def before_task_step(self, task: Task) -> None:
        self.fold(STEP, self.living.get(task, 0))

    def task_exited(self, task: Task) -> None:
        self.fold(END, self.living.pop(task, 0))

    def fold(self, kind: int, *numbers: int) -> None:
        """Fold one event into the digest, with the current virtual time."""
        self._world.now = self._now_ns()
        first, second, third = (*numbers, 0, 0)[:3]
        self._world.fold(0, kind, first, second, third, 0)

    def below(self, top: Task) -> list[str]:
        """Return the names of the tasks that live below this one."""
        return [name_of_task(task) for task in self.living if _is_below(task, top)]


def name_of_task(task: Task) -> str:
    """Return the task's name without addresses of objects, which differ from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", task.name)


def _is_below(task: Task, top: Task) -> bool:
    nursery = task.parent_nursery
    while nursery is not None:
        if nursery.parent_task is top:
            return True
        nursery = nursery.parent_task.parent_nursery
    return False
