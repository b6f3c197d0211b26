"""Who of a consumer group reads which queues: every member computes it alone, and all must come to the same.

Pure functions over sorted lists. Source: ``AllocateMessageQueueAveragely`` and
``AllocateMessageQueueAveragelyByCircle`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.client.route import java_order
from remoting.bodies.consumers import MessageQueue

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""From (own client id, all queues, all client ids), in any order, to one's own queues."""


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


def _java_text_order(text: str) -> bytes:
    """``String.compareTo``: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
