"""Checkers of histories: a hundred registers, a long one, a million values of a queue; and the most memory they took.

    python -m benchmarks.checkers              the tables of docs/reference/chaos.md

Histories are made here, from a seed; only checking is timed. It asserts no time.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from harness.checkers import linearizability, queues
from harness.checkers.models import Register
from harness.checkers.verdict import Verdict
from harness.histories.events import INVOKE, OK, Event
from tests.harness.checkers.generated import history, register_answers, register_call, spoiled


def registers(count: int, operations: int, unknown: float, clients: int = 5, key: object = None) -> list[list[Event]]:
    """Half of them right, half with one read that says something else."""
    chance = Random(85)
    made = [history(chance, Register(), register_call, register_answers, operations=operations, unknown=unknown,
                    clients=clients, key=key) for _ in range(count)]
    return [spoiled(chance, each) if number % 2 else each for number, each in enumerate(made)]


def queue_events(values: int) -> Iterator[Event]:
    """Each value is sent by one of 16 processes to one of 64 keys, and received by one of 8, 100 later."""
    at = 0
    for number in range(values + 100):
        if number < values:
            for kind in (INVOKE, OK):
                yield Event(at, kind, number % 16, "send", number // 16 % 64, f"m{number}", at)
                at += 1
        if number >= 100:
            body = f"m{number - 100}"
            yield Event(at, INVOKE, 100 + number % 8, "receive", None, None, at)
            yield Event(at + 1, OK, 100 + number % 8, "receive", None, body, at + 1)
            at += 2


def timed(name: str, work: Callable[[], list[Verdict]]) -> None:
    """One row: what, how long, and how many of each verdict."""
    begin, busy = time.perf_counter(), time.process_time()
    verdicts = work()
    took, busy = time.perf_counter() - begin, time.process_time() - busy
    counts = ", ".join(f"{sum(each.valid is valid for each in verdicts)} {str(valid.value).lower()}"
                       for valid in dict.fromkeys(each.valid for each in verdicts))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"| {name} | {took:.2f} s | {busy:.2f} s | {counts} | {peak} MiB |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time the checkers of histories.")
    parser.add_argument("--values", type=int, default=500_000, help="of the queue; each is sent and received")
    options = parser.parse_args()

    def check(events: list[Event]) -> Verdict:
        return linearizability.check(events, Register, limits=linearizability.Limits(steps=5_000_000))

    print("| history | time | of one core | verdicts | most memory so far |\n|---|---|---|---|---|")
    for unknown in (0.0, 0.1, 0.25):
        made = registers(100, 85, unknown)
        timed(f"100 registers of 85 operations, {unknown:.0%} unknown", partial(lambda of: [*map(check, of)], made))
    long = registers(1, 50_000, 0.0, clients=10)[0]
    timed("one register, 10 clients, 50,000 operations", lambda: [check(long)])
    rules = queues.Rules(ordered=True, drained=True)
    timed(f"a queue, {2 * options.values:,} operations, made on the way",
          lambda: [queues.check(queue_events(options.values), rules)])


if __name__ == "__main__":
    main()
