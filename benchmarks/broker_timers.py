"""Timers that wait: how fast they are put into the wheel, what they take of memory, how soon the first one is found.

    python -m benchmarks.broker_timers [--count 10000000] [--days 3]

Timers stand in the slots of some days by chance, as those of a busy shop do. One process fills the store on disk; the
next one opens it as after a kill, finds the first slot, and reads it. It measures; it judges nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from broker.store.directory import DirectoryFiles
from broker.timer.store import TimerStore
from broker.timer.units import Unit

T0 = 1_700_000_000_000
FLUSHED = 100_000
"""Timers between two flushes: about as many as come in a second."""


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def fill(root: str, count: int, days: float) -> None:
    before = resident_mb()
    store = TimerStore(DirectoryFiles(root))
    store.recover(1 << 62)
    store.done_before(T0)
    rng, span_ms, worst = Random(1), int(days * 86_400_000), 0.0
    began = time.perf_counter()
    for number in range(count):
        if number % FLUSHED == 0:
            flush = time.perf_counter()
            store.flush()
            worst = max(worst, time.perf_counter() - flush)
        store.insert(T0 + int(rng.random() * span_ms), Unit(number * 400, 400, 7), T0)
        store.queue_offset = number + 1
    took, used = time.perf_counter() - began, time.process_time()
    store.flush()
    print(f"put into the wheel, with chance and flushes: {count / took:,.0f}/s; {used / count * 1e6:.1f} µs of CPU "
          f"each; {resident_mb() - before:.0f} MB above empty; longest flush {worst * 1e3:.0f} ms")


def take_up(root: str, count: int) -> None:
    before, began, used = resident_mb(), time.perf_counter(), time.process_time()
    store = TimerStore(DirectoryFiles(root))
    assert not store.recover(1 << 62), "it finds what was left"
    first = store.next_slot()
    assert first is not None
    units = list(store.slot(first))
    print(f"taken up, first slot ({len(units)} timers) read: {time.perf_counter() - began:.2f} s, "
          f"{time.process_time() - used:.2f} s of CPU; {store.pending:,} wait; {resident_mb() - before:.0f} MB above "
          "empty")
    began, used, looked = time.perf_counter(), time.process_time(), 1_000
    for _ in range(looked):
        store.next_slot()
    print(f"a look for the next slot: {(time.process_time() - used) / looked * 1e6:.1f} µs of CPU")
    began, read = time.perf_counter(), 0
    while read < min(count, 200_000) and (slot := store.next_slot()) is not None:
        read += sum(1 for _ in store.slot(slot))
        store.done_before(slot + store.precision_ms)
    print(f"read slot by slot: {read / (time.perf_counter() - began):,.0f}/s")


def one_slot(root: str, count: int) -> None:
    """All due in one second."""
    store = TimerStore(DirectoryFiles(root))
    store.recover(1 << 62)
    store.done_before(T0)
    began = time.perf_counter()
    for number in range(count):
        store.insert(T0 + 5_000, Unit(number * 400, 400, 7), T0)
    print(f"{count:,} into one slot: {count / (time.perf_counter() - began):,.0f}/s")
    store.flush()
    began, worst, found = time.perf_counter(), 0.0, 0
    batches = store.batches(T0 + 5_000)
    while True:
        step = time.perf_counter()
        batch = next(batches, None)
        worst = max(worst, time.perf_counter() - step)
        if batch is None:
            break
        found += len(batch)
    assert found == count
    print(f"read from it: {count / (time.perf_counter() - began):,.0f}/s, longest step {worst * 1e3:.1f} ms; "
          f"{resident_mb():.0f} MB in all")


def apart(work: Callable[..., None], *arguments: object) -> None:
    """In a process of its own, whose memory says what it takes."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="timers that wait, on disk and in memory")
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--days", type=float, default=3.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        apart(fill, root, given.count, given.days)
        apart(take_up, root, given.count)
    with tempfile.TemporaryDirectory() as root:
        apart(one_slot, root, min(given.count, 1_000_000))


if __name__ == "__main__":
    main()
