"""When a flush is due, and that every waiter hears exactly once."""

from __future__ import annotations

import pytest

from broker.store.flushing import AsyncFlush, FlushWaiters, SyncFlush


@pytest.mark.parametrize(("since_ms", "dirty", "due"), [
    (0, 1 << 20, False), (500, 4 * 4096, True), (500, 4 * 4096 - 1, False), (10_000, 1, True), (10_000, 0, False),
])
def test_async_flush(since_ms: int, dirty: int, due: bool) -> None:
    assert AsyncFlush().due(since_ms, dirty) is due


def test_sync_flush_is_due_when_anything_is_dirty() -> None:
    assert SyncFlush().due(0, 1) and not SyncFlush().due(99, 0)


def test_waiters() -> None:
    waiters = FlushWaiters[str]()
    for offset, deadline, name in ((10, 5, "a"), (10, 6, "b"), (30, 7, "c"), (40, 8, "d"), (50, 9, "e")):
        waiters.wait(offset, deadline, name)
    assert waiters.flushed(9) == []
    assert waiters.flushed(29) == ["a", "b"]
    assert waiters.expired(7) == ["c"]
    assert waiters.flushed(40) == ["d"]
    assert waiters.failed() == ["e"]
    assert len(waiters) == 0
