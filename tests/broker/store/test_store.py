"""The whole store: queue offsets through crashes, truncation and deletion, and what consumers may see."""

from __future__ import annotations

from pathlib import Path
from random import Random

import attrs
import pytest

from broker.store.directory import DirectoryFiles
from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import Files, MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from remoting.errors import MessageIllegal
from remoting.record import PREPARED, Message, decode, encode_properties

SMALL = StoreConfig(log_file_bytes=2048, queue_file_bytes=20 * 8, index_slots=11, index_entries=64)


def opened(files: Files) -> MessageStore:
    store = MessageStore(files, SMALL)
    store.open()
    return store


def message(topic: str, queue_id: int, body: str, sys_flag: int = 0) -> Message:
    return Message(topic.encode(), body.encode(), queue_id, encode_properties({"TAGS": "TagA"}), sys_flag=sys_flag)


def seen(store: MessageStore, topic: str = "t", queue_id: int = 0) -> list[str]:
    key = topic.encode(), queue_id
    at, bodies = store.min_offset(*key), []
    while found := store.get(*key, at, count=5):
        for raw in found:
            record = decode(raw)
            assert (record.message.topic, record.message.queue_id, record.queue_offset) == (*key, at)
            bodies.append(record.message.body.decode())
            at += 1
    assert at == store.max_offset(*key)
    return bodies


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DirectoryFiles(tmp_path)


def test_a_message_that_is_larger_than_by_default_is_read(files: Files) -> None:
    """It was taken for damage, and at the next start the log ended before it."""
    large, config = b"x" * (5 << 20), attrs.evolve(SMALL, log_file_bytes=6 << 20)
    for again in (False, True):
        store = MessageStore(files, config)
        store.open()
        if not again:
            for body in (b"1", large, b"2"):
                store.put(attrs.evolve(message("t", 0, ""), body=body), 1_000)
            assert store.dispatch() == 3
            store.flush()
        assert [decode(store.get(b"t", 0, at, count=1)[0]).message.body for at in range(3)] == [b"1", large, b"2"]
        store.close()


def test_what_was_put_is_got_by_queue_offset_also_after_closing(files: Files) -> None:
    store = opened(files)
    for number in range(60):
        put = store.put(message("t", number % 2, f"m{number}"), 1000 + number)
        assert put.queue_offset == number // 2
    assert seen(store) == []
    assert store.dispatch() == 60
    for _ in range(2):
        assert seen(store, queue_id=1) == [f"m{number}" for number in range(1, 60, 2)]
        assert store.offset_by_time(b"t", 0, 1011) == 6
        assert (store.offset_by_time(b"t", 0, 0), store.offset_by_time(b"t", 0, 9999)) == (0, 30)
        assert store.queues() == [(b"t", 0), (b"t", 1)]
        store.close()
        store = opened(files)
    assert store.put(message("t", 0, "more"), 2000).queue_offset == 30
    store.close()


def test_nothing_beyond_the_confirm_offset_is_seen_and_offsets_go_on_behind_it() -> None:
    files = MemoryFiles()
    store = opened(files)
    puts = [store.put(message("t", 0, f"m{number}"), number) for number in range(5)]
    store.dispatch(puts[2].offset + 5)
    assert seen(store) == ["m0", "m1"]
    store.flush()
    again = opened(files)
    assert seen(again) == ["m0", "m1"]
    assert again.put(message("t", 0, "m5"), 9).queue_offset == 5
    again.dispatch()
    assert seen(again) == [f"m{number}" for number in range(6)]


def test_a_crash_at_any_moment_keeps_what_was_flushed_at_its_queue_offset() -> None:
    for seed in range(30):
        rng = Random(seed)
        files = MemoryFiles()
        sure = 0
        for _ in range(5):
            store = opened(files)
            store.dispatch()
            found = seen(store)
            assert found == [f"m{number}" for number in range(len(found))] and len(found) >= sure, seed
            number = sure = len(found)
            for _ in range(rng.randrange(30)):
                assert store.put(message("t", 0, f"m{number}"), number).queue_offset == number
                number += 1
                if rng.random() < 0.3:
                    store.dispatch(rng.choice((None, store.log.flushed_offset)))
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


def test_queues_are_built_again_when_their_folder_is_lost() -> None:
    files = MemoryFiles()
    store = opened(files)
    for number in range(30):
        store.put(message("t", 0, f"m{number}"), number)
        store.put(message("u", 3, f"u{number}"), number)
    store.dispatch()
    store.close()
    for name in [name for name in files.content if name.startswith("consumequeue/")]:
        files.remove(name)
    again = opened(files)
    again.put(message("t", 0, "m30"), 99)
    again.dispatch()
    assert seen(again) == [f"m{number}" for number in range(31)]
    assert seen(again, "u", 3) == [f"u{number}" for number in range(30)]


