"""Consumers see the log in slices of any size, and the index follows the queues within bounds."""

from __future__ import annotations

from random import Random

import pytest

from broker.store import visible
from broker.store.dispatch import in_queue
from broker.store.files import MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from remoting.record import PREPARED, Message, Outline, encode_properties


def test_dispatch_in_pieces_is_dispatch_at_once() -> None:
    rng = Random(7)
    store = MessageStore(MemoryFiles(), StoreConfig(log_file_bytes=4096, queue_file_bytes=20 * 16, index_slots=101,
                                                    index_entries=64))
    store.open()
    for number in range(400):
        store.writer.put(Message(b"t", b"x" * rng.randrange(900), number % 3, encode_properties({"KEYS": f"k{number}"}),
                          sys_flag=rng.choice((0, 0, 0, PREPARED))), number)
    end = store.log.max_offset
    runs, at = list[Outline](), 0
    while at < end:
        run, at = store.log.run(at, end, rng.randrange(1, 9), ask=rng.randrange(8, 2_000))
        assert run
        runs += run
    assert runs == list(store.log.scan(0))
    seen: list[tuple[int, int]] = []
    store.arrived.call = lambda topic, queue_id, offset, code, found: seen.append((queue_id, offset))
    while store.visible.advance_some(end, rng.randrange(1, 20)):
        pass
    assert store.visible.offset == store.visible.indexed_offset == end
    assert seen == [(found[2], found[3]) for found in runs if in_queue(found[4])]
    for found in runs:
        key = found[7][5:-1].decode()
        assert found[0] in [record.offset for record in store.messages.get_by_key(b"t", key)]
        if in_queue(found[4]):
            queue = store.messages.queue(b"t", found[2])
            assert queue is not None and queue.entry(found[3])[:2] == found[:2]


def test_a_copy_goes_before_the_index_within_bounds_and_takes_the_queues_along() -> None:
    store = MessageStore(MemoryFiles(), StoreConfig(log_file_bytes=1 << 20, index_slots=101, index_entries=10_000))
    store.open()
    for number in range(2_000):
        store.writer.put(Message(b"t", b"x" * 100, 0, encode_properties({"KEYS": f"k{number:04}"})), number)
    end, size = store.log.max_offset, store.log.max_offset // 2_000
    assert not store.visible.advance_some(100 * size + 1, 10, aside=500)
    assert store.visible.offset == store.visible.indexed_offset == 100 * size, "nothing is known yet of sizes"
    assert not store.visible.advance_some(599 * size, 10, aside=500)
    assert store.visible.offset == 599 * size and store.visible.indexed_offset == 100 * size, "few wait for the index"
    assert not store.visible.advance_some(1_000 * size, 10, aside=500)
    assert store.visible.offset == 1_000 * size
    assert store.visible.indexed_offset == 501 * size, "at one pace, since more wait than may"
    assert not store.visible.advance_some(1_000 * size, 10, aside=500)
    assert store.visible.indexed_offset == 501 * size
    while store.visible.advance_some(end, 160):
        pass
    assert store.visible.indexed_offset == store.visible.offset == end


def test_a_copy_takes_the_queues_along_in_slices_and_beyond_any_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible, "_COPIED_BYTES", 1_000)
    store = MessageStore(MemoryFiles(), StoreConfig(log_file_bytes=8_192))
    store.open()
    for size in (3_000, 100, 100, 100, 5_000, 100):  # the fifth leaves a blank of 4 KiB
        store.writer.put(Message(b"t", b"x" * size, 0), 0)
    end, ends = store.log.max_offset, [0]
    while store.visible.advance_some(end, 1, aside=1):
        ends.append(store.visible.offset)
    assert store.visible.offset == end and store.messages.max_offset(b"t", 0) == 6
    assert len(ends) > 3, "a large message, three small ones at once, the one behind the blank"
