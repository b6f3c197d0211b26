"""The virtual disk does to un-synced data what it says, counts it, and never touches what was synced."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import TypeVar

import pytest

from raft.sim.disk import DiskFaults, SimulatedCrash, VirtualDisk, seeded

T = TypeVar("T")


def fixed(**answers: object) -> Callable[..., object]:
    """Draws by the last part of the stream's name; the boring value elsewhere."""

    def draw(stream: str, default: object, _generator: object, /) -> object:
        return answers.get(stream.rpartition(".")[2], default)

    return draw


def disk_with(**answers: object) -> VirtualDisk:
    return VirtualDisk(fixed(**answers))  # type: ignore[arg-type]


def after_crash(disk: VirtualDisk, path: str = "a") -> bytes:
    disk.crash()
    disk.restart()
    file = disk.open(path)
    return file.pread(file.size(), 0)


def written(disk: VirtualDisk) -> None:
    """Four sectors of a synced file, overwritten."""
    file = disk.open("a", create=True)
    file.pwrite([b"o" * 2048], 0)
    file.sync()
    disk.sync_dir("")
    file.pwrite([b"n" * 2048], 0)


@pytest.mark.parametrize(("answers", "content"), [
    ({"mode": 0}, b"o" * 2048),
    ({"mode": 1}, b"n" * 2048),
    ({"mode": 2, "write": "kept"}, b"n" * 2048),
    ({"mode": 2, "write": "dropped"}, b"o" * 2048),
    ({"mode": 2, "write": "torn", "sector": True}, b"n" * 2048),
    ({"mode": 2, "write": "size only"}, b"o" * 2048),
])
def test_fates_of_an_unsynced_write(answers: dict[str, object], content: bytes) -> None:
    disk = disk_with(**answers)
    written(disk)
    assert after_crash(disk) == content


def test_a_torn_write_is_whole_in_each_sector() -> None:
    seen = set()
    for seed in range(200):
        disk = VirtualDisk(seeded(seed))
        written(disk)
        content = after_crash(disk)
        sectors = [content[at : at + 512] for at in range(0, 2048, 512)]
        assert all(sector in (b"o" * 512, b"n" * 512) for sector in sectors)
        seen.add(bytes(sector[0] for sector in sectors))
        if disk.counts["write torn"]:
            assert "write torn" in disk.counts
    assert len(seen) > 6, "hardly any tearing"


def test_size_without_data() -> None:
    disk = disk_with(mode=2, write="size only", name="kept")
    file = disk.open("a", create=True)
    file.pwrite([b"data"], 100)
    assert after_crash(disk) == bytes(104)


def test_later_writes_may_survive_earlier_ones() -> None:
    outcomes = set()
    for seed in range(100):
        disk = VirtualDisk(seeded(seed))
        file = disk.open("a", create=True)
        disk.sync_dir("")
        file.pwrite([b"1"], 0)
        file.pwrite([b"2"], 1)
        outcomes.add(after_crash(disk))
    assert {b"", b"1", b"12", b"\x002"} <= outcomes


@pytest.mark.parametrize("kept", [True, False])
def test_names_need_their_directory_synced(kept: bool) -> None:
    disk = disk_with(mode=2, name="kept" if kept else "lost")
    for name in ("a", "b"):
        file = disk.open(name, create=True)
        file.pwrite([name.encode()], 0)
        file.sync()
    disk.sync_dir("")
    disk.rename("a", "c")
    disk.remove("b")
    disk.open("d", create=True)
    disk.crash()
    disk.restart()
    assert disk.list("") == (["c", "d"] if kept else ["a", "b"])
    assert disk.open("c" if kept else "a").pread(9, 0) == b"a"


def test_what_is_synced_survives_every_fate() -> None:
    for seed in range(50):
        disk = VirtualDisk(seeded(seed))
        disk.make_dir("d")
        file = disk.open("d/a", create=True)
        file.allocate(3_000)
        file.pwrite([b"x" * 1_000], 700)
        file.sync()
        disk.sync_dir("d")
        assert after_crash(disk, "d/a") == bytes(700) + b"x" * 1_000 + bytes(1_300)


