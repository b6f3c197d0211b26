"""Measures how long each group had no master that answers, by looks at it, and plots that in one line.

It knows looks and their times, and has no clock. Who looks, and how often, is another's business.
"""

from __future__ import annotations

from collections import deque
from typing import Final

BARS: Final = "▁▂▃▄▅▆▇█"
HIGHEST_MS: Final = 10_000.0
"""Gaps of so much or more get the highest bar; each bar below means half as much."""


class Gaps:
    """Gaps of one group. Times are seconds of one monotonic clock."""

    def __init__(self, width: int = 40) -> None:
        self._answered_s: float | None = None
        self._looks: deque[float] = deque(maxlen=width)
        self.latest_ms: float | None = None
        """Upper bound of the latest gap: from the last answer before it to the first after it."""
        self._master: str | None = None
        self.open_ms = 0.0
        """Length of the present gap; 0 while the master answers."""

    def note(self, now_s: float, master: str | None) -> None:
        """One look: the master that answered, or None. Another one than the last had a gap before it."""
        if master is not None:
            if self._answered_s is not None and (self.open_ms or self._master not in (None, master)):
                self.latest_ms = (now_s - self._answered_s) * 1e3
                self._looks.append(self.latest_ms)
            else:
                self._looks.append(0.0)
            self._answered_s, self.open_ms, self._master = now_s, 0.0, master
            return
        if self._answered_s is None:
            self._answered_s = now_s  # the gap may have begun before the first look
        self.open_ms = max((now_s - self._answered_s) * 1e3, 0.001)
        self._looks.append(self.open_ms)

    def plot(self) -> str:
        """A bar for each of the last looks, the newest at the right."""
        return "".join(map(_bar, self._looks))


def _bar(gap_ms: float) -> str:
    if gap_ms <= 0:
        return BARS[0]
    height, bound = len(BARS) - 1, HIGHEST_MS
    while height > 1 and gap_ms <= bound / 2:
        height, bound = height - 1, bound / 2
    return BARS[height]
