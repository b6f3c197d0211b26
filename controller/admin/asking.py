"""Asking controllers, name servers and brokers: who is the active controller, where are the brokers, was it done.

Speaks to ours and to Java's alike. Raises ``RemotingError`` and nothing else of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from remoting import properties
from remoting.bodies.namesrv import ClusterInfo, TopicRouteData
from remoting.client import Client, checked
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, request
from remoting.errors import BodyError, RemotingError, ResponseError
from remoting.header import Header
from remoting.headers.controller import GetMetadataResponse
from remoting.headers.namesrv import GetRouteInfoRequest


@attrs.define(eq=False)
class Admin:
    """One client, and the name servers of ``-n``."""

    client: Client
    namesrv: Sequence[str] = ()

    async def ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b"", timeout_ms: float | None = None,
    ) -> Command:
        """The answer, which is a success. Raises ``RemotingError``."""
        return checked(await self.client.call(address, request(code, header, body), timeout_ms), address)

    async def told(self, address: str, code: int) -> str:
        """Return a text that the server answers with. Raises ``RemotingError``."""
        body = (await self.ask(address, code)).body
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise BodyError(f"{address} answered with a text that is none: {error}") from None

    async def settings(self, address: str, code: int) -> dict[str, str]:
        """Return the configuration that the server answers with. Raises ``RemotingError``."""
        return properties.parse(await self.told(address, code), told=True)

    async def controller(self, addresses: Sequence[str]) -> GetMetadataResponse:
        """Return the metadata of the controller group from the first controller that answers."""
        return GetMetadataResponse.from_ext((await self._first(
            addresses, RequestCode.CONTROLLER_GET_METADATA_INFO)).ext)

    async def active(self, addresses: Sequence[str]) -> str:
        """Address of the active controller, from the first that knows it. Raises ``ResponseError`` when none does."""
        failure: RemotingError | None = None
        answered = []
        for address in addresses:
            try:
                found = await self.controller([address])
            except ResponseError:
                raise
            except RemotingError as error:
                failure = failure or error
                continue
            if found.controller_leader_address:
                return found.controller_leader_address
            answered.append(address)  # a controller without a leader: cut off, or removed
        if failure is not None and not answered:
            raise failure
        raise ResponseError(
            ResponseCode.CONTROLLER_NOT_LEADER, "no active controller is known at the moment; ask again",
            ";".join(answered))

    async def clusters(self) -> ClusterInfo:
        """Asks a name server with code 106."""
        return ClusterInfo.from_json((await self._first(self.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def route(self, topic: str) -> TopicRouteData:
        """Asks a name server with code 105."""
        answer = await self._first(self.namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic))
        return TopicRouteData.from_json(answer.body)

    async def groups_of(self, cluster: str) -> list[str]:
        """Names of the cluster's broker groups, as the name server has them."""
        return sorted((await self.clusters()).cluster_addr_table.get(cluster, ()))

    async def _first(self, addresses: Sequence[str], code: int, header: Header | None = None) -> Command:
        """The answer of the first that can be reached."""
        failure: RemotingError | None = None
        for address in addresses:
            try:
                return await self.ask(address, code, header)
            except ResponseError:
                raise
            except RemotingError as error:
                failure = failure or error
        assert failure is not None, "no address"
        raise failure


def split_addresses(text: str) -> list[str]:
    """Reads ``host:port;host:port``, which may be blank."""
    return [item.strip() for item in text.replace(",", ";").split(";") if item.strip()]
