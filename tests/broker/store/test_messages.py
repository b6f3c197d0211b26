"""Messages are found by key, and what is asked of one of a queue is answered also where it is gone."""

from __future__ import annotations

from broker.store.files import MemoryFiles
from remoting.record import Message, encode_properties
from tests.broker.store.small import delete_before, message, opened


def test_messages_are_found_by_key_and_by_unique_id_also_after_truncation() -> None:
    files = MemoryFiles()
    store = opened(files)
    puts = []
    for number in range(90):
        properties = encode_properties({"KEYS": f"k{number % 10} x", "UNIQ_KEY": f"U{number}"})
        puts.append(store.writer.put(Message(b"t", b"m%d" % number, 0, properties), 1000 * number))
    store.visible.advance()
    for _ in range(2):
        found = store.messages.get_by_key(b"t", "k7", most=3)
        assert [record.message.body for record in found] == [b"m87", b"m77", b"m67"]
        assert [record.message.body for record in store.messages.get_by_key(b"t", "U33")] == [b"m33"]
        assert len(store.messages.get_by_key(b"t", "k1", begin_ms=20_000, end_ms=41_000)) == 3
        assert store.messages.get_by_key(b"u", "k1") == store.messages.get_by_key(b"t", "k") == []
        store.close()
        store = opened(files)
    store.truncate(puts[70].offset)
    store.take_over()
    assert [record.message.body for record in store.messages.get_by_key(b"t", "k7", most=1)] == [b"m67"]
    store.writer.put(Message(b"t", b"new", 0, encode_properties({"KEYS": "k7"})), 99_000)
    store.visible.advance()
    assert [record.message.body for record in store.messages.get_by_key(b"t", "k7")][:2] == [b"new", b"m67"]


def test_when_a_message_was_stored_and_whether_it_is_recent() -> None:
    store = opened(MemoryFiles())
    puts = [store.writer.put(message("t", 0, f"m{number}"), 1_000 + number) for number in range(100)]
    store.visible.advance()
    store.flush()
    delete_before(store, 5_000)
    least, behind = store.messages.min_offset(b"t", 0), store.log.max_offset
    assert least > 0
    times = [store.messages.store_time_ms(b"t", 0, offset) for offset in (least - 1, least, 99, 100)]
    assert times == [-1, 1_000 + least, 1_099, -1]
    assert store.messages.is_recent(b"t", 0, 50, behind - puts[50].offset)
    assert not store.messages.is_recent(b"t", 0, 50, behind - puts[50].offset - 1)
    for queue_id, offset in ((0, least - 1), (0, 100), (9, 0)):
        assert not store.messages.is_recent(b"t", queue_id, offset, 1 << 20), "it is not there"
