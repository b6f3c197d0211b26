"""Topics that a new master has messages of and never heard of: the one before was lost before its table was copied.

An acknowledged message is on every replica; the topic that it belongs to is known to the others some moments later.
Pure: it is told of queues, and says which topics to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.store.queues import Queue
from broker.topics import names
from broker.topics.table import READ, WRITE, TopicTable
from remoting.bodies.namesrv import TopicConfig


def unheard(table: TopicTable, queues: Iterable[Queue], newest_ms: Callable[[bytes, int], int],
            since_ms: int) -> list[TopicConfig]:
    """Return topics that the table lacks, with messages of ``since_ms``, when it was told last, or later.

    What was deleted has none.
    ``newest_ms``: when the last message of a queue was stored. How many queues a topic had nobody tells: all that hold
    messages, and as many as a topic has by default.
    """
    found: dict[str, int] = {}
    for topic, queue_id in queues:
        name = topic.decode()
        if table.get(name) is None and newest_ms(topic, queue_id) >= since_ms:
            found[name] = max(found.get(name, 0), queue_id + 1)
    return [_made(name, queues, table.config.default_topic_queue_nums) for name, queues in found.items()]


def _made(name: str, queues: int, default: int) -> TopicConfig:
    if not name.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX)):
        queues = max(queues, default)
    return TopicConfig(name, queues, queues, READ | WRITE)
