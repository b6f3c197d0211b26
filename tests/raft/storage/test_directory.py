"""``Files`` on a real directory behaves as the virtual disk does: the same script gives the same answers."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raft.errors import UsageError, WrongDirectory
from raft.sim.disk import VirtualDisk
from raft.storage.directory import DirectoryFiles, ReadOnlyFiles
from raft.storage.interface import Files
from tests.folders import Names


@pytest.fixture(params=["virtual", "real"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made: Files = VirtualDisk() if request.param == "virtual" else DirectoryFiles(tmp_path / "deep" / "root")
    made.lock()
    return made


def code(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as error:
        call()
    return error.value.errno


def test_files(files: Files) -> None:
    files.make_dir("d")
    files.make_dir("d")
    file = files.open("d/a", create=True)
    assert code(lambda: files.open("d/a", create=True)) == errno.EEXIST
    assert code(lambda: files.open("d/b")) == errno.ENOENT
    assert code(lambda: files.open("e/b", create=True)) == errno.ENOENT
    file.pwrite([b"hello ", b"", b"world"], 5)
    assert file.size() == 16
    assert file.pread(100, 0) == b"\0" * 5 + b"hello world"
    assert file.pread(5, 11) == b"world"
    assert file.pread(5, 99) == b""
    file.pwrite([bytes([number % 256]) for number in range(2_000)], 100)
    assert file.pread(2_000, 100) == bytes(number % 256 for number in range(2_000))
    file.allocate(5_000)
    file.allocate(1_000)
    assert file.size() == 5_000
    assert file.pread(100, 4_000) == bytes(100)
    file.truncate(16)
    file.truncate(1_000)
    assert file.size() == 16
    file.sync()
    other = files.open("d/a")
    file.pwrite([b"J"], 5)
    assert other.pread(5, 5) == b"Jello", "two handles see one file"
    other.close()
    other.close()
    file.close()
    assert code(lambda: file.pread(1, 0)) == errno.EBADF


def test_names(files: Files) -> None:
    files.make_dir("d")
    for name in ("b", "a", "c"):
        files.open(f"d/{name}", create=True).close()
    assert files.list("d") == ["a", "b", "c"]
    assert "d" in files.list("")
    assert files.list("nowhere") == []
    files.rename("d/a", "d/z")
    files.rename("d/b", "d/c")
    assert files.list("d") == ["c", "z"]
    files.remove("d/z")
    assert code(lambda: files.remove("d/z")) == errno.ENOENT
    assert code(lambda: files.rename("d/z", "d/y")) == errno.ENOENT
    files.sync_dir("d")
    files.sync_dir("")
    assert files.list("d") == ["c"]
    assert files.free_bytes() > 0
    files.lock()
    files.unlock()
    files.unlock()


def test_a_locked_directory_is_synced_again_without_another_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = DirectoryFiles(tmp_path)
    files.lock()
    files.sync_dir("")
    with monkeypatch.context() as short:
        short.setattr(os, "open", None)
        files.sync_dir("")
    files.unlock()
    assert not files._synced_fds
    files.sync_dir("")
    assert not files._synced_fds


def test_the_lock_holds_other_processes_off(tmp_path: Path) -> None:
    held = DirectoryFiles(tmp_path)
    held.lock()
    with pytest.raises(WrongDirectory, match="is in use: another process has locked 'lock' in it"):
        DirectoryFiles(tmp_path).lock()
    script = (
        "import sys; from raft.storage.directory import DirectoryFiles; from raft.errors import WrongDirectory\n"
        "try: DirectoryFiles(sys.argv[1]).lock()\n"
        "except WrongDirectory as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "is in use" in said
    held.unlock()
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == ""


def test_a_partial_write_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DirectoryFiles(tmp_path)
    file = files.open("a", create=True)
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: whole(fd, [b"".join(buffers)[:7]], offset))
    file.pwrite([b"hello ", b"world"], 3)
    assert file.pread(11, 3) == b"hello world"


def test_other_systems_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UsageError, match="no storage for win32"):
        DirectoryFiles("x")


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    writer = DirectoryFiles(tmp_path)
    writer.open("a", create=True).pwrite([b"x"], 0)
    reader = ReadOnlyFiles(tmp_path)
    reader.lock()
    file = reader.open("a")
    assert file.pread(5, 0) == b"x"
    assert code(lambda: file.pwrite([b"y"], 0)) == errno.EBADF
    for call in (lambda: reader.open("b", create=True), lambda: reader.remove("a"), lambda: reader.rename("a", "b"),
                 lambda: reader.make_dir("d")):
        with pytest.raises(UsageError):
            call()
    assert reader.list("") == ["a"]


def test_every_new_folder_above_a_data_directory_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names().watch(monkeypatch)
    root = tmp_path / "a" / "b" / "c"
    DirectoryFiles(root).lock()
    assert names.lost == []
    assert root.stat().st_mode & 0o007 == 0, "others may not read it"
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(names.synced)


def test_folders_of_a_killed_process_are_on_disk_after_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, place = Names().watch(monkeypatch), itertools.count()

    def fresh() -> Callable[[], None]:
        root = tmp_path / f"a{next(place)}" / "b" / "c"

        def lock() -> None:
            files = DirectoryFiles(root)
            files.lock()
            files.unlock()

        return lock

    assert names.lost_after_a_kill_at_every_step(fresh) == []


def test_a_file_that_is_deleted_is_not_synced_any_more(tmp_path: Path) -> None:
    """The system takes what is written to it, and forgets it with the process."""
    files = DirectoryFiles(tmp_path / "n0")
    files.lock()
    file = files.open("log", create=True)
    file.pwrite([b"kept"], 0)
    file.sync()
    shutil.rmtree(files.root)
    file.pwrite([b"lost"], 4)
    with pytest.raises(FileNotFoundError, match=r"n0/log was deleted while its node runs: leave a data dir"):
        file.sync()
