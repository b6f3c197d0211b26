"""Who is master of a broker group, asked of its controllers.

It knows requests and answers; what follows from them is the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from remoting.client import Client
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import HeaderError, RemotingError
from remoting.headers.controller import GetReplicaInfoRequest, GetReplicaInfoResponse

ASK_TIMEOUT_MS = 500


@attrs.frozen
class Master:
    """Where the master of ``epoch`` serves its clients."""

    address: str
    epoch: int


@attrs.define(eq=False)
class MasterFinder:
    """Asks the controller that answered last first. Java's controllers are asked the same way."""

    client: Client
    controllers: Sequence[str]
    broker_name: str
    _last: str = ""

    async def find(self) -> Master | None:
        """The master now; None where there is none, or no controller that knows."""
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
        return None
