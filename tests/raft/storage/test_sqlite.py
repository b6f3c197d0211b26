"""A storage of another kind keeps the promises, tells a lost log from a new one, and fails in the words of a node."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs
import pytest
from sqlite_storage import SqliteStorage

from raft.config import Config
from raft.errors import DamagedLog, WriteFailed, WrongDirectory
from raft.messages import HardState, Write
from raft.storage.conformance import StorageConformance, frames, read_all, refused
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import format_directory
from raft.storage.interface import Storage
from raft.storage.place import Place


def place(directory: Path, *, opened_before: bool = False, incarnation: bytes = bytes(16)) -> Place:
    files = DirectoryFiles(directory)
    identity = format_directory(files, "c", "n", incarnation)
    files.unlock()
    return Place(str(directory), files, identity, opened_before, Config(), Random(1), inline=False)


def of(storage: Storage) -> SqliteStorage:
    assert isinstance(storage, SqliteStorage)
    return storage


class TestSqlite(StorageConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> Iterator[None]:
        self.path, self.count, self.made = tmp_path, 0, list[SqliteStorage]()
        yield
        for storage in self.made:
            if storage._database is not None:
                storage._database.close()  # Python 3.13 warns of one that is left open

    def make(self) -> Storage:
        self.count += 1
        return self.kept(SqliteStorage(place(self.path / str(self.count))))

    def kept(self, storage: SqliteStorage) -> SqliteStorage:
        """To be closed behind the test."""
        self.made.append(storage)
        return storage

    def reopen(self, storage: Storage) -> Storage:
        storage.close()
        return self.kept(SqliteStorage(attrs.evolve(of(storage)._place, opened_before=True)))

    def crash(self, storage: Storage, rng: Random) -> Storage:
        """What is in the files at this moment, whatever the process still had in mind."""
        before = of(storage)._place
        self.count += 1
        directory = self.path / str(self.count)
        shutil.copytree(before.directory, directory)
        files = DirectoryFiles(directory)
        return self.kept(SqliteStorage(attrs.evolve(
            before, directory=str(directory), files=files, opened_before=True)))

    def fill(self, storage: Storage) -> bool:
        pages = of(storage)._all("PRAGMA page_count")[0][0]
        of(storage)._all(f"PRAGMA max_page_count = {pages}")
        return True

    def relieve(self, storage: Storage) -> None:
        of(storage)._all("PRAGMA max_page_count = 1000000")


def opened(directory: Path) -> SqliteStorage:
    storage = SqliteStorage(place(directory))
    assert storage.open() == {}
    return storage


def test_a_vote_uses_up_the_reserve_and_room_restores_it(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    pages = storage._all("PRAGMA page_count")[0][0]
    storage._all(f"PRAGMA max_page_count = {pages}")
    many = [Write(number, number, hard_state=HardState(1, "a-node-with-a-long-name" * 9)) for number in range(1, 200)]
    storage.write(many)
    storage.sync()
    assert storage._all("SELECT 1 FROM reserve") == [] and not storage.has_room()
    storage._all("PRAGMA max_page_count = 1000000")
    assert storage.has_room() and storage._all("SELECT number FROM reserve") == [(1,)]
    reopened = again(storage)
    assert {number: found.hard_state.term for number, found in reopened.open().items()} == dict.fromkeys(
        range(1, 200), 1)
    reopened.close()


def again(storage: SqliteStorage) -> SqliteStorage:
    storage.close()
    return SqliteStorage(attrs.evolve(storage._place, opened_before=True))


@pytest.mark.parametrize("lose", ["the file", "its tables"])
def test_a_log_that_was_lost_is_no_new_log(lose: str, tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.write([Write(1, 1, hard_state=HardState(7, "a"))])
    storage.close()
    if lose == "the file":
        storage._path.unlink()
    else:
        with sqlite3.connect(storage._path) as database:
            database.execute("DROP TABLE owner")
        database.close()
    refused(DamagedLog, again(storage).open)


def test_the_log_of_another_directory_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "a").close()
    theirs = place(tmp_path / "b", incarnation=b"another".ljust(16))
    shutil.copy(tmp_path / "a" / "log.sqlite", tmp_path / "b")
    refused(WrongDirectory, SqliteStorage(theirs).open)


@pytest.mark.parametrize("damage", ["zeroblob(length(data))", "(SELECT data FROM frames WHERE first = 2)"])
def test_a_frame_that_is_not_what_was_written_is_damage(damage: str, tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.write([Write(1, 1, frames=frames(5))])
    storage.sync()
    storage._all(f"UPDATE frames SET data = {damage} WHERE first = 3")
    assert [frame.first for frame in storage.read(1, 1, 200)] == [1]
    refused(DamagedLog, lambda: read_all(storage, 1, 1))
    storage.close()


def test_a_file_that_is_no_database_is_damage(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage.close()
    storage._path.write_bytes(b"not a database" * 999)
    refused(DamagedLog, again(storage).open)


def test_an_error_that_is_none_of_room_is_final(tmp_path: Path) -> None:
    storage = opened(tmp_path)
    storage._all("DROP TABLE frames")
    refused(WriteFailed, lambda: storage.write([Write(1, 1, frames=frames(1))]))
    refused(WriteFailed, lambda: storage.write([Write(2, 1, hard_state=HardState(1))]))
    refused(WriteFailed, storage.sync)
    storage.close()
