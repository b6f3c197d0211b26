"""Crash in every operation of random scripts, with every fate of what was not synced, and look at what comes back.

Promises 2 (a prefix that holds everything synced), 6 and 7 of ``raft.storage.interface``.
"""

from __future__ import annotations

from random import Random

import attrs
import pytest
from google_crc32c import value as crc32c

from raft.errors import DiskFull
from raft.frame import Frame
from raft.messages import Recovered, SnapshotMeta, Write
from raft.sim.disk import SimulatedCrash, VirtualDisk, seeded
from raft.storage.identity import format_directory
from raft.storage.model import Images, LogImage, Script, apply, differs
from raft.storage.segment import SegmentStorage
from tests.campaigns import campaign

SEGMENT_BYTES = 32 << 10


def everything(storage: SegmentStorage, group: int, first: int, max_bytes: int = 3000) -> list[Frame]:
    out: list[Frame] = []
    while frames := storage.read(group, out[-1].last + 1 if out else first, max_bytes):
        out += frames
    return out


class Run:
    """A script on a virtual disk, with the images that a crash may leave."""

    def __init__(self, seed: int, fate: int) -> None:
        self.disk = VirtualDisk(seeded(fate))
        self.rng = Random(seed)
        self.script = Script(self.rng)
        self.token = 0
        self.history: list[Images] = [{}]
        """Images after each write since the last synced one, which is the first."""
        self.snapshots: dict[int, list[SnapshotMeta | None]] = {1: [None], 2: [None]}
        """Newest snapshots that may be visible, of which the first was when the last call returned."""
        format_directory(self.disk, "c", "n", bytes(16))
        self.storage = self.make()

    def make(self) -> SegmentStorage:
        return SegmentStorage(self.disk, "c", "n", segment_bytes=SEGMENT_BYTES, rng=Random(self.rng.random()))

    @property
    def now(self) -> Images:
        return self.history[-1]

    def image(self, group: int) -> LogImage:
        return self.now.get(group, LogImage())

    def write(self, writes: list[Write]) -> None:
        for write in writes:
            self.history.append(apply(self.now, write))
        self.storage.write(writes)

    def sync(self) -> None:
        self.storage.sync()
        del self.history[:-1]

    def next_token(self) -> int:
        self.token += 1
        return self.token

    def floor(self, group: int) -> int:
        newest = self.snapshots[group][0]
        return newest.index if newest is not None else 0

    def step(self) -> None:
        group, choice = self.rng.choice([1, 1, 1, 2]), self.rng.random()
        if choice < 0.45:
            writes, images = [], self.now
            for _ in range(self.rng.choice([1, 1, 3])):
                image = images.get(group, LogImage())
                write = self.script.write(image, group, self.next_token(), floor=self.floor(group))
                images = apply(images, write)
                writes.append(write)
            self.write(writes)
        elif choice < 0.80:
            self.sync()
        elif choice < 0.88:
            self.own_snapshot(group)
        elif choice < 0.93:
            self.received_snapshot(group)
        elif choice < 0.96:
            self.storage.maintain()
        else:
            self.sync()
            self.storage.close()
            self.reopen()

    def own_snapshot(self, group: int) -> None:
        self.sync()
        candidates = [frame for frame in self.image(group).frames if frame.last > self.floor(group)]
        if not candidates:
            return
        frame = self.rng.choice(candidates)
        state = b"s%d" % frame.last * self.rng.randint(0, 200)
        meta = self.script.meta(frame.last, frame.term, frame.mark)
        self.snapshots[group].append(attrs.evolve(meta, size=len(state), crc=crc32c(state)))
        sink = self.storage.create_snapshot(group, meta)
        sink.write(state)
        sink.finish()
        del self.snapshots[group][:-1]
        self.write([Write(self.next_token(), group, purge_to=frame.last)])

    def received_snapshot(self, group: int) -> None:
        self.sync()  # the term is durable before the leader's snapshot is accepted
        index, term, _ = self.image(group).last
        state = b"r%d" % index * self.rng.randint(0, 200)
        meta = attrs.evolve(self.script.meta(index + self.rng.randint(1, 9), max(term, self.script.term), 7),
                            size=len(state), crc=crc32c(state))
        self.snapshots[group].append(meta)
        sink = self.storage.receive_snapshot(group, meta)
        sink.write(state[sink.offset :])
        sink.finish()
        del self.snapshots[group][:-1]
        # Visible means installed, whatever becomes of the write that says so.
        self.history[:] = [{**images, group: images.get(group, LogImage()).installed(meta)} for images in self.history]
        self.write([Write(self.next_token(), group, install=meta, purge_to=meta.index)])

    def reopen(self) -> None:
        self.storage = self.make()
        self.check(self.storage.open())

    def check(self, found: dict[int, Recovered]) -> None:
        """Both groups, together, are as one of the images that may be left; from here on they are."""
        for group in (1, 2):
            seen = found.get(group, Recovered()).snapshot
            assert seen in self.snapshots[group]
            self.snapshots[group] = [seen]
        reasons = []
        for images in reversed(self.history):
            reason = ""
            for group in (1, 2):
                recovered = found.get(group, Recovered())
                frames = everything(self.storage, group, recovered.purged_index + 1)
                reason = reason or differs(images.get(group, LogImage()), recovered, frames)
            if not reason:
                for group in (1, 2):
                    newest = self.snapshots[group][0]
                    if newest is not None:
                        images = {**images, group: images.get(group, LogImage()).installed(newest)}
                self.history = [images]
                return
            reasons.append(reason)
        raise AssertionError(f"none of {len(self.history)} prefixes came back: {reasons}")

    def play(self, steps: int, crash_at: int) -> bool:
        """Run; on a crash restart and check. Whether it crashed."""
        self.disk.crash_at(crash_at)
        try:
            self.check(self.storage.open())
            for _ in range(steps):
                self.step()
        except SimulatedCrash:
            self.recover()
            return True
        return False

    def recover(self) -> None:
        """Restart and open; now and then the machine dies again in the middle of opening.

        Or only the process died: then what it wrote is still in the cache, and what is read from there counts.
        """
        while True:
            if self.rng.random() < 0.3:
                self.disk.kill()
            else:
                self.disk.restart()
            if self.rng.random() < 0.3:
                self.disk.crash_at(self.disk.operations + self.rng.randint(1, 8))
            try:
                self.reopen()
            except SimulatedCrash:
                continue
            self.disk.crash_at(0)
            return


