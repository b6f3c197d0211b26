"""Locks on queues, which make an ordered subscription's queue one member's alone, whatever others believe.

A shell of two requests. Source: ``RebalanceImpl.lockAll`` and ``unlock`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

import trio

from broker.client.errors import ClientError
from broker.client.session import Session
from remoting.bodies.consumers import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode
from remoting.command import request
from remoting.errors import BodyError

logger = logging.getLogger("broker.client")


class QueueLocks:
    """The locks that one group asks brokers for."""

    def __init__(self, session: Session, group: str) -> None:
        self._session, self._group = session, group
        self._perhaps: set[MessageQueue] = set()
        """Queues that this client holds, and those that were asked for and not refused yet."""
        self._over = False

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues, and return those that this client holds now. A broker that cannot be asked gives none."""
        held: set[MessageQueue] = set()
        for broker, theirs in by_broker(queues).items():
            if self._over:
                break
            self._perhaps.update(theirs)
            try:
                address, _ = await self._session.address(theirs[0].topic, broker)
                answer = await self._session.ask("lock", address, request(
                    RequestCode.LOCK_BATCH_MQ, body=self._body(theirs)))
                granted = set(LockBatchResponseBody.from_json(answer.body).lock_ok_mq_set).intersection(theirs)
                held |= granted
                self._perhaps -= set(theirs) - granted
            except (ClientError, BodyError) as error:
                logger.warning("%d queues of %s are not locked: %s", len(theirs), broker, error)
        return held

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues, so that nobody waits for the end of their lock. Failures are logged."""
        async def tell(broker: str, theirs: list[MessageQueue]) -> None:
            try:
                address, _ = await self._session.address(theirs[0].topic, broker)
                await self._session.ask("unlock", address, request(
                    RequestCode.UNLOCK_BATCH_MQ, body=self._body(theirs)))
            except ClientError as error:
                logger.info("%d queues of %s stay locked until that ends by itself: %s", len(theirs), broker, error)

        async with trio.open_nursery() as nursery:
            for broker, theirs in by_broker(queues).items():
                self._perhaps.difference_update(theirs)
                nursery.start_soon(tell, broker, theirs)

    async def unlock_others(self, topic: str, kept: Collection[MessageQueue]) -> None:
        """Unlock the queues of that topic that were asked for and are not among ``kept``."""
        await self.unlock([queue for queue in self._perhaps if queue.topic == topic and queue not in kept])

    async def unlock_all(self) -> None:
        """Unlock all queues for good, with those whose locks are being asked for now."""
        self._over = True
        await self.unlock(self._perhaps)

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequestBody(self._group, self._session.client_id, queues).to_json()


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Sort queues by the names of their brokers."""
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
