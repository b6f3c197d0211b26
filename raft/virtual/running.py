"""``run_on_virtual_time`` runs a program for trio, with whole servers, from one seed; the same seed is the same run.

The clock jumps to the next event; the order of tasks and all other chance is on a tape; each step of each task, each
byte sent and each write to a disk is in a digest. Knows how a run begins and ends; knows no files and one seed.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import attrs
import trio
from trio.testing import MockClock

from raft.sim.tape import Tape
from raft.sim.world import World
from raft.violation import InvariantViolation
from raft.virtual.hosts import LeakedTasks, VirtualWorld
from raft.virtual.replacing import refuse_sockets, replaced
from raft.virtual.scheduling import NOT_REPLAYABLE, Steps, name_of_task, ordered
from raft.virtual.wires import Latency

logger = logging.getLogger("raft.virtual")
LIMIT_S: Final = 3_600.0
"""Virtual seconds after which a run that has not ended fails."""
ENDED: Final = "programs that ended"
LEAKED: Final = "times tasks were counted at the end"
Main = Callable[..., Awaitable[Any]]
"""A program ``async def main(world, *args)`` that starts hosts, works with them, and asserts what must hold."""


class StandsStill(InvariantViolation):
    """A run did not end within its limit of virtual time."""

    def __init__(self, message: str) -> None:
        super().__init__(StandsStill.__name__, message)


@attrs.frozen
class VirtualRun:
    """The result of one run."""

    value: Any
    """The value that your function returned."""
    seed: int
    digest: str
    """Hash of every step of every task, every byte sent and every write, with their times."""
    steps: int
    """Number of events in the digest."""
    virtual_s: float
    happened: dict[str, int]
    """Number of times that each fault happened."""
    notes: list[tuple[float, str]]
    not_replayable: str
    """Reason why the same seed may give another run; "" if it does not."""


class Servers:
    """One run of a program, as a campaign plays it: ``raft.sim.campaign.Played``."""

    def __init__(self, main: Main, tape: Tape, args: tuple[Any, ...] = (), *,
                 limit_s: float = LIMIT_S, latency: Latency | None = None) -> None:
        self.world, self.tape = World(), tape
        self.value: Any = None
        self.evaluated: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self._main, self._args, self._limit_s, self._latency = main, args, limit_s, latency
        self._clock = MockClock(autojump_threshold=0)
        self._steps = Steps(self.world, self.now_ns)
        self._around: VirtualWorld | None = None

    @property
    def cluster(self) -> Servers:
        return self

    @property
    def fingerprint(self) -> str:
        return self.world.fingerprint

    @property
    def happened(self) -> Counter[str]:
        return self._around.happened if self._around is not None else Counter()

    @property
    def notes(self) -> list[tuple[float, str]]:
        return self._around.notes if self._around is not None else []

    def now_ns(self) -> int:
        return int(self._clock.current_time() * 1e9)

    def play(self, until_ns: int | None = None) -> None:
        """Run to the end, or to this moment. Raises what the program raises, ``LeakedTasks``, or ``StandsStill``."""
        if NOT_REPLAYABLE:
            logger.warning("%s", NOT_REPLAYABLE)
        collects = gc.isenabled()
        gc.disable()  # finalisers would run at unpredictable moments
        try:
            with ordered(self.tape.stream("order of tasks")), replaced(self.now_ns, self.tape.bits("chance")):
                trio.run(partial(self._whole, until_ns), clock=self._clock, instruments=[self._steps])
        except BaseExceptionGroup as group:
            raise _alone(group) from None
        finally:
            if collects:
                gc.enable()

    async def _whole(self, until_ns: int | None) -> None:
        refuse_sockets()
        own = set(self._steps.living)
        limit_s = self._limit_s if until_ns is None else until_ns / 1e9 + 1e-6
        async with trio.open_nursery() as nursery:
            world = self._around = VirtualWorld(self.tape, self._steps, nursery, self._latency)
            with trio.move_on_at(limit_s) as timer:
                self.value = await self._main(world, *self._args)
            if timer.cancelled_caught and until_ns is None:
                raise StandsStill(f"the run did not end within {self._limit_s:,.0f} s of virtual time")
            for host in world.hosts.values():
                await host.end()
            nursery.cancel_scope.cancel()
        if left := [name_of_task(task) for task in self._steps.living if task not in own]:
            raise LeakedTasks(f"{len(left)} tasks live on when all has ended: {', '.join(sorted(left))}")
        self.evaluated.update((ENDED, LEAKED))


def _alone(error: BaseException) -> BaseException:
    """Unwrap groups of one exception: return the exception that the program raised."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error


def run_on_virtual_time(
    main: Main, *args: Any, seed: int = 1, limit_s: float = LIMIT_S, latency: Latency | None = None,
) -> VirtualRun:
    """Run ``main(world, *args)`` on virtual time: the same ``seed`` is the same run, in every process.

    ``world.host(name)`` makes machines, on which programs run; ``torture(world)`` breaks them. When ``main`` returns,
    all hosts are ended and no task may be left. Raises what ``main`` or a program raises, ``LeakedTasks``, or
    ``StandsStill`` after ``limit_s`` virtual seconds. ``latency`` is the network's.
    """
    played = Servers(main, Tape(seed), args, limit_s=limit_s, latency=latency)
    played.play()
    return VirtualRun(played.value, seed, played.fingerprint, played.world.events, played.world.now / 1e9,
                      dict(played.happened), played.notes, NOT_REPLAYABLE)
