"""What a new master holds and does not show yet, as it may be gone with it: consumers wait, and keep their places.

A queue that looks shorter than it was would have them go back, or lose their place. It knows an offset of the log, and
neither who lifts it nor who waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

WAIT_MS: Final = 2_000
"""For so long requests wait that must be answered all the same; clients wait 3 s at least."""


class Veil:
    """Of one broker."""

    def __init__(self) -> None:
        self.below = 0
        """Not all below this offset of the log is seen; 0: it is lifted."""
        self.lifted: list[Callable[[], None]] = []
        """Called when it is."""
        self._changed = trio.Event()

    @property
    def on(self) -> bool:
        return self.below > 0

    def fall(self, below: int) -> None:
        """A master begins that has not shown all of this."""
        self.below = below

    def lift(self) -> None:
        """All of it is seen, or this is no master any more."""
        if self.below:
            self.below = 0
            self._changed.set()
            self._changed = trio.Event()
            for call in tuple(self.lifted):
                call()

    async def wait(self) -> None:
        """Until it is lifted, or for as long as a client would wait for its answer."""
        with trio.move_on_after(WAIT_MS / 1e3):
            while self.below:
                await self._changed.wait()
