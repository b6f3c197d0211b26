"""Asks the other brokers of a group. By the name servers' word it knows which of them live."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import trio

from remoting.client import Client, checked
from remoting.command import Command

FRESH_S: Final = 1.0
"""Seconds for which the name servers' word on the group is used."""


class Fellows(Protocol):
    """The questions that a part asks its fellows."""

    async def living(self) -> Mapping[int, str]:
        """Return the living brokers' addresses for clients by id, without this broker."""

    async def ask(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Ask a broker, and return its answer, which is a success. Raises ``RemotingError``."""

    async def tell(self, address: str, command: Command) -> None:
        """Send a command that has no answer. Raises ``RemotingError``."""


class Alone:
    """A broker without fellows. Implements ``Fellows``."""

    async def living(self) -> Mapping[int, str]:
        await trio.lowlevel.checkpoint()
        return {}

    async def ask(self, address: str, command: Command, timeout_ms: int) -> Command:
        raise NotImplementedError("nobody lives to be asked")

    async def tell(self, address: str, command: Command) -> None:
        raise NotImplementedError("nobody lives to be told")


class GroupFellows:
    """Implements ``Fellows`` over the network."""

    def __init__(
        self, client: Client, address: str, ask_all: Callable[[], Awaitable[Mapping[int, str] | None]],
    ) -> None:
        """``address`` is this broker's; ``ask_all`` asks the name servers: None if none answers."""
        self._client, self._address, self._ask_all = client, address, ask_all
        self._asked_at, self._living = -math.inf, dict[int, str]()
        self._asking = trio.Lock()

    async def living(self) -> Mapping[int, str]:
        async with self._asking:
            if trio.current_time() - self._asked_at >= FRESH_S:
                found = await self._ask_all()
                if found is not None:  # else the brokers that lived lately are the best guess
                    self._living = {each: address for each, address in found.items() if address != self._address}
                self._asked_at = trio.current_time()
        return self._living

    async def ask(self, address: str, command: Command, timeout_ms: int) -> Command:
        return checked(await self._client.call(address, command, timeout_ms), address)

    async def tell(self, address: str, command: Command) -> None:
        await self._client.send_oneway(address, command)