@pytest.mark.parametrize("seed", [*range(5), *campaign(*range(5, 10))])
def test_crash_in_every_operation(seed: int) -> None:
    whole = Run(seed, 0)
    formatting = whole.disk.operations
    assert not whole.play(60, 0)
    for crash_at in range(formatting + 1, whole.disk.operations + 1):
        for fate in range(2):
            run = Run(seed, 2 * crash_at + fate)
            assert run.play(60, crash_at)
            for _ in range(6):
                run.step()  # what came back can be gone on with


@pytest.mark.parametrize("seed", range(40))
def test_crash_again_and_again(seed: int) -> None:
    run = Run(1000 + seed, seed)
    run.check(run.storage.open())
    for _ in range(12):
        run.disk.crash_at(run.disk.operations + run.rng.randint(1, 60))
        try:
            while True:
                run.step()
        except SimulatedCrash:
            run.recover()


def test_the_scripts_reach_what_they_are_for() -> None:
    """Rolls, recycling, footers, snapshots, installs, torn and reordered writes happen in the seeds above."""
    journal: list[str] = []
    fates: set[str] = set()
    for seed in range(40):
        run = Run(1000 + seed, seed)
        run.disk.journal = journal
        run.check(run.storage.open())
        for _ in range(6):
            run.disk.crash_at(run.disk.operations + run.rng.randint(1, 60))
            try:
                while True:
                    run.step()
            except SimulatedCrash:
                run.recover()
        fates |= run.disk.counts.keys()
    assert any(line.startswith("rename log/spare-") and line.endswith(".seg") for line in journal)
    assert any(line.startswith("rename log/0") and "spare-" in line for line in journal), "nothing was recycled"
    assert any(line.startswith("rename snapshots/") and ".part " in line for line in journal)
    assert {"write torn", "write dropped", "write kept", "write size only", "reordered", "name lost"} <= fates
    assert {"crash", "kill"} <= fates


def test_disk_full_is_not_final() -> None:
    run = Run(5, 5)
    run.check(run.storage.open())
    run.disk.faults.capacity_bytes = run.disk.used_bytes()

    def fill() -> None:
        for _ in range(200):
            run.write([run.script.write(run.image(1), 1, run.next_token())])

    with pytest.raises(DiskFull):
        fill()
    del run.history[-1:]
    run.disk.faults.capacity_bytes = 1 << 62
    run.write([run.script.write(run.image(1), 1, run.next_token())])
    run.sync()
    run.storage.close()
    run.reopen()
