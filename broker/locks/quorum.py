"""Locks on queues over the brokers of a group, decided. Values: no I/O and no time.

With ``lockInStrictMode`` a client holds a queue where a majority of ``totalReplicas`` granted it; each broker grants
a queue to one client, and none for a minute after its start, so no two can. What a client gives back is told by the
numbers of the grants: word that comes late takes no later grant. Without it one broker grants, and tells the others,
so that whoever acts for it next knows. Source: ``RebalanceLockManager`` and ``AdminBrokerProcessor`` of RocketMQ
5.5.0. Unlike there whoever gets no majority keeps nothing, so two clients cannot hold each other up for ever; and all
queues are asked for at all members, so the majority need not have the asked broker in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from remoting.bodies.consumers import MessageQueue
from remoting.fields import decimal


def majority(total_replicas: int) -> int:
    """How many brokers must grant a queue."""
    return total_replicas // 2 + 1


def won(asked: Iterable[MessageQueue], grants: Iterable[Collection[MessageQueue]], needed: int) -> list[MessageQueue]:
    """What as many granted as are needed, each counted once."""
    votes = Counter(queue for granted in grants for queue in set(granted))
    return [queue for queue in dict.fromkeys(asked) if votes[queue] >= needed]


class Votes:
    """What members granted to clients that asked here, by group and queue. ``lasts_ns``: how long a grant lasts."""

    def __init__(self, lasts_ns: int) -> None:
        self._lasts_ns = lasts_ns
        self._known: dict[tuple[str, MessageQueue], tuple[str, int, dict[str, int]]] = {}
        """The client, until when, and each member's grant."""
        self._tidy_ns = 0

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, group: str, client: str, votes: Mapping[str, Mapping[MessageQueue, int]], now_ns: int) -> None:
        """Of each member the grants that it gave now; those before are over."""
        if now_ns >= self._tidy_ns:
            self._tidy_ns = now_ns + self._lasts_ns
            self._known = {key: each for key, each in self._known.items() if each[1] >= now_ns}
        for queue in dict.fromkeys(queue for grants in votes.values() for queue in grants):
            former = self._known.get((group, queue))
            grants = former[2] if former is not None and former[0] == client else {}
            self._known[group, queue] = client, now_ns + self._lasts_ns, grants | {
                member: found[queue] for member, found in votes.items() if queue in found}

    def take(self, group: str, client: str, queues: Iterable[MessageQueue]) -> dict[str, dict[MessageQueue, int]]:
        """What that client gives back at each member."""
        found: dict[str, dict[MessageQueue, int]] = {}
        for queue in queues:
            known = self._known.get((group, queue))
            if known is not None and known[0] == client:
                del self._known[group, queue]
                for member, grant in known[2].items():
                    found.setdefault(member, {})[queue] = grant
        return found


def written(granted: Sequence[MessageQueue], fresh: Mapping[MessageQueue, int]) -> str:
    """Grants beside a list of queues, as members of ours tell each other: ``place:grant,…`` for those that are new."""
    return ",".join(f"{place}:{fresh[queue]}" for place, queue in enumerate(granted) if queue in fresh)


def read(text: str | None, granted: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
    """What ``written`` wrote. What cannot be read is left out: a grant that is not given back ends by itself."""
    found = {}
    for part in filter(None, (text or "").split(",")):
        place, _, grant = part.partition(":")
        at, number = decimal(place), decimal(grant)
        if at is not None and number is not None and 0 <= at < len(granted):
            found[granted[at]] = number
    return found
