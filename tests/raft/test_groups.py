"""How a group of a directory began: its name's number, and the file that tells it, whole or refused."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest

from raft.errors import DamagedLog, UsageError
from raft.groups import REMOVED, Origin, group_number, read_origin, removed_groups, write_origin
from raft.membership import Member, Membership
from raft.sim.disk import VirtualDisk
from raft.storage.smallfile import write_small

THREE = Membership(("n0", "n1", "n2"), members={"n0": Member("h0:1")})


@pytest.mark.parametrize(("name", "number"), [
    ("default", 1), ("orders", 0x6408d200db8a161c), ("b", 0x4a59390016e8233e), ("x" * 255, 0x6c95e33ada0926d2),
    ("users", 0x6cb4277f64cfb7d), ("é" * 127, 0x4b16e6190aba3e2e)])
def test_a_groups_number_is_what_frames_carry_and_never_changes(name: str, number: int) -> None:
    assert group_number(name) == number


@pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "\ud800", None, 5, b"orders"], ids=repr)
def test_what_is_no_name_of_a_group_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="1 to 255 bytes of UTF-8"):
        group_number(name)


@pytest.mark.parametrize("origin", [
    Origin("orders", THREE), Origin("joined", Membership()), Origin("gone", THREE, removed=True)], ids=lambda o: o.name)
def test_how_a_group_began_is_read_as_it_was_written(origin: Origin) -> None:
    disk, number = VirtualDisk(), group_number(origin.name)
    assert read_origin(disk, number) is None
    write_origin(disk, number, origin)
    assert read_origin(disk, number) == origin
    assert removed_groups(disk) == [number] * origin.removed


def test_removed_groups_are_found_among_all_else_in_a_directory() -> None:
    disk = VirtualDisk()
    gone = [group_number(name) for name in ("a", "b")]
    for number, name in zip(gone, ("a", "b"), strict=True):
        write_origin(disk, number, Origin(name, THREE, removed=True))
    write_origin(disk, group_number("kept"), Origin("kept", THREE))
    for name in ("identity", "group-1", "group-00000000000000zz", f"group-{1:016x}.tmp"):
        disk.open(name, create=True)
    assert sorted(removed_groups(disk)) == sorted(gone)


def test_a_damaged_file_is_refused_with_its_name() -> None:
    disk, number = VirtualDisk(), group_number("orders")
    write_origin(disk, number, Origin("orders", THREE))
    path = f"group-{number:016x}"
    for offset in range(disk.open(path).size()):
        disk.rot(path, offset)
        with pytest.raises(DamagedLog, match="cannot come from a crash") as error:
            read_origin(disk, number)
        assert (error.value.path, error.value.offset) == (path, 0)
        disk.rot(path, offset)


@pytest.mark.parametrize("body", [
    5, [], ["orders"], ["orders", b"none"], ["orders", 5], ["orders", THREE.encode(), "kept"],
    ["orders", THREE.encode(), REMOVED, REMOVED]], ids=repr)
def test_a_file_of_another_build_is_refused_and_the_group_does_not_begin_anew(body: Any) -> None:
    disk = VirtualDisk()
    write_small(disk, f"group-{1:016x}", b"QRg1", cbor2.dumps(body))
    with pytest.raises(DamagedLog, match="not how a group began") as error:
        read_origin(disk, 1)
    assert error.value.offset == 8, "behind magic and CRC"
    with pytest.raises(DamagedLog):
        removed_groups(disk)
