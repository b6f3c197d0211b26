"""Locks on queues over the brokers of a group, decided. Values: no I/O and no time.

With ``lockInStrictMode`` a client holds a queue where a majority of ``totalReplicas`` granted it; each broker grants a
queue to one client, so no two can. Without it one broker grants, and tells the others, so that whoever acts for it next
knows. Source: ``RebalanceLockManager`` and ``AdminBrokerProcessor`` of RocketMQ 5.5.0. Unlike there whoever gets no
majority keeps nothing, so two clients cannot hold each other up for ever; and all queues are asked for at all members,
so the majority need not have the asked broker in it.
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
