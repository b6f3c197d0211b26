"""Tells brokers that the smallest id of their group changed (code 905): one way, in order for each broker, never late.

Knows a remoting client and nothing of tables. What cannot be sent soon is dropped and counted: brokers ask for their
group's members every second anyway.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

import trio

from controller.namesrv.counters import Counters
from controller.namesrv.effects import MinIdChanged
from remoting.client import Client
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import RemotingError
from remoting.headers.namesrv import NotifyMinBrokerIdChangeRequest

logger = logging.getLogger("controller.namesrv")

SEND_TIMEOUT_S: Final = 0.3
"""Connecting included, as in Java."""
WAITING_MAX: Final = 10_000
"""Notices that wait for a broker to be reached, over all brokers."""


class Notifier:
    """Sends notices to brokers while ``run`` runs."""

    def __init__(self, client: Client, counters: Counters) -> None:
        self._client, self._counters = client, counters
        self._waiting: dict[str, deque[MinIdChanged]] = {}
        self._count = 0
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sends notices until it is cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def tell(self, notice: MinIdChanged) -> None:
        """Send it to all its recipients, soon. Never blocks."""
        assert self._nursery is not None, "it runs"
        for address in notice.recipients:
            if self._count >= WAITING_MAX:
                self._counters.notices_failed += 1
                continue
            self._count += 1
            waiting = self._waiting.get(address)
            if waiting is not None:
                waiting.append(notice)
            else:
                self._waiting[address] = deque((notice,))
                self._nursery.start_soon(self._send_all, address, name=f"notices to {address}")

    async def _send_all(self, address: str) -> None:
        waiting = self._waiting[address]
        while waiting:
            notice = waiting.popleft()
            self._count -= 1
            try:
                with trio.fail_after(SEND_TIMEOUT_S):
                    await self._client.send_oneway(address, request(
                        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequest(
                            min_broker_id=notice.min_broker_id, min_broker_addr=notice.min_broker_address,
                            offline_broker_addr=notice.offline_address, ha_broker_addr=notice.ha_address),
                        oneway=True))
            except (RemotingError, trio.TooSlowError) as error:
                self._counters.notices_failed += 1
                logger.warning(
                    "broker could not be told of its group's smallest id: %s", error, extra={"address": address})
            else:
                self._counters.notices_sent += 1
        del self._waiting[address]
