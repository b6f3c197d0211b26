"""The note of which storage keeps a directory's log: whole after a crash, refused when damaged or another's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from raft.errors import DamagedLog, WrongDirectory
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.storage.directory import DirectoryFiles
from raft.storage.memory import MemoryStorage
from raft.storage.place import NAME, SEGMENTS, Place, check_kind, note_kind, read_kind, was_opened
from tests.raft.test_host import alone


def test_what_is_noted_is_told_and_another_kind_refused(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    assert read_kind(files) is None and not was_opened(files)
    check_kind(files, SEGMENTS)
    check_kind(files, "sqlite")
    note_kind(files, "sqlite", opened=False)
    check_kind(files, "sqlite")
    assert read_kind(files) == ("sqlite", False) and not was_opened(files)
    note_kind(files, "sqlite", opened=True)
    assert was_opened(files)
    for other in (SEGMENTS, "other"):
        with pytest.raises(WrongDirectory, match=f"kind 'sqlite', not '{other}'"):
            check_kind(files, other)


def test_a_directory_with_a_segment_log_is_opened_as_no_other_kind(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.make_dir("log")
    check_kind(files, "sqlite")
    files.open("log/00000000000000000001.seg", create=True).close()
    check_kind(files, SEGMENTS)
    with pytest.raises(WrongDirectory, match="a segment log, not of kind 'sqlite'"):
        check_kind(files, "sqlite")
    note_kind(files, "sqlite", opened=False)
    check_kind(files, "sqlite")


@pytest.mark.parametrize("seed", range(12))
def test_BUG_F21_the_note_of_a_kind_is_whole_after_a_crash_in_any_step(seed: int) -> None:
    """Guards that a power cut leaves what was noted before, or what is noted now."""
    for step in range(1, 40):
        disk = VirtualDisk(seeded(seed))
        note_kind(disk, "first", opened=False)
        disk.crash_at(disk.operations + step)
        try:
            note_kind(disk, "first", opened=True)
        except SimulatedCrash:
            disk.restart()
            assert read_kind(disk) in (("first", False), ("first", True))
            continue
        disk.crash()
        disk.restart()
        assert was_opened(disk), "what was noted is on the disk"
        return
    pytest.fail("it never got to the end")


@pytest.mark.parametrize("damage", [b"", b"QRk1", b"QRk1\0\0\0\0body", b"other"])
def test_a_damaged_note_is_refused(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(damage)
    with pytest.raises(WrongDirectory, match="damaged"):
        check_kind(DirectoryFiles(tmp_path), "sqlite")


def test_what_a_storage_is_told_of_its_place() -> None:
    assert [field.name for field in attrs.fields(Place)] == [
        "directory", "files", "identity", "opened_before", "config", "rng", "inline"]


async def opens(directory: Path, **more: Any) -> None:
    """A real host on this directory, and a group that leads."""
    with trio.fail_after(30):
        async with alone(directory, bootstrap=True, **more):
            pass


class Other(MemoryStorage):
    """In memory, and of another kind."""

    kind = "other"


class Broken(MemoryStorage):
    """Cannot be opened, once."""

    kind = "broken"
    opened = False

    def open(self) -> dict[int, Any]:
        if not Broken.opened:
            Broken.opened = True
            raise DamagedLog("here", 0, "not yet")
        return super().open()


async def test_BUG_F21_a_directory_is_not_opened_as_another_kind(tmp_path: Path) -> None:
    """Own: another storage finds nothing of its own there. Guards that a node does not begin anew, without its vote."""
    await opens(tmp_path / "segments")
    await opens(tmp_path / "other", storage=lambda place: Other())
    with pytest.raises(WrongDirectory, match="kind 'other', not 'segments'"):
        await opens(tmp_path / "other")
    with pytest.raises(WrongDirectory, match="a segment log, not of kind 'other'"):
        await opens(tmp_path / "segments", storage=lambda place: Other())
    await opens(tmp_path / "segments")
    assert not (tmp_path / "segments" / NAME).exists(), "as it was before there were others"


async def test_BUG_F21_a_first_opening_that_failed_is_still_the_first(tmp_path: Path) -> None:
    """Guards that it is noted before it is tried, and that only a storage that was opened is told that it was."""
    seen: list[bool] = []

    def make(place: Place) -> Broken:
        seen.append(place.opened_before)
        return Broken()

    Broken.opened = False
    with pytest.raises(DamagedLog):
        await opens(tmp_path, storage=make)
    with pytest.raises(WrongDirectory, match="kind 'broken'"):
        await opens(tmp_path)
    await opens(tmp_path, storage=make)
    assert read_kind(DirectoryFiles(tmp_path)) == ("broken", True)
    await opens(tmp_path, storage=make)
    assert seen == [False, False, True]
