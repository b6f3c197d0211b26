"""The confirm mark: as it was after a kill, behind after a loss of power, and never ahead of what was told."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.ha.mark import PATH, ConfirmMark
from broker.store.files import MemoryFiles


def mark(files: MemoryFiles, end: int = 1 << 40) -> tuple[ConfirmMark, int]:
    made = ConfirmMark(files)
    return made, made.open(end)


def test_a_kill_leaves_what_was_written() -> None:
    files = MemoryFiles()
    made, found = mark(files)
    assert found == 0
    made.write(1 << 33)
    assert mark(files)[1] == 1 << 33
    made.close()
    made.write(1 << 34)
    assert mark(files)[1] == 1 << 33, "closed"


@pytest.mark.parametrize("damage", [b"", b"\0" * 12, b"\0\0\0\0\0\0\0\x07abcd", b"\0" * 5])
def test_what_is_damaged_says_nothing(damage: bytes) -> None:
    files = MemoryFiles()
    files.open(PATH, create=True).pwrite(damage, 0)
    assert mark(files)[1] == 0


@pytest.mark.parametrize("seed", range(30))
def test_a_loss_of_power_leaves_it_behind_and_never_beyond_a_cut(seed: int) -> None:
    """What was cut away may have other bytes in its place by then."""
    random = Random(seed)
    files = MemoryFiles()
    made, _ = mark(files)
    files.sync_dir("")
    told = 0
    for _ in range(random.randrange(1, 20)):
        if random.random() < 0.3:
            told = random.randrange(told + 1)
            made.cut(told)
        else:
            told += random.randrange(100)
            made.write(told)
    files.crash(lambda count: random.randint(0, count))
    assert mark(files)[1] <= told


def test_a_log_that_lost_its_end_has_lost_what_was_told_of_it() -> None:
    files = MemoryFiles()
    made, _ = mark(files)
    files.sync_dir("")
    made.write(1_000)
    files.open(PATH).sync()
    assert mark(files, 900)[1] == 900
    files.crash()
    assert mark(files)[1] == 900, "on disk before other bytes come"


def test_a_full_disk_is_tried_again() -> None:
    files = MemoryFiles()
    made, _ = mark(files)
    files.open(PATH).fault = OSError(errno.ENOSPC, "full")
    made.write(5)
    files.open(PATH).fault = None
    made.write(5)
    assert mark(files)[1] == 5
