"""The simplest right model of a storage after a sequence of writes, and scripts of writes to try a storage with.

The oracle of the conformance class and of the crash tests. Slow and obvious on purpose: one tuple of frames per group
and state, copied at every write. Knows ``messages`` and ``frame`` only.
"""

from __future__ import annotations

from random import Random

import attrs

from raft.frame import Frame, Kind, build
from raft.membership import Membership
from raft.messages import HardState, Recovered, SnapshotMeta, Write


@attrs.frozen
class LogImage:
    """One group: frames behind (index, term, mark)."""

    hard_state: HardState = HardState()
    base: tuple[int, int, int] = (0, 0, 0)
    frames: tuple[Frame, ...] = ()

    @property
    def last(self) -> tuple[int, int, int]:
        return (self.frames[-1].last, self.frames[-1].term, self.frames[-1].mark) if self.frames else self.base

    def holds(self, index: int, term: int) -> bool:
        if index <= self.base[0]:
            return index < self.base[0] or term == self.base[1]
        return any(frame.first <= index <= frame.last and frame.term == term for frame in self.frames)

    def installed(self, meta: SnapshotMeta) -> LogImage:
        if self.holds(meta.index, meta.term):
            return self
        return attrs.evolve(self, base=(meta.index, meta.term, meta.mark), frames=())

    def after(self, write: Write) -> LogImage:
        image = LogImage(self.hard_state) if write.forget else self
        if write.install is not None:
            image = image.installed(write.install)
        if write.truncate_from:
            image = attrs.evolve(image, frames=tuple(f for f in image.frames if f.first < write.truncate_from))
        if write.hard_state is not None:
            image = attrs.evolve(image, hard_state=write.hard_state)
        assert not write.frames or write.frames[0].first == image.last[0] + 1, "frames go on where the log ends"
        return attrs.evolve(image, frames=(*image.frames, *write.frames))


Images = dict[int, LogImage]


def apply(images: Images, write: Write) -> Images:
    """The images after one more write; the given ones stay as they are."""
    return {**images, write.group: images.get(write.group, LogImage()).after(write)}


def differs(image: LogImage, found: Recovered, frames: list[Frame]) -> str:
    """Say in words how a storage's content differs from ``image``; "" if it does not. Purging may have begun."""
    if found.snapshot is not None:
        image = image.installed(found.snapshot)
    if found.hard_state != image.hard_state:
        return f"{found.hard_state} instead of {image.hard_state}"
    if (found.last_index, found.last_term, found.last_mark) != image.last:
        return f"ends at {(found.last_index, found.last_term)} instead of {image.last[:2]}"
    purged = (found.purged_index, found.purged_term, found.purged_mark)
    ends = [image.base, *((frame.last, frame.term, frame.mark) for frame in image.frames)]
    if purged not in ends:
        return f"purged up to {purged}, which ends no frame"
    if purged[0] > (found.snapshot.index if found.snapshot is not None else 0):
        return f"purged up to {purged[0]} beyond the snapshot"
    kept = [frame for frame in image.frames if frame.first > purged[0]]
    if [frame.data for frame in frames] != [frame.data for frame in kept]:
        return f"reads {frames} instead of {kept}"
    runs: list[tuple[int, int]] = []
    for frame in kept:
        if not runs or runs[-1][1] != frame.term:
            runs.append((frame.first, frame.term))
    if found.term_runs != runs:
        return f"term runs {found.term_runs} instead of {runs}"
    memberships = [frame.data for frame in kept if frame.kind == Kind.MEMBERSHIP]
    if [frame.data for frame in found.memberships] != memberships:
        return f"memberships {found.memberships}"
    return ""


@attrs.define
class Script:
    """Random writes that a replica could make, for groups 1 and 2. Keeps no state but the term it has reached."""

    rng: Random
    entry_bytes_max: int = 600
    term: int = 1

    def frames(self, image: LogImage, group: int, count: int) -> list[Frame]:
        """Draw ``count`` frames that continue ``image``."""
        out: list[Frame] = []
        index, _, mark = image.last
        for _ in range(count):
            kind = self.rng.choices([Kind.COMMANDS, Kind.NOOP, Kind.MEMBERSHIP], [8, 1, 1])[0]
            entries = self.rng.randint(1, 4) if kind is Kind.COMMANDS else 1
            payloads = [self.rng.randbytes(self.rng.randint(0, self.entry_bytes_max)) for _ in range(entries)]
            frame = build(kind=kind, group=group, term=self.term, first=index + 1, payloads=payloads, wall_ms=index,
                          chain=mark)
            index, mark = frame.last, frame.mark
            out.append(frame)
        return out

    def write(self, image: LogImage, group: int, token: int, *, floor: int = 0) -> Write:
        """Frames, often; a truncation at a frame behind ``floor``, a new term or a vote, sometimes."""
        rng, out = self.rng, Write(token, group)
        choice = rng.random()
        if choice < 0.15:
            self.term += 1
            out.hard_state = HardState(self.term, rng.choice([None, "n1", "node-with-a-long-name"]))
        if choice < 0.10:
            candidates = [frame for frame in image.frames if frame.first > floor]
            if candidates:
                out.truncate_from = rng.choice(candidates[-6:]).first
        if choice > 0.05:
            out.frames = self.frames(image.after(out), group, rng.choice([1, 1, 2, 5]))
        assert not 0 < out.truncate_from <= floor, "what must stay stays"
        return out

    def meta(self, index: int, term: int, mark: int) -> SnapshotMeta:
        members = Membership(voters=[f"n{number}" for number in range(self.rng.randint(1, 3))])
        return SnapshotMeta(index, term, mark, members, min(index, 1), wall_ms=index)
