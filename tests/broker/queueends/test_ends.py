"""The numbers with which a replica's queues go on whose log begins in the middle."""

from __future__ import annotations

import pytest

from broker.queueends.ends import QueueEnds, ends_before
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore
from tests.broker.store.small import delete_before, message, opened, seen


def told(store: MessageStore, log_offset: int) -> dict[str, dict[int, int]]:
    ends = QueueEnds()
    for queue, end in ends_before(store.messages, store.visible.offset, log_offset):
        ends.note(queue, end)
    return ends.end_table


def test_queues_end_before_their_first_message_from_there_on() -> None:
    store = opened(MemoryFiles())
    early = [store.writer.put(message("early", queue, "x"), 1_000) for queue in (0, 0, 1)]
    late = [store.writer.put(message("late", 0, f"m{number}"), 1_000) for number in range(60)]
    store.visible.advance()
    assert told(store, late[0].offset) == {"early": {0: 2, 1: 1}}, "one that begins there begins at 0"
    assert told(store, late[30].offset) == {"early": {0: 2, 1: 1}, "late": {0: 30}}
    assert told(store, late[-1].offset + late[-1].size) == {"early": {0: 2, 1: 1}, "late": {0: 60}}
    assert told(store, early[-1].offset) == {"early": {0: 2}}
    assert told(store, 0) == {}
    store.flush()
    delete_before(store, late[30].offset)
    assert told(store, late[30].offset) == {"early": {0: 2, 1: 1}, "late": {0: 30}}, "also of what is gone here"


def test_messages_that_are_in_no_queue_yet_count_too() -> None:
    store = opened(MemoryFiles())
    for queue in (0, 0, 1):
        store.writer.put(message("seen", queue, "x"), 1_000)
    store.visible.advance()
    store.writer.put(message("seen", 0, "x"), 1_000)
    store.writer.put(message("new", 2, "x"), 1_000)
    begin = store.writer.put(message("seen", 1, "x"), 1_000).offset
    ends = ends_before(store.messages, store.visible.offset, begin)
    first = next(ends)
    assert told(store, begin) == {"seen": {0: 3, 1: 1}, "new": {2: 1}}
    store.visible.advance()
    assert told(store, begin) == {"seen": {0: 3, 1: 1}, "new": {2: 1}}
    assert dict([first, *ends]) == {(b"seen", 0): 3, (b"seen", 1): 1, (b"new", 2): 1}, "seen meanwhile"


def test_the_answer_is_read_as_it_was_written() -> None:
    ends = QueueEnds()
    for end in (3, 5, 4, 0):
        ends.note((b"t", 1), end)
    ends.note((b"u", 0), 0)
    again = QueueEnds.from_json(ends.to_json())
    assert again == ends and again.by_queue() == {(b"t", 1): 5}


@pytest.mark.parametrize("copied", [0, 1, 12])
def test_a_replica_gives_the_numbers_that_its_master_gave_however_little_it_copied(copied: int) -> None:
    """Elected before it copied anything, it is to go on as the log in front of its own does."""
    master, slave = opened(MemoryFiles()), opened(MemoryFiles())
    puts = [master.writer.put(message("t", number % 3, f"m{number}"), 1_000) for number in range(60)]
    master.visible.advance()
    begin = next(put for put in puts if put.offset >= 2048)
    slave.writer.begin_queues(QueueEnds(told(master, begin.offset)).by_queue())
    after = puts[puts.index(begin) :]
    end = after[copied].offset
    slave.writer.append_raw(master.log.read(begin.offset, max(1, end - begin.offset)), begin.offset)
    slave.visible.advance()
    slave.take_over()
    assert slave.log.max_offset == end
    for put in after[copied : copied + 3]:
        number = puts.index(put)
        assert slave.writer.put(message("t", number % 3, f"n{number}"), 2_000).queue_offset == put.queue_offset
    slave.visible.advance()
    first = puts.index(begin)
    assert seen(slave, "t", first % 3) == [
        f"{'mn'[number >= first + copied]}{number}" for number in range(first, first + copied + 3, 3)]
