"""One flush of all that is built from the log: queues, index, and the checkpoint that says how far they are complete.

It is begun where the store lives, carried out in steps, perhaps in another thread, and finished where it was begun.
The checkpoint comes last, so it never promises what is not on disk. It knows files, and nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.store.checkpoint import PATH, Checkpoint
from broker.store.files import File, Files, write_whole
from broker.store.indexfile import IndexFlush


class Flush:
    """``steps`` may run in another thread, and is the only thing that may."""

    def __init__(self, files: Files, to_sync: Sequence[File], folders: Sequence[str], index: IndexFlush | None,
                 checkpoint: Checkpoint | None) -> None:
        self._files, self.to_sync, self.folders, self.index = files, to_sync, folders, index
        self.checkpoint = checkpoint
        self.queues_synced = self.finished = False
        self.cancelled = False
        """Set where the store lives: leave off at the next step. What was done so far harms nobody."""

    def steps(self) -> Iterator[None]:
        """Raises ``OSError``."""
        for file in self.to_sync:
            if self.cancelled:
                return
            file.sync()
            yield
        for folder in self.folders:
            if self.cancelled:
                return
            self._files.sync_dir(folder)
            yield
        self.queues_synced = True
        if self.index is not None:
            for _ in self.index.steps():
                if self.cancelled:
                    return
                yield
        if self.checkpoint is not None and not self.cancelled:
            write_whole(self._files, PATH, self.checkpoint.encode())
        self.finished = True
