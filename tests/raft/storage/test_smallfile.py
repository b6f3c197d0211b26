"""A small file is there whole, as it was or as it is to be; what is damaged is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raft.errors import MalformedMessage
from raft.storage.directory import DirectoryFiles
from raft.storage.smallfile import BYTES_MAX, read_small, staged, write_small
from tests.raft.storage.forged import CountingDisk

MAGIC = b"QRx1"


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    assert read_small(files, "note", MAGIC) is None
    for body in (b"one", b"", b"three"):
        write_small(files, "note", MAGIC, body)
        assert read_small(files, "note", MAGIC) == body
        assert files.list("") == ["note"]


def test_no_file_is_left_open() -> None:
    disk = CountingDisk()
    write_small(disk, "note", MAGIC, b"body")
    assert read_small(disk, "note", MAGIC) == b"body"
    disk.rot("note", 9)
    with pytest.raises(MalformedMessage):
        read_small(disk, "note", MAGIC)
    assert len(disk.opened) == 3 and not disk.left_open


def test_what_a_crash_left_staged_is_replaced(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    (tmp_path / staged("note")).write_bytes(b"a longer part of something else")
    assert read_small(files, "note", MAGIC) is None
    write_small(files, "note", MAGIC, b"whole")
    assert read_small(files, "note", MAGIC) == b"whole"


@pytest.mark.parametrize("harm", [
    lambda data: b"", lambda data: data[:7], lambda data: data[:-1], lambda data: data + b"x",
    lambda data: b"QRy1" + data[4:], lambda data: data[:4] + bytes([data[4] ^ 1]) + data[5:]])
def test_what_is_not_as_it_was_written_is_told(harm: Callable[[bytes], bytes], tmp_path: Path) -> None:
    files, note = DirectoryFiles(tmp_path), tmp_path / "note"
    write_small(files, "note", MAGIC, b"body")
    note.write_bytes(harm(note.read_bytes()))
    with pytest.raises(MalformedMessage, match="magic or CRC"):
        read_small(files, "note", MAGIC)


def test_no_more_is_read_than_may_be_there(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    write_small(files, "note", MAGIC, bytes(BYTES_MAX - 8))
    assert read_small(files, "note", MAGIC) == bytes(BYTES_MAX - 8)
    write_small(files, "note", MAGIC, bytes(BYTES_MAX - 7))
    with pytest.raises(MalformedMessage):
        read_small(files, "note", MAGIC)
