"""Decides when to flush. Time is a number that is given; nothing here knows a file.

Source: ``FlushRealTimeService`` and ``GroupCommitService`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import attrs

PAGE_BYTES = 4096


@attrs.frozen
class AsyncFlush:
    """Flushes every ``interval_ms`` if so many pages are dirty, every ``thorough_ms`` if anything is."""

    interval_ms: int = 500
    least_pages: int = 4
    thorough_ms: int = 10_000

    def due(self, since_last_ms: float, dirty_bytes: int) -> bool:
        """Return whether a flush is due. ``since_last_ms``: since the last flush began."""
        if dirty_bytes <= 0:
            return False
        return since_last_ms >= self.thorough_ms or (
            since_last_ms >= self.interval_ms and dirty_bytes >= self.least_pages * PAGE_BYTES)


@attrs.frozen
class SyncFlush:
    """Flushes as soon as anything is dirty: what comes while a flush is under way shares the next one."""

    def due(self, since_last_ms: float, dirty_bytes: int) -> bool:
        return dirty_bytes > 0


FlushPolicy = AsyncFlush | SyncFlush
