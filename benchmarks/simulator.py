"""How fast the simulator is: events per second of one core, every predicate asked after every event, all faults on.

    python -m benchmarks.simulator [--seeds 40] [--rounds 5] [--profile swarm]
    python -m benchmarks.simulator --calls [--seeds 10]      calls of functions, which no other load changes

Each round plays the same seeds again; the events are the same, only the time differs. Time is the processor's, so what
else runs counts only as far as it slows the core down. ``--calls`` counts the calls of functions instead, by module,
with each module's share of the profiled time. Knows ``raft.sim.campaign``.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import time
from collections import Counter
from pathlib import Path
from typing import Final

import attrs

from benchmarks.measure import Summary
from raft.sim.campaign import Result, run
from raft.sim.tape import Tape

ROOT: Final = Path(__file__).parents[1]
MODULES: Final = 20
"""Modules that ``--calls`` prints."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", default="swarm")
    parser.add_argument("--calls", action="store_true", help="count calls of functions, and measure no speed")
    args = parser.parse_args()
    if args.calls:
        count_calls(args.seeds, args.profile)
        return
    rates = []
    events = asked = 0
    for number in range(args.rounds):
        start = time.process_time()
        results = played(args.seeds, args.profile)
        elapsed = time.process_time() - start
        events = sum(result.events for result in results)
        asked = sum(sum(result.predicates.values()) for result in results)
        rates.append(events / elapsed)
        print(f"  round {number + 1}: {events:,} events, {events / elapsed:,.0f} /s", flush=True)
    print(json.dumps({"profile": args.profile, "seeds": args.seeds, "events": events, "predicates_asked": asked,
                      "events_per_second": attrs.asdict(Summary.of(rates))}))


def played(seeds: int, profile: str) -> list[Result]:
    """Play seeds from 0 on, all of which must pass."""
    results = [run(Tape(seed), profile) for seed in range(seeds)]
    failed = [result.seed for result in results if result.failure]
    assert not failed, f"these seeds fail, so their speed means nothing: {failed}"
    return results


def count_calls(seeds: int, profile: str) -> None:
    """Print the calls of functions for each event, and by module its share of the profiled time and its calls."""
    profiler = cProfile.Profile()
    profiler.enable()
    results = played(seeds, profile)
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
    print(json.dumps({"profile": profile, "seeds": seeds, "events": events,
                      "calls_per_event": round(sum(calls.values()) / events, 2)}))


if __name__ == "__main__":
    main()
