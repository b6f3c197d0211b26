"""Where syncs run: a thread of their own beside the loop, or inline for simulated disks and deterministic tests.

Both know functions to run and whom to tell, and nothing of what is synced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

Job = Callable[[], None]
"""May take long; raises ``OSError``. In a thread it must touch nothing that the loop changes."""
Told = Callable[[OSError | None], object]
"""On the loop: None when the job returned, else what it raised."""


class CallSoon(Protocol):
    """Run a function on the event loop, from any thread, in the order of the calls."""

    def __call__(self, function: Callable[..., object], /, *args: Any) -> object: ...


class Disk(Protocol):
    """Runs one job after another, in the order of ``submit``."""

    def submit(self, job: Job, told: Told) -> None: ...

    def close(self) -> None:
        """Finish what was submitted. Blocks. Idempotent."""
        ...


def _run(job: Job) -> OSError | None:
    try:
        job()
    except OSError as error:
        return error
    except Exception as error:  # noqa: BLE001  a defect must stop the store as a broken disk does, not the thread
        wrapped = OSError(f"{type(error).__name__}: {error}")
        wrapped.__cause__ = error
        return wrapped
    return None


class DiskThread:
    """``call_soon``: ``trio.lowlevel.TrioToken.run_sync_soon`` fits."""

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._queue: SimpleQueue[tuple[Job, Told] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store-disk", daemon=True)
        self._thread.start()

    def submit(self, job: Job, told: Told) -> None:
        self._queue.put((job, told))

    def close(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            job, told = item
            self._call_soon(told, _run(job))


class InlineDisk:
    """At once, and told at once."""

    def submit(self, job: Job, told: Told) -> None:
        told(_run(job))

    def close(self) -> None:
        """Nothing is under way."""
