"""Finds topics that a new master has messages of and never heard of: the master before was lost too early.

An acknowledged message is on every replica; its topic is known to the others some moments later, by a copied table.
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
    ``newest_ms``: when the last message of a queue was stored. Nobody knows how many queues a topic had: it gets all
    that hold messages, and at least the default.
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
