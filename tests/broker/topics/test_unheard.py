"""Which topics a new master makes of messages that it has."""

from __future__ import annotations

import pytest

from broker.store.tables import Topics
from broker.topics import TopicsConfig, TopicTable
from broker.topics.unheard import unheard
from remoting.bodies.namesrv import DataVersion, TopicConfig

SINCE_MS = 1_000


def table() -> TopicTable:
    return TopicTable(TopicsConfig(default_topic_queue_nums=4), lambda: 7, Topics(
        {"known": TopicConfig("known", 1, 1)}, DataVersion(counter=3, timestamp=SINCE_MS)))


@pytest.mark.parametrize(("queues", "expected"), [
    ({(b"known", 5): SINCE_MS}, {}),
    ({(b"new", 0): SINCE_MS}, {"new": 4}),
    ({(b"new", 9): SINCE_MS + 1, (b"new", 2): 0}, {"new": 10}),
    ({(b"deleted", 0): SINCE_MS - 1}, {}),
    ({(b"empty", 0): -1}, {}),
    ({(b"%RETRY%g", 0): SINCE_MS, (b"%DLQ%g", 0): SINCE_MS}, {"%RETRY%g": 1, "%DLQ%g": 1}),
], ids=["known", "new", "as many as hold messages", "deleted before the table was copied", "without messages",
        "retries and dead letters"])
def test_topics_of_messages_that_came_after_the_table(
    queues: dict[tuple[bytes, int], int], expected: dict[str, int],
) -> None:
    found = unheard(table(), queues, lambda topic, queue_id: queues[topic, queue_id], SINCE_MS)
    assert {topic.topic_name: topic.read_queue_nums for topic in found} == expected
    assert all(topic.perm == 6 and topic.write_queue_nums == topic.read_queue_nums for topic in found)
