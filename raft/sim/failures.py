"""Repeats a failure, shrinks it and saves it in a tape file, before it is reported.

Knows results, programs and tapes.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from raft.sim.campaign import Program, Result, run
from raft.sim.shrink import Shrunk, shrink
from raft.sim.tape import Deviations, Tape, Value, save


class NotRepeatable(AssertionError):
    """One seed gave two different runs: something depends on a clock, a set's order or unseeded chance."""


def play_again(before: Result, program: Program, cause: str) -> None:
    """Play a seed again and compare the two runs. Raises ``NotRepeatable``, with the likely ``cause``."""
    __tracebackhide__ = True
    after = run(Tape(before.seed), before.profile, program=program)
    if (after.fingerprint, after.events, after.failure) != (before.fingerprint, before.events, before.failure):
        raise NotRepeatable(f"seed {before.seed} gave two different runs: {cause}")


def until_of(result: Result, program: Program) -> int | None:
    """Return the world time in ns up to which a replay must run; None: to the end."""
    return None if result.failure in program.at_the_end else result.virtual_ns + 1


def repeats(result: Result, program: Program, deviations: Deviations) -> bool:
    """Return whether a replay of these decisions fails in the same way."""
    tape = Tape(result.seed, deviations)
    return run(tape, result.profile, until_ns=until_of(result, program), program=program).failure == result.failure


def write_down_repeated(
    result: Result, out: Path, program: Program, seconds: float, **notes: Value
) -> tuple[Path, str]:
    """Write down a failure that a replay repeats. Return the file and words for how far it shrank. Raises
    ``NotRepeatable``."""
    __tracebackhide__ = True
    if not repeats(result, program, result.deviations):
        raise NotRepeatable(
            f"seed {result.seed} failed, and its replay did not fail alike: something depends on a clock, on chance "
            f"without a seed or on the order of a set. It said\n{result.failure}: {result.message}")
    path, small = write_down(result, out, program, seconds, **notes)
    return path, f"seed {result.seed}: {small.before} decisions shrunk to {small.after} in {small.runs} runs"


def write_down(
    result: Result, out: Path, program: Program, seconds: float, **notes: Value
) -> tuple[Path, Shrunk]:
    """Shrink a failure for at most ``seconds``, and save it in a file in ``out``."""
    deadline = time.monotonic() + seconds
    small = shrink(
        result.deviations,
        lambda candidate: time.monotonic() <= deadline and repeats(result, program, candidate))
    assert result.failure is not None
    path = out / f"{re.sub(r'[^A-Za-z0-9_.]+', '-', result.failure)}-{result.profile}-{result.seed}.json"
    out.mkdir(parents=True, exist_ok=True)
    save(path, result.seed, small.deviations, profile=result.profile, failure=result.failure,
         until_ns=until_of(result, program), deviations_before=small.before, **notes)
    return path, small