def test_a_failed_sync_drops_the_pages_and_then_claims_success() -> None:
    disk = disk_with(mode=1)
    written(disk)
    disk.fail("sync")
    file = disk.open("a")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    assert file.pread(4, 0) == b"nnnn", "the cache still shows it"
    file.sync()
    assert after_crash(disk) == b"o" * 2048
    assert disk.counts["sync"] == 1


def test_crash_at_counts_changing_operations() -> None:
    disk = disk_with(mode=1)
    disk.journal = []
    written(disk)
    assert disk.journal == ["create a", "write a", "sync a", "sync_dir ", "write a"]
    for number in range(1, 6):
        disk = disk_with(mode=0)
        disk.crash_at(number)
        with pytest.raises(SimulatedCrash, match=f"crash in operation {number}"):
            written(disk)
        with pytest.raises(SimulatedCrash):
            disk.open("a")
        with pytest.raises(SimulatedCrash):
            disk.list("")


def test_files_of_an_earlier_life_are_dead() -> None:
    disk = disk_with()
    written(disk)
    file = disk.open("a")
    disk.crash()
    disk.restart()
    with pytest.raises(SimulatedCrash):
        file.pread(1, 0)
    with pytest.raises(SimulatedCrash):
        file.sync()
    file.close()


def test_a_killed_process_leaves_its_writes_in_the_cache() -> None:
    disk = disk_with(mode=0)
    written(disk)
    file = disk.open("a")
    disk.kill()
    with pytest.raises(SimulatedCrash):
        file.pread(1, 0)
    assert disk.open("a").pread(4, 0) == b"nnnn"
    assert after_crash(disk) == b"o" * 2048


def test_room_is_limited() -> None:
    disk = VirtualDisk(faults=DiskFaults(capacity_bytes=1_000))
    file = disk.open("a", create=True)
    file.pwrite([bytes(900)], 0)
    with pytest.raises(OSError, match="No space left") as error:
        file.pwrite([bytes(200)], 900)
    assert error.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        file.allocate(1_001)
    file.pwrite([bytes(900)], 0)
    assert disk.free_bytes() == 100
    file.truncate(10)
    assert disk.free_bytes() == 990
    assert disk.counts["no space"] == 2


def test_errors_by_chance_and_on_demand_are_counted() -> None:
    faults = DiskFaults(read_error=0.3, write_error=0.3, sync_error=0.3, short_write=0.3, misdirected_write=0.3)
    disk = VirtualDisk(seeded(3), faults)
    file = disk.open("a", create=True)
    for _ in range(200):
        for call in (lambda: file.pread(1, 0), lambda: file.pwrite([b"x" * 2_000], 0), file.sync):
            with contextlib.suppress(OSError):
                call()
    assert {"read", "write", "sync", "short_write", "misdirected_write"} <= disk.counts.keys()
    disk = VirtualDisk()
    disk.fail("create", errno.EMFILE, skip=1)
    disk.open("a", create=True)
    with pytest.raises(OSError) as error:
        disk.open("b", create=True)
    assert error.value.errno == errno.EMFILE
    disk.open("b", create=True)


def test_rot_is_on_the_medium() -> None:
    disk = disk_with()
    written(disk)
    disk.open("a").sync()
    disk.rot("a", 3, 0xFF)
    assert disk.open("a").pread(4, 0) == b"nnn" + bytes([ord("n") ^ 0xFF])
    assert after_crash(disk)[3] == ord("n") ^ 0xFF
    assert disk.counts["bit rot"] == 1


def test_a_misdirected_write_is_on_the_medium_and_makes_no_file_longer() -> None:
    disk = disk_with()
    written(disk)
    disk.open("a").sync()
    size = disk.open("a").size()
    disk.overwrite("a", size - 3, b"wrong")
    assert after_crash(disk)[-4:] == b"nwro"
    assert (disk.open("a").size(), disk.counts["misdirected"]) == (size, 1)


def test_the_same_chance_gives_the_same_disk() -> None:
    def run(seed: int) -> bytes:
        disk = VirtualDisk(seeded(seed))
        written(disk)
        return after_crash(disk)

    assert [run(seed) for seed in range(30)] == [run(seed) for seed in range(30)]
