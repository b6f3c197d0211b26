"""One table of ``config/*.json`` on disk: written soon after it changed, many changes at once, beside the loop.

It knows when to write, and neither what the table holds nor how its JSON looks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import attrs
import trio

from broker.store.files import Files, write_whole
from broker.store.tables import PATHS
from remoting.body import Body
from remoting.wakeup import Bell

logger = logging.getLogger("broker")

RunSync = Callable[[Callable[[], None]], Awaitable[None]]
PAUSE_AFTER_FAILURE_S = 1.0


async def _in_thread(work: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(work)


@attrs.define(eq=False)
class _Attempt:
    version: int = 0
    done: trio.Event = attrs.field(factory=trio.Event)
    error: OSError | None = None


class TableFile:
    """A table's file. ``table`` returns the content, ``changed`` says that it is new, ``run`` must be running.

    ``path``: of a table that is not one of RocketMQ's. ``pause_ms`` lies between two writes of a table that changes all
    the time, unless a caller waits for ``saved``.
    """

    def __init__(self, files: Files, table: Callable[[], Body], run_sync: RunSync = _in_thread, *, path: str = "",
                 pause_ms: int = 0) -> None:
        self.path = path or PATHS[type(table())]
        self._files, self._table, self._run_sync, self._pause_ms = files, table, run_sync, pause_ms
        self._bell, self._hurry = Bell(), Bell()
        self._version = 0
        self._written = 0
        self._next = _Attempt()
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()

    def changed(self) -> None:
        self._version += 1
        self._bell.ring()

    async def saved(self) -> None:
        """Wait until all changes so far are on disk. Raises ``OSError``: they are not, and the write is tried again."""
        wanted = self._version
        if self._written < wanted:
            self._hurry.ring()
        while self._written < wanted:
            attempt = self._next
            await attempt.done.wait()
            if attempt.error is not None and attempt.version >= wanted:
                raise attempt.error

    def when_saved(self, call: Callable[[], None]) -> None:
        """Run ``call`` after the next write, successful or not; at once if nothing changed. It does not wait."""
        if self._written == self._version:
            call()
        else:
            self._calls.append((self._version, call))

    def when_written(self, call: Callable[[], None]) -> None:
        """``when_saved`` for what must be on disk: no attempt that failed is followed by ``call``."""
        wanted = self._version
        self.when_saved(lambda: call() if self._written >= wanted else self.when_written(call))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write after each change, until cancelled; then what is not written yet is."""
        task_status.started()
        try:
            while True:
                await self._bell.wait()
                while self._written < self._version:
                    await self._write()
        finally:
            if self._written < self._version:
                try:
                    self._save(self._table())
                except OSError as error:
                    logger.error("%s could not be written at the end: %s", self.path, error)

    async def _write(self) -> None:
        attempt = self._next
        attempt.version, table = self._version, self._table()
        try:
            await self._run_sync(lambda: self._save(table))
        except OSError as error:
            attempt.error = error
            logger.error("%s cannot be written, next attempt in %g s: %s", self.path, PAUSE_AFTER_FAILURE_S, error)
        else:
            self._written = attempt.version
        finally:
            self._next = _Attempt()
            attempt.done.set()
        for call in self._due(attempt.version):
            try:
                call()
            except Exception:  # a caller's defect must not end the writes of the table
                logger.exception("after %s was written", self.path)
        if attempt.error is not None:
            await trio.sleep(PAUSE_AFTER_FAILURE_S)
        elif self._pause_ms:
            with trio.move_on_after(self._pause_ms / 1e3):
                await self._hurry.wait()

    def _due(self, version: int) -> list[Callable[[], None]]:
        """Who waited for an attempt to write this version. They may wait for another one."""
        due = []
        while self._calls and self._calls[0][0] <= version:
            due.append(self._calls.popleft()[1])
        return due

    def _save(self, table: Body) -> None:
        write_whole(self._files, self.path, table.to_json())
