"""Decides when members are told that their group changed (40): each once, and not while it sends heartbeats.

A Java client that is told in the middle of its heartbeats to all brokers raises its subscription's version, has no
heartbeat free to say so, and is refused every pull for 30 s. So a member hears of a change, its own ones too, when its
last heartbeat is half a second old, or 50 ms where its connections are there by now; at once, where it is known to
divide queues: that comes behind a round, in one thread with what it does when it is told. Else consumers that start or
end together read the same messages, each as long as it does not know of the others. It does no I/O. Times are
monotonic, in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.consumers.members import ConsumerGroup, Member
    from remoting.connection import Connection

QUIET_NS: Final = 500_000_000
"""A member's first heartbeats to all brokers, which it connects to, are over so long after the one that came here."""
SETTLED_QUIET_NS: Final = 50_000_000
"""The same of later ones."""
PATIENCE_NS: Final = 2_000_000_000
"""A member that never stops sending heartbeats is told so long after the change."""


class Notices:
    """Changes that members have not been told of."""

    def __init__(self) -> None:
        self._since: dict[ConsumerGroup, dict[Connection, int]] = {}
        """Time of the first change that a member of the group does not know."""

    def changed(self, group: ConsumerGroup, now_ns: int) -> None:
        """Have all present members told, once, of this change and of earlier ones that they do not know."""
        waiting = self._since.get(group, {})
        waiting = {connection: waiting.get(connection, now_ns) for connection in group.members}
        if waiting:
            self._since[group] = waiting
        else:
            self._since.pop(group, None)

    @property
    def due_ns(self) -> int | None:
        """Time when ``take`` has something next."""
        return min((due_ns for _, _, due_ns in self._due()), default=None)

    def take(self, now_ns: int) -> list[tuple[ConsumerGroup, Member]]:
        """Return the members to tell now, with their groups' names."""
        found = [(group, member) for group, member, due_ns in self._due() if due_ns <= now_ns]
        for group, member in found:
            waiting = self._since[group]
            del waiting[member.connection]
            if not waiting:
                del self._since[group]
        return sorted(found, key=lambda one: one[0].name)

    def _due(self) -> Iterator[tuple[ConsumerGroup, Member, int]]:
        for group, waiting in self._since.items():
            for connection, since_ns in waiting.items():
                member = group.members[connection]
                if member.balances:
                    yield group, member, since_ns
                    continue
                over_ns = member.seen_ns + (SETTLED_QUIET_NS if member.settled else QUIET_NS)
                yield group, member, max(since_ns, min(over_ns, since_ns + PATIENCE_NS))
