"""Writes trace events as lines of JSON to a file (NDJSON), off the hot path and bounded in memory and on disk.

The node's task only looks at the event's type and appends to a queue; a worker thread encodes and writes, several times
a second. Of events that come with every write (``SAMPLED``) one in ``sample_every`` is kept, with its running number
under ``seen``. Events that do not fit into the queue are dropped and counted in the file.
A trace is for people and analysis: it never delays a node, and a full disk never stops one through it.
Knows the event vocabulary and files; nothing of nodes.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path
from typing import Final

import trio

from raft.errors import ConfigError
from raft.trace import Appended, CommitAdvanced, Event, ReadGranted

FORMAT_VERSION: Final = 1
SAMPLED: Final[tuple[type[Event], ...]] = (Appended, CommitAdvanced, ReadGranted)
"""Events whose number grows with the load."""


class TraceFile:
    """A ``Trace`` for ``open_node`` that writes a file. ``open_trace_file`` makes it."""

    def __init__(
        self, path: Path, *, sample_every: int, queue_events_max: int, file_bytes_max: int, offset_ns: int = 0
    ) -> None:
        """Open the file. ``offset_ns``: the events' clock minus ``time.perf_counter_ns``."""
        self.written = 0
        """Number of events' lines that were written."""
        self.error: str | None = None
        """Reason why the latest write failed; None: it did not."""
        self._path = path
        self._every, self._queue_max, self._file_max = sample_every, queue_events_max, file_bytes_max
        self._offset_ns = offset_ns
        self._overflowed = 0  # counted by the node's task
        self._failed = 0  # counted by the worker thread
        self._queue: deque[tuple[Event, int]] = deque()
        self._seen: dict[type[Event], int] = dict.fromkeys(SAMPLED, 0)
        self._told = 0
        self._file: FileIO | None = None
        self._size = 0

    @property
    def dropped(self) -> int:
        """Number of events that found the queue full, or whose write failed."""
        return self._overflowed + self._failed

    def __call__(self, event: Event) -> None:
        """Take one event. The hot path: most sampled events end at the first ``return``."""
        kind = type(event)
        seen = self._seen.get(kind, -1) + 1
        if seen:
            self._seen[kind] = seen
            if (seen - 1) % self._every:
                return
        if len(self._queue) >= self._queue_max:
            self._overflowed += 1
        else:
            self._queue.append((event, seen))

    def flush(self) -> None:
        """Write what the queue holds. Blocking; runs in a worker thread. Never raises ``OSError``."""
        batch = [self._queue.popleft() for _ in range(len(self._queue))]
        if not batch and self._told == self.dropped:
            return
        lines = [_line(event, seen) for event, seen in batch]
        dropped = self.dropped
        if dropped != self._told:
            lines.append(json.dumps({"event": "Overflow", "count": dropped - self._told}).encode() + b"\n")
        try:
            self._write(b"".join(lines))
        except OSError as error:
            self.error = str(error)
            self._failed += len(batch)
        else:
            self.error = None
            self.written += len(batch)
            self._told = dropped

    def _write(self, data: bytes) -> None:
        if self._file is not None and self._size + len(data) > self._file_max:
            self._file.close()
            self._file = None
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        if self._file is None:
            self._file = self._path.open("ab", buffering=0)
            self._size = self._file.tell()
            self._put(_first_line(self._every, time.perf_counter_ns() + self._offset_ns))
        self._put(data)

    def _put(self, data: bytes) -> None:
        assert self._file is not None
        view = memoryview(data)
        while view:
            done = self._file.write(view)
            self._size += done
            view = view[done:]

    def close(self) -> None:
        """Write the rest and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None


def _first_line(sample_every: int, at_ns: int) -> bytes:
    """Return the line that ties the monotonic times of a process to the wall clock."""
    return json.dumps({
        "event": "Opened", "version": FORMAT_VERSION, "at_ns": at_ns,
        "wall_ms": time.time_ns() // 1_000_000, "process": os.getpid(),
        "sample_every": sample_every, "sampled": [kind.__name__ for kind in SAMPLED],
    }).encode() + b"\n"


def _line(event: Event, seen: int) -> bytes:
    fields = event.as_dict()
    if seen:
        fields["seen"] = seen
    return json.dumps(fields, separators=(",", ":"), default=str).encode() + b"\n"


@asynccontextmanager
async def open_trace_file(
    path: str | os.PathLike[str], *, sample_every: int = 100, flush_interval_ms: int = 200,
    queue_events_max: int = 20_000, file_bytes_max: int = 256 << 20,
) -> AsyncIterator[TraceFile]:
    """Trace into ``path`` while the block runs. An existing file is continued.

    Beyond ``file_bytes_max`` the file becomes ``path.1``, replacing an older one. A process that is killed loses the
    last ``flush_interval_ms``. Raises ``ConfigError``, and ``OSError`` when the file cannot be opened at the start.
    """
    for name, value in (("sample_every", sample_every), ("flush_interval_ms", flush_interval_ms),
                        ("queue_events_max", queue_events_max), ("file_bytes_max", file_bytes_max)):
        if value < 1:
            raise ConfigError(name, value, "must be above 0")
    trace = TraceFile(
        Path(path), sample_every=sample_every, queue_events_max=queue_events_max, file_bytes_max=file_bytes_max,
        offset_ns=int(trio.current_time() * 1e9) - time.perf_counter_ns())  # nodes use trio's clock
    await trio.to_thread.run_sync(trace._write, b"")

    async def flush_now_and_then() -> None:
        while True:
            await trio.sleep(flush_interval_ms / 1_000)
            await trio.to_thread.run_sync(trace.flush)

    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush_now_and_then)
            try:
                yield trace
            except BaseException as error:  # noqa: BLE001  # raised again below
                failure = error
            nursery.cancel_scope.shield = failure is not None  # else a cancellation from outside would win
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(trace.close)
    if failure is not None:  # as the caller's block raised it, not inside this nursery's group
        raise failure
