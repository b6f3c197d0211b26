"""Cuts a failing schedule down by playing it again and again, within a budget of runs.

Real processes make something else of a schedule in each run. A smaller schedule is accepted when it fails once in as
many tries as the failure's rate asks for; rates are told, as a schedule that does not fail each time is flaky. All
after the failure goes first, then faults by delta debugging, then clients and time. The failure must keep its name.
It knows a function that plays a schedule, and no process and no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import attrs

from harness.torture.schedule import Schedule
from raft.sim.shrink import shrink as minimised
from raft.sim.tape import Deviations

FIRST_TRIES: Final = 5
"""Tries of the whole schedule until it fails once."""
MISSED: Final = 0.1
"""Chance that a candidate that still fails is taken for one that does not."""
TRIES_MAX: Final = 6
LAST_TRIES: Final = 3
MARGIN_S: Final = 1.0
"""Load that is kept after the moment of the failure, and before the first fault."""
HOLD_LEAST_MS: Final = 50


@attrs.frozen
class Attempt:
    """One run: whether it failed in the same way, and when, if that is known."""

    fails: bool
    at_s: float | None = None


@attrs.frozen
class Rate:
    """Number of runs of a scenario, and of those that failed."""

    failed: int
    runs: int

    def words(self) -> str:
        flaky = "" if self.failed == self.runs else ", so it is flaky"
        return f"{self.failed} of {self.runs} runs failed{flaky}"


@attrs.frozen
class ShrunkSchedule:
    """The smallest schedule that was found. ``tried``: how many runs the search took."""

    schedule: Schedule
    before: Rate
    after: Rate
    tried: int


class NotRepeated(Exception):
    """The whole schedule did not fail again; the message says how often it was tried."""


def shrink(whole: Schedule, play: Callable[[Schedule], Attempt], runs_max: int) -> ShrunkSchedule:
    """Cuts a schedule down. Raises ``NotRepeated`` where the whole does not fail in its first tries."""
    return _Shrinking(whole, play, runs_max).shrink()


class _Shrinking:
    """One search, and the runs that it may still spend."""

    def __init__(self, whole: Schedule, play: Callable[[Schedule], Attempt], runs_max: int) -> None:
        assert runs_max > 0
        self._best, self._play, self._left, self._tried = whole, play, runs_max, 0
        self._tries = 1
        self._at_s: float | None = None

    def shrink(self) -> ShrunkSchedule:
        before = self._repeated()
        spare = min(LAST_TRIES, self._left, max(1, self._left // 3))
        self._left -= spare
        self._until_the_failure()
        self._fewer_faults()
        self._fewer_clients()
        self._shorter()
        self._left += spare
        after = self._rate(self._best, min(LAST_TRIES, self._left)) if self._left else before
        assert self._left >= 0
        return ShrunkSchedule(self._best, before, after, self._tried)

    def _repeated(self) -> Rate:
        """The rate of the whole: it is tried until it fails once, and once more."""
        failed = runs = 0
        while runs < FIRST_TRIES and self._left and failed < 2:
            failed, runs = failed + self._once(self._best).fails, runs + 1
        if not failed:
            raise NotRepeated(f"it did not fail again in {runs} runs: too rare to shrink, or it was another machine's")
        rate = Rate(failed, runs)
        missed = 1 - failed / runs
        self._tries = 1 if not missed else min(math.ceil(math.log(MISSED) / math.log(missed)), TRIES_MAX)
        return rate

    def _until_the_failure(self) -> None:
        at_s = self._at_s
        if at_s is not None and at_s + MARGIN_S < self._best.seconds:
            self._accept(attrs.evolve(
                self._best, seconds=round(at_s + MARGIN_S, 1),
                steps=tuple(step for step in self._best.steps if step.at_ms <= at_s * 1e3)))

    def _fewer_faults(self) -> None:
        """Leave out faults, as simulated tapes are minimised; decisions are here the numbers of steps."""
        whole = self._best
        if not whole.steps or not self._left:
            return

        def still(kept: Deviations) -> bool:
            numbers = sorted(kept.get("steps", {}))
            return self._accept(attrs.evolve(whole, steps=tuple(whole.steps[number] for number in numbers)))

        minimised({"steps": {number: number for number in range(len(whole.steps))}}, still, self._left)

    def _fewer_clients(self) -> None:
        while self._best.clients > 1 and self._accept(attrs.evolve(self._best, clients=self._best.clients // 2)):
            pass

    def _shorter(self) -> None:
        """Lets faults come sooner and hold for less."""
        first_ms = min((step.at_ms for step in self._best.steps), default=0)
        early_ms = first_ms - round(MARGIN_S * 1e3)
        if early_ms > 0:
            self._accept(attrs.evolve(
                self._best, seconds=round(self._best.seconds - early_ms / 1e3, 1),
                steps=tuple(attrs.evolve(step, at_ms=step.at_ms - early_ms) for step in self._best.steps)))
        while any(step.hold_ms > HOLD_LEAST_MS for step in self._best.steps):
            shorter = tuple(attrs.evolve(step, hold_ms=max(step.hold_ms // 2, min(step.hold_ms, HOLD_LEAST_MS)))
                            for step in self._best.steps)
            if not self._accept(attrs.evolve(self._best, steps=shorter)):
                return

    def _accept(self, candidate: Schedule) -> bool:
        for _ in range(self._tries):
            if not self._left:
                return False
            if self._once(candidate).fails:
                self._best = candidate
                return True
        return False

    def _rate(self, schedule: Schedule, runs: int) -> Rate:
        return Rate(sum(self._once(schedule).fails for _ in range(runs)), runs)

    def _once(self, schedule: Schedule) -> Attempt:
        self._left -= 1
        self._tried += 1
        attempt = self._play(schedule)
        if attempt.fails and attempt.at_s is not None:
            self._at_s = attempt.at_s
        return attempt
