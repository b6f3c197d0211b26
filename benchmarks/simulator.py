"""How fast the simulator is: events per second of one core, every predicate asked after every event, all faults on.

    python -m benchmarks.simulator [--seeds 40] [--rounds 5] [--profile swarm]
    python -m benchmarks.simulator --nodes 5 --operations 50 --jobs 2      virtual seconds in one second of two cores
    python -m benchmarks.simulator --calls [--seeds 10]      calls of functions, which no other load changes

Each round plays the same seeds again; the events are the same, only the time differs. Time is the processor's, so what
else runs counts only as far as it slows the core down. ``--jobs`` processes share the seeds at the same time, and their
rates are added. ``--nodes`` and ``--operations`` take the place of what each seed draws. ``--calls`` counts the calls
of functions instead, by module, with each module's share of the profiled time. Knows ``raft.sim.campaign``.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import attrs

from benchmarks.measure import Summary
from raft.sim.campaign import RAFT, Result, Scene, run
from raft.sim.swarm import draw_plan, with_lapses
from raft.sim.tape import Tape

ROOT: Final = Path(__file__).parents[1]
MODULES: Final = 20
"""Modules that ``--calls`` prints."""


@attrs.frozen
class Load:
    """What each seed plays."""

    profile: str = RAFT.profiles[0]
    nodes: int | None = None
    """Voters of each seed, without learners; None: as the seed draws."""
    operations: int | None = None
    """Writes and reads that clients try in a virtual second; None: as the seed draws."""

    def scene(self, tape: Tape, profile: str) -> Scene:
        """Make the scene of a seed, whose faults and other conditions stay as drawn."""
        plan = with_lapses(draw_plan(tape, profile), tape, profile)
        if self.nodes is not None:
            plan.size, plan.learners = self.nodes, 0
        if self.operations is not None:
            plan.op_ns = round(plan.op_chance * 1e9 / self.operations)
        return Scene(tape, plan)

    def play(self, seeds: Iterable[int]) -> list[Result]:
        """Play these seeds, all of which must pass."""
        program = attrs.evolve(RAFT, scene=self.scene)
        results = [run(Tape(seed), self.profile, program=program) for seed in seeds]
        failed = [result.seed for result in results if result.failure]
        assert not failed, f"these seeds fail, so their speed means nothing: {failed}"
        return results


@attrs.frozen
class Share:
    """What one process played in one round, in so many seconds of its processor."""

    events: int
    asked: int
    virtual_s: float
    seconds: float

    @classmethod
    def of(cls, load: Load, seeds: Iterable[int]) -> Share:
        start = time.process_time()
        results = load.play(seeds)
        seconds = time.process_time() - start
        return cls(
            sum(result.events for result in results), sum(sum(result.predicates.values()) for result in results),
            sum(result.virtual_ns for result in results) / 1e9, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", default=RAFT.profiles[0], choices=RAFT.profiles)
    parser.add_argument("--nodes", type=int, help="voters of each seed (as it draws)")
    parser.add_argument("--operations", type=int, help="writes and reads tried in a virtual second (as a seed draws)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time (1)")
    parser.add_argument("--calls", action="store_true", help="count calls of functions, and measure no speed")
    args = parser.parse_args()
    load = Load(args.profile, args.nodes, args.operations)
    if args.calls:
        count_calls(load, args.seeds)
    else:
        measure(load, args.seeds, args.rounds, args.jobs)


def measure(load: Load, seeds: int, rounds: int, jobs: int) -> None:
    """Print the speed of each round, and what it was in the median."""
    rates, times = [], []
    shares: list[Share] = []
    with get_context("spawn").Pool(jobs) as pool:
        for number in range(rounds):
            shares = pool.map(partial(Share.of, load), [range(first, seeds, jobs) for first in range(jobs)], 1)
            rates.append(sum(share.events / share.seconds for share in shares))
            times.append(sum(share.virtual_s / share.seconds for share in shares))
            print(f"  round {number + 1}: {sum(share.events for share in shares):,} events, {rates[-1]:,.0f} /s, "
                  f"x{times[-1]:.0f} real time", flush=True)
    print(json.dumps(attrs.asdict(load) | {
        "seeds": seeds, "jobs": jobs, "events": sum(share.events for share in shares),
        "predicates_asked": sum(share.asked for share in shares),
        "virtual_s": round(sum(share.virtual_s for share in shares)),
        "events_per_second": attrs.asdict(Summary.of(rates)), "times_real_time": attrs.asdict(Summary.of(times))}))


def count_calls(load: Load, seeds: int) -> None:
    """Print the calls of functions for each event, and by module its share of the profiled time and its calls."""
    profiler = cProfile.Profile()
    profiler.enable()
    results = load.play(range(seeds))
    profiler.disable()
    events = sum(result.events for result in results)
    stats = pstats.Stats(profiler)
    calls: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for (file, _, _), (_, number, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        name = "built in" if file == "~" else "attrs" if file.startswith("<attrs") else file.removeprefix(f"{ROOT}/")
        calls[name] += number
        seconds[name] += own
    whole = sum(seconds.values())
    for name, own in seconds.most_common(MODULES):
        print(f"  {name:28} {own / whole:6.1%} {calls[name] / events:8.2f} calls an event")
    print(json.dumps(attrs.asdict(load) | {
        "seeds": seeds, "events": events, "calls_per_event": round(sum(calls.values()) / events, 2)}))


if __name__ == "__main__":
    main()
