"""The decisions of locks over the brokers of a group. Values: no I/O and no time.

With ``lockInStrictMode`` a client holds a queue if a majority of ``totalReplicas`` granted it. Each broker grants a
queue to one client, and grants nothing new for a minute after its start, when older grants have ended. So no two
clients hold a queue. A grant is given back by its number, so a late message takes no later grant. Without strict mode
one broker grants, and tells the others, so that the slave that acts for it knows.

Source: ``RebalanceLockManager`` and ``AdminBrokerProcessor`` of RocketMQ 5.5.0. Differences: a client without a
majority keeps no grant, so two clients cannot block each other for ever; all members are asked for all queues, so the
majority need not include the asked broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from remoting.bodies.consumers import MessageQueue
from remoting.fields import decimal


def majority(total_replicas: int) -> int:
    """Number of brokers that must grant a queue."""
    return total_replicas // 2 + 1


def won(asked: Iterable[MessageQueue], grants: Iterable[Collection[MessageQueue]], needed: int) -> list[MessageQueue]:
    """Queues that at least ``needed`` brokers granted."""
    votes = Counter(queue for granted in grants for queue in set(granted))
    return [queue for queue in dict.fromkeys(asked) if votes[queue] >= needed]


class Votes:
    """Grants of all members to clients that asked this broker, by group and queue. ``lasts_ns``: lifetime of a grant.
    """

    def __init__(self, lasts_ns: int) -> None:
        self._lasts_ns = lasts_ns
        self._known: dict[tuple[str, MessageQueue], tuple[str, int, dict[str, int]]] = {}
        """The client, the end of the grants, and the number of each member's grant."""
        self._tidy_ns = 0

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, group: str, client: str, votes: Mapping[str, Mapping[MessageQueue, int]], now_ns: int) -> None:
        """Remember the grants that members gave now; they replace earlier ones of these queues."""
        if now_ns >= self._tidy_ns:
            self._tidy_ns = now_ns + self._lasts_ns
            self._known = {key: each for key, each in self._known.items() if each[1] >= now_ns}
        for queue in dict.fromkeys(queue for grants in votes.values() for queue in grants):
            former = self._known.get((group, queue))
            grants = former[2] if former is not None and former[0] == client else {}
            self._known[group, queue] = client, now_ns + self._lasts_ns, grants | {
                member: found[queue] for member, found in votes.items() if queue in found}

    def take(self, group: str, client: str, queues: Iterable[MessageQueue]) -> dict[str, dict[MessageQueue, int]]:
        """Forget a client's grants of these queues, and return them by member."""
        found: dict[str, dict[MessageQueue, int]] = {}
        for queue in queues:
            known = self._known.get((group, queue))
            if known is not None and known[0] == client:
                del self._known[group, queue]
                for member, grant in known[2].items():
                    found.setdefault(member, {})[queue] = grant
        return found


def written(granted: Sequence[MessageQueue], fresh: Mapping[MessageQueue, int]) -> str:
    """The header text for grants of a list of queues: ``place:grant,…``, with places in ``granted``."""
    return ",".join(f"{place}:{fresh[queue]}" for place, queue in enumerate(granted) if queue in fresh)


def read(text: str | None, granted: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
    """The grants in a text of ``written``. Illegal parts are skipped: a grant that is not given back ends with time."""
    found = {}
    for part in filter(None, (text or "").split(",")):
        place, _, grant = part.partition(":")
        at, number = decimal(place), decimal(grant)
        if at is not None and number is not None and 0 <= at < len(granted):
            found[granted[at]] = number
    return found
