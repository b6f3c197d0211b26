"""When a flush is due."""

from __future__ import annotations

import pytest

from broker.store.flushing import AsyncFlush, SyncFlush


@pytest.mark.parametrize(("since_ms", "dirty", "due"), [
    (0, 1 << 20, False), (500, 4 * 4096, True), (500, 4 * 4096 - 1, False), (10_000, 1, True), (10_000, 0, False),
])
def test_async_flush(since_ms: int, dirty: int, due: bool) -> None:
    assert AsyncFlush().due(since_ms, dirty) is due


def test_sync_flush_is_due_when_anything_is_dirty() -> None:
    assert SyncFlush().due(0, 1) and not SyncFlush().due(99, 0)
