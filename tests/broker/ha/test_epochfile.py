"""The epoch file on disk: what is read of it, and what a crash at any point leaves."""

from __future__ import annotations

import random

import pytest

from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.ha.slave import NoEpochs
from broker.store.files import MemoryFiles
from tests.broker.store.test_crashes import Fuse, Stopped

ONE, TWO = EpochList([(1, 0)]), EpochList([(1, 0), (3, 70)])


def test_it_reads_what_it_wrote() -> None:
    files = MemoryFiles()
    EpochFile(files).write(TWO)
    assert files.content["epochFileCheckpoint"].data.startswith(b"2\n")
    assert EpochFile(files).read().epochs == TWO


def test_no_file_is_a_plain_groups_and_a_damaged_one_is_lost() -> None:
    files = MemoryFiles()
    assert EpochFile(files).read().no_epochs is NoEpochs.PLAIN
    files.open("epochFileCheckpoint", create=True).pwrite(b"nonsense", 0)
    found = EpochFile(files).read()
    assert (found.epochs, found.no_epochs) == (EpochList(), NoEpochs.LOST)
    assert "1 lines" in found.damaged


def test_a_damaged_file_is_passed_over_for_its_backup() -> None:
    files = MemoryFiles()
    EpochFile(files).write(ONE)
    EpochFile(files).write(TWO)
    files.content["epochFileCheckpoint"].data[:] = b"2\n1\n1-0\n3-70\n"
    found = EpochFile(files).read()
    assert found.epochs == ONE
    assert "CRC" in found.damaged


def test_an_empty_list_stays_empty() -> None:
    """Java writes none, so that what was cut comes back with the next start."""
    files = MemoryFiles()
    EpochFile(files).write(ONE)
    EpochFile(files).write(EpochList())
    found = EpochFile(files).read()
    assert (found.epochs, found.no_epochs) == (EpochList(), NoEpochs.LOST)
    assert not files.exists("epochFileCheckpoint.bak")


@pytest.mark.parametrize("at", range(17))
@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_operation_leaves_the_old_or_the_new_list(at: int, seed: int) -> None:
    """And a master of the new epoch is never taken for one that lost nothing before all is on disk."""
    fuse, rng = Fuse(1_000), random.Random(seed)
    files = MemoryFiles(hook=fuse)
    EpochFile(files, boot="first").lead(ONE)
    fuse.left = at
    done = True
    try:
        EpochFile(files, boot="second").lead(TWO)
    except Stopped:
        done = False
    fuse.left = 1_000
    killed = EpochFile(files, boot="second").read()
    assert killed.epochs in (ONE, TWO) and not killed.damaged
    assert (killed.epochs, killed.doubtful_epoch) == (TWO, -1) if done else killed.doubtful_epoch in (-1, 1, 3)
    assert killed.doubtful_epoch != -1 or killed.epochs == TWO, "the boot is written last"
    files.crash(lambda size: rng.randint(0, size))
    found = EpochFile(files, boot="third").read()
    assert found.epochs in ((TWO,) if done else (ONE, TWO)) and not found.damaged
    assert found.doubtful_epoch == found.epochs.entries[-1].epoch
    assert at < 16 or done, "there are no more operations than that"


def test_replacing_it_waits_for_the_disk_twice() -> None:
    """The file and its name: slaves write it between a connection and their first acknowledgement."""
    waits: list[str] = []
    files = MemoryFiles(hook=lambda what: waits.append(what) if what.startswith("sync") else None)
    EpochFile(files).write(ONE)
    waits.clear()
    EpochFile(files).write(TWO)
    assert waits == ["sync", "sync_dir"]


def test_what_is_on_disk_is_not_written_again() -> None:
    """Slaves ask for it at each connection. What a write that failed has left there, nobody knows."""
    waits: list[str] = []
    files = MemoryFiles(hook=waits.append)
    EpochFile(files).write(ONE)
    file = EpochFile(files)
    file.read()
    waits.clear()
    file.write(ONE)
    assert not waits
    files.open("epochFileCheckpoint.tmp", create=True).fault = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        file.write(TWO)
    files.open("epochFileCheckpoint.tmp", create=True).fault = None
    waits.clear()
    file.write(ONE)
    assert waits and EpochFile(files).read().epochs == ONE


def test_without_a_boot_all_is_in_doubt() -> None:
    files = MemoryFiles()
    EpochFile(files).lead(ONE)
    assert EpochFile(files).read().doubtful_epoch == 1
    EpochFile(files, boot="first").lead(ONE)
    assert EpochFile(files, boot="first").read().doubtful_epoch == -1
    assert EpochFile(files).read().doubtful_epoch == 1
    EpochFile(files, boot="first").doubt()
    assert EpochFile(files, boot="first").read().doubtful_epoch == 1


def test_power_that_fails_leaves_the_old_or_the_new_list() -> None:
    files = MemoryFiles()
    EpochFile(files).write(ONE)
    EpochFile(files).write(TWO)
    files.crash()
    assert EpochFile(files).read().epochs == TWO
