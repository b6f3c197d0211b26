"""How fast the simulator is: events per second on one core, every predicate asked after every event, all faults on.

    python -m benchmarks.simulator [--seeds 40] [--rounds 5] [--profile swarm]

Each round plays the same seeds again; the events are the same, only the time differs. Knows ``raft.sim.campaign``.
"""

from __future__ import annotations

import argparse
import json
import time

import attrs

from benchmarks.measure import Summary
from raft.sim.campaign import run
from raft.sim.tape import Tape


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", default="swarm")
    args = parser.parse_args()
    rates = []
    events = asked = 0
    for number in range(args.rounds):
        start = time.perf_counter()
        results = [run(Tape(seed), args.profile) for seed in range(args.seeds)]
        elapsed = time.perf_counter() - start
        failed = [result.seed for result in results if result.failure]
        assert not failed, f"these seeds fail, so their speed means nothing: {failed}"
        events = sum(result.events for result in results)
        asked = sum(sum(result.predicates.values()) for result in results)
        rates.append(events / elapsed)
        print(f"  round {number + 1}: {events:,} events, {events / elapsed:,.0f} /s", flush=True)
    print(json.dumps({"profile": args.profile, "seeds": args.seeds, "events": events, "predicates_asked": asked,
                      "events_per_second": attrs.asdict(Summary.of(rates))}))


if __name__ == "__main__":
    main()
