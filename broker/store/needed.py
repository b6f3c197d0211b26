"""Keeps files of the log that a part needs, however old they are. A part whose messages are in the way is told to put
them forward.

It knows offsets, and neither who needs them nor what stands there.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs


@attrs.define(eq=False)
class Needed:
    """The needs of all parts for one log. ``say`` is called with words for the operator."""

    say: Callable[[str], object]
    begin: Callable[[], int | None] = lambda: None
    """Returns from where on a part needs the log; None: no part does."""
    make_way: Callable[[int], object] = lambda below: None
    """Called when files below that offset are old enough to go, and needed: their parts must put their messages
    forward. Called at each cleaning until no part needs them."""
    kept_back: int = 0
    """Files of the log up to here are old enough to go, and needed; 0: there are none."""

    def spare(self, offset: int) -> int:
        """Return the offset below which files may go; those below ``offset`` are old enough."""
        begin = self.begin() if offset else None
        if begin is None or begin >= offset:
            self.kept_back = 0
            return offset
        assert 0 <= begin < offset, "something old is needed"
        if not self.kept_back:
            self.say(f"old files of the log stay from {begin} on, for timers or transactions that wait in them")
        self.kept_back = offset
        self.make_way(offset)
        return begin

    def kept_bytes(self, log_begin: int) -> int:
        return max(0, self.kept_back - log_begin)

    def refusal(self, log_begin: int) -> str:
        """Return words to add to the refusal of a full disk: how many bytes parts keep; "" if none."""
        kept = self.kept_bytes(log_begin)
        return f"; {kept} bytes of it are old messages among which timers or transactions wait" if kept else ""