def test_truncation_takes_queue_offsets_back() -> None:
    store = opened(MemoryFiles())
    puts = [store.put(message("t", number % 2, f"m{number}"), number) for number in range(40)]
    store.dispatch()
    store.truncate(puts[25].offset)
    assert seen(store) == [f"m{number}" for number in range(0, 25, 2)]
    assert store.put(message("t", 1, "new"), 99).queue_offset == 12
    store.dispatch()
    assert seen(store, queue_id=1)[-2:] == ["m23", "new"]


def test_old_files_go_and_queues_begin_later() -> None:
    files = MemoryFiles()
    store = opened(files)
    for number in range(100):
        store.put(message("t", 0, f"m{number}"), number)
    store.dispatch()
    store.flush()
    store.delete_before(5000)
    least = store.min_offset(b"t", 0)
    for _ in range(2):
        assert least == store.min_offset(b"t", 0) > 0 and store.log.min_offset == 4096
        assert seen(store) == [f"m{number}" for number in range(least, 100)]
        with pytest.raises(OffsetGone):
            store.get(b"t", 0, least - 1)
        store.close()
        store = opened(files)
    for name in [name for name in files.content if name.startswith("consumequeue/")]:
        files.remove(name)
    again = opened(files)
    again.dispatch()
    assert (again.min_offset(b"t", 0), seen(again)) == (least, [f"m{number}" for number in range(least, 100)])


def test_old_files_that_an_operator_removed_first_keep_back_no_others(files: Files) -> None:
    """To get room again, as is common."""
    store = opened(files)
    for number in range(400):
        store.put(message("t", 0, f"m{number}"), number)
    store.dispatch()
    store.flush()
    for folder in ("commitlog", "consumequeue/t/0", "index"):
        names = files.list(folder)
        assert len(names) > 3
        files.remove(f"{folder}/{names[0]}")
    store.delete_before(3 * 4096)
    assert files.list("commitlog")[0] == f"{3 * 4096:020d}"
    least = store.min_offset(b"t", 0)
    store.close()
    again = opened(files)
    assert seen(again) == [f"m{number}" for number in range(least, 400)]


def test_prepared_messages_take_no_queue_offset() -> None:
    store = opened(MemoryFiles())
    store.put(message("t", 0, "a"), 1)
    put = store.put(message("t", 0, "half", sys_flag=PREPARED), 1)
    store.put(message("t", 0, "b"), 1)
    store.dispatch()
    assert seen(store) == ["a", "b"]
    assert store.get_by_id(put.offset).message.body == b"half"


@pytest.mark.parametrize("topic", ["..", "a/b", "\0", "a\\b"])
def test_a_topic_that_is_no_folder(topic: str) -> None:
    store = opened(MemoryFiles())
    with pytest.raises(MessageIllegal, match="folder"):
        store.put(message(topic, 0, ""), 1)
    with pytest.raises(MessageIllegal, match="UTF-8"):
        store.put(attrs.evolve(message("t", 0, ""), topic=b"\xff"), 1)
    assert store.log.max_offset == 0


def test_queue_files_of_another_size() -> None:
    files = MemoryFiles()
    store = opened(files)
    store.put(message("t", 0, "a"), 1)
    store.dispatch()
    store.close()
    with pytest.raises(WrongStore, match="set mappedFileSizeConsumeQueue"):
        MessageStore(files, StoreConfig(log_file_bytes=2048, queue_file_bytes=20)).open()


def test_messages_are_found_by_key_and_by_unique_id_also_after_truncation() -> None:
    files = MemoryFiles()
    store = opened(files)
    puts = []
    for number in range(90):
        properties = encode_properties({"KEYS": f"k{number % 10} x", "UNIQ_KEY": f"U{number}"})
        puts.append(store.put(Message(b"t", b"m%d" % number, 0, properties), 1000 * number))
    store.dispatch()
    for _ in range(2):
        assert [record.message.body for record in store.get_by_key(b"t", "k7", most=3)] == [b"m87", b"m77", b"m67"]
        assert [record.message.body for record in store.get_by_key(b"t", "U33")] == [b"m33"]
        assert len(store.get_by_key(b"t", "k1", begin_ms=20_000, end_ms=41_000)) == 3
        assert store.get_by_key(b"u", "k1") == store.get_by_key(b"t", "k") == []
        store.close()
        store = opened(files)
    store.truncate(puts[70].offset)
    assert [record.message.body for record in store.get_by_key(b"t", "k7", most=1)] == [b"m67"]
    store.put(Message(b"t", b"new", 0, encode_properties({"KEYS": "k7"})), 99_000)
    store.dispatch()
    assert [record.message.body for record in store.get_by_key(b"t", "k7")][:2] == [b"new", b"m67"]
