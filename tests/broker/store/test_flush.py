"""A flush of queues, index and checkpoint that fails or is cancelled promises nothing that is not on disk."""

from __future__ import annotations

import errno

import pytest

from broker.store.checkpoint import PATH, Checkpoint
from broker.store.files import MemoryFiles, read_whole
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message, decode, encode_properties

SMALL = StoreConfig(log_file_bytes=1 << 14, queue_file_bytes=20 * 8, index_slots=11, index_entries=16)


def opened(files: MemoryFiles) -> MessageStore:
    store = MessageStore(files, SMALL)
    store.open()
    return store


def put(store: MessageStore, first: int, count: int) -> None:
    for number in range(first, first + count):
        store.writer.put(Message(b"t", b"m%d" % number, 0, encode_properties({"KEYS": f"k{number}"})), number)
    store.log.flush()
    store.visible.advance()


def complete(files: MemoryFiles) -> int:
    return Checkpoint.decode(read_whole(files, PATH)).queues_offset


def check(files: MemoryFiles, count: int) -> None:
    """What a crash leaves is all of it."""
    files.crash()
    store = opened(files)
    store.visible.advance()
    assert [decode(raw).message.body for raw in store.messages.get(b"t", 0, 0, count=1_000)] == [
        b"m%d" % number for number in range(count)]
    for number in range(count):
        assert [record.message.body for record in store.messages.get_by_key(b"t", f"k{number}")] == [b"m%d" % number]


def check_next_flush(files: MemoryFiles, count: int) -> None:
    """The next process has it all on disk after one flush, and what a crash leaves of that is all of it."""
    store = opened(files)
    store.visible.advance()
    store.flush()
    assert complete(files) == store.log.max_offset
    check(files, count)


def test_after_a_failed_sync_of_a_queue_no_checkpoint_counts_on_it() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 5)
    store.flush()
    before = complete(files)
    put(store, 5, 5)
    file = files.content["consumequeue/t/0/" + "0" * 20]
    store.messages.queue(b"t", 0).write()  # type: ignore[union-attr]
    file.fault = OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="Input/output error"):
        store.flush()
    file.fault = None
    put(store, 10, 5)
    store.flush()
    assert 0 < before == complete(files) < store.visible.offset
    check(files, 15)


def test_a_full_disk_while_the_index_is_flushed_is_tried_again() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 3)
    assert store.messages.get_by_key(b"t", "k1"), "there is a file now"
    index = next(name for name in files.content if name.startswith("index/"))
    files.content[index].fault = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        store.flush()
    assert complete(files) == 0
    assert len(store.messages.get_by_key(b"t", "k1")) == 1, "it is still known"
    files.content[index].fault = None
    put(store, 3, 3)
    store.flush()
    assert complete(files) == store.log.max_offset
    check(files, 6)


@pytest.mark.parametrize("steps", range(12))
def test_a_flush_that_is_cancelled_at_any_step(steps: int) -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 20)
    keep = store.log.max_offset
    put(store, 20, 10)
    flush = store.flusher.begin()
    run = flush.steps()
    for _ in range(steps):
        next(run, None)
    store.truncate(keep)
    assert next(run, True), "it leaves off"
    assert complete(files) <= keep
    store.flusher.end(flush)
    store.take_over()
    put(store, 20, 1)
    check(files, 21)
    check_next_flush(files, 21)


def test_what_is_flushed_meanwhile_can_be_read() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 7)
    flush = store.flusher.begin()
    run = flush.steps()
    put(store, 7, 20)
    for step in range(20):
        for number in range(27):
            assert len(store.messages.get_by_key(b"t", f"k{number}")) == 1, (step, number)
        next(run, None)
    store.flusher.end(flush)
    store.flush()
    check(files, 27)


def test_everything_is_forgotten_and_a_log_begins_elsewhere() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 60)
    store.flush()
    store.truncate(0, everything=True)
    assert (store.messages.queues(), store.log.max_offset, store.messages.get_by_key(b"t", "k1")) == ([], 0, [])
    source = MessageStore(MemoryFiles(), SMALL)
    source.open()
    put(source, 0, 200)
    begin = source.log.max_offset // (1 << 14) * (1 << 14)
    assert begin > 0
    store.writer.append_raw(source.log.read(begin, 1 << 14), begin)
    for _ in range(2):
        store.visible.advance()
        assert store.log.min_offset == begin and store.log.max_offset == source.log.max_offset
        first = store.messages.min_offset(b"t", 0)
        assert 0 < first == decode(store.messages.get(b"t", 0, first)[0]).queue_offset
        assert store.messages.max_offset(b"t", 0) == 200
        store.take_over()
        assert store.writer.put(Message(b"t", b"mine"), 9).queue_offset == 200
        store.truncate(source.log.max_offset)
        store.flush()
        files.crash()
        store = opened(files)


def test_no_checkpoint_counts_on_a_log_that_was_not_flushed() -> None:
    """Under ASYNC_FLUSH queues are flushed while the log may not be: a power cut is no damage then."""
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 3)
    safe = store.log.flushed_offset
    for number in range(3, 30):
        store.writer.put(Message(b"t", b"m%d" % number, 0, encode_properties({"KEYS": f"k{number}"})), number)
    store.log.write()
    store.visible.advance()
    flush = store.flusher.begin()
    for _ in flush.steps():
        pass
    store.flusher.end(flush)
    assert complete(files) == safe < store.visible.offset
    sizes: list[int] = []

    def later_ones_survive(size: int) -> int:
        sizes.append(size)
        return size if len(sizes) > 4 else 0

    files.crash(later_ones_survive)
    assert opened(files).log.max_offset == safe


def test_queues_that_lost_more_than_a_file_are_told_again() -> None:
    """The first message behind the checkpoint has no place in what is left: the queue lacks those in front of it."""
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 40)
    store.flush()
    put(store, 40, 5)
    store.log.flush()
    for name in [name for name in files.content if name.startswith("consumequeue/") and int(name[-20:]) >= 160]:
        del files.content[name]
        files.sync_dir("consumequeue/t/0")
    check(files, 45)


@pytest.mark.parametrize("count", [3, 20])
def test_a_flush_counts_on_no_entry_that_a_killed_process_left_in_memory(count: int) -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 5)
    store.flush()
    put(store, 5, count)
    store.messages.queue(b"t", 0).write()  # type: ignore[union-attr]
    store.abandon()
    check_next_flush(files, 5 + count)


def test_a_flush_counts_on_no_file_that_a_killed_process_made_and_left_empty() -> None:
    files = MemoryFiles()
    store = opened(files)
    store.writer.put(Message(b"other", b"m"), 0)
    store.log.flush()
    store.visible.advance()
    store.flush()
    store.writer.put(Message(b"t", b"m0", 0, encode_properties({"KEYS": "k0"})), 0)
    store.log.flush()
    store.abandon()
    files.open("consumequeue/t/0/" + "0" * 20, create=True).resize(20 * 8)
    check_next_flush(files, 1)


def test_a_flush_counts_on_no_index_file_whose_name_a_killed_process_left_in_memory() -> None:
    files = MemoryFiles()
    store = opened(files)
    put(store, 0, 5)
    assert store.messages.get_by_key(b"t", "k1"), "there is a file now"
    store.abandon()
    check_next_flush(files, 5)
