"""Small files replaced whole: on the real disk, and in memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from remoting.daemon.files import DiskFiles, MemoryFiles, make_folder
from tests.folders import Names


def test_a_file_is_read_back_and_folders_are_made(tmp_path: Path) -> None:
    files, path = DiskFiles(), str(tmp_path / "a" / "b" / "file")
    assert files.read(path) is None
    files.replace(path, b"one")
    files.replace(path, b"two")
    assert files.read(path) == b"two"
    assert os.listdir(tmp_path / "a" / "b") == ["file"]


def test_access_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    path.chmod(0o600)
    DiskFiles().replace(str(path), b"two")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        DiskFiles().replace(str(path), b"two")
    assert path.read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["file"]


def test_the_home_folder_has_its_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    DiskFiles().replace("~/x", b"one")
    assert (tmp_path / "x").read_bytes() == b"one"


def test_a_file_is_removed_and_none_is_as_good(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    DiskFiles().remove(str(path))
    assert not path.exists()
    DiskFiles().remove(str(path))
    DiskFiles().remove(str(tmp_path / "no folder" / "file"))


def test_memory_keeps_and_fails_on_demand() -> None:
    files = MemoryFiles()
    files.replace("/x", b"one")
    files.error = OSError(5, "I/O error")
    with pytest.raises(OSError, match="I/O"):
        files.replace("/x", b"two")
    with pytest.raises(OSError, match="I/O"):
        files.remove("/x")
    assert files.read("/x") == b"one"
    files.error = None
    files.remove("/x")
    files.remove("/x")
    assert files.read("/x") is None


def test_every_new_folder_above_a_file_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names().watch(monkeypatch)
    DiskFiles().replace(str(tmp_path / "a" / "b" / "c" / "file"), b"one")
    assert names.lost == []


def test_folders_of_a_killed_process_are_on_disk_after_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, place = Names().watch(monkeypatch), itertools.count()

    def fresh() -> Callable[[], None]:
        target = str(tmp_path / f"a{next(place)}" / "b" / "c" / "file")
        return lambda: DiskFiles().replace(target, b"one")

    assert names.lost_after_a_kill_at_every_step(fresh) == []


def test_a_folder_that_stays_is_not_synced_with_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, files = Names().watch(monkeypatch), DiskFiles()
    files.replace(str(tmp_path / "a" / "file"), b"one")
    names.synced.clear()
    files.replace(str(tmp_path / "a" / "file"), b"two")
    assert tmp_path not in names.synced
    (tmp_path / "a" / "file").unlink()
    (tmp_path / "a").rmdir()
    files.replace(str(tmp_path / "a" / "file"), b"three")
    assert names.lost == []


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a" / "b")


def test_a_parent_that_may_not_be_opened_is_its_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    whole = os.open

    def refused(path: Path, flags: int) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, flags)

    monkeypatch.setattr(os, "open", refused)
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
