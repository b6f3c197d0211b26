"""One broker's locks on queues: by them one member of a group reads an ordered queue.

A lock is held for a minute, and as long as its holder asks for it again. Each broker has locks of its own; by
``broker.locks`` brokers of a group tell each other of theirs. Source: ``RebalanceLockManager`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from remoting.bodies.consumers import MessageQueue

HELD_MS: Final = 60_000
HELD_MAX: Final = 200_000
"""Most queues that are locked; beyond that no client gets another."""


@attrs.frozen
class _Held:
    holder: str
    deadline_ns: int
    grant: int
    """Number of the grant; each grant has another one, renewals too."""
    copied: bool
    """Another broker of the group granted it, and said so."""


@attrs.frozen
class Granted:
    """The outcome of a request: each queue that the client holds now, with the number of its grant."""

    grants: Mapping[MessageQueue, int]
    fresh: frozenset[MessageQueue]
    """Queues that the client did not hold before."""


class Locks:
    """``now_ns`` is monotonic; it grants at once, unless ``be_silent`` says otherwise. ``first_grant``: numbers of
    grants count on from there; another one for each life."""

    def __init__(self, now_ns: Callable[[], int], first_grant: int = 1) -> None:
        self._now_ns = now_ns
        self._groups: dict[str, dict[MessageQueue, _Held]] = {}
        self._count = 0
        """Number of queues that are held, in all groups."""
        self._grant = first_grant
        self.silent_until_ns = 0
        """Time until which only locks that are held here are renewed: a former life may have granted the others."""
        self.overlaps = 0
        """Queues that another broker of the group granted while this one's own grant to another client lasted."""

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Lock queues, and return those that the client holds now, for a minute from now."""
        return list(self.grant(group, queues, client_id).grants)

    def grant(self, group: str, queues: Iterable[MessageQueue], client_id: str, *, copied: bool = False) -> Granted:
        """Grant queues as ``lock`` does. ``copied``: another broker of the group has granted them; it is believed, but
        not against what this broker itself granted."""
        now_ns = self._now_ns()
        held = self._groups.setdefault(group, {})
        mine: dict[MessageQueue, int] = {}
        fresh: set[MessageQueue] = set()
        for queue in queues:
            there = held.get(queue)
            lasts = there is not None and there.deadline_ns >= now_ns
            if not lasts and now_ns < self.silent_until_ns:
                continue
            if there is None:
                if self._count >= HELD_MAX:
                    continue
                self._count += 1
            if there is not None and lasts and there.holder != client_id and not (copied and there.copied):
                self.overlaps += copied
                continue
            renewed = there is not None and lasts and there.holder == client_id
            if not renewed:
                fresh.add(queue)
            own = not copied or (there is not None and renewed and not there.copied)
            held[queue] = _Held(client_id, now_ns + HELD_MS * 1_000_000, self._grant, not own)
            mine[queue] = self._grant
            self._grant += 1
        if not held:
            del self._groups[group]
        return Granted(mine, frozenset(fresh))

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held and held[queue].holder == client_id:
                self._forget(group, queue)

    def give_back(self, group: str, grants: Mapping[MessageQueue, int]) -> None:
        """Undo these grants. A grant that was renewed since has another number, and stays."""
        held = self._groups.get(group, {})
        for queue, grant in grants.items():
            if queue in held and held[queue].grant == grant:
                self._forget(group, queue)

    def be_silent(self) -> None:
        """Grant nothing new for a while: earlier grants, of a former life or another kind, may still last."""
        self.silent_until_ns = self._now_ns() + HELD_MS * 1_000_000

    def _forget(self, group: str, queue: MessageQueue) -> None:
        held = self._groups[group]
        del held[queue]
        self._count -= 1
        if not held:
            del self._groups[group]

    def held_by_group(self, group: str) -> bool:
        """Return whether any of its members holds any queue: it consumes in order."""
        held, now_ns = self._groups.get(group), self._now_ns()
        return held is not None and any(each.deadline_ns >= now_ns for each in held.values())

    def expire(self) -> None:
        """Forget locks whose time is over."""
        now_ns = self._now_ns()
        for group, held in list(self._groups.items()):
            for queue in [queue for queue, each in held.items() if each.deadline_ns < now_ns]:
                self._forget(group, queue)
