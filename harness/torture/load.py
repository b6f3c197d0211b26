"""Clients at work: each asks the workload what to do, and does it. The history has all that happens.

This module knows clients and workloads by their protocols, and no node and no fault.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import IO, Any, Final

import attrs
import trio

from harness.histories.events import ASKING, INFO, INVOKE, OBSERVER, Event
from harness.histories.jsonlines import line_of
from harness.torture.clients import RunClient
from harness.workloads.workload import LoadOp, LoadOutcome, Workload

LAST_MS: Final = 60_000
"""A last operation may read a whole run, and wait for what is due; but all of them only for ``PATIENCE_S``."""
PATIENCE_S: Final = 180.0


@attrs.define(eq=False)
class HistoryFile:
    """``history.jsonl`` as it grows, and counts of what is in it."""

    file: IO[bytes]
    began_ns: int = attrs.field(factory=time.monotonic_ns)
    counts: Counter[str] = attrs.field(factory=Counter, init=False)
    _index: int = attrs.field(default=0, init=False)

    def now_ns(self) -> int:
        """Nanoseconds since the run began."""
        return time.monotonic_ns() - self.began_ns

    def add(self, kind: str, process: int | str, op: LoadOp, value: Any, error: str | None = None) -> None:
        """Writes one event, which happens now."""
        self.file.write(line_of(Event(self._index, kind, process, op.f, op.key, value, self.now_ns(), error)))
        self._index += 1
        self.counts[kind] += 1

    def observed(self, f: str, key: str | None, value: Any) -> None:
        """Writes an event that an observer saw."""
        self.add(INFO, OBSERVER, LoadOp(f, key), value)


@attrs.define(eq=False)
class Crowd:
    """All clients of a run. ``open_client`` makes the client of a number."""

    workload: Workload
    history: HistoryFile
    open_client: Callable[[int], Awaitable[RunClient]]
    count: int
    rate: float
    """Operations a second, of all clients together."""
    timeout_ms: int
    _under_way: set[trio.Event] = attrs.field(factory=set, init=False)

    async def turned(self) -> None:
        """Waits until each operation that is under way now has ended."""
        for ended in [*self._under_way]:
            await ended.wait()

    async def work(self, number: int, begin: trio.Event, stop: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        """Runs one client until it is told to stop. It ends the operation that it has begun."""
        client = await self.open_client(number)
        try:
            task_status.started()
            await begin.wait()
            process, every_s = number, self.count / self.rate
            due = trio.current_time() + every_s * number / self.count
            while True:
                with trio.move_on_after(max(due - trio.current_time(), 0)):
                    await stop.wait()
                if stop.is_set():
                    return
                due = max(due + every_s, trio.current_time())
                op = self.workload.next(number)
                if op is not None:
                    told = await self._do(client, process, op)
                    self.workload.seen(number, op, told)
                    process += self.count if told.type == INFO else 0
        finally:
            with trio.CancelScope(shield=True):
                await client.aclose()

    async def finish(self) -> None:
        """Does the last operations, when all is well again, with a client of their own."""
        client, process = await self.open_client(self.count), -1
        patient_until = trio.current_time() + PATIENCE_S
        try:
            last = self.workload.last()
            op = next(last, None)
            while op is not None:
                patient = trio.current_time() < patient_until
                told = await self._do(client, process, op, LAST_MS if patient else self.timeout_ms)
                process -= 1 if told.type == INFO else 0
                try:
                    op = last.send(told)
                except StopIteration:
                    return
        finally:
            with trio.CancelScope(shield=True):
                await client.aclose()

    async def _do(
        self, client: RunClient, process: int, op: LoadOp, timeout_ms: int | None = None,
    ) -> LoadOutcome:
        self.history.add(INVOKE, process, op, op.value)
        told, ended = LoadOutcome(INFO, None, "the run ended first"), trio.Event()
        self._under_way.add(ended)
        try:
            told = await client.ask(op, timeout_ms or self.timeout_ms)
        finally:
            self._under_way.remove(ended)
            ended.set()
            told = self._noted(process, op, told)
        return told

    def _noted(self, process: int, op: LoadOp, told: LoadOutcome) -> LoadOutcome:
        """Write the outcome; returns it as it is written. A value that no JSON holds leaves it unknown."""
        value = op.value if told.value is None and told.type == "ok" and op.f not in ASKING else told.value
        try:
            self.history.add(told.type, process, op, value, told.error)
        except TypeError as error:
            told = LoadOutcome(INFO, None, f"the client's answer cannot be kept: {error}")
            self.history.add(INFO, process, op, None, told.error)
        return told
