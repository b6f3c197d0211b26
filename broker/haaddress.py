"""Keeps the address of a master's replication port, which slaves ask for or are told (code 906).

Controllers tell a broker which broker is its master, not where that one replicates from. A slave asks the master until
it says it; a new master tells the brokers of its group by itself; name servers answer registrations with it as well.
Source: ``ExchangeHAInfo`` of RocketMQ's ``AdminBrokerProcessor`` and ``BrokerOuterAPI``. It knows addresses alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import attrs
import trio

from broker.part import Part
from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.errors import HeaderError, RemotingError
from remoting.headers.broker import ExchangeHAInfoRequest, ExchangeHAInfoResponse

logger = logging.getLogger("broker.replication")

ASK_TIMEOUT_MS = 1_000
ASK_PAUSE_S = 0.02
"""First pause between two questions; it doubles up to a second."""
_ASK_PAUSE_MOST_S = 1.0


@attrs.frozen
class MasterAddress:
    """A master's facts about itself, as it tells its slaves."""

    address: str
    ha_address: str
    flushed_offset: int = 0
    """End of its log when it started: Java's ``brokerInitMaxOffset``."""


class HaAddresses(Part):
    """Tells and learns addresses: ``itself`` is told while this broker is master; ``told`` hears what others tell."""

    def __init__(self, client: Client, itself: Callable[[], MasterAddress | None],
                 told: Callable[[MasterAddress], None]) -> None:
        self._client, self._itself, self._told = client, itself, told

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.EXCHANGE_BROKER_HA_INFO: self.answer}

    def answer(self, _: Connection, command: Command) -> Command:
        """Answer 906 with the addresses of replication. Raises ``HeaderError``."""
        header = ExchangeHAInfoRequest.from_ext(command.ext)
        if header.master_ha_address:
            self._told(MasterAddress(
                header.master_address or "", header.master_ha_address, header.master_flush_offset or 0))
            return response(command)
        master = self._itself()
        if master is None:
            return response(command, header=ExchangeHAInfoResponse())
        return response(command, header=ExchangeHAInfoResponse(
            master.ha_address, master.flushed_offset, master.address))

    async def find(self, master_address: str) -> MasterAddress:
        """Ask that broker until it says where it replicates from. The caller cancels when another one is master."""
        pause_s = ASK_PAUSE_S
        while True:
            try:
                answer = await self._client.call(
                    master_address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoRequest()),
                    timeout_ms=ASK_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    header = ExchangeHAInfoResponse.from_ext(answer.ext)
                    if header.master_ha_address:
                        return MasterAddress(header.master_address or master_address, header.master_ha_address,
                                             header.master_flush_offset or 0)
            except (RemotingError, HeaderError) as error:
                logger.debug("no replication address of %s yet: %s", master_address, error)
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, _ASK_PAUSE_MOST_S)

    async def announce(self, addresses: Iterable[str]) -> None:
        """Tell these brokers at once, a single time: a broker that misses it asks."""
        master = self._itself()
        if master is None:
            return
        header = ExchangeHAInfoRequest(master.ha_address, master.flushed_offset, master.address)

        async def tell(address: str) -> None:
            try:
                await self._client.call(
                    address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, header), timeout_ms=ASK_TIMEOUT_MS)
            except RemotingError as error:
                logger.info("broker not told of its master's address", extra={"address": address, "why": str(error)})

        async with trio.open_nursery() as nursery:
            for address in addresses:
                if address != master.address:
                    nursery.start_soon(tell, address)
