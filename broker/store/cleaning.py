"""Deletes what is old: whole files of the log first, then the entries of queues and index that point there. It also
tries whether the disk has room."""

from __future__ import annotations

from collections.abc import Iterator

from broker.store.files import Files
from broker.store.indexfile import KeyIndex
from broker.store.log import Log
from broker.store.queues import Queues
from broker.store.retention import RetentionConfig, old_files, refusal
from broker.store.trial import ROOM_BYTES, try_disk
from broker.store.visible import Visible


class Cleaner:
    """Deletes in steps: ``old``, ``release_before``, then ``clean`` until nothing waits. ``refusal`` at any time."""

    def __init__(self, files: Files, log: Log, queues: Queues, index: KeyIndex | None, visible: Visible) -> None:
        self._files, self._log, self._queues, self._index, self._visible = files, log, queues, index, visible

    def refusal(self, config: RetentionConfig, *, refuses: bool) -> str:
        """Return why the disk is too full to write, or "" (see ``broker.store.retention``). Raises ``OSError``."""
        return refusal(config, self._files.space().used_ratio, refuses=refuses)

    def old(self, config: RetentionConfig, now_ms: int, hour: int) -> tuple[int, int]:
        """Return how many files of the log are to be deleted for their age or for room, and the offset that they end
        at. Raises ``OSError``."""
        space, log = self._files.space(), self._log
        count = old_files(config, log.newest_ms(), now_ms, hour, space.used_ratio, log.file_bytes / max(1, space.total))
        below = log.min_offset - log.min_offset % log.file_bytes + count * log.file_bytes
        assert not count or below <= log.max_offset, "the last file stays"
        return count, below

    def try_disk(self) -> None:
        """Check that the disk has room and works (see ``broker.store.trial``). May run on any thread. Raises
        ``OSError``."""
        try_disk(self._files, min(self._log.file_bytes, ROOM_BYTES))

    def release_before(self, offset: int) -> Iterator[None]:
        """Forget whole files of the log below ``offset``; the iterator deletes them, in another thread if need be. What
        queues and index say of them goes when they are looked at, or by ``clean``."""
        return self._log.release_before(min(offset, self._visible.offset))

    def clean(self, most: int | None = None) -> bool:
        """Let the index and ``most`` queues, or all, forget messages that are gone, and delete their old files. True:
        more of them wait."""
        if self._index is not None:
            self._index.delete_before(self._log.min_offset)
        return self._queues.correct_min(self._log.min_offset, len(self._queues) if most is None else most)
