"""Which slots are due, in which order, and when one is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.store.files import MemoryFiles
from broker.timer.machine import KEPT_MAX, Due, TimerMachine
from broker.timer.store import TimerStore
from broker.timer.units import DELETE, MESSAGE, ROLL

NOW_MS = 1_700_000_000_000


class World:
    """``add`` enqueues; messages are known by their offsets in the log."""

    def __init__(self, window: int = 172_800, precision_ms: int = 1_000) -> None:
        self.store = TimerStore(MemoryFiles(), precision_ms=precision_ms, log_file_bytes=1 << 21)
        self.store.recover(0)
        self.store.done_before(NOW_MS)
        self.machine = TimerMachine(self.store, window_slots=window)
        self.count = 0

    def add(self, after_s: float, *, stored_s: float = 0, deletes: bool = False) -> int:
        self.count += 1
        self.machine.enqueue(self.count * 100, 90, 7, out_ms=NOW_MS + int(after_s * 1e3),
                             stored_ms=NOW_MS + int(stored_s * 1e3), deletes=deletes)
        return self.count * 100

    def opened(self, at_s: float) -> Iterator[Due]:
        """What is handed out of the next slot."""
        found = self.machine.open(NOW_MS + int(at_s * 1e3))
        return (due for due in found if due is not None) if found is not None else iter(())

    def due(self, at_s: float) -> list[int]:
        """All that is due by then, dealt with at once."""
        offsets = []
        while (found := self.machine.open(NOW_MS + int(at_s * 1e3))) is not None:
            for due in found:
                if due is not None:
                    offsets.append(due.unit.offset)
                    self.machine.done(due)
        return offsets

    @property
    def read_s(self) -> float:
        return (self.store.read_time_ms - NOW_MS) / 1e3


def test_slots_come_in_their_order_and_units_in_the_queues() -> None:
    world = World()
    late, soon, soon_too = world.add(20), world.add(5), world.add(5)
    world.machine.start()
    assert world.due(5.9) == []
    assert world.read_s == 5
    assert world.due(6) == [soon, soon_too]
    assert world.read_s == 6
    assert world.due(100) == [late]
    assert world.read_s == 100


def test_a_slot_is_done_when_all_of_it_is_and_later_ones_go_on() -> None:
    world = World()
    for second in (1, 1, 2, 3):
        world.add(second)
    world.machine.start()
    dues = [due for _ in range(3) for due in world.opened(10)]
    assert len(dues) == 4 and world.machine.unfinished == 4
    for due in dues[1:]:
        world.machine.done(due)
        assert world.read_s == 1
    assert world.due(10) == []
    assert world.read_s == 1
    world.machine.done(dues[0])
    assert world.read_s == 10 and world.machine.unfinished == 0


def test_markers_of_a_slot_come_first() -> None:
    world = World()
    message, marker = world.add(5), world.add(5, deletes=True)
    other = world.add(5)
    world.machine.start()
    assert world.due(10) == [marker, message, other]


def test_a_late_one_is_handed_out_at_once_and_holds_its_slot() -> None:
    """Whoever takes over from ``read_time_ms`` finds it."""
    world = World()
    world.machine.start()
    assert world.due(10) == [] and world.read_s == 10
    world.add(3)
    late = world.machine.late()
    assert late is None, "slot 10 is not opened yet"
    assert world.due(12) == [100]
    held = world.add(12)
    (due,) = world.opened(13)
    world.add(4)
    late = world.machine.late()
    assert late is not None and late.unit.offset == 300 and held == 200
    world.machine.done(due)
    assert world.read_s == 12
    assert world.due(30) == []
    assert world.read_s == 12
    world.machine.done(late)
    assert world.read_s == 30
    assert world.machine.late() is None


def test_what_comes_into_a_slot_that_is_being_read_comes_once() -> None:
    world = World()
    world.add(5)
    world.machine.start()
    found = world.opened(6)
    late = world.add(5)
    first = next(found)
    assert [due.unit.offset for due in found] == []
    again = world.machine.late()
    assert again is not None and again.unit.offset == late
    assert world.read_s == 5
    world.machine.done(first)
    world.machine.done(again)
    assert world.due(7) == [] and world.read_s == 7


def test_large_slots_are_read_twice_and_handed_out_once() -> None:
    world = World()
    offsets = [world.add(5) for _ in range(KEPT_MAX + 10)]
    marker = world.add(5, deletes=True)
    world.machine.start()
    assert world.due(6) == [marker, *offsets]


def test_a_new_run_begins_where_all_is_done_and_the_old_one_counts_no_more() -> None:
    world = World()
    for second in (1, 2):
        world.add(second)
    world.machine.start()
    dues = [due for _ in range(2) for due in world.opened(10)]
    world.machine.done(dues[0])
    world.machine.stop()
    world.machine.done(dues[1])
    assert world.read_s == 2 and world.machine.unfinished == 0
    assert world.machine.open(NOW_MS + 20_000) is None
    world.machine.start()
    world.machine.done(dues[1])
    assert world.read_s == 2
    assert world.due(10) == [200]
    assert world.read_s == 10


def test_a_reading_that_a_stop_interrupts_hands_out_nothing_more() -> None:
    world = World()
    for _ in range(3):
        world.add(1)
    world.machine.start()
    found = world.opened(5)
    next(found)
    world.machine.stop()
    world.machine.start()
    assert list(found) == []
    assert world.due(5) == [100, 200, 300]


@pytest.mark.parametrize(("after_s", "slot_s", "kind"), [
    (99, 99, MESSAGE), (100, 50, MESSAGE | ROLL), (133, 50, MESSAGE | ROLL), (134, 100, MESSAGE | ROLL),
    (100_000, 100, MESSAGE | ROLL)])
def test_who_waits_for_longer_than_the_window_is_put_again_before(after_s: float, slot_s: int, kind: int) -> None:
    world = World(window=100)
    assert world.machine.place(NOW_MS + int(after_s * 1e3), NOW_MS + 999) == (NOW_MS + slot_s * 1_000, kind)


def test_a_time_without_end_stays_within_the_wheel() -> None:
    world = World()
    world.machine.enqueue(100, 90, 7, out_ms=2**62, stored_ms=NOW_MS, deletes=False)
    world.machine.enqueue(200, 90, 7, out_ms=2**62, stored_ms=NOW_MS + 10**10, deletes=False)
    world.machine.start()
    assert world.due(200_000) == [100]
    assert world.due(10**8) == [200]


def test_all_replicas_find_the_same_slot() -> None:
    """It is found from what the log says, and not from when somebody reads it."""
    master, slave = World(window=10), World(window=10)
    master.machine.start()
    master.due(3)
    for world in (master, slave):
        world.add(25, stored_s=2)
    slave.machine.start()
    assert master.due(11.9) == slave.due(11.9) == []
    assert master.due(13) == slave.due(13) == [100]


def test_a_message_that_is_here_already_is_passed_over() -> None:
    world = World()
    world.add(5)
    world.store.queue_offset = world.count = 0
    world.machine.start()
    world.add(5)
    assert (world.store.queue_offset, world.due(6)) == (1, [100])


def test_a_marker_rolls_as_its_message_does() -> None:
    """Its unit says that it is one, and takes nothing back before its last slot."""
    world = World(window=10)
    world.add(25, deletes=True)
    world.machine.start()
    (due,) = world.opened(30)
    assert due.unit.kind == MESSAGE | ROLL | DELETE and not due.unit.deletes


def test_a_marker_that_comes_into_a_slot_that_is_being_read_comes_once() -> None:
    world = World()
    message = world.add(5)
    world.machine.start()
    found = world.opened(6)
    marker = world.add(5, deletes=True)
    assert [due.unit.offset for due in found] == [message]
    late = world.machine.late()
    assert late is not None and late.unit.offset == marker and world.machine.late() is None


def test_what_was_seen() -> None:
    """Not what is done: a timer may wait on for long."""
    world = World()
    for due_s in (1, 1, 3):
        world.add(due_s)
    machine = world.machine

    def seen_s() -> float:
        return (machine.seen_before_ms - NOW_MS) / 1e3

    assert seen_s() == 0
    machine.start()
    first, second = (found := world.opened(10)), next(found)
    third = next(first)
    machine.seen(third)
    assert seen_s() == 1, "the other one was not"
    machine.seen(second)
    assert seen_s() == 1, "the slot is not read to its end"
    assert next(first, None) is None
    assert seen_s() == 2 and world.read_s == 1
    (last,) = world.opened(10)
    assert machine.open(NOW_MS + 10_000) is None
    assert seen_s() == 3
    machine.done(last)
    assert seen_s() == 10 and world.read_s == 1
    world.add(1.5)
    assert seen_s() == 1, "late for its slot"
    late = machine.late()
    assert late is not None
    machine.seen(late)
    machine.seen(late)
    assert seen_s() == 10
    machine.stop()
    assert seen_s() == 1


@pytest.mark.parametrize(("precision_ms", "over_s"), [(1_000, 3), (100, 2.8), (5_000, 5)])
def test_it_says_when_a_slot_is_over_whenever_it_is_asked(precision_ms: int, over_s: float) -> None:
    world = World(precision_ms=precision_ms)
    world.machine.start()
    assert world.machine.due_ms() is None
    timer = world.add(2.75)
    assert world.machine.due_ms() == NOW_MS + over_s * 1e3
    assert world.due(over_s - 0.001) == []
    assert world.machine.due_ms() == NOW_MS + over_s * 1e3
    assert world.due(over_s) == [timer]
    assert world.machine.due_ms() is None
