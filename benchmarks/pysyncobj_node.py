"""One of three PySyncObj nodes in a documented mode; the leader measures proposals with callbacks and prints rows.

    python -m benchmarks.pysyncobj_node --mode batch --id 0 --ports 1,2,3 --dir D

Modes: ``batch`` (the default: entries gather until the next tick), ``quick`` (the same with shorter ticks), ``single``
(``appendEntriesUseBatch=False``: sent at once). None keeps a journal, so nothing here survives a crash; its journal
is never synced either. The flags are those of the Go programs beside it. It knows nothing of raft.
"""

from __future__ import annotations

import argparse
import threading
import time
from typing import Any

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

from benchmarks.measure import Row, row

MODES: dict[str, dict[str, Any]] = {
    "batch": {},
    "quick": {"autoTickPeriod": 0.002, "appendEntriesPeriod": 0.005},
    "single": {"appendEntriesUseBatch": False},
}


class Counter(SyncObj):  # type: ignore[misc] # untyped library
    """The state machine: counts."""

    def __init__(self, own: str, others: list[str], mode: str) -> None:
        never = {"logCompactionMinTime": 10**6, "logCompactionMinEntries": 10**9}
        super().__init__(own, others, SyncObjConf(**never, **MODES[mode]))
        self.n = 0

    @replicated  # type: ignore[untyped-decorator] # as above
    def add(self, data: bytes) -> int:
        self.n += 1
        return self.n


class Callers:
    """``width`` requests outstanding: each callback sends the next one, in the library's own thread."""

    def __init__(self, counter: Counter, data: bytes) -> None:
        self._counter, self._data = counter, data
        self._stop = 0.0
        self._left = 0
        self._done = threading.Event()
        self.latencies: list[float] = []

    def run(self, width: int, seconds: float) -> float:
        """Returns the time it took."""
        self.latencies.clear()
        self._done.clear()
        self._left = width
        start = time.perf_counter()
        self._stop = start + seconds
        for _ in range(width):
            self._send()
        self._done.wait()
        return time.perf_counter() - start

    def _send(self) -> None:
        start = time.perf_counter()

        def answered(_: object, reason: int) -> None:
            assert reason == FAIL_REASON.SUCCESS, reason
            now = time.perf_counter()
            self.latencies.append(now - start)
            if now < self._stop:
                self._send()
            else:
                self._left -= 1
                if not self._left:
                    self._done.set()

        self._counter.add(self._data, callback=answered)


def measure(counter: Counter, width: int, size_bytes: int, seconds: float) -> Row:
    callers = Callers(counter, bytes(size_bytes))
    callers.run(width, min(0.3, seconds / 4))
    elapsed = callers.run(width, seconds)
    return row("propose", width, size_bytes, callers.latencies, elapsed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=list(MODES), default="batch")
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--dir", help="unused: nothing is stored")
    parser.add_argument("--widths", default="1,64,256,1000")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    addresses = [f"127.0.0.1:{port}" for port in args.ports.split(",")]
    own = addresses.pop(args.id)
    counter = Counter(own, addresses, args.mode)
    while not counter.isReady() or str(counter._getLeader()) != own:
        time.sleep(0.02)
    time.sleep(0.3)
    for width in map(int, args.widths.split(",")):
        print(measure(counter, width, args.size, args.seconds).line(), flush=True)
    print("done", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
