"""The promises of any ``Storage``, as a class of tests to inherit. Needs no test framework.

    class TestMine(StorageConformance):
        def make(self): return MyStorage(fresh_place())
        def reopen(self, storage): storage.close(); return MyStorage(same_place(storage))
        def crash(self, storage, rng): ...the same after a power cut; without it, crashes lose nothing here
        def fill(self, storage): ...no room is left; without it, no medium is full here
        def relieve(self, storage): ...there is room again

Every ``test_*`` method uses its own fresh storage. ``docs/how-to/write-a-storage.md`` walks through one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import TypeVar

import attrs
from google_crc32c import value as crc32c

from raft.errors import DamagedLog, DiskFull, UsageError
from raft.frame import Frame, Kind, build
from raft.membership import Membership
from raft.messages import UNKNOWN_TERM, WHOLE, HardState, Lapse, Recovered, SnapshotMeta, Write
from raft.storage.interface import Storage
from raft.storage.model import Images, LogImage, Script, apply, differs

E = TypeVar("E", bound=Exception)


def frames(
    count: int, *, group: int = 1, term: int = 1, after: Frame | None = None, kind: Kind = Kind.COMMANDS,
    size: int = 100,
) -> list[Frame]:
    """Consecutive frames of one entry each, from entry 1 or behind ``after``."""
    out: list[Frame] = []
    for _ in range(count):
        first, chain = (after.last + 1, after.mark) if after is not None else (1, 0)
        after = build(kind=kind, group=group, term=term, first=first, payloads=[b"%d." % first * (size // 4)],
                      wall_ms=first, chain=chain)
        out.append(after)
    return out


def read_all(storage: Storage, group: int, first: int, max_bytes: int = 4096) -> list[Frame]:
    """Every frame from the one with entry ``first``."""
    out: list[Frame] = []
    while found := storage.read(group, out[-1].last + 1 if out else first, max_bytes):
        out += found
    return out


def snapshot_at(frame: Frame, state: bytes = b"") -> SnapshotMeta:
    """Meta of a snapshot that ends with this frame."""
    return SnapshotMeta(frame.last, frame.term, frame.mark, Membership(voters=("a", "b")), 0, len(state), crc32c(state))


def refused(kind: type[E], call: Callable[[], object]) -> E:
    """The error that ``call`` must raise."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was due")


