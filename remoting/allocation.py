"""Shares queues among the members of a consumer group: each computes alone, and all must get the same result.

Pure functions over sorted lists. Source: ``AllocateMessageQueueAveragely``,
``AllocateMessageQueueAveragelyByCircle`` and ``QueryAssignmentProcessor.allocate4Pop`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from remoting.bodies.consumers import MessageQueue
from remoting.headers.popping import ALL_QUEUES

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""From (own client id, all queues, all client ids), in any order, to one's own queues."""


def java_order(queue: MessageQueue) -> tuple[str, str, int]:
    """Sort key of Java (``MessageQueue.compareTo``): all members of a group must share queues out alike."""
    return queue.topic, queue.broker_name, queue.queue_id


def averagely(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues for each; the first members get the one more that is left over. Java's default."""
    members, queues = sorted(set(client_ids), key=_java_text_order), sorted(queues, key=java_order)
    if client_id not in members:
        return []
    index, (size, extra) = members.index(client_id), divmod(len(queues), len(members))
    start = index * size + min(index, extra)
    return queues[start : start + size + (index < extra)]


def averagely_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str],
) -> list[MessageQueue]:
    """Queues dealt out one by one, like cards."""
    members, queues = sorted(set(client_ids), key=_java_text_order), sorted(queues, key=java_order)
    if client_id not in members:
        return []
    return queues[members.index(client_id) :: len(members)]


def shared(allocate: Allocate, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str],
           neighbours: int) -> list[MessageQueue]:
    """Return the queues that a member pops: its own share, and those of the next ``neighbours`` members in a circle.

    With 0, or with as many neighbours as there are members, it pops all queues of each broker. Where members outnumber
    queues each has one. Some queues may come twice.
    """
    if neighbours <= 0 or neighbours >= len(client_ids) - 1:
        return [attrs.evolve(queue, queue_id=ALL_QUEUES) for queue in queues]
    members, queues = sorted(client_ids, key=_java_text_order), sorted(queues, key=java_order)
    if client_id not in members or not queues:
        return []
    first = members.index(client_id)
    if len(members) > len(queues):
        return [queues[first % len(queues)]]
    return [queue for number in range(first, first + neighbours + 1)
            for queue in allocate(members[number % len(members)], queues, members)]


def _java_text_order(text: str) -> bytes:
    """As ``String.compareTo`` sorts: by UTF-16 units, not by characters."""
    return text.encode("utf-16-be", "surrogatepass")
