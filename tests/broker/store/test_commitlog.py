"""The log in memory and on disk: where messages stand, what a crash leaves, and what a failing disk does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import attrs
import pytest

from broker.store import commitlog
from broker.store.commitlog import CommitLog
from broker.store.directory import DirectoryFiles
from broker.store.errors import OffsetGone, StoreFailed, StoreFull, WrongStore
from broker.store.files import Files, MemoryFile, MemoryFiles, read_whole, write_whole
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import Message, decode_all, encode

FILE = 1024


@attrs.define(eq=False)
class CountedFile(MemoryFile):
    files: ReadsCounted = attrs.field(kw_only=True)

    def pread(self, size: int, offset: int, *, cached: bool = True) -> bytes:
        self.files.reads += 1
        return super().pread(size, offset, cached=cached)


@attrs.define(eq=False)
class ReadsCounted(MemoryFiles):
    reads: int = 0

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.content and create:
            self.content[path] = CountedFile(files=self)
        return super().open(path, create=create)


def opened(files: Files, recover_from: int = 0) -> CommitLog:
    log = CommitLog(files, file_bytes=FILE)
    log.open(recover_from)
    return log


def filled(files: Files, count: int, size: int = 100) -> tuple[CommitLog, list[int]]:
    log = opened(files)
    return log, [
        log.append(Message(b"t", b"%d " % number + b"." * size, properties=b"k\x01v\x02"), number, number)[0]
        for number in range(count)]


def bodies(log: CommitLog) -> list[bytes]:
    return [log.record(found[0]).message.body for found in log.scan(log.min_offset)]


def test_files_end_with_a_blank_and_messages_go_on_in_the_next(files: Files) -> None:
    log, offsets = filled(files, 20)
    assert [found[:2] for found in log.scan(0)] == [
        (offset, log.record(offset).size) for offset in offsets]
    assert files.list("commitlog") == [f"{FILE * number:020d}" for number in range(log.max_offset // FILE + 1)]
    first = [offset for offset in offsets if offset < FILE]
    end = first[-1] + log.record(first[-1]).size
    assert offsets[len(first)] == FILE
    assert log.read(end, 8) == (FILE - end).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert log.next_offset(end) == FILE and log.next_offset(FILE) == FILE
    log.flush()
    log.close()
    again = opened(files)
    assert again.max_offset == log.max_offset
    assert bodies(again) == [b"%d " % number + b"." * 100 for number in range(20)]
    again.close()


def test_a_record_leaves_eight_bytes_or_goes_to_the_next_file() -> None:
    over = len(encode(Message(b"t", b""), 0, 0, 0))
    log = opened(MemoryFiles())
    for free, offset in ((8, 0), (7, FILE)):
        log.close()
        log = opened(MemoryFiles())
        if free == 7:
            log.append(Message(b"t", b""), 0, 0)
        room = FILE - free - over - (over if free == 7 else 0)
        assert log.append(Message(b"t", b"x" * room), 0, 0)[0] == offset
    with pytest.raises(MessageIllegal, match="a file of the log has 1024"):
        log.append(Message(b"t", b"x" * (FILE - 7 - over)), 0, 0)


def test_reading_stops_at_files_and_ends() -> None:
    log, offsets = filled(MemoryFiles(), 20)
    assert len(log.read(0, 10 * FILE)) == FILE
    assert len(log.read(log.max_offset - 5, 100)) == 5
    assert log.read(log.max_offset, 100) == b""
    for offset in (-1, log.max_offset + 1):
        with pytest.raises(OffsetGone):
            log.read(offset, 1)
    with pytest.raises(DamagedRecord):
        log.record(offsets[1] + 1)
    assert [found[0] for found in log.scan(0, offsets[5] + 1)] == offsets[:5]


def test_every_cut_and_every_torn_byte_of_the_last_records_recovers_to_a_whole_message() -> None:
    log, offsets = filled(MemoryFiles(), 7, size=20)
    log.flush()
    raw = log.read(0, log.max_offset)
    ends = [*offsets[1:], log.max_offset]
    for damage in (b"", b"\xff", b"\x00"):
        for at in range(offsets[4], log.max_offset):
            whole = [end for end in ends if end <= at]
            files = MemoryFiles()
            cut = raw[:at] + damage + raw[at + 1 :] if damage else raw[:at]
            if cut == raw:
                continue
            files.open("commitlog/" + "0" * 20, create=True).pwrite(cut.ljust(FILE, b"\0"), 0)
            again = opened(files)
            found = decode_all(again.read(0, again.max_offset))
            if again.max_offset not in whole[-1:]:
                # Only fields that nothing checks may differ: hosts, times, flags, topic, properties.
                assert damage and again.max_offset in ends
                assert [record.message.body for record in found] == [
                    record.message.body for record in decode_all(raw)][: len(found)]


def test_a_crash_keeps_what_was_flushed_and_brings_nothing_back() -> None:
    for seed in range(60):
        rng = Random(seed)
        files = MemoryFiles()
        kept: list[bytes] = []
        number = 0
        for _ in range(4):
            log = opened(files)
            found = bodies(log)
            assert found[: len(kept)] == kept, seed
            kept = found
            sure = len(kept)
            for _ in range(rng.randrange(12)):
                body = b"%d " % number + b"." * rng.randrange(150)
                log.append(Message(b"t", body), number, number)
                number += 1
                kept.append(body)
                if rng.random() < 0.3:
                    log.write()
                if rng.random() < 0.2:
                    assert log.flush() == log.max_offset
                    sure = len(kept)
            kept = kept[:sure]
            files.crash(lambda size, rng=rng: rng.choice((0, size, rng.randrange(size + 1))))  # type: ignore[misc]


def test_what_was_truncated_stays_away_though_the_new_record_has_the_old_ones_size() -> None:
    files = MemoryFiles()
    log, offsets = filled(files, 5)
    log.flush()
    log.truncate(offsets[3])
    log.append(Message(b"t", b"new".ljust(102, b"."), properties=b"k\x01v\x02"), 3, 3)
    log.flush()
    assert bodies(opened(files))[3:] == [b"new".ljust(102, b".")]
    with pytest.raises(OffsetGone):
        log.truncate(log.max_offset + 1)


def test_truncation_drops_files() -> None:
    files = MemoryFiles()
    log, offsets = filled(files, 20)
    log.flush()
    log.truncate(FILE)
    assert files.list("commitlog") == ["0" * 20]
    assert log.append(Message(b"t", b"x"), 0, 0)[0] == FILE
    log.flush()
    assert bodies(opened(files))[-1] == b"x"
    assert len(offsets) == 20


def test_old_files_go_and_the_last_stays() -> None:
    log, _ = filled(MemoryFiles(), 20)
    for flushed, offset, least in ((False, 10 * FILE, 0), (True, 2 * FILE - 1, FILE), (True, 10 * FILE, None)):
        if flushed:
            log.flush()
        for _ in log.release_before(offset):
            pass
        assert log.min_offset == (log.max_offset // FILE * FILE if least is None else least), "only what is flushed"
    with pytest.raises(OffsetGone):
        log.read(0, 1)


def test_a_replica_takes_the_bytes_as_they_are() -> None:
    log, _ = filled(MemoryFiles(), 20)
    log.flush()
    files = MemoryFiles()
    copy = opened(files)
    with pytest.raises(WrongStore, match="set mappedFileSizeCommitLog to the master's"):
        copy.append_raw(b"x", 5)
    at = FILE
    while at < log.max_offset:
        data = log.read(at, 300)
        copy.append_raw(data, at)
        at += len(data)
    copy.flush()
    assert (copy.min_offset, copy.max_offset, copy.flushed_offset) == (FILE, log.max_offset, log.max_offset)
    assert bodies(opened(files)) == [log.record(found[0]).message.body for found in log.scan(FILE)]
    with pytest.raises(OffsetGone):
        copy.append_raw(b"x", at + 1)


def test_of_old_bytes_what_is_wanted_soon_is_read_from_memory() -> None:
    log, _ = filled(MemoryFiles(), 200)
    files = ReadsCounted()
    copy = opened(files)
    rng, buffer, wanted = Random(7), bytearray(700), 0
    while (at := copy.max_offset) < log.max_offset:
        data = log.read(at, rng.randrange(1, 700))
        buffer[: len(data)] = data
        copy.append_raw(memoryview(buffer)[: len(data)], at, wanted)
        buffer[:] = bytes(700)
        for _ in range(rng.randrange(3)):
            begin = rng.randrange(wanted, copy.max_offset)
            size = rng.randrange(1, copy.max_offset - begin + 1)
            if begin // FILE == (begin + size - 1) // FILE:
                assert copy.read(begin, size) == log.read(begin, size)
        wanted = rng.randrange(wanted, copy.max_offset + 1)
    assert files.reads == 0
    assert [found[0] for found in copy.scan(0)] == [found[0] for found in log.scan(0)] and files.reads > 0
    copy.truncate(wanted - 1)
    assert copy.read(wanted - 2, 10) == log.read(wanted - 2, 1), "nothing is kept of what was cut"


def test_slabs_are_read_once_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commitlog, "SLABS_MAX", 2)
    monkeypatch.setattr(commitlog, "SLAB_BYTES", 300)
    log, _ = filled(MemoryFiles(), 20)
    files = ReadsCounted()
    copy = opened(files)
    copy.append_raw(log.read(0, FILE), 0)
    copy.append_raw(log.read(FILE, 500), FILE)
    found = []
    for offset in (0, 299, 300, 0, 899, 0, 900, 900, FILE, FILE + 299, FILE + 499):
        before = files.reads
        begin, data = copy.slab(offset)
        assert begin <= offset < begin + len(data) and data == log.read(begin, len(data))
        found.append((begin, len(data), files.reads - before))
    assert found == [
        (0, 300, 1), (0, 300, 0), (300, 300, 1), (0, 300, 0), (600, 300, 1), (0, 300, 1), (900, 124, 1), (900, 124, 1),
        (FILE, 300, 0), (FILE, 300, 0), (FILE + 300, 200, 0)], "one that is not whole is not kept"


def test_slabs_are_those_of_the_log_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commitlog, "SLAB_BYTES", 200)
    log, rng = opened(MemoryFiles()), Random(5)
    for number in range(400):
        log.append(Message(b"t", bytes([number % 256]) * rng.randrange(200)), number, number)
        if rng.random() < 0.1:
            log.truncate(rng.randrange(max(log.min_offset, log.max_offset - 700), log.max_offset + 1))
        elif rng.random() < 0.05:
            log.flush()
            for _ in log.release_before(log.max_offset - 2 * FILE):
                pass
            with pytest.raises(OffsetGone):
                log.slab(log.min_offset - 1)
        for _ in range(3 if log.max_offset > log.min_offset else 0):
            offset = rng.randrange(log.min_offset, log.max_offset)
            begin, data = log.slab(offset)
            assert begin <= offset < begin + len(data) and data == log.read(begin, 200)


@pytest.mark.parametrize("refused", [False, True])
def test_a_file_that_nobody_keeps_in_memory_is_the_same_file(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    asked: list[int] = []

    def refuse(fd: int, buffers: list[bytes], offset: int, flags: int = 0) -> int:
        if not flags:
            return os.pwrite(fd, b"".join(buffers)[:100], offset)  # a part, as the system may
        asked.append(flags)
        raise OSError(errno.EOPNOTSUPP, "not of this system")

    if refused:
        monkeypatch.setattr(os, "pwritev", refuse)
        monkeypatch.setattr(os, "preadv", refuse)
    file = DirectoryFiles(tmp_path).open("a", create=True)
    data = Random(1).randbytes(10_000)
    for at in range(0, len(data), 777):
        file.write_past([data[at : at + 70], memoryview(data)[at + 70 : at + 777]], at)
    assert file.pread(20_000, 1, cached=False) == data[1:] == file.pread(20_000, 1)
    assert len(asked) == refused, "and is not asked for again"
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_past([b"x"], 0)


def test_after_a_failed_sync_nothing_is_flushed_any_more() -> None:
    files = MemoryFiles()
    log, _ = filled(files, 2)
    log.flush()
    flushed = log.flushed_offset
    log.append(Message(b"t", b"x"), 0, 0)
    file = files.content["commitlog/" + "0" * 20]
    file.fault = OSError(errno.EIO, "I/O error")
    with pytest.raises(StoreFailed):
        log.flush()
    file.fault = None
    with pytest.raises(StoreFailed, match="restart the broker"):
        log.flush()
    with pytest.raises(StoreFailed):
        log.append(Message(b"t", b"x"), 0, 0)
    assert log.flushed_offset == flushed


def test_a_sync_in_another_thread_that_fails_counts_for_nothing() -> None:
    log, _ = filled(MemoryFiles(), 2)
    job = log.sync_job()
    assert job is not None
    log.sync_failed(OSError(errno.EIO, "I/O error"))
    log.flushed(job)
    assert log.flushed_offset == 0


def test_a_full_disk_refuses_before_anything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    log, _ = filled(files, 7)
    end, before = log.max_offset, bodies(log)

    def full(self: MemoryFile, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MemoryFile, "reserve", full)
    with pytest.raises(StoreFull, match="No space left"):
        log.append(Message(b"t", b"x" * 900), 0, 0)
    assert log.max_offset == end
    monkeypatch.undo()
    assert log.append(Message(b"t", b"x" * 900), 0, 0)[0] == end - end % FILE + FILE
    log.flush()
    assert bodies(opened(files)) == [*before, b"x" * 900]


def test_files_that_are_not_of_this_log() -> None:
    files = MemoryFiles()
    log, _ = filled(files, 20)
    log.flush()
    with pytest.raises(WrongStore, match="1024 bytes, not 2048: set mappedFileSizeCommitLog"):
        CommitLog(files, file_bytes=2048).open()
    files.remove(f"commitlog/{FILE:020d}")
    with pytest.raises(WrongStore, match="no file between"):
        opened(files)


def test_recovery_from_a_later_file_and_an_empty_file_at_the_end() -> None:
    files = MemoryFiles()
    log, _ = filled(files, 20)
    log.flush()
    files.open(f"commitlog/{log.max_offset // FILE * FILE + FILE:020d}", create=True)
    again = CommitLog(files, file_bytes=FILE)
    found = again.open(2 * FILE + 5)
    assert (found.begin, found.end) == (2 * FILE, log.max_offset)
    assert "a record has 91 or more" in found.reason


def test_a_directory_is_held_once(tmp_path: Path) -> None:
    holder = DirectoryFiles(tmp_path)
    holder.lock()
    holder.lock()
    holder.unlock()
    holder.lock()
    holder.unlock()


def test_a_small_file_is_replaced_and_the_old_one_kept(files: Files) -> None:
    for content in (b"one", b"two", b"3"):
        write_whole(files, "config/a.json", content)
    assert (read_whole(files, "config/a.json"), read_whole(files, "config/a.json.bak")) == (b"3", b"two")
    assert read_whole(files, "config/b.json") is None
    assert files.list("config") == ["a.json", "a.json.bak"]


def test_a_log_that_never_held_anything_begins_anywhere_whatever_file_a_crash_left() -> None:
    """A slave dies as it creates its first file; meanwhile its master has begun another, from which it is to copy."""
    files = MemoryFiles()
    files.open(f"commitlog/{0:020d}", create=True)
    log = opened(files)
    raw = encode(Message(b"t", b"x"), FILE, 0, 0)
    log.append_raw(raw, FILE)
    assert (log.min_offset, log.max_offset) == (FILE, FILE + len(raw))
    assert files.list("commitlog") == [f"{FILE:020d}"]
    with pytest.raises(OffsetGone):
        log.append_raw(raw, 2 * FILE)
