"""Which queue offset a message gets when it is put, and which messages are refused."""

from __future__ import annotations

import attrs
import pytest

from broker.store.files import MemoryFiles
from remoting.errors import MessageIllegal
from remoting.record import PREPARED
from tests.broker.store.small import message, opened, seen


def test_prepared_messages_take_no_queue_offset() -> None:
    store = opened(MemoryFiles())
    store.writer.put(message("t", 0, "a"), 1)
    put = store.writer.put(message("t", 0, "half", sys_flag=PREPARED), 1)
    store.writer.put(message("t", 0, "b"), 1)
    store.visible.advance()
    assert seen(store) == ["a", "b"]
    assert store.log.record(put.offset).message.body == b"half"


@pytest.mark.parametrize("topic", ["..", "a/b", "\0", "a\\b"])
def test_a_topic_that_is_no_folder(topic: str) -> None:
    store = opened(MemoryFiles())
    with pytest.raises(MessageIllegal, match="folder"):
        store.writer.put(message(topic, 0, ""), 1)
    with pytest.raises(MessageIllegal, match="UTF-8"):
        store.writer.put(attrs.evolve(message("t", 0, ""), topic=b"\xff"), 1)
    assert store.log.max_offset == 0


def test_bytes_of_another_log_are_counted_before_the_next_put() -> None:
    source, store = opened(MemoryFiles()), opened(MemoryFiles())
    for number in range(10):
        source.writer.put(message("t", number % 2, f"m{number}"), number)
    source.log.write()
    store.writer.append_raw(source.log.read(0, 1 << 20), 0)
    assert not store.writer.is_numbered
    with pytest.raises(AssertionError, match="queue offsets are known"):
        store.writer.put(message("t", 0, "early"), 11)
    store.take_over()
    assert [store.writer.put(message("t", queue, "mine"), 11).queue_offset for queue in (0, 1, 2)] == [5, 5, 0]


def test_a_message_of_which_only_a_part_came_is_cut_off_before_the_next_put() -> None:
    source, store = opened(MemoryFiles()), opened(MemoryFiles())
    puts = [source.writer.put(message("t", 0, f"m{number}"), number) for number in range(3)]
    source.log.write()
    store.writer.append_raw(source.log.read(0, puts[2].offset + 5), 0)
    store.take_over()
    assert store.log.max_offset == puts[2].offset
    assert store.writer.put(message("t", 0, "mine"), 4).queue_offset == 2
