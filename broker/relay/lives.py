"""Decides whether and when a broker's process that ended is started again. No process, no clock."""

from __future__ import annotations

from typing import Final

import attrs

STOPPED: Final = 0
USAGE: Final = 2
HANDED_OVER: Final = 64
"""Exit code of a broker that stopped in order and handed mastership over; to the outside it is 0."""
ORDERLY: Final = frozenset({STOPPED, USAGE, HANDED_OVER})
"""Exit codes after which it is not started again: it was told to stop, or its configuration is wrong."""


@attrs.define
class Lives:
    """Pauses before a broker is started again; they double while it dies soon after its start."""

    restart_ms: int = 500
    restart_ms_max: int = 30_000
    stable_ms: int = 30_000
    """A broker that lived so long is started again after ``restart_ms``, another one after twice the last pause."""
    tries: bool = False
    """True: start a broker again that has never served. Else the program that started it has to do that."""
    _pause_ms: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._pause_ms = self.restart_ms

    def ended(self, code: int | None, lived_ms: float, *, served: bool) -> int | None:
        """Return the milliseconds until it is started again; None: it is not.

        ``code``: None if nobody could see it. ``served``: it has ever served."""
        if code in ORDERLY or not (served or self.tries):
            return None
        self._pause_ms = (self.restart_ms if lived_ms >= self.stable_ms
                          else min(self._pause_ms * 2, self.restart_ms_max))
        return self._pause_ms
