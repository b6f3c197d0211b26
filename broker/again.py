"""Requests that waited, tried again: a turn later, so each finds all that this turn brought.

It knows neither what they wait for nor how they are tried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from remoting.codes import ResponseCode
from remoting.command import Command, response
from remoting.wakeup import Bell

if TYPE_CHECKING:
    from remoting.connection import Connection

logger = logging.getLogger("broker")

_AT_ONCE: Final = 32
Try = Callable[["Connection", Command], None]
"""Tries a request again; its connection may be closed by then."""


def attempt_of(handle: Callable[[Connection, Command], Command | None], what: str) -> Try:
    """Handle a request that waited, and answer it unless it waits once more; ``what`` names it in the log."""

    def attempt(connection: Connection, request: Command) -> None:
        try:
            answer = handle(connection, request)
        except Exception as error:  # a defect in one request must not end others that wait
            logger.exception("%s of %s that waited", what, connection.peer)
            answer = response(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")
        if answer is not None:
            connection.reply(request, answer)

    return attempt


class Again:
    """Tries requests once each, as long as ``run`` is running."""

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
            await self._try_all()  # a call of its own, so that no local name keeps a request

    async def _try_all(self) -> None:
        due, self._due = self._due, []
        for number, (attempt, connection, request) in enumerate(due):
            if number % _AT_ONCE == _AT_ONCE - 1:  # let answers be written before there are more
                await trio.lowlevel.checkpoint()
            attempt(connection, request)
