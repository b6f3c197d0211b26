"""Requests that waited, tried again: a turn later, so each finds all that this turn brought.

It knows neither what they wait for nor how they are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from remoting.wakeup import Bell

if TYPE_CHECKING:
    from remoting.command import Command
    from remoting.connection import Connection

_AT_ONCE: Final = 32
Try = Callable[["Connection", "Command"], None]
"""Its connection may be closed by then."""


class Again:
    """Tries each of them once, as long as ``run`` is running."""

    def __init__(self) -> None:
        self._due: list[tuple[Try, Connection, Command]] = []
        self._bell = Bell()

    def soon(self, attempt: Try, connection: Connection, request: Command) -> None:
        """Try it in the next turn of the loop."""
        self._due.append((attempt, connection, request))
        self._bell.ring()

    async def run(self) -> None:
        """Try what is due, until cancelled."""
        while True:
            await self._bell.wait()
            await self._try_all()  # which keeps none of them

    async def _try_all(self) -> None:
        due, self._due = self._due, []
        for number, (attempt, connection, request) in enumerate(due):
            if number % _AT_ONCE == _AT_ONCE - 1:  # what was answered is to be written before more is
                await trio.lowlevel.checkpoint()
            attempt(connection, request)
