"""Whose directory it is: told once, kept whole, and refused to another node, cluster or build."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from random import Random
from typing import Any

import cbor2
import pytest
from google_crc32c import value as crc32c

from raft.errors import UsageError, WrongDirectory
from raft.sim.disk import DiskFaults, SimulatedCrash, VirtualDisk, seeded
from raft.storage.directory import DirectoryFiles
from raft.storage.identity import Identity, check_identity, format_directory, read_identity
from raft.storage.segment import SegmentStorage
from raft.storage.smallfile import write_small

ME = bytes(range(16))
FIELDS = {"format": 1, "cluster": "c", "node": "n", "incarnation": ME}


def formatted() -> VirtualDisk:
    disk = VirtualDisk(seeded(1))
    format_directory(disk, "c", "n", ME)
    return disk


def test_a_directory_is_marked_with_cluster_node_and_incarnation() -> None:
    disk = formatted()
    file, body = disk.open("identity"), cbor2.dumps(FIELDS)
    assert file.pread(file.size(), 0) == b"QRi1" + struct.pack("<I", crc32c(body)) + body
    assert check_identity(disk, "c", "n") == Identity("c", "n", ME)
    assert Identity("c", "n", ME).owner == int.from_bytes(ME[:8], "little")


def test_another_cluster_or_node_is_refused_in_words() -> None:
    with pytest.raises(WrongDirectory, match="belongs to cluster 'c', not 'd'"):
        check_identity(formatted(), "d", "n")
    with pytest.raises(WrongDirectory, match="belongs to node 'n', not 'm'"):
        check_identity(formatted(), "c", "m")
    with pytest.raises(WrongDirectory, match="belongs to node 'n', not 'm'"):
        SegmentStorage(formatted(), "c", "m").open()


def test_an_unformatted_directory_is_refused() -> None:
    with pytest.raises(WrongDirectory, match="not formatted"):
        check_identity(VirtualDisk(), "c", "n")


def test_formatting_refuses_what_is_in_use_or_foreign(tmp_path: Path) -> None:
    with pytest.raises(WrongDirectory, match="formatted already, for node 'n' of cluster 'c'"):
        format_directory(formatted(), "c", "n", ME)
    disk = VirtualDisk()
    for name in ("a", "b", "c", "holiday.jpg"):
        disk.open(name, create=True)
    with pytest.raises(WrongDirectory, match=r"neither empty nor formatted; it holds a, b, c$"):
        format_directory(disk, "c", "n", ME)
    holder = DirectoryFiles(tmp_path)
    holder.lock()
    with pytest.raises(WrongDirectory, match="another process"):
        format_directory(DirectoryFiles(tmp_path), "c", "n", ME)
    holder.unlock()
    assert format_directory(DirectoryFiles(tmp_path), "c", "n", ME).node_id == "n", "a lock that nobody holds is ours"


@pytest.mark.parametrize(("cluster", "node_id", "incarnation"), [
    ("c", "n", ME[1:]), ("c", "n", ME + b"x"), ("", "n", ME), ("c", "", ME)])
def test_no_directory_is_marked_with_less(cluster: str, node_id: str, incarnation: bytes) -> None:
    with pytest.raises(UsageError, match="16 random bytes"):
        format_directory(VirtualDisk(), cluster, node_id, incarnation)


def test_a_damaged_identity_is_refused() -> None:
    disk = formatted()
    identity = read_identity(disk)
    for offset in range(disk.open("identity").size()):
        disk.rot("identity", offset)
        with pytest.raises(WrongDirectory, match="cannot come from a crash"):
            read_identity(disk)
        disk.rot("identity", offset)
    assert read_identity(disk) == identity == Identity("c", "n", ME)


@pytest.mark.parametrize(("body", "words"), [
    ({**FIELDS, "format": 2}, "has format 2, this build reads format 1"),
    ({**FIELDS, "format": 0}, "has format 0, this build reads format 1"),
    ({**FIELDS, "cluster": 5}, "names no cluster"), ({**FIELDS, "node": None}, "names no cluster, node"),
    ({**FIELDS, "incarnation": "i" * 16}, "or incarnation"), ({**FIELDS, "incarnation": ME[1:]}, "or incarnation"),
    ({**FIELDS, "incarnation": [0] * 16}, "or incarnation"), ({"format": 1}, "not how a directory is marked"),
    ([1], "not how a directory is marked"), (5, "not how a directory is marked"),
])
def test_an_identity_of_another_build_is_refused(body: Any, words: str) -> None:
    disk = VirtualDisk()
    write_small(disk, "identity", b"QRi1", cbor2.dumps(body))
    with pytest.raises(WrongDirectory, match=words):
        read_identity(disk)


def test_a_crash_while_formatting_leaves_a_directory_that_can_be_formatted() -> None:
    for crash_at in range(1, 8):
        for seed in range(6):
            disk = VirtualDisk(seeded(seed), DiskFaults())
            disk.crash_at(crash_at)
            with contextlib.suppress(SimulatedCrash):
                format_directory(disk, "c", "n", ME)
            disk.crash()
            disk.restart()
            if read_identity(disk) is None:
                format_directory(disk, "c", "n", ME)
            assert SegmentStorage(disk, "c", "n", segment_bytes=32 << 10, rng=Random(1)).open() == {}
