"""The store's files on a real directory: after a power cut every folder that it made is still there."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.store.consumequeue import ENTRY, ConsumeQueue
from broker.store.directory import DirectoryFiles
from broker.store.files import write_whole
from broker.store.store import MessageStore, StoreConfig
from remoting.record import Message
from tests.folders import Names

CONFIG = StoreConfig(log_file_bytes=4_096, queue_file_bytes=200, index_slots=64, index_entries=64)


def store_something(root: Path) -> None:
    """As a broker does, from its first start to its end."""
    files = DirectoryFiles(root)
    store = MessageStore(files, CONFIG)
    try:
        store.open()
        write_whole(files, "config/topics.json", b"{}")
        for number in range(3):
            store.writer.put(Message(b"T%d" % number, b"body", 0, b"KEYS\x01k\x02"), 1)
        store.log.write()
        store.visible.advance()
        store.close()
    except BaseException:
        files.unlock()  # as the end of the process does
        raise


def test_every_new_folder_of_a_store_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names().watch(monkeypatch)
    store_something(tmp_path / "a" / "b" / "store")
    assert names.lost == []
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(names.synced)


def test_folders_of_a_killed_process_are_on_disk_after_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, place = Names().watch(monkeypatch), itertools.count()

    def fresh() -> Callable[[], None]:
        root = tmp_path / f"a{next(place)}" / "b" / "store"
        return lambda: store_something(root)

    try:
        assert names.lost_after_a_kill_at_every_step(fresh) == []
    finally:
        gc.collect()  # the files of processes that were killed, which nobody closed


def test_messages_are_for_the_broker_s_user_and_group_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store_something(tmp_path / "store")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in files if path.stat().st_mode & 0o037} == {}


def test_a_file_that_is_deleted_is_not_synced_any_more(tmp_path: Path) -> None:
    """The system takes what is written to it, and forgets it with the process."""
    files = DirectoryFiles(tmp_path / "store")
    files.lock()
    file = files.open("commitlog/0", create=True)
    file.pwrite(b"kept", 0)
    file.sync()
    shutil.rmtree(files.root)
    file.pwrite(b"lost", 4)
    with pytest.raises(FileNotFoundError, match=r"deleted while its broker runs.*store/commitlog/0"):
        file.sync()
    file.close()
    file.sync()
    with pytest.raises(FileNotFoundError, match="deleted while its broker runs"):
        files.open("commitlog/1", create=True)
    assert not files.root.exists(), "what is made anew would look like a store"
    files.unlock()


def test_a_file_says_where_it_may_hold_more_than_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DirectoryFiles(tmp_path).open("sparse", create=True)
    file.resize(3 << 20)
    assert [file.data_from(at) for at in (0, 1 << 20, 3 << 20, 4 << 20)] == [None] * 4
    file.pwrite(b"x", (2 << 20) + 5)
    at = file.data_from(7)
    assert at is not None and 1 << 20 < at <= (2 << 20) + 5, "a block at a time"
    assert [file.data_from((2 << 20) + 5), file.data_from((3 << 20) - 1)] == [(2 << 20) + 5, None]
    for number, expected in ((errno.EINVAL, 7), (errno.EIO, None)):
        def refuse(*_: int, number: int = number) -> int:
            raise OSError(number, "so it is")

        monkeypatch.setattr(os, "lseek", refuse)
        if expected is None:
            with pytest.raises(OSError, match="so it is"):
                file.data_from(7)
        else:
            assert file.data_from(7) == expected, "a file system that knows no holes"


def test_a_queue_of_few_messages_is_opened_with_few_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has room for 300,000 entries, and all of it was read, for each queue of a broker that starts."""
    queue = ConsumeQueue(DirectoryFiles(tmp_path), "consumequeue/T/0")
    queue.open(0)
    queue.append(0, 0, 100, 7)
    queue.write()
    stale = DirectoryFiles(tmp_path).open(f"consumequeue/T/0/{0:020d}")
    stale.pwrite(ENTRY.pack(900, 100, 7), 5_000_000)
    reads, pread = list[int](), os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        reads.append(size)
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", count)
    again = ConsumeQueue(DirectoryFiles(tmp_path), "consumequeue/T/0")
    again.open(100, 100)
    assert again.max_offset == 1 and sum(reads) < 500_000 and len(reads) < 50
    assert not stale.pread(20, 5_000_000).strip(b"\0"), "what a crash left is found, and goes"
    assert stale.size() == 6_000_000
