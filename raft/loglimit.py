"""A logging filter against floods: strangers who connect make a server write a few lines a second, not thousands.

Lines are of one kind if logger, level and the format are the same. Some lines of each kind pass at once, then one in
each interval. The filter says how many were left out, at the latest an interval after the last of them.
Knows ``logging``, a clock and a timer, and nothing of who logs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import attrs

_SAID: Final = "%d lines like this one were left out: %s"
_KINDS_MAX: Final = 4_096
"""Most kinds to remember. A program has some hundreds; the bound is for code that logs other people's words as
formats."""


def _later(wait_s: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(wait_s, call)
    timer.daemon = True
    timer.start()


@attrs.define
class _Kind:
    tokens: float
    at_s: float
    left_out: int = 0


class RepeatLimit(logging.Filter):
    """The filter of one handler: ``handler.addFilter(RepeatLimit())``. Each handler needs its own."""

    def __init__(self, burst: int = 200, interval_s: float = 1.0, *, clock: Callable[[], float] = time.monotonic,
                 later: Callable[[float, Callable[[], None]], None] = _later) -> None:
        """Let ``burst`` lines of a kind pass at once, and then one for each ``interval_s``. ``later(wait_s, call)``
        calls once, from any thread."""
        super().__init__()
        self._burst, self._interval_s, self._clock, self._later = burst, interval_s, clock, later
        self._kinds: dict[tuple[str, int, object], _Kind] = {}
        self._lock = threading.Lock()
        self._awaited = False
        """True while a call of ``later`` is due."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line may be written."""
        if record.msg is _SAID:
            return True
        key = record.name, record.levelno, str(record.msg)
        now_s, ask, left_out = self._clock(), False, 0
        with self._lock:
            kind = self._kind(key, now_s)
            passes = kind.tokens >= 1
            if passes:
                kind.tokens -= 1
                left_out, kind.left_out = kind.left_out, 0
            else:
                kind.left_out += 1
                ask, self._awaited = not self._awaited, True
        if ask:
            self._later(10 * self._interval_s, self.tell)
        if left_out:
            _say(key, left_out)
        return passes

    def tell(self) -> None:
        """Say what was left out and not said yet."""
        with self._lock:
            self._awaited = False
            told = [(key, kind.left_out) for key, kind in self._kinds.items() if kind.left_out]
            for key, _ in told:
                self._kinds[key].left_out = 0
        for key, left_out in told:
            _say(key, left_out)

    def _kind(self, key: tuple[str, int, object], now_s: float) -> _Kind:
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS_MAX:
                key = key[0], key[1], ""
            kind = self._kinds.setdefault(key, _Kind(self._burst, now_s))
        kind.tokens = min(self._burst, kind.tokens + (now_s - kind.at_s) / self._interval_s)
        kind.at_s = now_s
        return kind


def _say(key: tuple[str, int, object], left_out: int) -> None:
    name, level, words = key
    logging.getLogger(name).log(level, _SAID, left_out, words)
