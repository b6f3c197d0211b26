"""A failure made small and written down: the tape file that repeats it. Knows results, programs and tapes."""

from __future__ import annotations

import re
import time
from pathlib import Path

from raft.sim.campaign import Program, Result, run
from raft.sim.shrink import Shrunk, shrink
from raft.sim.tape import Deviations, Tape, Value, save


def until_of(result: Result, program: Program) -> int | None:
    """Up to where a replay has to go, ns of world time; None: to the end."""
    return None if result.failure in program.at_the_end else result.virtual_ns + 1


def repeats(result: Result, program: Program, deviations: Deviations) -> bool:
    """Whether these decisions of the same run bring the same failure."""
    tape = Tape(result.seed, deviations)
    return run(tape, result.profile, until_ns=until_of(result, program), program=program).failure == result.failure


def write_down(
    result: Result, out: Path, program: Program, seconds: float, **notes: Value
) -> tuple[Path, Shrunk]:
    """Drop what the failure does not need, for so many seconds at most, and save what is left in a file in ``out``."""
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