class StorageConformance:
    """Inherit, and say how to make one."""

    def make(self) -> Storage:
        """A storage on a fresh medium, not opened yet."""
        raise NotImplementedError

    def reopen(self, storage: Storage) -> Storage:
        """Close ``storage``; a new one on the same medium, not opened yet."""
        raise NotImplementedError

    def crash(self, storage: Storage, rng: Random) -> Storage:
        """A new one on what a power cut leaves of the medium; ``rng`` decides what that is, where it can."""
        return self.reopen(storage)

    def fill(self, storage: Storage) -> bool:
        """Leave the medium no room beyond what the storage has set aside. False: that is not tried here."""
        return False

    def relieve(self, storage: Storage) -> None:
        """Undo ``fill``: there is room again."""

    # --- helpers

    def opened(self) -> Storage:
        storage = self.make()
        assert storage.open() == {}, "a fresh storage holds something"
        return storage

    def again(self, storage: Storage) -> tuple[Storage, dict[int, Recovered]]:
        storage = self.reopen(storage)
        return storage, storage.open()

    @staticmethod
    def put(storage: Storage, *writes: Write) -> None:
        storage.write(writes)
        storage.sync()

    @staticmethod
    def own_snapshot(storage: Storage, frame: Frame, state: bytes) -> SnapshotMeta:
        sink = storage.create_snapshot(frame.group, snapshot_at(frame))
        for start in range(0, len(state), 7_000):
            sink.write(state[start : start + 7_000])
        return sink.finish()

    @staticmethod
    def whole_snapshot(storage: Storage, group: int, index: int) -> bytes:
        out = b""
        while piece := storage.read_snapshot(group, index, len(out), 300_000):
            out += piece
        return out

    # --- writes, order and recovery

    def test_synced_writes_come_back(self) -> None:
        storage, log = self.opened(), frames(20)
        for number, frame in enumerate(log, 1):
            self.put(storage, Write(number, 1, frames=[frame]))
        storage, found = self.again(storage)
        assert not differs(LogImage(frames=tuple(log)), found[1], read_all(storage, 1, 1))
        storage.close()
        storage.close()

    def test_fields_apply_in_order(self) -> None:
        storage, log = self.opened(), frames(6)
        other = frames(2, term=3, after=log[2])
        self.put(storage, Write(1, 1, frames=log))
        self.put(storage, Write(2, 1, truncate_from=4, hard_state=HardState(3, "b"), frames=other))
        image = LogImage(HardState(3, "b"), frames=(*log[:3], *other))
        assert not differs(image, self.again(storage)[1][1], [*log[:3], *other])

    def test_truncation_within_one_call(self) -> None:
        storage, log = self.opened(), frames(6)
        other = frames(1, term=2, after=log[3])
        self.put(storage, Write(1, 1, frames=log[:2]), Write(2, 1, frames=log[2:]),
                 Write(3, 1, truncate_from=5, frames=other))
        assert [frame.data for frame in read_all(storage, 1, 1)] == [frame.data for frame in (*log[:4], *other)]
        storage, found = self.again(storage)
        assert not differs(LogImage(frames=(*log[:4], *other)), found[1], read_all(storage, 1, 1))

    def test_truncation_to_nothing(self) -> None:
        storage, log = self.opened(), frames(3)
        self.put(storage, Write(1, 1, frames=log))
        self.put(storage, Write(2, 1, truncate_from=1))
        assert storage.read(1, 1, 1000) == []
        other = frames(2, term=2)
        self.put(storage, Write(3, 1, frames=other))
        storage, found = self.again(storage)
        assert not differs(LogImage(frames=tuple(other)), found[1], read_all(storage, 1, 1))

    def test_term_and_vote_alone(self) -> None:
        storage = self.opened()
        self.put(storage, Write(1, 1, hard_state=HardState(1, "a")))
        self.put(storage, Write(2, 1, hard_state=HardState(2, None)))
        assert self.again(storage)[1][1] == Recovered(HardState(2, None))

    def test_groups_do_not_mix(self) -> None:
        storage, one, two = self.opened(), frames(5), frames(7, group=2)
        for number in range(5):
            self.put(storage, Write(number + 1, 1, frames=[one[number]]), Write(number + 1, 2, frames=[two[number]]))
        self.put(storage, Write(6, 2, frames=two[5:], hard_state=HardState(9, "z")), Write(6, 1, truncate_from=4))
        storage, found = self.again(storage)
        assert not differs(LogImage(frames=tuple(one[:3])), found[1], read_all(storage, 1, 1))
        assert not differs(LogImage(HardState(9, "z"), frames=tuple(two)), found[2], read_all(storage, 2, 1))

    def test_terms_and_memberships_are_told(self) -> None:
        storage, first = self.opened(), frames(3)
        change = frames(1, term=4, after=first[-1], kind=Kind.MEMBERSHIP)
        rest = frames(2, term=5, after=change[0])
        self.put(storage, Write(1, 1, frames=[*first, *change, *rest]))
        found = self.again(storage)[1][1]
        assert found.term_runs == [(1, 1), (4, 4), (5, 5)]
        assert [frame.data for frame in found.memberships] == [change[0].data]

    def test_what_does_not_continue_the_log_is_refused(self) -> None:
        storage, log = self.opened(), frames(5)
        self.put(storage, Write(1, 1, frames=log[:2]))
        refused(UsageError, lambda: storage.write([Write(2, 1, frames=log[3:])]))
        refused(UsageError, lambda: storage.write([Write(2, 1, frames=frames(3, term=2)[2:])]))
        refused(UsageError, lambda: storage.write([Write(2, 1, truncate_from=9)]))
        self.put(storage, Write(2, 1, frames=log[2:]))
        assert [frame.first for frame in read_all(storage, 1, 1)] == [1, 2, 3, 4, 5]

    def test_a_frame_that_does_not_know_its_predecessor_continues_the_log(self) -> None:
        """A leader that stands on a received snapshot may not know the chain there: 0 proves nothing and is taken."""
        storage, known = self.opened(), frames(1)
        unknown = build(kind=Kind.COMMANDS, group=1, term=1, first=2, payloads=[b"2"], wall_ms=2, chain=0)
        self.put(storage, Write(1, 1, frames=[*known, unknown]))
        _, found = self.again(storage)
        assert (found[1].last_index, found[1].last_mark) == (2, unknown.mark)

    def test_a_large_log_comes_back(self) -> None:
        storage, log = self.opened(), frames(400, size=2_000)
        for number in range(25):
            self.put(storage, Write(number + 1, 1, frames=log[16 * number : 16 * number + 16]))
        storage, found = self.again(storage)
        assert not differs(LogImage(frames=tuple(log)), found[1], read_all(storage, 1, 1, 50_000))
        middle = storage.read(1, 200, 1)
        assert [frame.first for frame in middle] == [200]

    def test_a_lapse_is_given_back_until_it_is_said_to_be_over(self) -> None:
        storage, log = self.opened(), frames(3)
        lapse = Lapse(9, UNKNOWN_TERM, (5, (1 << 62) - 1))
        self.put(storage, Write(1, 1, frames=log, lapse=lapse))
        storage, found = self.again(storage)
        assert (found[1].lapse, found[1].told) == (lapse, lapse.told)
        self.put(storage, Write(2, 1, hard_state=HardState(3)))
        storage, found = self.again(storage)
        assert (found[1].lapse, found[1].told) == (lapse, lapse.told)
        self.put(storage, Write(3, 1, lapse=attrs.evolve(WHOLE, told=lapse.told)))
        storage, found = self.again(storage)
        assert (found[1].lapse, found[1].told) == (None, lapse.told)
        self.put(storage, Write(4, 1, lapse=WHOLE))
        storage, found = self.again(storage)
        assert (found[1].lapse, found[1].told) == (None, ())

    def test_a_group_is_known_without_opening_again(self) -> None:
        storage, log = self.opened(), frames(6)
        self.put(storage, Write(1, 1, hard_state=HardState(4, "a"), frames=log), Write(1, 2, hard_state=HardState(2)))
        self.put(storage, Write(2, 1, truncate_from=5))
        self.own_snapshot(storage, log[1], b"state")
        now = {group: storage.recovered(group) for group in (1, 2)}
        storage, found = self.again(storage)
        for group in (1, 2):
            fields = attrs.evolve(now[group], memberships=[]), attrs.evolve(found[group], memberships=[])
            assert fields[0] == fields[1]
        assert storage.recovered(3) == Recovered()

    # --- capabilities

    def test_capabilities_change_nothing_of_what_is_kept(self) -> None:
        storage, log = self.opened(), frames(90, size=2_000)
        for frame in log:
            if storage.only_appends(frame.size):
                assert not storage.needs_maintenance or storage.maintain()
            self.put(storage, Write(frame.first, 1, frames=[frame]))
        assert storage.kind and storage.has_room() and storage.log_bytes >= 0
        assert storage.maintain() and not storage.needs_maintenance
        assert all(isinstance(place, str) for place in storage.scrub(step_bytes=16 << 10))
        assert set(storage.too_large) <= {1}
        storage, found = self.again(storage)
        assert not differs(LogImage(frames=tuple(log)), found[1], read_all(storage, 1, 1))

    def test_a_full_medium_takes_votes_and_loses_nothing(self) -> None:
        storage, log, kept = self.opened(), frames(700, size=2_000), 0
        if not self.fill(storage):
            return
        try:
            for frame in log:
                self.put(storage, Write(frame.first, 1, frames=[frame]))
                kept += 1
        except DiskFull:
            pass
        assert kept < len(log), "there was always room"
        self.put(storage, Write(1_000, 1, hard_state=HardState(3, "b")))
        refused(DiskFull, lambda: self.put(storage, Write(1_001, 1, hard_state=HardState(4), frames=log[kept:])))
        assert [frame.first for frame in read_all(storage, 1, 1)] == list(range(1, kept + 1))
        self.relieve(storage)
        assert storage.has_room()
        self.put(storage, Write(1_002, 1, frames=log[kept : kept + 2]))
        storage, found = self.again(storage)
        image = LogImage(HardState(3, "b"), frames=tuple(log[: kept + 2]))
        assert not differs(image, found[1], read_all(storage, 1, 1))

    # --- reading

    def test_reads_give_whole_frames(self) -> None:
        storage = self.opened()
        log = [build(kind=Kind.COMMANDS, group=1, term=1, first=1, payloads=[b"x"] * 10, wall_ms=0, chain=0)]
        log += frames(3, after=log[0])
        self.put(storage, Write(1, 1, frames=log))
        assert [frame.first for frame in storage.read(1, 7, 1)] == [1], "the one with entry 7, whatever its size"
        assert [frame.first for frame in storage.read(1, 11, log[1].size + log[2].size)] == [11, 12]
        assert storage.read(1, 14, 1000) == []
        assert storage.read(2, 1, 1000) == []

    def test_reads_beside_writes(self) -> None:
        storage, log, wrong = self.opened(), frames(300), list[str]()
        self.put(storage, Write(1, 1, frames=log[:1]))

        def look() -> None:
            at = 1
            while at <= 300 and not wrong:
                for frame in storage.read(1, at, 5_000):
                    if frame.data != log[frame.first - 1].data:
                        wrong.append(f"entry {frame.first}")
                    at = frame.last + 1

        reader = threading.Thread(target=look)
        reader.start()
        for number, frame in enumerate(log[1:], 2):
            self.put(storage, Write(number, 1, frames=[frame]))
        reader.join(60)
        assert not wrong and not reader.is_alive()

    # --- snapshots, purging, installing

    def test_a_snapshot_is_visible_whole_or_not_at_all(self) -> None:
        storage, log, state = self.opened(), frames(4), Random(1).randbytes(2_500_000)
        self.put(storage, Write(1, 1, frames=log))
        sink = storage.create_snapshot(1, snapshot_at(log[1]))
        sink.write(state)
        assert sink.offset == len(state)
        assert storage.newest_snapshot(1) is None and storage.read_snapshot(1, 2, 0, 10) is None
        meta = sink.finish()
        assert (meta.size, meta.crc) == (len(state), crc32c(state))
        assert storage.newest_snapshot(1) == meta and self.whole_snapshot(storage, 1, 2) == state
        assert storage.read_snapshot(1, 2, len(state), 10) == b""
        storage, found = self.again(storage)
        assert found[1].snapshot == meta and self.whole_snapshot(storage, 1, 2) == state

    def test_an_aborted_snapshot_leaves_nothing(self) -> None:
        storage, log = self.opened(), frames(4)
        self.put(storage, Write(1, 1, frames=log))
        sink = storage.create_snapshot(1, snapshot_at(log[1]))
        sink.write(b"half")
        sink.abort()
        sink.abort()
        assert storage.newest_snapshot(1) is None
        assert self.again(storage)[1][1].snapshot is None

    def test_the_newest_snapshot_wins_and_the_one_before_stays(self) -> None:
        storage, log = self.opened(), frames(9)
        self.put(storage, Write(1, 1, frames=log))
        metas = [self.own_snapshot(storage, log[at], b"%d" % at) for at in (1, 3, 5)]
        assert storage.newest_snapshot(1) == metas[-1]
        assert self.whole_snapshot(storage, 1, 4) == b"3" and self.whole_snapshot(storage, 1, 6) == b"5"
        assert storage.read_snapshot(1, 2, 0, 10) is None
        assert self.again(storage)[1][1].snapshot == metas[-1]

    def test_purging_stops_at_the_newest_snapshot(self) -> None:
        storage, log = self.opened(), frames(60, size=2_000)
        self.put(storage, Write(1, 1, frames=log))
        self.own_snapshot(storage, log[29], b"state")
        self.put(storage, Write(2, 1, purge_to=50))
        for number in range(3):
            self.put(storage, Write(3 + number, 1, hard_state=HardState(2 + number)))
        assert [frame.first for frame in read_all(storage, 1, 31)] == list(range(31, 61))
        storage, found = self.again(storage)
        first = found[1].purged_index + 1
        assert first <= 31
        assert not differs(LogImage(HardState(4), frames=tuple(log)), found[1], read_all(storage, 1, first))

    def test_install_resets_the_log(self) -> None:
        storage, log = self.opened(), frames(5)
        self.put(storage, Write(1, 1, hard_state=HardState(7, "a"), frames=log))
        meta = SnapshotMeta(100, 7, 55, Membership(voters=("a",)), 3, 5, crc32c(b"state"))
        sink = storage.receive_snapshot(1, meta)
        sink.write(b"state")
        assert sink.finish() == meta
        more = build(kind=Kind.NOOP, group=1, term=7, first=101, payloads=[b""], wall_ms=0, chain=55)
        self.put(storage, Write(2, 1, install=meta, frames=[more], purge_to=100))
        assert storage.read(1, 5, 1000) == []
        storage, found = self.again(storage)
        image = LogImage(HardState(7, "a"), (100, 7, 55), (more,))
        assert not differs(image, found[1], read_all(storage, 1, 101))

    def test_install_keeps_a_log_that_holds_its_entry(self) -> None:
        storage, log = self.opened(), frames(5)
        self.put(storage, Write(1, 1, frames=log))
        meta = snapshot_at(log[2], b"state")
        sink = storage.receive_snapshot(1, meta)
        sink.write(b"state")
        sink.finish()
        self.put(storage, Write(2, 1, install=meta))
        assert [frame.first for frame in read_all(storage, 1, 4)] == [4, 5]
        assert (self.again(storage)[1][1].last_index, meta.index) == (5, 3)

    def test_a_visible_snapshot_is_installed_even_if_the_write_was_lost(self) -> None:
        storage, log = self.opened(), frames(5)
        self.put(storage, Write(1, 1, hard_state=HardState(2), frames=log))
        meta = SnapshotMeta(4, 2, 9, Membership(voters=("a",)), 0, 1, crc32c(b"s"))
        sink = storage.receive_snapshot(1, meta)
        sink.write(b"s")
        sink.finish()
        storage = self.crash(storage, Random(1))
        found = storage.open()
        assert not differs(LogImage(HardState(2), (4, 2, 9)), found[1], read_all(storage, 1, 5))

    def test_a_received_snapshot_must_be_what_its_meta_says(self) -> None:
        storage, log = self.opened(), frames(2)
        self.put(storage, Write(1, 1, frames=log))
        for state in (b"stat", b"stale", b"state."):
            sink = storage.receive_snapshot(1, snapshot_at(log[1], b"state"))
            assert sink.offset == 0
            sink.write(state)
            refused(DamagedLog, sink.finish)
            assert storage.newest_snapshot(1) is None

    def test_receiving_goes_on_where_it_was(self) -> None:
        storage, log, state = self.opened(), frames(2), Random(2).randbytes(2_300_000)
        self.put(storage, Write(1, 1, frames=log))
        meta = snapshot_at(log[1], state)
        storage.receive_snapshot(1, meta).write(state[:1_500_000])
        assert storage.receive_snapshot(1, meta).offset == 1_500_000
        storage = self.crash(storage, Random(3))
        storage.open()
        sink = storage.receive_snapshot(1, meta)
        assert 0 <= sink.offset <= 1_500_000
        sink.write(state[sink.offset :])
        assert sink.finish() == meta and self.whole_snapshot(storage, 1, 2) == state
        other = attrs.evolve(meta, wall_ms=5)
        assert storage.receive_snapshot(1, other).offset == 0, "staged bytes of another snapshot"

    # --- removing a group

    def test_a_forgotten_group_keeps_its_vote_and_nothing_else(self) -> None:
        storage, log, others = self.opened(), frames(5), frames(3, group=2)
        self.put(storage, Write(1, 1, hard_state=HardState(4, "a"), frames=log), Write(1, 2, frames=others))
        self.own_snapshot(storage, log[2], b"state")
        self.put(storage, Write(2, 1, purge_to=3), Write(3, 1, forget=True))
        assert read_all(storage, 1, 1) == []
        storage.drop_snapshots(1)
        storage.drop_snapshots(1)
        assert storage.newest_snapshot(1) is None and storage.read_snapshot(1, 3, 0, 10) is None
        storage, found = self.again(storage)
        assert found[1] == Recovered(HardState(4, "a"))
        assert not differs(LogImage(frames=tuple(others)), found[2], read_all(storage, 2, 1))

    # --- crashes

    def test_a_crash_leaves_a_prefix_with_everything_synced(self) -> None:
        for seed in range(25):
            self._crash_run(Random(seed))

    def _crash_run(self, rng: Random) -> None:
        storage, script, token = self.opened(), Script(rng), 0
        history: list[Images] = [{}]
        for _ in range(5):
            for _ in range(rng.randint(1, 12)):
                token += 1
                write = script.write(history[-1].get(1, LogImage()), 1, token)
                history.append(apply(history[-1], write))
                storage.write([write])
                if rng.random() < 0.4:
                    storage.sync()
                    del history[:-1]
            storage = self.crash(storage, rng)
            found = storage.open().get(1, Recovered())
            log = read_all(storage, 1, found.purged_index + 1)
            reasons = [differs(images.get(1, LogImage()), found, log) for images in history]
            assert "" in reasons, f"no prefix of the writes: {reasons}"
            history = [history[reasons.index("")]]
