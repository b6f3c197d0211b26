"""The wall clock of a process, set wrong by the shim that was loaded into it.

It knows nothing of who reads the clock.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """That of one node's processes."""

    def step(self, ahead_ns: int) -> None:
        """It shows so much more than the right time from now on; less, if negative."""
        ...

    def drift(self, gains_ppm: float) -> None:
        """It goes too fast by so many microseconds a second from now on; too slow, if negative."""
        ...

    def set_right(self) -> None:
        """It shows the right time."""
        ...
