"""Answers requests that waited too long instead of carrying them out. Values only."""

from __future__ import annotations

import math

from remoting.command import Command


class Late:
    """This one finds none too late."""

    after_s: float = math.inf
    """A request that waited for less is carried out without asking."""

    def answer(self, request: Command, came_at: float, waited_s: float, under_way: int) -> Command | None:
        """Return an answer in place of the request's own; None: carry it out all the same.

        It came at ``came_at`` of the loop's clock or earlier; ``under_way`` others wait for their answers.
        """
        return None
