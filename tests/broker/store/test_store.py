"""The whole store: queue offsets through crashes, truncation and deletion, and what consumers may see."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from broker.store.errors import WrongStore
from broker.store.files import Files, MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.tables import DelayOffsets, load, save
from remoting.record import decode
from tests.broker.store.small import SMALL, message, opened, seen


def test_a_message_that_is_larger_than_by_default_is_read(files: Files) -> None:
    """It was taken for damage, and at the next start the log ended before it."""
    large, config = b"x" * (5 << 20), attrs.evolve(SMALL, log_file_bytes=6 << 20)
    for again in (False, True):
        store = MessageStore(files, config)
        store.open()
        if not again:
            for body in (b"1", large, b"2"):
                store.writer.put(attrs.evolve(message("t", 0, ""), body=body), 1_000)
            assert store.visible.advance() == 3
            store.flush()
        found = [store.messages.get(b"t", 0, at, count=1)[0] for at in range(3)]
        assert [decode(raw).message.body for raw in found] == [b"1", large, b"2"]
        store.close()


def test_what_was_put_is_got_by_queue_offset_also_after_closing(files: Files) -> None:
    store = opened(files)
    for number in range(60):
        put = store.writer.put(message("t", number % 2, f"m{number}"), 1000 + number)
        assert put.queue_offset == number // 2
    assert seen(store) == []
    assert store.visible.advance() == 60
    for _ in range(2):
        assert seen(store, queue_id=1) == [f"m{number}" for number in range(1, 60, 2)]
        assert store.messages.offset_by_time(b"t", 0, 1011) == 6
        assert (store.messages.offset_by_time(b"t", 0, 0), store.messages.offset_by_time(b"t", 0, 9999)) == (0, 30)
        assert store.messages.queues() == [(b"t", 0), (b"t", 1)]
        store.close()
        store = opened(files)
    assert store.writer.put(message("t", 0, "more"), 2000).queue_offset == 30
    store.close()


def test_nothing_beyond_the_confirm_offset_is_seen_and_offsets_go_on_behind_it() -> None:
    files = MemoryFiles()
    store = opened(files)
    puts = [store.writer.put(message("t", 0, f"m{number}"), number) for number in range(5)]
    store.visible.advance(puts[2].offset + 5)
    assert seen(store) == ["m0", "m1"]
    store.flush()
    again = opened(files)
    assert seen(again) == ["m0", "m1"]
    assert again.writer.put(message("t", 0, "m5"), 9).queue_offset == 5
    again.visible.advance()
    assert seen(again) == [f"m{number}" for number in range(6)]


def test_a_crash_at_any_moment_keeps_what_was_flushed_at_its_queue_offset() -> None:
    for seed in range(30):
        rng = Random(seed)
        files = MemoryFiles()
        sure = 0
        for _ in range(5):
            store = opened(files)
            store.visible.advance()
            found = seen(store)
            assert found == [f"m{number}" for number in range(len(found))] and len(found) >= sure, seed
            number = sure = len(found)
            for _ in range(rng.randrange(30)):
                assert store.writer.put(message("t", 0, f"m{number}"), number).queue_offset == number
                number += 1
                if rng.random() < 0.3:
                    store.visible.advance(rng.choice((None, store.log.flushed_offset)))
                if rng.random() < 0.2:
                    store.log.flush()
                    sure = number
                if rng.random() < 0.1:
                    store.flush()
                    sure = number
            if rng.random() < 0.2:
                store.close()
                sure = number
            files.crash(lambda size, rng=rng: rng.choice((0, size, rng.randrange(size + 1))))  # type: ignore[misc]


def test_a_table_that_a_start_after_a_kill_reads_outlives_a_power_cut() -> None:
    """The killed process may have renamed it, and not synced the name; who repeats the change is answered at once."""
    def killed(what: str) -> None:
        if what == "sync_dir":
            raise InterruptedError

    files = MemoryFiles()
    opened(files)
    save(files, DelayOffsets({1: 5}))
    files.hook = killed
    with pytest.raises(InterruptedError):
        save(files, DelayOffsets({1: 6}))
    files.hook = lambda what: None
    opened(files)
    assert load(files, DelayOffsets) == DelayOffsets({1: 6})
    files.crash()
    assert load(files, DelayOffsets) == DelayOffsets({1: 6})


def test_queues_are_built_again_when_their_folder_is_lost() -> None:
    files = MemoryFiles()
    store = opened(files)
    for number in range(30):
        store.writer.put(message("t", 0, f"m{number}"), number)
        store.writer.put(message("u", 3, f"u{number}"), number)
    store.visible.advance()
    store.close()
    for name in [name for name in files.content if name.startswith("consumequeue/")]:
        files.remove(name)
    again = opened(files)
    again.writer.put(message("t", 0, "m30"), 99)
    again.visible.advance()
    assert seen(again) == [f"m{number}" for number in range(31)]
    assert seen(again, "u", 3) == [f"u{number}" for number in range(30)]


def test_truncation_takes_queue_offsets_back() -> None:
    store = opened(MemoryFiles())
    puts = [store.writer.put(message("t", number % 2, f"m{number}"), number) for number in range(40)]
    store.visible.advance()
    store.truncate(puts[25].offset)
    store.take_over()
    assert seen(store) == [f"m{number}" for number in range(0, 25, 2)]
    assert store.writer.put(message("t", 1, "new"), 99).queue_offset == 12
    store.visible.advance()
    assert seen(store, queue_id=1)[-2:] == ["m23", "new"]


def test_queue_files_of_another_size() -> None:
    files = MemoryFiles()
    store = opened(files)
    store.writer.put(message("t", 0, "a"), 1)
    store.visible.advance()
    store.close()
    with pytest.raises(WrongStore, match="set mappedFileSizeConsumeQueue"):
        MessageStore(files, StoreConfig(log_file_bytes=2048, queue_file_bytes=20)).open()




def test_queues_without_messages_here_go_on_where_others_have_them() -> None:
    files = MemoryFiles()
    store = opened(files)
    store.writer.put(message("t", 0, "own"), 1_000)
    store.visible.advance()
    begun: list[bytes] = []
    store.on_new_queue.call = begun.append
    ends = {(b"t", 0): 9, (b"t", 1): 5, (b"t", 2): 16, (b"t", 3): 0, (b"u", 0): 19, (b"../x", 0): 3}
    for _ in range(2):
        store.writer.begin_queues(ends)
        assert [store.messages.max_offset(b"t", queue) for queue in range(4)] == [1, 5, 16, 0]
        assert store.messages.max_offset(b"u", 0) == 19
        assert store.messages.queues() == [(b"t", 0), (b"t", 1), (b"t", 2), (b"u", 0)]
        assert begun == [b"t", b"t", b"u"]
        assert store.messages.get(b"t", 1, 5) == []
        store.close()
        store = opened(files)
    store.take_over()
    puts = [store.writer.put(message("t", queue, "next"), 2_000) for queue in range(4)]
    assert [put.queue_offset for put in puts] == [1, 5, 16, 0]
    store.visible.advance()
    assert seen(store, "t", 2) == ["next"]
    store.close()


@pytest.mark.parametrize("is_master", [True, False])
def test_older_messages_of_a_topic_that_was_made_again_do_not_come_back_as_they_are_told_again(is_master: bool) -> None:
    """A killed process tells those again that came since its last flush. Their places are free again: the queue was
    deleted, or, on a slave, begun anew by the first message of the new topic."""
    disks = MemoryFiles(), MemoryFiles()
    master, slave = map(opened, disks)
    store, disk = (master, disks[0]) if is_master else (slave, disks[1])

    def put(*bodies: str) -> None:
        for body in bodies:
            master.writer.put(message("t", 0, body), 1)
        slave.writer.append_raw(master.log.read(slave.log.max_offset, 1 << 20), slave.log.max_offset)
        master.visible.advance()
        slave.visible.advance()

    put("old0")
    store.flush()
    put("old1", "old2", "old3")
    master.delete_topics([b"t"])
    master.take_over()
    put("new0", "new1")
    queue = store.messages.queue(b"t", 0)
    assert queue is not None and seen(store) == ["new0", "new1"]
    queue.write()
    store.log.write()
    store.abandon()
    again = opened(disk)
    again.visible.advance()
    assert seen(again) == ["new0", "new1"]
    assert again.writer.put(message("t", 0, "new2"), 3).queue_offset == 2
    again.visible.advance()
    assert seen(again) == ["new0", "new1", "new2"]
    again.close()
