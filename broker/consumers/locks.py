"""Locks on queues: one member of a group reads an ordered queue. Codes 41 and 42.

A lock is held for a minute, and as long as its holder asks for it again. Each broker has locks of its own.
Source: ``RebalanceLockManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from remoting.bodies.consumers import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from remoting.codes import RequestCode
from remoting.command import Command, response

if TYPE_CHECKING:
    from remoting.connection import Connection
    from remoting.endpoint import Handler

HELD_MS: Final = 60_000
HELD_MAX: Final = 200_000
"""Queues; beyond so many nobody gets another."""


class Locks:
    """``now_ns`` is monotonic."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}
        """Holder and deadline by group and queue."""
        self._count = 0
        """Of all queues of all groups."""

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Those that the client holds now, for a minute from now."""
        now_ns = self._now_ns()
        held = self._groups.setdefault(group, {})
        mine = []
        for queue in queues:
            holder, deadline_ns = held.get(queue, (client_id, -1))
            if deadline_ns < 0:
                if self._count >= HELD_MAX:
                    continue
                self._count += 1
            if holder == client_id or deadline_ns < now_ns:
                held[queue] = client_id, now_ns + HELD_MS * 1_000_000
                mine.append(queue)
        if not held:
            del self._groups[group]
        return mine

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                del held[queue]
                self._count -= 1
        if not held:
            self._groups.pop(group, None)

    def held_by_group(self, group: str) -> bool:
        """Whether any of its members holds any queue: it consumes in order."""
        held, now_ns = self._groups.get(group), self._now_ns()
        return held is not None and any(deadline_ns >= now_ns for _, deadline_ns in held.values())

    def expire(self) -> None:
        """Forget locks that nobody holds any more."""
        now_ns = self._now_ns()
        for group, held in list(self._groups.items()):
            for queue in [queue for queue, (_, deadline_ns) in held.items() if deadline_ns < now_ns]:
                del held[queue]
                self._count -= 1
            if not held:
                del self._groups[group]

    # --- requests --------------------------------------------------------------------------------------------

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self._lock, RequestCode.UNLOCK_BATCH_MQ: self._unlock}

    def _lock(self, _: Connection, request: Command) -> Command:
        asked = LockBatchRequestBody.from_json(request.body)
        mine = self.lock(asked.consumer_group, asked.mq_set, asked.client_id)
        return response(request, body=LockBatchResponseBody(mine).to_json())

    def _unlock(self, _: Connection, request: Command) -> Command:
        asked = LockBatchRequestBody.from_json(request.body)
        self.unlock(asked.consumer_group, asked.mq_set, asked.client_id)
        return response(request)
