"""Keeps which brokers must still be told of an election (code 1008), and when to try again.

One entry per broker at most: a newer master epoch of its group replaces the older one. An entry goes when the broker
answered, when a newer one came, or when the broker is no member any longer. While a broker is dead nothing is sent to
it; its next heartbeat makes the entry due at once. Java controllers send this once, one way, and rely on the broker's
poll every 5 s; Java brokers answer it when it is sent two-way.

Every controller collects what it sees applied, only the active one sends: so an election whose controller died before
telling anybody is told by the next.

Sans-IO: time is a number (ns).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import attrs

from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Elected

MS = 1_000_000
NEVER = 1 << 62
FIRST_RETRY_MS = 200
LAST_RETRY_MS = 5_000
"""A broker polls that often by itself (``syncBrokerMetadataPeriod``)."""
UNTOLD_MS = 60_000
"""A new active controller takes an election that is older than this to be known, by the brokers' polls."""


@attrs.define(frozen=True)
class Notification:
    """Tell this broker of ``change``, and report ``acknowledged`` or ``failed``."""

    address: str
    broker_id: int
    change: Elected


@attrs.define(eq=False)
class _Owed:
    broker_id: int
    change: Elected
    since_ns: int
    failures: int = 0
    under_way: bool = False
    due_ns: int = NEVER


class Notifications:
    """The notifications that are owed to brokers."""

    def __init__(self) -> None:
        self._owed: dict[tuple[GroupKey, int], _Owed] = {}
        self._queue: list[tuple[int, int, _Owed]] = []
        self._pushes = 0
        self._active = False

    def elected(self, now: int, change: Elected) -> None:
        """A group has a new master: tell all its members, the master first."""
        for broker_id in sorted(change.members, key=lambda each: (each != change.master, each)):
            owed = self._owed[change.key, broker_id] = _Owed(broker_id, change, now)
            self._at(owed, now)

    def forget(self, key: GroupKey, broker_id: int) -> None:
        """This broker is no member of its group any longer."""
        self._owed.pop((key, broker_id), None)

    def came_alive(self, now: int, key: GroupKey, broker_id: int) -> None:
        """A heartbeat of a broker that was not alive before."""
        owed = self._owed.get((key, broker_id))
        if owed is not None and not owed.under_way:
            owed.failures = 0
            self._at(owed, now)

    def acknowledged(self, notification: Notification) -> None:
        """The broker answered, with whatever code: it will not answer better."""
        key = notification.change.key, notification.broker_id
        owed = self._owed.get(key)
        if owed is not None and owed.change is notification.change:
            del self._owed[key]

    def failed(self, now: int, notification: Notification) -> None:
        """No answer, or no connection."""
        owed = self._owed.get((notification.change.key, notification.broker_id))
        if owed is not None and owed.change is notification.change:
            owed.under_way = False
            owed.failures += 1
            wait_ms = min(FIRST_RETRY_MS << min(owed.failures - 1, 10), LAST_RETRY_MS)
            self._at(owed, now + wait_ms * MS)

    def due(self, now: int, reachable: Callable[[GroupKey, int], str | None]) -> list[Notification]:
        """Return the notifications to send now. Each is under way until ``acknowledged`` or ``failed`` is reported.

        ``reachable`` gives the address of a broker that is alive, and None for one that is not: what is owed to that
        one sleeps until ``came_alive``.
        """
        ready = []
        while self._queue and self._queue[0][0] <= now:
            due, _, owed = heapq.heappop(self._queue)
            if due != owed.due_ns or owed.under_way or self._owed.get((owed.change.key, owed.broker_id)) is not owed:
                continue
            owed.due_ns = NEVER
            address = reachable(owed.change.key, owed.broker_id)
            if address is not None:
                owed.under_way = True
                ready.append(Notification(address, owed.broker_id, owed.change))
        return ready

    def activate(self, now: int) -> None:
        """This controller is the active one from now on: what others may have left untold is due."""
        self._active = True
        self._owed = {key: owed for key, owed in self._owed.items() if owed.since_ns + UNTOLD_MS * MS > now}
        for owed in self._owed.values():
            owed.due_ns = NEVER
            if not owed.under_way:
                self._at(owed, now)

    def deactivate(self) -> None:
        self._active = False
        self._queue.clear()

    def next_deadline(self) -> int | None:
        """Return when ``due`` is to be called; perhaps too early."""
        return self._queue[0][0] if self._queue else None

    def __len__(self) -> int:
        return len(self._owed)

    def __iter__(self) -> Iterator[tuple[GroupKey, int]]:
        """Group and id of each broker that something is owed."""
        return iter(self._owed)

    def _at(self, owed: _Owed, when: int) -> None:
        if self._active and owed.due_ns != when:
            self._pushes += 1
            owed.due_ns = when
            heapq.heappush(self._queue, (when, self._pushes, owed))
