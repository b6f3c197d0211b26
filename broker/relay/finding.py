"""Finds the master of a broker group: asks its controllers, else the brokers that name servers list.

Controllers know. If none answers, a broker that says itself that it is master is believed if its epoch is new enough:
a master that was deposed without hearing of it says the same of an older epoch. This module knows requests and answers,
and not what follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs
import trio

from broker.registration import ask_members
from broker.standing import MASTER_ID
from remoting.bodies.controller import EpochEntryCache
from remoting.client import Client, checked
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.controller import GetReplicaInfoRequest, GetReplicaInfoResponse

ASK_TIMEOUT_MS = 500


@attrs.frozen
class Master:
    """The master of ``epoch``, at the address where it serves clients."""

    address: str
    epoch: int


@attrs.frozen
class Listed:
    """The places to look for members of a group when no controller answers."""

    name_servers: Sequence[str]
    cluster_name: str
    own_address: str
    """This broker's address, which is never asked."""
    least_epoch: Callable[[], int | None]
    """Returns the least epoch of a master that is believed; None: no master is."""


@attrs.define(eq=False)
class MasterFinder:
    """Finds the master. The controller that answered last is asked first. Java's servers are asked the same way."""

    client: Client
    controllers: Sequence[str]
    broker_name: str
    listed: Listed | None = None
    _last: str = ""

    async def find(self) -> Master | None:
        """Return the present master; None: there is none, or nobody knows it."""
        for address in sorted(self.controllers, key=lambda each: each != self._last):
            try:
                answer = await self.client.call(
                    address, request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequest(self.broker_name)),
                    ASK_TIMEOUT_MS)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                found = GetReplicaInfoResponse.from_ext(answer.ext)
            except (RemotingError, HeaderError):
                continue
            self._last = address
            if found.master_address and found.master_broker_id is not None:
                return Master(found.master_address, found.master_epoch or 0)
            return None
        return None if self.listed is None else await self._find_listed(self.listed)

    async def _find_listed(self, listed: Listed) -> Master | None:
        """Return the broker of the latest epoch among those that say that they are master."""
        least_epoch = listed.least_epoch()
        if least_epoch is None:
            return None
        found: list[Master] = []

        async def ask(address: str) -> None:
            master = await self._itself(address)
            if master is not None and master.epoch >= least_epoch:
                found.append(master)

        async with trio.open_nursery() as nursery:
            for address in await self._members(listed):
                nursery.start_soon(ask, address)
        return max(found, key=lambda master: master.epoch, default=None)

    async def _members(self, listed: Listed) -> Collection[str]:
        """Return the addresses of the group's brokers, from the first name server that knows any."""
        for address in listed.name_servers:
            try:
                members = await ask_members(
                    self.client, address, listed.cluster_name, self.broker_name, ASK_TIMEOUT_MS)
            except (RemotingError, BodyError):
                continue
            if others := set(members.values()) - {listed.own_address}:
                return others
        return ()

    async def _itself(self, address: str) -> Master | None:
        """Ask that broker whether it is this group's master; None: it does not say so."""
        try:
            answer = checked(await self.client.call(
                address, request(RequestCode.GET_BROKER_EPOCH_CACHE), ASK_TIMEOUT_MS))
            said = EpochEntryCache.from_json(answer.body)
        except (RemotingError, BodyError):
            return None
        if said.broker_id != MASTER_ID or said.broker_name != self.broker_name or not said.epoch_list:
            return None
        return Master(address, max(entry.epoch for entry in said.epoch_list))
