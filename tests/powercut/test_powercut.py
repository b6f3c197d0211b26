"""A few power cuts of a real cluster; the long campaign is ``make powercut``.

The recorder is a small C library, so a C compiler must be found; where there is none, the run says so.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from raft.config import Sync
from tests.powercut.campaign import Tally, campaign
from tests.powercut.replay import MADE_DIR, O_CREAT, OPENED, RENAMED, SYNC_BEGUN, SYNC_DONE, WRITTEN, Disk, Record


def run(**options: object) -> Tally:
    tally = campaign(**options)  # type: ignore[arg-type]
    if tally is None:
        pytest.skip("NOT RUN: power cuts need a C compiler (cc, gcc or clang) to build the recorder")
    return tally


def test_nothing_acknowledged_is_lost_in_a_power_cut() -> None:
    tally = run(cuts=30, cuts_per_run=15, seconds=0.8, seed=7)
    assert (tally.lost, tally.damaged) == (0, 0), tally.losses
    assert tally.cuts == 30 and tally.revived == 2 and tally.acknowledged > 100 and tally.syncs > 100


def test_without_syncs_something_is_lost() -> None:
    """The control: cuts that lose nothing under sync=never would prove nothing under sync=always."""
    tally = run(cuts=20, cuts_per_run=20, seconds=0.8, seed=7, sync=Sync.NEVER)
    assert tally.lost > 0


def play(*entries: Record) -> Disk:
    disk = Disk("/r")
    for entry in entries:
        disk.play(entry)
    return disk


def images(disk: Disk, tmp_path: Path) -> set[bytes | None]:
    """What /r/f may hold after a cut."""
    found: set[bytes | None] = set()
    for seed in range(60):
        target = tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}"
        disk.cut(target, Random(seed))
        file = target / "f"
        found.add(file.read_bytes() if file.exists() else None)
    return found


def test_the_model_keeps_what_is_synced_and_only_that(tmp_path: Path) -> None:
    created = [Record(MADE_DIR, 0, 0, b"/r"), Record(OPENED, 3, O_CREAT, b"/r/f"), Record(WRITTEN, 3, 0, b"old")]
    synced = [Record(SYNC_BEGUN, 3, 0, b""), Record(SYNC_DONE, 3, 0, b"")]
    named = [Record(OPENED, 4, 0, b"/r"), Record(SYNC_BEGUN, 4, 0, b""), Record(SYNC_DONE, 4, 0, b"")]
    assert images(play(*created, *synced), tmp_path) == {b"old", None}, "its name is not synced yet"
    assert images(play(*created, *synced, *named), tmp_path) == {b"old"}
    later = [Record(WRITTEN, 3, 0, b"new")]
    assert images(play(*created, *synced, *named, *later), tmp_path) == {b"old", b"new"}
    begun = [synced[0], *later, synced[1]]
    assert images(play(*created, *synced, *named, *begun), tmp_path) == {b"old", b"new"}, "written after the sync began"
    moved = [Record(OPENED, 5, O_CREAT, b"/r/g"), Record(RENAMED, 0, 0, b"/r/g\0/r/f")]
    assert b"old" in images(play(*created, *synced, *named, *moved), tmp_path)
