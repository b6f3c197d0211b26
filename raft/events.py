"""Events of a node that a program may watch, and the queues that deliver them.

Each subscriber has a bounded queue. One that is too slow loses the oldest events and is told how many, by a
``Lagged`` in their place; it never slows the node. Knows trio's parking and nothing of the node.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TypeAlias
from weakref import WeakValueDictionary

import attrs
import trio

from raft.messages import MembershipChanged, RoleChanged, SnapshotMeta
from raft.wakeup import Bell

QUEUE_EVENTS = 1_024
"""Events kept for a subscriber that is not listening."""


@attrs.frozen
class SnapshotTaken:
    """This node finished a snapshot of its own."""

    meta: SnapshotMeta


@attrs.frozen
class SnapshotRestored:
    """The state machine was replaced by a snapshot, at start or from the leader."""

    meta: SnapshotMeta


@attrs.frozen
class NodeFaulted:
    """This node stopped applying or storing."""

    reason: str


@attrs.frozen
class Lagged:
    """``missed`` events were dropped here because this subscriber was slow. Look at ``node.status()``."""

    missed: int


NodeEvent: TypeAlias = RoleChanged | MembershipChanged | SnapshotTaken | SnapshotRestored | NodeFaulted | Lagged


class Subscription:
    """Iterates over events since ``node.events()`` was called, the present role first. For one task; ends with the
    node, or when nobody has it any more."""

    def __init__(self, hub: EventHub, first: NodeEvent) -> None:
        self._hub, self._bell = hub, Bell()
        self._queue: deque[NodeEvent] = deque([first])
        self._missed = 0
        self._ended = False

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> NodeEvent:
        while True:
            if self._missed:
                missed, self._missed = self._missed, 0
                await trio.lowlevel.checkpoint()
                return Lagged(missed)
            if self._queue:
                await trio.lowlevel.checkpoint()
                return self._queue.popleft()
            if self._ended:
                raise StopAsyncIteration
            await self._bell.wait()

    def pending(self) -> list[NodeEvent]:
        """Return the events that would come next without waiting. They stay in the queue."""
        return [*([Lagged(self._missed)] if self._missed else []), *self._queue]

    def close(self) -> None:
        """Stop receiving. Not needed at the end of the node."""
        self._hub.leave(self)
        self.end()

    def put(self, event: NodeEvent) -> None:
        if len(self._queue) == QUEUE_EVENTS:
            self._queue.popleft()
            self._missed += 1
        self._queue.append(event)
        self._bell.ring()

    def end(self) -> None:
        self._ended = True
        self._bell.ring()


class EventHub:
    """All subscriptions to one node's events."""

    def __init__(self) -> None:
        self._subscribers: WeakValueDictionary[int, Subscription] = WeakValueDictionary()
        """By number, in order. Who drops a subscription without closing it has left as well."""
        self._numbers = itertools.count()
        self._ended = False

    def subscribe(self, first: NodeEvent) -> Subscription:
        subscription = Subscription(self, first)
        if self._ended:
            subscription.end()
        else:
            self._subscribers[next(self._numbers)] = subscription
        return subscription

    def leave(self, subscription: Subscription) -> None:
        for number, other in list(self._subscribers.items()):
            if other is subscription:
                del self._subscribers[number]

    def put(self, event: NodeEvent) -> None:
        for subscription in self._subscribers.values():
            subscription.put(event)

    def end(self) -> None:
        """No more events; iterations end when they have drained theirs."""
        self._ended = True
        for subscription in self._subscribers.values():
            subscription.end()
        self._subscribers.clear()
