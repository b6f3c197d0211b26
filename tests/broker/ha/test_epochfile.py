"""The epoch file on disk: what is read of it, and what a crash at any point leaves."""

from __future__ import annotations

from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochList
from broker.ha.slave import NoEpochs
from broker.store.files import MemoryFiles

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


def test_power_that_fails_leaves_the_old_or_the_new_list() -> None:
    files = MemoryFiles()
    EpochFile(files).write(ONE)
    EpochFile(files).write(TWO)
    files.crash()
    assert EpochFile(files).read().epochs == TWO
