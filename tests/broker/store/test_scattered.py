"""A store of several folders: where files go, what is refused, and that nothing but the log is in the log's folders."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest

from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.store.directory import DirectoryFiles, FileDirectory, LogDirectory
from broker.store.errors import WrongStore
from broker.store.files import Files, MemoryFiles, Space
from broker.store.scattered import EpochPlace, LogFolder, ScatteredFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.trial import try_disk
from tests.broker.store.small import SMALL, message, seen

APART = attrs.evolve(SMALL, log_apart=True)
NONE: Final[Mapping[str, MemoryFiles]] = {}
ROOMY, FULL = Space(100, 50), Space(100, 5)


def folders(*paths: str, disks: Mapping[str, MemoryFiles] = NONE, read_only: str = "",
            root: Files | None = None) -> ScatteredFiles:
    log = [LogFolder(path, disks.get(path, MemoryFiles()), path != read_only) for path in paths]
    return ScatteredFiles(root or MemoryFiles(), log, file_bytes=SMALL.log_file_bytes, full_ratio=0.85)


def opened(files: Files, config: StoreConfig = APART) -> MessageStore:
    store = MessageStore(files, config)
    store.open()
    return store


def filled(files: Files, files_of_log: int = 5, config: StoreConfig = APART) -> list[str]:
    """Bodies of a store that was closed in order."""
    store, bodies = opened(files, config), list[str]()
    while store.log.max_offset <= SMALL.log_file_bytes * (files_of_log - 1):
        bodies.append(f"m{len(bodies)}")
        store.writer.put(message("t", 0, bodies[-1]), 1)
        store.log.write()
    store.visible.advance()
    store.close()
    return bodies


def held(files: ScatteredFiles) -> dict[str, list[int]]:
    """By folder, which files of the log are there, counted from the first one ever."""
    return {folder.path: [int(name) // SMALL.log_file_bytes for name in folder.files.list("")] for folder in files.log}


def test_new_files_go_round_the_folders_as_in_java() -> None:
    files = folders("/c", "/a", "/b")
    bodies = filled(files)
    assert held(files) == {"/a": [0, 3], "/b": [1, 4], "/c": [2]}
    store = opened(files)
    assert seen(store) == bodies
    assert files.root.list("commitlog") == []


def test_folders_that_are_read_only_or_full_get_no_new_file() -> None:
    files = folders("/a", "/b", "/c", "/d", read_only="/c", disks={"/d": MemoryFiles(disk=FULL)})
    filled(files)
    assert held(files) == {"/a": [0, 2, 4], "/b": [1, 3], "/c": [], "/d": []}
    full = folders("/a", "/b", read_only="/a", disks={"/a": MemoryFiles(disk=ROOMY), "/b": MemoryFiles(disk=FULL)})
    filled(full)
    assert held(full) == {"/a": [], "/b": [0, 1, 2, 3, 4]}, "all that may be written to are full"


def test_files_of_a_read_only_folder_are_read_and_deleted_when_they_are_old() -> None:
    root, disks = MemoryFiles(), {"/a": MemoryFiles(), "/b": MemoryFiles()}
    bodies = filled(folders("/a", "/b", root=root, disks=disks))
    files = folders("/a", "/b", read_only="/a", root=root, disks=disks)
    store = opened(files)
    assert seen(store) == bodies
    for _ in store.cleaner.release_before(SMALL.log_file_bytes * 3):
        pass
    assert held(files) == {"/a": [4], "/b": [3]}


def test_a_log_that_is_cut_ends_in_its_folder() -> None:
    files = folders("/a", "/b")
    filled(files)
    store = opened(files)
    store.truncate(SMALL.log_file_bytes)
    assert held(files) == {"/a": [0], "/b": []}
    store.truncate(0, everything=True)
    assert held(files) == {"/a": [], "/b": []}


# --- what is not there, or there twice ------------------------------------------------------------------------------


def refused(files: Files) -> str:
    with pytest.raises(WrongStore) as wrong:
        opened(files)
    return str(wrong.value)


def test_a_log_in_the_store_s_directory_is_not_passed_over() -> None:
    root = MemoryFiles()
    filled(root, config=SMALL)
    said = refused(folders("/a", "/b", root=root))
    assert "move its files there" in said and "/a, /b" in said
    a = MemoryFiles()
    filled(folders("/a", disks={"/a": a}))
    assert "commitlog in the store's directory holds a log" in refused(folders("/a", root=root, disks={"/a": a}))


@pytest.mark.parametrize("missing", ["/a", "/b", "/a /b"])
def test_a_disk_that_is_missing_stops_the_start(missing: str) -> None:
    root, disks = MemoryFiles(), {"/a": MemoryFiles(), "/b": MemoryFiles()}
    filled(folders("/a", "/b", root=root, disks=disks))
    for path in missing.split():
        disks[path] = MemoryFiles()
    said = refused(folders("/a", "/b", root=root, disks=disks))
    assert "no file between" in said or "is its disk there" in said or "is each folder of storePathCommitLog" in said
    assert all(disks[path].list("") == [] for path in missing.split()), "nothing was begun there"


def test_a_last_file_that_is_missing_stops_the_start() -> None:
    root, disks = MemoryFiles(), {"/a": MemoryFiles(), "/b": MemoryFiles()}
    filled(folders("/a", "/b", root=root, disks=disks), 4)
    disks["/b"].remove(disks["/b"].list("")[-1])
    said = refused(folders("/a", "/b", root=root, disks=disks))
    assert "the log ends at 6144 or before, and the checkpoint says" in said


def test_a_java_log_that_is_missing_is_known_by_its_queues() -> None:
    root = MemoryFiles()
    root.open("consumequeue/T/0/00000000000000000000", create=True)
    assert "no file of a log is in /a, and consumequeue has queues of one" in refused(folders("/a", root=root))


def test_a_file_that_is_in_two_folders_stops_the_start() -> None:
    root, a = MemoryFiles(), MemoryFiles()
    filled(folders("/a", root=root, disks={"/a": a}))
    said = refused(folders("/a", "/b", root=root, disks={"/a": a, "/b": MemoryFiles(dict(a.content))}))
    assert "00000000000000000000 is in more than one of /a, /b" in said


# --- the epoch file ---------------------------------------------------------------------------------------------------


def test_the_epoch_file_with_all_beside_it_is_where_it_is_named() -> None:
    place = MemoryFiles()
    files = ScatteredFiles(MemoryFiles(), epochs=EpochPlace("/e/mine", place, "mine"))
    EpochFile(files, boot="b").lead(EpochList([(3, 0)]))
    EpochFile(files, boot="b").lead(EpochList([(3, 0), (7, 400)]))
    assert place.list("") == ["mine", "mine.bak", "mine.boot"]
    place.crash()
    assert EpochFile(files, boot="b").read().epochs.last == (7, 400)
    assert files.root.list("") == []


def test_epochs_in_the_store_s_directory_are_not_passed_over() -> None:
    root = MemoryFiles()
    EpochFile(root).write(EpochList([(3, 0)]))
    files = ScatteredFiles(root, epochs=EpochPlace("/e/mine", MemoryFiles(), "mine"))
    assert "storePathEpochFile names /e/mine: move it there" in refused(files)


# --- disks ------------------------------------------------------------------------------------------------------------


def test_room_is_that_of_the_fuller_of_store_and_log() -> None:
    def space(root: Space, *log: Space) -> Space:
        disks = [LogFolder(f"/{number}", MemoryFiles(disk=each)) for number, each in enumerate(log)]
        return ScatteredFiles(MemoryFiles(disk=root), disks).space()

    assert space(ROOMY, FULL) == FULL and space(FULL, ROOMY) == FULL
    assert space(ROOMY, FULL, ROOMY) == ROOMY, "another disk has room for the next file"
    assert space(FULL) == FULL


def test_the_disk_that_the_log_is_on_is_tried_too() -> None:
    def failing(what: str) -> None:
        raise OSError(5, "Input/output error")

    disks = {"/a": MemoryFiles(), "/b": MemoryFiles()}
    files = folders("/a", "/b", disks=disks)
    filled(files, 2)
    disks["/a"].hook = failing
    try_disk(files, 4096)
    disks["/b"].hook = failing
    with pytest.raises(OSError, match="Input/output"):
        try_disk(files, 4096)


def real(root: Path, paths: Sequence[Path]) -> ScatteredFiles:
    return ScatteredFiles(
        DirectoryFiles(root), [LogFolder(str(path), LogDirectory(path)) for path in paths],
        EpochPlace(str(root / "e" / "mine"), FileDirectory(root / "e"), "mine"), file_bytes=SMALL.log_file_bytes)


def test_nothing_but_the_log_is_in_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes every file there for one of the log, and does not start with another one."""
    files = real(tmp_path / "store", [tmp_path / "a", tmp_path / "b"])
    bodies = filled(files)
    store = opened(files)
    there: list[list[str]] = []
    sync = os.fdatasync

    def syncing(fd: int) -> None:
        there.append(sorted(path.name for folder in ("a", "b") for path in (tmp_path / folder).iterdir()))
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", syncing)
    try_disk(files, 4096)
    assert there == 2 * [[f"{number * SMALL.log_file_bytes:020d}" for number in range(5)]]
    assert seen(store) == bodies
    store.close()


def test_no_two_brokers_have_one_log(tmp_path: Path) -> None:
    first, second = real(tmp_path / "s1", [tmp_path / "a"]), real(tmp_path / "s2", [tmp_path / "b", tmp_path / "a"])
    first.lock()
    with pytest.raises(WrongStore, match=r"/a is in use: another broker's log is there"):
        second.lock()
    first.unlock()
    second.lock()
    second.unlock()


def test_a_read_only_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    files = ScatteredFiles(DirectoryFiles(tmp_path / "s"), [
        LogFolder("a", LogDirectory(tmp_path / "a")), LogFolder("b", LogDirectory(tmp_path / "b", made=False), False)])
    assert "cannot be opened: No such file" in refused(files)
    assert not (tmp_path / "b").exists()
