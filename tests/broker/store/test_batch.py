"""A batch is stored as its messages would be one by one, whole or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.store.batch import Batch
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from remoting.errors import MessageIllegal
from remoting.record import BORN_HOST_V6, PREPARED, STORE_HOST_V6, Message, Part

V6 = bytes(15) + b"\1" + bytes(4)
PARTS = st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=50), st.binary(max_size=30)), min_size=1, max_size=8)
COMMON = st.builds(
    Message, topic=st.sampled_from([b"T", b"t" * 127, b"t" * 128]), body=st.just(b"of nobody"),
    queue_id=st.integers(0, 3), sys_flag=st.sampled_from([0, 2, BORN_HOST_V6, STORE_HOST_V6, PREPARED]),
    born_time_ms=st.integers(0, 1 << 40), born_host=st.sampled_from([bytes(8), V6]),
    store_host=st.sampled_from([bytes(8), V6]), reconsume_times=st.integers(0, 16))


def opened() -> MessageStore:
    store = MessageStore(MemoryFiles(), StoreConfig(log_file_bytes=4_096, index=False))
    store.open()
    return store


@given(st.lists(st.tuples(COMMON, PARTS), max_size=6))
@settings(max_examples=200, deadline=None)
def test_it_is_stored_as_messages_are(batches: list[tuple[Message, list[Part]]]) -> None:
    one, other = opened(), opened()
    for number, (common, parts) in enumerate(batches):
        batch = Batch(common, parts)
        assert [(each.flag, each.body, each.properties) for each in batch] == parts
        assert one.writer.put_all(batch, number) == other.writer.put_all(list(batch), number)
    for store in (one, other):
        store.log.write()
        store.visible.advance()
    assert list(one.log.scan(0)) == list(other.log.scan(0))
    assert one.log.max_offset == other.log.max_offset and one.messages.queues() == other.messages.queues()
    at = 0
    while at < one.log.max_offset:
        data = one.log.read(at, 4_096)
        assert data == other.log.read(at, 4_096)
        at += len(data)


@pytest.mark.parametrize(("part", "words"), [
    ((0, b"", b"x" * 32_768), "properties of 32768 bytes; 32767 are allowed"),
    ((0, b"", b"x" * 4_000), "records of .* bytes; a file of the log has 4096"),
])
def test_one_that_is_illegal_keeps_all_out(part: Part, words: str) -> None:
    store = opened()
    store.writer.put_all(Batch(Message(b"T", b""), [(0, b"a", b""), (0, b"b", b"")]), 1)
    end = store.log.max_offset
    with pytest.raises(MessageIllegal, match=words):
        store.writer.put_all(Batch(Message(b"T", b""), [(0, b"a", b""), part, (0, b"b", b"")]), 1)
    with pytest.raises(MessageIllegal, match="name of a folder"):
        store.writer.put_all(Batch(Message(b"../T", b""), [(0, b"a", b""), (0, b"b", b"")]), 1)
    assert store.log.max_offset == end
    puts = store.writer.put_all(Batch(Message(b"T", b""), [(0, b"a", b"")] * 2), 1)
    assert [put.queue_offset for put in puts] == [2, 3]


def test_a_part_of_it_is_a_batch() -> None:
    batch = Batch(Message(b"T", b""), [(number, b"%d" % number, b"") for number in range(5)])
    assert [message.flag for message in batch[1:3]] == [1, 2] and batch[-1].body == b"4"
