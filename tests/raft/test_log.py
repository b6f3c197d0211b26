"""The log as the core sees it, against a plain list of frames: every question after every step, any order of steps."""

from __future__ import annotations

from random import Random

import pytest

from raft import log as raftlog
from raft.frame import Frame, Kind
from raft.log import RaftLog
from raft.membership import Membership
from raft.messages import Recovered, SnapshotMeta
from tests.raft.script import frame

BOOTSTRAP = Membership(("n0",))
CACHE_BYTES = 1_500


def command(first: int, term: int, size: int = 20, count: int = 1) -> Frame:
    return frame(first, term, *[bytes(size)] * count)


def membership(first: int, term: int, *voters: str) -> Frame:
    return frame(first, term, Membership(voters).encode(), kind=Kind.MEMBERSHIP)


def meta(index: int, term: int, *voters: str, at: int = 0) -> SnapshotMeta:
    return SnapshotMeta(index, term, index * 7, Membership(voters), at)


class Plain:
    """What a log is, said without any thought of speed."""

    def __init__(self, recovered: Recovered, frames: list[Frame]) -> None:
        self.frames = frames
        self.purged, self.purged_term = recovered.purged_index, recovered.purged_term
        self.last, self.last_term, self.mark = recovered.last_index, recovered.last_term, recovered.last_mark
        self.durable = self.last
        self.snapshot = recovered.snapshot
        base = (self.snapshot.membership_index, self.snapshot.membership) if self.snapshot else (0, BOOTSTRAP)
        self.memberships = [base]
        self._take_memberships(frames)
        self.window: list[Frame] = []
        self.ends = dict.fromkeys(
            sorted({self.purged, self.last, self.snapshot.index if self.snapshot else 0}), 0)
        """Known frame end -> bytes that were appended up to it."""
        self.appended = self.appended_at = 0

    def _take_memberships(self, frames: list[Frame]) -> None:
        self.memberships += [(each.first, Membership.decode(each.payloads()[0])) for each in frames
                             if each.kind == Kind.MEMBERSHIP and each.first > self.memberships[0][0]]

    def term(self, index: int) -> int:
        if index == self.purged:
            return self.purged_term
        return next((each.term for each in self.frames if each.first <= index <= each.last), 0)

    def last_with(self, index: int, term: int) -> tuple[int, int]:
        for at in range(min(index, self.last), self.purged, -1):
            if self.term(at) <= term:
                return at, self.term(at)
        return self.purged, self.purged_term

    def membership_at(self, index: int) -> tuple[int, Membership]:
        return next((each for each in reversed(self.memberships) if each[0] <= index), self.memberships[0])

    def cached(self, first: int, max_bytes: int) -> list[Frame] | None:
        found = [each for each in self.window if each.last >= first]
        if not self.window or not self.window[0].first <= first <= self.last:
            return None
        return [each for n, each in enumerate(found) if not n or sum(f.size for f in found[: n + 1]) <= max_bytes]

    def append(self, new: Frame) -> None:
        self.frames.append(new)
        self.window.append(new)
        self._take_memberships([new])
        self.last, self.last_term, self.mark = new.last, new.term, new.mark
        self.appended += new.size
        if sum(each.size for each in self.window) > CACHE_BYTES:
            while (len(self.window) > 1 and self.window[0].last <= self.durable
                   and sum(each.size for each in self.window) > CACHE_BYTES * 3 // 4):
                del self.window[0]
        if (not self.ends or self.last - max(self.ends) >= raftlog.BOUNDARY_ENTRIES
                or self.appended - self.appended_at >= raftlog.BOUNDARY_BYTES):
            self.ends[self.last] = self.appended_at = self.appended
            if len(self.ends) > raftlog.BOUNDARIES_MAX:
                half = raftlog.BOUNDARIES_MAX // 2
                self.ends = {end: size for n, (end, size) in enumerate(self.ends.items()) if n >= half or n % 2 == 0}

    def note_end(self, index: int) -> None:
        lower = [end for end in self.ends if end <= index]
        if lower and lower[-1] != index:
            known = bool(self.window) and self.window[0].first <= index + 1
            behind = sum(each.size for each in self.window if each.first > index)
            size = min([self.appended - behind if known else 0, *(self.ends[end] for end in self.ends if end > index)])
            size = max(size, self.ends[lower[-1]])
            self.ends = dict(sorted({**self.ends, index: size}.items()))

    def truncate(self, first: int) -> None:
        before = next((each for each in reversed(self.frames) if each.first < first), None)
        self.last_term = self.term(first - 1)
        self.frames = [each for each in self.frames if each.first < first]
        self.window = [each for each in self.window if each.first < first]
        self.last, self.durable = first - 1, min(self.durable, first - 1)
        self.mark = before.mark if self.window and before else 99
        self.ends = {end: size for end, size in self.ends.items() if end < first}
        self.memberships = self.memberships[:1] + [each for each in self.memberships[1:] if each[0] < first]

    def purge(self, index: int) -> None:
        self.purged_term, base = self.term(index), self.membership_at(index)
        self.purged = index
        self.frames = [each for each in self.frames if each.first > index]
        self.window = [each for each in self.window if each.first > index]
        self.ends = {end: size for end, size in self.ends.items() if end >= index}
        self.memberships = [base, *(each for each in self.memberships if each[0] > base[0])]

    def install(self, on: SnapshotMeta) -> None:
        self.snapshot, self.frames, self.window = on, [], []
        self.purged = self.last = on.index
        self.purged_term = self.last_term = on.term
        self.mark, self.durable = on.mark, 0
        self.memberships = [(on.membership_index, on.membership)]
        self.ends = {on.index: self.appended}

    def compare(self, log: RaftLog, random: Random) -> None:
        assert (log.purged_index, log.purged_term) == (self.purged, self.purged_term)
        assert (log.last_index, log.last_term, log.last_mark) == (self.last, self.last_term, self.mark)
        assert (log.durable_index, log.snapshot) == (self.durable, self.snapshot)
        assert (log.membership_index, log.membership) == self.memberships[-1]
        assert log.memberships == self.memberships
        assert log.kept_bytes == self.appended - next(iter(self.ends.values()), 0)
        for index in range(max(0, self.purged - 3), self.last + 4):
            assert log.term_at(index) == self.term(index), index
            assert log.membership_at(index) == self.membership_at(index)
            assert log.purge_point(index) == max([self.purged, *(end for end in self.ends if end <= index)])
            for most in (1, random.randrange(1_000), 1 << 30):
                assert log.cached(index, most) == self.cached(index, most), (index, most)
            term = random.randrange(self.last_term + 2)
            assert log.last_with_term_up_to(index, term) == self.last_with(index, term), (index, term)
            tail = random.choice([random.randrange(600), *self.ends.values()])
            sizes = [size for end, size in self.ends.items() if end <= index]
            if not sizes or sizes[-1] <= tail:
                assert log.tail_start(index, tail) == 0
            else:
                assert log.tail_start(index, tail) == next(
                    end for end, size in self.ends.items() if sizes[-1] - size <= tail)


@pytest.mark.parametrize("seed", range(4))
def test_a_log_answers_like_a_plain_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raftlog, "BOUNDARY_ENTRIES", 4)
    monkeypatch.setattr(raftlog, "BOUNDARY_BYTES", 400)
    monkeypatch.setattr(raftlog, "BOUNDARIES_MAX", 8)
    random = Random(seed)
    known = [command(11, 2), membership(12, 2, "n0", "n1"), command(13, 3, count=3), membership(16, 3, "n2"),
             command(17, 5)]
    recovered = [
        Recovered(), Recovered(purged_index=10, purged_term=2, last_index=17, last_term=5, last_mark=known[-1].mark,
                               term_runs=[(11, 2), (13, 3), (17, 5)], memberships=[known[1], known[3]],
                               snapshot=meta(12, 2, "n0", "n1", at=12)),
    ][seed % 2]
    plain = Plain(recovered, known if seed % 2 else [])
    log = RaftLog(recovered, BOOTSTRAP, CACHE_BYTES)
    plain.compare(log, random)
    done = set()
    for step in range(160):
        ends = [each.last for each in plain.frames]
        what = "install" if step == 80 else random.choices(
            ["append", "durable", "truncate", "purge", "note"], [60, 12, 6, 6, 8])[0]
        if what == "append":
            first, term = plain.last + 1, max(1, plain.last_term + random.choice([0, 0, 0, 0, 1, 2]))
            new = (membership(first, term, *random.sample(["n0", "n1", "n2"], 2)) if random.random() < 0.1
                   else command(first, term, random.randrange(1, 120), random.randrange(1, 4)))
            log.append(new)
            plain.append(new)
        elif what == "durable":
            log.durable_index = plain.durable = random.randint(plain.durable, plain.last)
        elif what == "truncate" and plain.frames:
            first = random.choice(plain.frames[-4:]).first
            log.truncate(first, 99)
            plain.truncate(first)
        elif what == "purge" and ends:
            index = random.choice(ends[: len(ends) // 2 + 1])
            log.purge(index)
            log.purge(index - 1)  # long gone
            plain.purge(index)
        elif what == "note" and ends:
            index = random.choice(ends)
            log.note_end(index)
            plain.note_end(index)
        elif what == "install":
            on = meta(plain.last + 5, plain.last_term + 1, "n1", "n2", at=plain.last)
            log.install(on)
            plain.install(on)
        done.add(what)
        plain.compare(log, random)
    assert len(done) == 6
