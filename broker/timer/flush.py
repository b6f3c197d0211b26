"""One flush of the timers' files: timer log, wheel, checkpoint, in this order and in steps.

The order keeps the checkpoint from claiming more than is on disk. The steps may run in another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from broker.store.files import File, Files
from broker.timer.checkpoint import PATH, TimerCheckpoint
from broker.timer.wheel import write_pages


class TimerFlush:
    """The files and pages of one flush. Only ``steps`` may run in another thread."""

    def __init__(self, files: Files, checkpoint: TimerCheckpoint | None, to_sync: Mapping[int, File] | None = None,
                 folders: Sequence[str] = (), wheel: File | None = None, pages: Mapping[int, bytes] | None = None, *,
                 wheel_is_new: bool = False) -> None:
        self._files, self.checkpoint, self.files, self.folders = files, checkpoint, to_sync or {}, folders
        self._wheel, self._pages, self._wheel_is_new = wheel, pages or {}, wheel_is_new
        self.cancelled = False
        """Set by the store's thread: stop before the next step. A part of a flush does no harm."""
        self.finished = self.sync_failed = False

    def steps(self) -> Iterator[None]:
        """Do the flush, one write or sync at each step. Raises ``OSError``."""
        steps = self._steps()
        while not self.cancelled:
            if next(steps, self) is self:
                self.finished = True
                return
            yield

    def _steps(self) -> Iterator[object]:
        for file in self.files.values():
            self._sync(file)
            yield None
        for folder in self.folders:
            self._files.sync_dir(folder)
            yield None
        if self._wheel is not None:
            yield from write_pages(self._wheel, self._pages)
            self._sync(self._wheel)
            yield None
            if self._wheel_is_new:
                self._files.sync_dir("")
                yield None
        if self.checkpoint is not None:
            self._write(self.checkpoint)

    def _sync(self, file: File) -> None:
        self.sync_failed = True
        file.sync()
        self.sync_failed = False

    def _write(self, checkpoint: TimerCheckpoint) -> None:
        """Overwrite the checkpoint in place: all that changes lies in one sector."""
        is_new = not self._files.exists(PATH)
        file = self._files.open(PATH, create=True)
        try:
            file.pwrite(checkpoint.encode(), 0)
            self._sync(file)
        finally:
            file.close()
        if is_new:
            for folder in (PATH.rpartition("/")[0], ""):
                self._files.sync_dir(folder)
