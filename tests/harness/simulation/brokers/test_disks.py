"""Simulated disks that stall, hang and are full, and what is over when they are mended."""

from __future__ import annotations

import pytest

from harness.simulation.brokers.scene import make
from raft.config import MS
from raft.sim.tape import Tape


def test_a_disk_that_stalls_ends_nothing_until_it_is_mended() -> None:
    scene = make(Tape(1), "calm")
    host, done = scene.hosts[0], list[str]()
    host.start()
    process = host.process
    assert process is not None
    host.disk.stalled = True
    process.disk.submit(lambda: done.append("synced"), lambda error: done.append("told"))
    scene.play(100 * MS)
    assert done == [] and host.paused is None
    host.disk.mend()
    scene.play(200 * MS)
    assert done == ["synced", "told"]


def test_a_disk_that_hangs_holds_who_calls_it() -> None:
    host, done = make(Tape(1), "calm").hosts[0], list[str]()
    host.start()
    host.disk.hangs = True
    host.files.sync_dir("")
    host.do(host.process, 0, lambda: done.append("went on"))
    assert done == []
    host.disk.mend()
    assert done == ["went on"]


def test_a_full_disk_takes_no_file_of_the_log() -> None:
    host = make(Tape(1), "calm").hosts[0]
    host.start()
    file = host.files.open("x", create=True)
    host.disk.fill(to_the_brim=True, told=True)
    with pytest.raises(OSError, match="no space"):
        file.reserve(0, 1)
    assert host.files.space().used_ratio > 0.99
    host.disk.mend()
    file.reserve(0, 1)
    assert host.files.space().used_ratio == 0
