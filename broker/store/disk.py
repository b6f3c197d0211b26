"""Runs syncs: in a thread of their own beside the event loop, or inline for simulated disks and deterministic tests.

Both know functions to run and whom to tell, and nothing of what is synced.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Protocol

Job = Callable[[], None]
"""May take long; raises ``OSError``. In a thread it must touch nothing that the loop changes."""
Steps = Iterator[None]
"""A job that lets others go first between its steps."""
Told = Callable[[OSError | None], object]
"""Called on the loop: with None when the job returned, else with what it raised."""


class CallSoon(Protocol):
    """Run a function on the event loop, from any thread, in the order of the calls."""

    def __call__(self, function: Callable[..., object], /, *args: Any) -> object: ...


class Disk(Protocol):
    """Runs one job after another; ``submit`` goes before the next step of ``submit_steps``."""

    inline: bool
    """True: jobs run on the loop itself."""

    def submit(self, job: Job, told: Told) -> None: ...

    def submit_steps(self, steps: Steps, told: Told) -> None: ...

    def settle(self) -> None:
        """Wait until all that was submitted is done; its callers may be told later. Blocks."""
        ...

    def close(self) -> None:
        """``settle``, for the last time. Idempotent."""
        ...


def _run(job: Callable[[], bool]) -> tuple[bool, OSError | None]:
    """Run the job. Returns whether it wants to go on, and the ``OSError`` that it raised, if any."""
    try:
        return job(), None
    except OSError as error:
        return False, error
    except Exception as error:  # noqa: BLE001  a defect must stop the store as a broken disk does, not the thread
        wrapped = OSError(f"{type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return False, wrapped


def _all_of(job: Job) -> bool:
    job()
    return False


def _next_of(steps: Steps) -> bool:
    return next(steps, True) is None


class DiskThread:
    """Work on a thread; ``call_soon`` brings its end to the loop, as ``trio.lowlevel.TrioToken.run_sync_soon``."""

    inline = False

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._queue: SimpleQueue[tuple[Job | Steps, Told] | threading.Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store-disk", daemon=True)
        self._thread.start()

    def submit(self, job: Job, told: Told) -> None:
        self._queue.put((job, told))

    def submit_steps(self, steps: Steps, told: Told) -> None:
        self._queue.put((steps, told))

    def settle(self) -> None:
        if self._thread.is_alive():
            settled = threading.Event()
            self._queue.put(settled)
            settled.wait()

    def close(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        queue = self._queue
        aside: deque[tuple[Steps, Told]] = deque()
        while True:
            while aside and queue.empty():
                self._step(aside)
            item = queue.get()
            if not isinstance(item, tuple):
                while aside:
                    self._step(aside)
                if item is None:
                    return
                item.set()
            elif callable(item[0]):
                job, told = item
                self._call_soon(told, _run(lambda job=job: _all_of(job))[1])  # type: ignore[misc]
            else:
                aside.append((item[0], item[1]))

    def _step(self, aside: deque[tuple[Steps, Told]]) -> None:
        steps, told = aside[0]
        goes_on, error = _run(lambda: _next_of(steps))
        if not goes_on:
            aside.popleft()
            self._call_soon(told, error)


class InlineDisk:
    """Runs each job at once, and tells its end at once."""

    inline = True

    def submit(self, job: Job, told: Told) -> None:
        told(_run(lambda: _all_of(job))[1])

    def submit_steps(self, steps: Steps, told: Told) -> None:
        def work() -> bool:
            for _ in steps:
                pass
            return False

        told(_run(work)[1])

    def settle(self) -> None:
        """Nothing to do: all work was done where it was asked for."""

    def close(self) -> None:
        """Nothing to do: all work was done where it was asked for."""
