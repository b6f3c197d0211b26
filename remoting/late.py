"""Who answers requests that waited too long to be carried out. Values only."""

from __future__ import annotations

import math

from remoting.command import Command


class Late:
    """This one finds none too late."""

    after_s: float = math.inf
    """What waited for less is carried out unasked."""

    def answer(self, request: Command, came_at: float, waited_s: float, under_way: int) -> Command | None:
        """In its place; None: it is carried out all the same. It came at ``came_at`` of the loop's clock, at the
        latest; ``under_way`` others wait for their answers."""
        return None
