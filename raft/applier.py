"""Applies committed frames to the state machine, in order, exactly once per life of the machine, in short slices.

Usually this runs inside the step that learned of the commit: no task is woken for it. What takes longer than
``apply_slice_ms`` goes on in a task of its own, between checkpoints; a ``threaded`` machine always runs in a worker
thread. Knows the machine and the log; knows no peers and no roles. A machine that raises ends it: nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import trio

from raft.config import MS, Config
from raft.errors import StorageError, UsageError
from raft.frame import Frame, Kind
from raft.log import RaftLog
from raft.messages import SnapshotMeta
from raft.pending import Proposals
from raft.statemachine import Machine
from raft.wakeup import Bell

LOAD_BYTES = 1 << 20
"""Bytes read from storage at a time, when the frames are no longer in memory."""
LOAD_RETRY_S = 1.0
"""Time until storage is read again that gave nothing, unless something happens before."""
CHUNK_MAX = 1 << 16


class Applier:
    """Applies one group's log to its machine. ``index`` is applied. ``progress`` is called after each slice, ``fault``
    once, with the exception."""

    def __init__(
        self, *, machine: Machine, log: RaftLog, proposals: Proposals, config: Config, clock: Callable[[], int],
        load: Callable[[int, int], Awaitable[list[Frame]]], progress: Callable[[], None],
        fault: Callable[[Exception], None], run_blocking: Callable[..., Awaitable[Any]],
    ) -> None:
        self.machine, self.index, self.target = machine, 0, 0
        self.log_bytes = 0
        """Bytes of frames applied since the last snapshot."""
        self.commands = 0
        self._log, self._proposals, self._clock, self._load = log, proposals, clock, load
        self._progress, self._fault, self._run_blocking = progress, fault, run_blocking
        self._slice_ns = config.apply_slice_ms * MS
        self._chunk = 64
        """Commands between two looks at the clock; adapts to what they cost."""
        self._begun: tuple[Frame, list[bytes], list[object]] | None = None
        """A frame that is applied in part, with its commands and the results so far."""
        self._loaded: list[Frame] = []
        self.torn = False
        """True while a thread replaces all state by a snapshot's: nothing may look at it."""
        self._lock, self._works = trio.Lock(), trio.Lock()
        self._behind = machine.threaded
        """True while the task applies: ``advance`` then applies nothing itself."""
        self._bell = Bell()
        self._dead = False

    def advance(self, index: int) -> None:
        """Allow applying up to ``index``, and apply what fits into this slice."""
        if index > self.target:
            self.target = index
        if self._behind or self._lock.locked():
            self._bell.ring()
        elif not self._dead:
            self._slice()
            if self.index < self.target:
                self._behind = True
                self._bell.ring()

    async def run(self) -> None:
        """Apply, as a task, what cannot be done at once."""
        threaded = self.machine.threaded
        while not self._dead:
            await self._bell.wait()
            while self.index < self.target and not self._dead:
                nothing = False
                async with self._lock:
                    if not self._loaded and self._log.cached(self.index + 1, 1) is None:
                        self._loaded = await self._load(self.index + 1, LOAD_BYTES)
                        nothing = not self._loaded
                    if threaded:
                        await self._step_in_thread()
                    else:
                        self._slice()
                self._progress()
                if nothing:
                    with trio.move_on_after(LOAD_RETRY_S):
                        await self._bell.wait()
            self._behind = threaded

    def stop(self) -> None:
        """Apply nothing more, and wake the task so it ends."""
        self._dead = True
        self._bell.ring()

    # --- one slice

    def _slice(self) -> None:
        """Apply for as long as a slice lasts, or until storage must be read."""
        until = self._clock() + self._slice_ns
        while self.index < self.target:
            frames = self._frames()
            if not frames:
                return
            for frame in frames:
                if frame.first > self.target:
                    return
                if not self._apply(frame, until):
                    return

    def _frames(self) -> list[Frame]:
        """Return the next frames to apply; none if they must be loaded first."""
        if self._loaded:
            self._loaded = [frame for frame in self._loaded if self.index < frame.first <= self.target]
            if self._loaded:
                return self._loaded
        return self._log.cached(self.index + 1, LOAD_BYTES) or []

    def _apply(self, frame: Frame, until: int) -> bool:
        """Apply one frame, or go on with it. Return False if the slice is over or the machine raised."""
        assert frame.first == self.index + 1, (frame, self.index)
        if frame.kind != Kind.COMMANDS:
            self._finish(frame, [])
            return True
        if self._begun is None:
            commands, results = frame.payloads(), list[object]()
        else:
            _, commands, results = self._begun
            self._begun = None
        started, total, apply_many = self._clock(), len(commands), self.machine.apply_many
        while len(results) < total:
            done = len(results)
            part = commands if total <= self._chunk else commands[done : done + self._chunk]
            if done and part is commands:
                part = commands[done:]
            try:
                results += apply_many(part, frame.term, frame.first + done, frame.wall_ms)
            except Exception as error:  # noqa: BLE001 (after any error the machine differs from the log)
                self.fail(error)
                return False
            now = self._clock()
            self._tune(now - started)
            started = now
            if now >= until and len(results) < total:
                self._begun = frame, commands, results
                return False
        self._finish(frame, results)
        return started < until

    def _tune(self, took_ns: int) -> None:
        if 4 * took_ns > self._slice_ns:
            self._chunk = max(1, self._chunk // 4)
        elif 16 * took_ns < self._slice_ns:
            self._chunk = min(CHUNK_MAX, 2 * self._chunk)

    def _finish(self, frame: Frame, results: list[object]) -> None:
        self.index = frame.first + frame.count - 1
        self.log_bytes += len(frame.data)
        self.commands += len(results)
        self._proposals.settle(frame, results)

    def fail(self, error: Exception) -> None:
        """Stop for good: the machine raised, so it no longer matches the log."""
        self._dead = True
        self._fault(error)

    async def _step_in_thread(self) -> None:
        for frame in self._frames():
            if frame.first > self.target or self._dead:
                return
            results: list[object] = []
            if frame.kind == Kind.COMMANDS:
                try:
                    results = await self._run_blocking(
                        self.machine.apply_many, frame.payloads(), frame.term, frame.first, frame.wall_ms)
                except Exception as error:  # noqa: BLE001 (as in _apply)
                    self.fail(error)
                    return
            self._finish(frame, results)
            if self._lock.statistics().tasks_waiting:
                return

    async def between(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run ``work()`` while no call of the machine is under way. Commands wait for one such work at most."""
        async with self._works, self._lock:
            return await work()

    # --- snapshots

    async def capture(self) -> tuple[int, Any] | None:
        """Return (index, view) of the machine at the end of a frame; None if applying stopped within a frame.

        Raises ``UsageError`` if the machine raised.
        """
        async with self._lock:
            while self._begun is not None and not self._dead:
                self._slice()
                await trio.lowlevel.checkpoint()
            if self._begun is not None:  # else the applied part of this frame would be applied again
                return None
            index = self.index
            if self.machine.threaded:
                view = await self._run_blocking(self._capture)
            else:
                view = self._capture()
            if self._dead:
                return None
            self.log_bytes = 0
            return index, view

    def _capture(self) -> Any:
        try:
            return self.machine.capture()
        except Exception as error:
            raise made_no_snapshot(error) from error

    async def restore(self, meta: SnapshotMeta, chunks: Iterator[bytes]) -> None:
        """Replace the machine's state by the snapshot in ``chunks``, taken at ``meta.index``."""
        async with self._lock:
            self._begun, self._loaded = None, []
            try:
                if self.machine.restore_in_thread:
                    self.torn = True
                    await self._run_blocking(self.machine.restore, chunks)
                    self.torn = False
                else:
                    self.machine.restore(await self._run_blocking(list, chunks))
            except StorageError:
                raise
            except Exception as error:  # noqa: BLE001 (as in _apply)
                self.fail(error)
                return
            self.index = meta.index
            self.target = max(self.target, meta.index)
            self.log_bytes = 0
        if self.index < self.target:
            self._behind = True
            self._bell.ring()


def made_no_snapshot(error: Exception) -> UsageError:
    """Return the error that ``take_snapshot`` raises when the user's code raised ``error``."""
    return UsageError(f"the state machine made no snapshot: {type(error).__name__}: {error}")
