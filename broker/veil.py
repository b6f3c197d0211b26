"""Hides what a new master holds and might lose again: consumers wait, and keep their places.

A queue that looks shorter than it was would make them go back, or lose their place. It knows an offset of the log, and
neither why it is lifted nor what waits.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

import trio

WAIT_MS: Final = 2_000
"""Longest wait of requests that must be answered in any case; clients wait 3 s at least."""
P = ParamSpec("P")
T = TypeVar("T")


class Veil:
    """Keeps back what a new master does not know to be confirmed."""

    def __init__(self) -> None:
        self.below = 0
        """Not all of the log below this offset is seen; 0: the veil is lifted."""
        self.lifted: Callable[[], None] = lambda: None
        """Called when the veil is lifted; requests behind it go on by themselves, a turn later."""
        self._changed = trio.Event()

    @property
    def on(self) -> bool:
        return self.below > 0

    def fall(self, below: int) -> None:
        """Let the veil fall: a new master has not shown all of its log below that offset."""
        self.below = below

    def lift(self) -> None:
        """Lift the veil: all below is seen, or this broker is no master any more."""
        if self.below:
            self.below = 0
            self._changed.set()
            self._changed = trio.Event()
            self.lifted()

    def behind(self, answer: Callable[P, T]) -> Callable[P, T | Coroutine[Any, Any, T]]:
        """Make ``answer`` wait for the veil to be lifted, ``WAIT_MS`` at most; at once while there is none."""

        async def later(*args: P.args, **kwargs: P.kwargs) -> T:
            with trio.move_on_after(WAIT_MS / 1e3):
                while self.below:
                    await self._changed.wait()
            return answer(*args, **kwargs)

        def ask(*args: P.args, **kwargs: P.kwargs) -> T | Coroutine[Any, Any, T]:
            return later(*args, **kwargs) if self.on else answer(*args, **kwargs)

        return ask
