"""The log as the core sees it, against a plain list of frames: every question after every step, any order of steps."""

from __future__ import annotations

from itertools import groupby
from random import Random

import pytest

from raft import log as raftlog
from raft.errors import MalformedMessage
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
            size = min([self.appended - behind, *(self.ends[end] for end in self.ends if end > index)])
            size = size if known else self.ends[lower[-1]]
            self.ends = dict(sorted({**self.ends, index: size}.items()))

    def truncate(self, first: int) -> None:
        before = next((each for each in reversed(self.frames) if each.first < first), None)
        self.last_term = self.term(first - 1)
        self.frames = [each for each in self.frames if each.first < first]
        self.window = [each for each in self.window if each.first < first]
        self.last, self.durable = first - 1, min(self.durable, first - 1)
        self.mark = before.mark if self.window and before else 0
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
        assert log._run_terms == [term for term, _ in groupby(each.term for each in self.frames)], "no more"
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
        least = plain.snapshot.index if plain.snapshot else 0
        uncertain = [each.first for each in plain.frames[-4:] if each.first > least]
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
        elif what == "truncate" and uncertain:
            first = random.choice(uncertain)
            log.truncate(first)
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


@pytest.mark.parametrize("installed", [False, True])
def test_only_the_window_is_kept_in_memory_and_only_what_is_durable_leaves_it(installed: bool) -> None:
    log = RaftLog(Recovered(), BOOTSTRAP, 400)
    if installed:
        log.append(command(1, 1))
        log.install(meta(10, 1))
    first = log.last_index + 1

    def append(size: int) -> int:
        """Returns the first entry that is in memory."""
        log.append(command(log.last_index + 1, 1, size - 68))
        return next(index for index in range(first, log.last_index + 1) if log.cached(index, 1))

    assert [append(100) for _ in range(5)] == [first] * 5, "nothing is durable"
    log.durable_index = log.last_index
    assert append(100) == first + 3, "down to three quarters"
    log.durable_index = log.last_index
    assert append(100) == first + 3, "just full"
    log.durable_index = first + 3
    assert append(69) == first + 4, "no further than what is durable"
    log.durable_index = log.last_index
    assert append(1_000) == log.last_index, "the newest stays, however large"


def test_a_window_is_too_full_by_one_byte() -> None:
    for size, kept in ((100, [1, 2, 3, 4]), (101, [3, 4])):
        log = RaftLog(Recovered(), BOOTSTRAP, 400)
        for index in (1, 2, 3):
            log.append(command(index, 1, 100 - 68))
        log.durable_index = 3
        log.append(command(4, 1, size - 68))
        assert [index for index in (1, 2, 3, 4) if log.cached(index, 1)] == kept


def test_a_log_may_be_purged_each_512_entries_or_mebibyte() -> None:
    log = RaftLog(Recovered(), BOOTSTRAP, 1 << 30)
    for first, count, end in ((1, 511, 0), (512, 1, 512), (513, 511, 512), (1024, 2, 1025)):
        log.append(command(first, 1, 1, count))
        assert log.purge_point(1 << 20) == end
    for size, end in (((1 << 20) - 1, 1025), (69, 1027), (1 << 20, 1028)):
        log.append(command(log.last_index + 1, 1, size - 68))
        assert log.purge_point(1 << 20) == end


def test_the_mark_of_what_memory_does_not_hold_is_unknown() -> None:
    log = RaftLog(Recovered(last_index=3, last_term=1, last_mark=9, term_runs=[(1, 1)]), BOOTSTRAP, 1 << 20)
    log.append(command(4, 1))
    log.truncate(4)
    assert (log.last_index, log.last_mark) == (3, 0)


def test_an_end_is_noted_with_the_bytes_up_to_it_if_memory_tells() -> None:
    log = RaftLog(Recovered(), BOOTSTRAP, 1_000)
    for index in range(1, 10):
        log.append(command(index, 1, 100 - 68))
    log.durable_index = 9
    for index in range(10, 12):
        log.append(command(index, 1, 100 - 68))
    assert [each.first for each in log.cached(5, 1 << 20) or ()] == [5, 6, 7, 8, 9, 10, 11] and not log.cached(4, 1)
    for index, tail in ((3, 0), (4, 399), (5, 100), (6, 100)):
        log.note_end(index)
        start = log.tail_start(index, tail)
        assert start == (index if index == 4 else 0 if index == 3 else index - 1), index
    log.note_end(4)
    assert list(log._boundaries) == [0, 3, 4, 5, 6]
    assert list(log._sizes) == [0, 0, 400, 500, 600]


def test_a_membership_that_is_none_is_refused_before_anything_is_taken() -> None:
    log = RaftLog(Recovered(), BOOTSTRAP, 1 << 20)
    with pytest.raises(MalformedMessage):
        log.append(frame(1, 1, b"no membership", kind=Kind.MEMBERSHIP))
    assert (log.last_index, log.membership, log.cached(1, 1)) == (0, BOOTSTRAP, None)
