"""The lives that a store knows: they are read as they were written, and a damaged file tells of none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from broker.store.files import MemoryFile, MemoryFiles
from broker.store.lives import ANY, PATH, StoreLives
from broker.store.store import MessageStore
from tests.broker.store.test_trust import SMALL, opened, put


def lives_of(store: MessageStore, files: MemoryFiles) -> StoreLives:
    return StoreLives(files, store.trust)


def test_lives_are_read_as_they_were_written_after_a_power_cut_too() -> None:
    files = MemoryFiles()
    lives = lives_of(opened(files), files)
    assert lives.read() == (ANY,), "nobody noted any"
    for noted in ((71,), (71, 1 << 62)):
        lives.write(noted)
        files.crash()
        assert lives.read() == noted


@pytest.mark.parametrize("data", [b"", b"71 x", b"-71", b"\xff", b"9" * 30])
def test_a_damaged_file_knows_no_life(data: bytes) -> None:
    files = MemoryFiles()
    lives = lives_of(opened(files), files)
    files.content[PATH] = MemoryFile(bytearray(data), data)
    assert lives.read() == ()


@pytest.mark.parametrize("synced", [False, True])
def test_an_older_copy_is_in_doubt_until_it_is_level(synced: bool) -> None:
    """Through restarts of any kind; nothing of it was unsynced, so nothing is cut for that."""
    files = MemoryFiles()
    store = opened(files, synced=synced)
    put(store, 3)
    lives_of(store, files).write((71,), doubt=True)
    for boot in ("first", "second"):
        assert (store.trust.in_doubt, store.trust.trusted_end) == (True, None)
        store.flush()
        store.close()
        store = opened(files, boot, synced=synced)
    store.trust.regained()
    store.close()
    assert not opened(files, "second", synced=synced).trust.in_doubt


class Killed(BaseException):
    """The process dies here."""


def test_a_life_is_not_noted_before_the_doubt_wherever_the_process_is_killed() -> None:
    """The next process would find a life that it knows on record, and trust a log that is older."""
    doubted = set()
    for last in range(1, 30):
        files = MemoryFiles()
        store = opened(files)
        lives = lives_of(store, files)
        left = iter(range(last))

        def hook(what: str, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise Killed

        files.hook = hook
        for file in files.content.values():
            file.hook = hook
        with contextlib.suppress(Killed):
            lives.write((71,), doubt=True)
        files.hook = lambda what: None
        for file in files.content.values():
            file.hook = files.hook
        store = opened(files)
        doubted.add((lives_of(store, files).read(), store.trust.in_doubt))
    assert doubted == {((ANY,), False), ((ANY,), True), ((71,), True)}


def test_where_nobody_asks_whether_the_machine_went_down_nothing_is_doubted() -> None:
    files = MemoryFiles()
    store = MessageStore(files, SMALL)
    store.open()
    lives_of(store, files).write((71,), doubt=True)
    assert not store.trust.in_doubt
