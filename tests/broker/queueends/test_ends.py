"""Which queues a replica cannot number by its own log."""

from __future__ import annotations

from broker.queueends.ends import QueueEnds, ends_after, ends_before
from broker.store.files import MemoryFiles
from tests.broker.store.small import delete_before, message, opened


def test_queues_without_a_message_from_there_on_are_told() -> None:
    store = opened(MemoryFiles())
    early = [store.writer.put(message("early", queue, "x"), 1_000) for queue in (0, 0, 1)]
    late = [store.writer.put(message("late", 0, f"m{number}"), 1_000) for number in range(60)]
    store.visible.advance()
    told = ends_before(store.messages, late[0].offset)
    assert told == QueueEnds({"early": {0: 2, 1: 1}})
    assert told.by_queue() == {(b"early", 0): 2, (b"early", 1): 1}
    assert QueueEnds.from_json(told.to_json()) == told
    assert ends_before(store.messages, early[-1].offset) == QueueEnds({"early": {0: 2}})
    assert ends_before(store.messages, 0) == QueueEnds()
    store.flush()
    delete_before(store, late[30].offset)
    assert ends_before(store.messages, late[30].offset) == told, "also where their messages are gone here, too"


def test_messages_that_are_in_no_queue_yet_count_too() -> None:
    store = opened(MemoryFiles())
    for queue in (0, 0, 1):
        store.writer.put(message("seen", queue, "x"), 1_000)
    store.visible.advance()
    seen = store.visible.offset
    store.writer.put(message("seen", 0, "x"), 1_000)
    store.writer.put(message("new", 2, "x"), 1_000)
    begin = store.writer.put(message("seen", 1, "x"), 1_000).offset
    unseen = dict(ends_after(store.log.scan(seen, begin, check_crc=False)))
    assert ends_before(store.messages, begin, unseen) == QueueEnds({"seen": {0: 3, 1: 1}, "new": {2: 1}})
    store.visible.advance()
    assert ends_before(store.messages, begin, unseen) == QueueEnds({"seen": {0: 3}, "new": {2: 1}}), "seen meanwhile"
