"""Finds the master for clients of a broker that cannot serve them, while nobody tells that broker its master.

A master whose lease is over, and a broker that has no role, look for the group's master by themselves: out of reach of
the controllers there may be one. They pass clients on to it, and to nobody else, until they serve again or are told
their role; from then on ``broker.roles`` says where clients go. It only waits; ``broker.relay.finding`` asks.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from broker.part import Part
from broker.relay.finding import MasterFinder
from broker.relay.forwarding import Forwarder
from broker.standing import Role

logger = logging.getLogger("broker.relay")

PATIENCE_S: Final = 0.2
"""A broker between two roles waits so long before it looks: most are told their role within that time."""
LOOK_S: Final = 0.2
"""Pause between two looks for a master."""


class SuccessionPart(Part):
    """Relays requests to the successor; ``own_address`` is never taken for one."""

    def __init__(self, finder: MasterFinder, forwarder: Forwarder, own_address: str) -> None:
        self._finder, self._forwarder, self._own_address = finder, forwarder, own_address
        self._search: trio.CancelScope | None = None
        self._wanted = True
        """True: this broker serves nobody, as at its start, and looks for the master."""
        self._nursery: trio.Nursery | None = None

    def role_changed(self, role: Role) -> None:
        if role.listed and not role.leads:
            self._end()
        else:
            self._begin()

    def writes_closed(self) -> None:
        self._begin()

    def writes_opened(self) -> None:
        if self._search is not None and self._forwarder.on:
            self._forwarder.end()
        self._end()

    def stopping(self) -> None:
        self._end()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as self._nursery:
            if self._wanted:
                self._begin()
            task_status.started()
            await trio.sleep_forever()

    def _begin(self) -> None:
        self._wanted = True
        if self._search is None and self._nursery is not None:
            self._search = trio.CancelScope()
            self._nursery.start_soon(self._look, self._search)

    def _end(self) -> None:
        self._wanted = False
        if self._search is not None:
            self._search.cancel()
            self._search = None

    async def _look(self, search: trio.CancelScope) -> None:
        with search:
            await trio.sleep(PATIENCE_S)
            while True:
                found = await self._finder.find()
                passed = self._forwarder.target if self._forwarder.passes_all else None
                if found is not None and found.address not in (self._own_address, passed):
                    logger.warning("this broker cannot serve; its clients are passed on to the master", extra={
                        "master": found.address, "epoch": found.epoch})
                    self._forwarder.begin(found.address)
                await trio.sleep(LOOK_S)
