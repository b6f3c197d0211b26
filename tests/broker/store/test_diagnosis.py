"""When a disk counts as stalled or full, and when as well again: what has to be true of any course of events."""

from __future__ import annotations

from random import Random
from typing import Final

import attrs
import pytest

from broker.store.diagnosis import GOOD_TRIES, NS_PER_MS, TRY_MS, Diagnosis
from broker.store.health import DiskHealth

TICK: Final = 100
STALL: Final = 1_000
WELL, FULL, STALLED = DiskHealth.WELL, DiskHealth.FULL, DiskHealth.STALLED


@attrs.define
class Clock:
    """A diagnosis that is asked at each tick of a loop."""

    diagnosis: Diagnosis = attrs.field(factory=lambda: Diagnosis(STALL))
    ms: int = 50_000
    busy: bool = False
    pieces: int = 0
    refuses: bool = False
    tries: int = 0

    @property
    def health(self) -> DiskHealth:
        return self.diagnosis.health

    def run(self, ms: int) -> DiskHealth:
        for _ in range(ms // TICK):
            self.ms += TICK
            self.diagnosis.look(
                self.ms * NS_PER_MS, busy=self.busy, pieces=self.pieces, refuses=self.refuses)
        return self.health

    def pause(self, ms: int) -> None:
        """The process stands still."""
        self.ms += ms

    def try_it(self, took_ms: int = 0, *, room: bool = True, works: bool = True) -> DiskHealth:
        """When it is due."""
        for _ in range(20):
            if self.diagnosis.due(self.ms * NS_PER_MS):
                break
            self.run(TICK)
        else:
            raise AssertionError("no try is due")
        self.tries += 1
        began_ms, self.ms = self.ms, self.ms + took_ms
        self.diagnosis.tried(began_ms * NS_PER_MS, self.ms * NS_PER_MS, room=room, works=works)
        return self.health


def test_what_is_under_way_for_too_long_stalls_the_disk() -> None:
    clock = Clock()
    assert clock.run(10 * STALL) is WELL
    clock.busy = True
    assert clock.run(STALL) is WELL, "not before it has been under way for so long"
    assert clock.run(TICK) is STALLED


def test_pieces_that_end_one_after_the_other_stall_nothing_however_many_they_are() -> None:
    clock = Clock(busy=True)
    for _ in range(20):
        assert clock.run(STALL - TICK) is WELL
        clock.pieces += 1
    assert clock.run(STALL + TICK) is STALLED


def test_a_pause_of_the_process_itself_accuses_no_disk() -> None:
    clock = Clock(busy=True)
    clock.run(STALL // 2)
    clock.pause(30 * STALL)
    assert clock.run(STALL) is WELL, "the disk's thread stood still as well"
    assert clock.run(STALL) is STALLED


def test_zero_is_never() -> None:
    clock = Clock(Diagnosis(0), busy=True)
    assert clock.run(600_000) is WELL
    clock.diagnosis.no_room(clock.ms * NS_PER_MS)
    assert [clock.try_it(took_ms=60_000) for _ in range(GOOD_TRIES)] == [FULL, FULL, WELL]


@pytest.mark.parametrize("by_share", [True, False])
def test_a_full_disk_is_full_at_once_and_well_after_good_tries_in_a_row(by_share: bool) -> None:
    clock = Clock()
    clock.run(STALL)
    if by_share:
        clock.refuses = True
        assert clock.run(TICK) is FULL
        assert [clock.try_it() for _ in range(9)] == [FULL] * 9, "there is room, and the rule says that it is kept"
        clock.refuses = False
    else:
        clock.diagnosis.no_room(clock.ms * NS_PER_MS)
    assert clock.health is FULL
    assert clock.try_it(room=False, works=False) is FULL
    assert [clock.try_it(), clock.try_it(), clock.try_it(room=False, works=False)] == [FULL] * 3
    assert [clock.try_it() for _ in range(GOOD_TRIES)] == [FULL] * (GOOD_TRIES - 1) + [WELL]


@pytest.mark.parametrize(("took_ms", "works"), [(STALL // 2, True), (0, False)], ids=["slow", "broken"])
def test_a_stalled_disk_that_is_slow_or_broken_stays_stalled(took_ms: int, works: bool) -> None:
    clock = Clock(busy=True)
    assert clock.run(2 * STALL) is STALLED
    clock.busy = False
    assert [clock.try_it(took_ms, works=works) for _ in range(9)] == [STALLED] * 9
    assert [clock.try_it() for _ in range(GOOD_TRIES)] == [STALLED] * (GOOD_TRIES - 1) + [WELL]


def test_a_stalled_disk_that_answers_that_it_is_full_is_full() -> None:
    clock = Clock(busy=True, refuses=True)
    assert clock.run(2 * STALL) is STALLED, "which says more than full"
    clock.diagnosis.no_room(clock.ms * NS_PER_MS)
    assert clock.health is STALLED
    clock.busy = False
    assert clock.try_it(room=False, works=False) is FULL


def test_tries_come_no_faster_than_each_second_and_only_in_trouble() -> None:
    clock = Clock()
    clock.run(10 * STALL)
    assert not clock.diagnosis.due(clock.ms * NS_PER_MS)
    clock.refuses, began = True, clock.ms
    clock.run(TICK)
    for _ in range(10):
        clock.try_it()
    assert clock.ms - began >= 10 * TRY_MS


@pytest.mark.parametrize("seed", range(50))
def test_of_any_disk_trouble_is_seen_in_time_and_ends_late(seed: int) -> None:
    """A disk that comes and goes as it likes: it is never called ill for less, nor well for more, than is agreed."""
    chance, clock = Random(seed), Clock()
    clock.run(TICK)
    stuck_ms = good_ms = 0
    """For how long nothing has ended; and since when nothing was wrong."""
    seen = set[DiskHealth]()
    for _ in range(2_000):
        if clock.busy and chance.random() < 0.08:
            clock.busy, clock.pieces = False, clock.pieces + 1
        elif not clock.busy and chance.random() < 0.3:
            clock.busy = True
        before, refused = clock.health, clock.refuses
        if chance.random() < 0.01:
            clock.refuses = not clock.refuses
        was_busy = stuck_ms > 0
        clock.run(TICK)
        stuck_ms = (stuck_ms + TICK if was_busy else 1) if clock.busy else 0
        if stuck_ms > STALL:
            assert clock.health is STALLED, "it is told in time"
        if clock.health is STALLED and before is not STALLED:
            assert stuck_ms >= STALL, "nobody is accused for less"
        if clock.refuses:
            assert clock.health is not WELL
        good_ms = 0 if clock.refuses or stuck_ms >= STALL or refused else good_ms + TICK
        if not clock.busy and clock.diagnosis.due(clock.ms * NS_PER_MS):
            clock.diagnosis.tried(clock.ms * NS_PER_MS, clock.ms * NS_PER_MS, room=not clock.refuses, works=True)
            if clock.health is WELL:
                assert good_ms >= (GOOD_TRIES - 1) * TRY_MS, "it was well for a while before it is called so"
        seen.add(clock.health)
    assert seen == {WELL, FULL, STALLED}
