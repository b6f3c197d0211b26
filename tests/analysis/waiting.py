"""Waiting for processes that are not ours, such as Spark's: they live in real time, and so must who waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 300.0
POLL_S: Final = 0.2
T = TypeVar("T")


def until(found: Callable[[], T], what: str, patience_s: float = PATIENCE_S) -> T:
    """The first true answer of ``found``. Raises ``AssertionError`` with ``what`` when there was none in time."""
    ends = time.monotonic() + patience_s
    while not (answer := found()):
        assert time.monotonic() < ends, f"not within {patience_s:g} s: {what}"
        time.sleep(POLL_S)
    return answer
