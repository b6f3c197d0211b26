"""The positions of the levels under chance: at least once, in order, none lost, never early, across restarts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs
import pytest

from broker.schedule.machine import (
    FIRST_MS,
    NS_PER_MS,
    PAUSE_AFTER_FAULT_MS,
    PAUSE_MS,
    TOGETHER_MAX,
    VERSION_STEP,
    Delivery,
    Machine,
    is_due,
)
from broker.store.tables import DelayOffsets
from remoting.bodies.namesrv import DataVersion

DELAYS = (1_000, 5_000)


@attrs.define
class Memory:
    """Implements ``Queues``: by level the due times, and how many of level 1 were deleted."""

    due: dict[int, list[int]] = attrs.field(factory=lambda: {1: [], 2: []})
    gone: int = 0
    unseen: int = 0
    """Messages of each level behind those, which consumers do not see yet."""

    def bounds(self, level: int) -> tuple[int, int] | None:
        return (self.gone if level == 1 else 0, len(self.due[level])) if level in self.due else None

    def end(self, level: int) -> int:
        return len(self.due.get(level, ())) + self.unseen

    def due_times_ms(self, level: int, offset: int, count: int) -> Sequence[int]:
        return self.due[level][offset : offset + count]


def ns(ms: int) -> int:
    return ms * NS_PER_MS


def started(queues: Memory, kept: DelayOffsets | None = None) -> Machine:
    machine = Machine(DELAYS, kept)
    machine.start(0, 0, queues)
    return machine


def polled(machine: Machine, now_ns: int, wall_ms: int, queues: Memory) -> list[Delivery]:
    """All that is due."""
    return list(iter(lambda: machine.poll(now_ns, wall_ms, queues), None))


def test_the_first_look_the_pause_and_the_order() -> None:
    queues = Memory({1: [50, 90, 1_050]})
    machine = started(queues)
    assert polled(machine, ns(FIRST_MS - 1), FIRST_MS - 1, queues) == []
    (first,) = polled(machine, ns(FIRST_MS), FIRST_MS, queues)
    assert (first.level, first.begin, first.end) == (1, 0, 2)
    assert polled(machine, ns(FIRST_MS), 9_000, queues) == []  # one at a time
    machine.done(first, ns(FIRST_MS), FIRST_MS)
    assert machine.offsets().offset_table == {1: 2}
    assert polled(machine, ns(FIRST_MS), FIRST_MS, queues) == []  # at once, and nothing is due
    assert polled(machine, ns(FIRST_MS + PAUSE_MS - 1), 2_000, queues) == []
    (second,) = polled(machine, ns(2_000), 2_000, queues)
    assert (second.begin, second.end) == (2, 3)


def test_a_failure_is_tried_again_one_message_at_a_time() -> None:
    queues = Memory({1: [0] * 5})
    machine = started(queues)
    now = FIRST_MS
    (all_of_them,) = polled(machine, ns(now), now, queues)
    assert all_of_them.end == 5
    machine.failed(all_of_them, ns(now))
    assert polled(machine, ns(now + PAUSE_MS - 1), now, queues) == []
    now += PAUSE_MS
    (alone,) = polled(machine, ns(now), now, queues)
    assert (alone.begin, alone.end) == (0, 1)
    machine.failed(alone, ns(now), fault=True)
    assert polled(machine, ns(now + PAUSE_AFTER_FAULT_MS - 1), now, queues) == []
    now += PAUSE_AFTER_FAULT_MS
    (alone,) = polled(machine, ns(now), now, queues)
    machine.done(alone, ns(now), now)
    (rest,) = polled(machine, ns(now), now, queues)
    assert (rest.begin, rest.end) == (1, 5)


def test_a_fault_of_many_is_looked_for_one_by_one() -> None:
    queues = Memory({1: [0] * 3})
    machine = started(queues)
    (three,) = polled(machine, ns(FIRST_MS), FIRST_MS, queues)
    machine.failed(three, ns(FIRST_MS), fault=True)
    (alone,) = polled(machine, ns(FIRST_MS + PAUSE_MS), FIRST_MS, queues)
    assert (alone.begin, alone.end) == (0, 1)


def test_a_slave_that_lacks_the_first_messages_does_not_say_that_they_are_delivered() -> None:
    queues, now = Memory({1: [0] * 4}, gone=2), FIRST_MS
    machine = Machine(DELAYS, DelayOffsets({1: 1}))
    machine.start(0, 0, queues, in_place=True)
    (held,) = polled(machine, ns(now), now, queues)
    assert (held.begin, held.end) == (2, 4)
    machine.done(held, ns(now), now)
    assert polled(machine, ns(now), now, queues) == []
    assert machine.offsets().offset_table == {1: 1}, "its master has another one there"
    machine.stop()
    machine.start(ns(now), now, queues, in_place=True)
    queues.due[1].append(0)
    now += FIRST_MS
    (more,) = polled(machine, ns(now), now, queues)
    assert (more.begin, more.end) == (4, 5), "what it delivered in this life it does not deliver again"
    machine.stop()
    machine.replace(DelayOffsets({1: 2}, DataVersion(counter=1)))
    machine.start(ns(now), now, queues, in_place=True)
    (all_of_them,) = polled(machine, ns(now + FIRST_MS), now + FIRST_MS, queues)
    machine.done(all_of_them, ns(now + FIRST_MS), now + FIRST_MS)
    assert machine.offsets().offset_table == {1: 5}
    master = started(queues, DelayOffsets({1: 1}))
    (kept,) = polled(master, ns(FIRST_MS), FIRST_MS, queues)
    master.done(kept, ns(FIRST_MS), FIRST_MS)
    assert master.offsets().offset_table == {1: 5}, "at a master they were deleted as old"


def test_a_slave_that_gets_the_last_messages_while_it_acts_does_not_say_that_those_before_are_delivered() -> None:
    queues, now = Memory({}), FIRST_MS
    machine = Machine(DELAYS)
    machine.start(0, 0, queues, in_place=True)
    assert polled(machine, ns(now), now, queues) == []
    queues.due, queues.gone = {1: [0] * 4}, 2  # its master is back, and leads when it has read how far this one is
    now += PAUSE_MS
    (held,) = polled(machine, ns(now), now, queues)
    assert (held.begin, held.end) == (2, 4)
    assert machine.offsets().offset_table == {}
    machine.done(held, ns(now), now)
    assert polled(machine, ns(now), now, queues) == []
    assert machine.offsets().offset_table == {}
    machine.stop()
    machine.start(ns(now), now, queues, in_place=True)
    assert polled(machine, ns(now + FIRST_MS), now + FIRST_MS, queues) == [], "they were delivered in this life"


def test_a_slave_does_not_say_that_what_it_deleted_as_old_while_it_acts_is_delivered() -> None:
    queues, now = Memory({1: [0] * 3}), FIRST_MS
    machine = Machine(DELAYS)
    machine.start(0, 0, queues, in_place=True)
    (all_of_them,) = polled(machine, ns(now), now, queues)
    machine.failed(all_of_them, ns(now))
    queues.gone, now = 2, now + PAUSE_MS
    (held,) = polled(machine, ns(now), now, queues)
    assert (held.begin, held.end) == (2, 3)
    machine.done(held, ns(now), now)
    assert machine.offsets().offset_table == {1: 0}, "its master may hold them for longer"


def test_what_nobody_takes_is_passed_by_and_the_position_stays() -> None:
    queues, now = Memory({1: [0] * 4}), FIRST_MS
    machine = started(queues)
    (many,) = polled(machine, ns(now), now, queues)
    assert not machine.pass_by(many, ns(now), now), "one of them is it"
    machine.failed(many, ns(now))
    now += PAUSE_MS
    (one,) = polled(machine, ns(now), now, queues)
    assert machine.pass_by(one, ns(now), now)
    (next_one,) = polled(machine, ns(now), now, queues)
    assert (next_one.begin, next_one.end) == (1, 2)
    machine.done(next_one, ns(now), now)
    assert machine.offsets().offset_table == {1: 0}
    (rest,) = polled(machine, ns(now), now, queues)
    assert (rest.begin, rest.end) == (2, 4)
    machine.done(rest, ns(now), now)
    assert polled(machine, ns(now), now, queues) == []
    now += PAUSE_AFTER_FAULT_MS
    (again,) = polled(machine, ns(now), now, queues)
    assert (again.begin, again.end) == (0, 1)
    machine.pass_by(again, ns(now), now)
    assert machine.offsets().offset_table == {1: 0}
    queues.due[1].append(0)
    (new,) = polled(machine, ns(now), now, queues)
    machine.done(new, ns(now), now)
    now += PAUSE_AFTER_FAULT_MS
    (again,) = polled(machine, ns(now), now, queues)
    machine.done(again, ns(now), now)
    assert machine.offsets().offset_table == {1: 5}


def test_one_that_was_passed_by_goes_with_its_queue_and_a_new_run_begins_at_it() -> None:
    queues, now = Memory({1: [0] * 3}), FIRST_MS
    machine = started(queues)
    (many,) = polled(machine, ns(now), now, queues)
    machine.failed(many, ns(now))
    now += PAUSE_MS
    (one,) = polled(machine, ns(now), now, queues)
    machine.pass_by(one, ns(now), now)
    (next_one,) = polled(machine, ns(now), now, queues)
    machine.done(next_one, ns(now), now)
    again = started(queues, machine.offsets())
    assert [each.begin for each in polled(again, ns(now), now, queues)] == [0]
    queues.gone = 2
    (last,) = polled(machine, ns(now), now, queues)
    assert (last.begin, last.end) == (2, 3)
    machine.done(last, ns(now), now)
    assert machine.offsets().offset_table == {1: 3}


@pytest.mark.parametrize("late", [False, True])
def test_a_position_beyond_its_queue_goes_back_before_anything_new_comes(late: bool) -> None:
    """A master may take messages before it delivers."""
    queues = Memory({1: [0] * 3})
    machine = Machine(DELAYS, DelayOffsets({1: 7}))
    if late:
        machine.fit(0, queues)
        queues.due[1] += [0] * 6
    machine.start(0, 0, queues)
    assert machine.offsets().offset_table == {1: 3}


def test_a_position_stays_where_the_log_goes_on_behind_what_is_seen() -> None:
    """A new master sees its log up to where it is confirmed: what it delivered behind that is known all the same."""
    queues = Memory({1: [0] * 3}, unseen=4)
    machine = started(queues, DelayOffsets({1: 6}))
    assert polled(machine, ns(FIRST_MS), FIRST_MS, queues) == [] and machine.offsets().offset_table == {1: 6}
    assert machine.due_ns(ns(FIRST_MS), FIRST_MS, queues) >= ns(FIRST_MS)
    queues.due[1] += [0] * 4
    queues.unseen = 0
    (last,) = polled(machine, ns(2 * FIRST_MS), 2 * FIRST_MS, queues)
    assert (last.begin, last.end) == (6, 7)


def test_what_a_former_run_ordered_counts_no_more() -> None:
    queues = Memory({1: [0]})
    machine = started(queues)
    (old,) = polled(machine, ns(FIRST_MS), FIRST_MS, queues)
    machine.stop()
    machine.done(old, ns(FIRST_MS), FIRST_MS)
    assert machine.offsets().offset_table == {1: 0}
    machine.start(ns(FIRST_MS), FIRST_MS, queues)
    machine.done(old, ns(FIRST_MS), FIRST_MS)
    assert machine.offsets().offset_table == {1: 0}
    (new,) = polled(machine, ns(2 * FIRST_MS), 2 * FIRST_MS, queues)
    assert (new.begin, new.end) == (0, 1)


def test_positions_outside_the_queue() -> None:
    """Of messages that were deleted, and of a master that had more than this one."""
    queues = Memory({1: [0] * 10, 2: [0] * 3}, gone=4)
    machine = started(queues, DelayOffsets({1: 2, 2: 7, 9: 1}))
    assert machine.offsets().offset_table == {1: 2, 2: 3, 9: 1}  # before anything new is written
    queues.due[2] += [0]
    found = polled(machine, ns(FIRST_MS), FIRST_MS, queues)
    assert [(delivery.level, delivery.begin, delivery.end) for delivery in found] == [(1, 4, 10), (2, 3, 4)]


def test_levels_take_turns_while_more_is_due_than_is_asked_for() -> None:
    queues = Memory({1: [0] * 200, 2: [0] * 200})
    machine = started(queues)
    found = []
    for _ in range(4):
        delivery = machine.poll(ns(FIRST_MS), FIRST_MS, queues)
        assert delivery is not None
        machine.done(delivery, ns(FIRST_MS), FIRST_MS)
        found.append((delivery.level, delivery.begin))
    assert found == [(1, 0), (2, 0), (1, TOGETHER_MAX), (2, TOGETHER_MAX)]


def test_a_slave_follows_and_a_master_does_not() -> None:
    queues = Memory({1: [0] * 10})
    machine = Machine(DELAYS)
    machine.replace(DelayOffsets({1: 5}, DataVersion(1, 2, 3)))
    assert machine.offsets() == DelayOffsets({1: 5}, DataVersion(1, 2, 3))
    moves = machine.moves
    machine.replace(DelayOffsets({1: 5}, DataVersion(1, 2, 3)))
    assert machine.moves == moves  # nothing to write
    machine.start(0, 0, queues)
    machine.replace(DelayOffsets({1: 9}))
    assert machine.offsets() == DelayOffsets({1: 5}, DataVersion(1, 2, 3))


@pytest.mark.parametrize("step", [VERSION_STEP, 7])
def test_the_version_steps_now_and_then(step: int) -> None:
    queues = Memory({1: [0] * 2 * step * TOGETHER_MAX})
    machine = started(queues)
    machine.version_step = step
    machine.state_version = 7
    while found := polled(machine, ns(FIRST_MS), FIRST_MS, queues):
        machine.done(found[0], ns(FIRST_MS), FIRST_MS)
    assert machine.offsets().data_version == DataVersion(7, FIRST_MS, 2)


@pytest.mark.parametrize(("due", "now", "verdict"), [
    (1_000, 999, False), (1_000, 1_000, True), (1_000, 5_000, True),
    (1_000, 0, False), (1_001, 0, True),  # further off than the level: the clock was set back
])
def test_when_a_message_is_due(due: int, now: int, verdict: bool) -> None:
    assert is_due(due, now, 1_000) is verdict


@pytest.mark.parametrize("seed", range(60))
def test_at_least_once_and_in_order_whatever_happens(seed: int) -> None:
    """Messages come, deliveries fail, the clock jumps, masters change with positions of before."""
    chance = Random(seed)
    queues = Memory()
    machine = started(queues)
    saved = machine.offsets()
    now = skew = 0
    delivered: dict[int, list[int]] = {1: [], 2: []}
    under_way: list[Delivery] = []
    wall = 0

    def answer(delivery: Delivery, good: bool) -> None:
        if good or chance.random() < 0.5:  # what fails may have been stored
            delivered[delivery.level] += range(delivery.begin, delivery.end)
        if good:
            machine.done(delivery, ns(now), wall)
        else:
            machine.failed(delivery, ns(now), fault=chance.random() < 0.2)

    for _ in range(60):
        now += chance.choice((10, 100, 1_000, 5_000))
        skew += chance.choice((0,) * 9 + (-3_600_000, 3_600_000))
        wall = 1_000_000_000 + now + skew
        for level, delay in enumerate(DELAYS, 1):
            queues.due[level] += [wall + delay] * chance.randrange(40)
        for delivery in polled(machine, ns(now), wall, queues):
            assert 0 < delivery.end - delivery.begin <= TOGETHER_MAX
            delay = DELAYS[delivery.level - 1]
            assert all(is_due(due, wall, delay) for due in queues.due[delivery.level][delivery.begin : delivery.end])
            under_way.append(delivery)
        while under_way and chance.random() < 0.7:
            answer(under_way.pop(0), chance.random() < 0.8)
        if chance.random() < 0.3:
            saved = machine.offsets()
        if chance.random() < 0.1:  # killed, and started with what was saved
            for delivery in under_way:
                answer(delivery, False)
            under_way.clear()
            machine = Machine(DELAYS, saved)
            machine.start(ns(now), wall, queues)
        elif chance.random() < 0.1:  # no longer master, and again
            machine.stop()
            machine.start(ns(now), wall, queues)
    machine.stop()
    machine.start(ns(now), wall, queues)
    for _ in range(20_000):
        now += PAUSE_MS
        wall += PAUSE_MS
        for delivery in polled(machine, ns(now), wall, queues):
            answer(delivery, True)
        if all(machine.offsets().offset_table.get(level, 0) == len(queues.due[level]) for level in queues.due):
            break
    for level, found in delivered.items():
        first_seen = list(dict.fromkeys(found))
        assert first_seen == list(range(len(queues.due[level]))), f"level {level}: lost, or out of order"


@pytest.mark.parametrize(("kept", "told", "found"), [
    (2, 5, 5), (5, 2, 5), (2, 9, 2), (None, 3, 3), (None, 0, None),
])
def test_a_master_that_comes_back_goes_on_where_a_member_is_and_never_beyond_its_queue(
    kept: int | None, told: int, found: int | None
) -> None:
    queues = Memory({1: [0] * 8})
    machine = Machine(DELAYS, DelayOffsets({} if kept is None else {1: kept}))
    newer = DataVersion(counter=3)
    machine.join(DelayOffsets({1: told, 2: 4, 7: 1}, newer), queues)
    assert machine.offsets() == DelayOffsets({} if found is None else {1: found}, newer), (
        "level 2 has no queue here, level 7 is not configured")
    machine.start(0, 0, queues)
    machine.join(DelayOffsets({1: 8}, DataVersion(counter=9)), queues)
    assert machine.offsets().data_version == newer, "one that delivers joins nobody"


def test_it_says_when_it_is_to_be_polled() -> None:
    queues = Memory()
    machine = Machine(DELAYS)
    assert machine.due_ns(0, 0, queues) > 1 << 62, "it does not deliver"
    machine.start(0, 0, queues)
    assert machine.due_ns(0, 0, queues) > 1 << 62, "nothing waits"
    queues.due[2] = [6_000]
    assert machine.due_ns(ns(5_000), 5_000, queues) == ns(6_000)
    assert machine.due_ns(ns(5_000), 500, queues) == ns(5_000), "the clock was set back: it is due"
    queues.due[1] = [500]
    assert machine.due_ns(ns(60), 1_000, queues) == ns(FIRST_MS)
    (delivery,) = polled(machine, ns(FIRST_MS), 1_000, queues)
    assert machine.due_ns(ns(5_000), 5_000, queues) == ns(6_000), "an answer is awaited"
    machine.failed(delivery, ns(FIRST_MS))
    assert machine.due_ns(ns(5_000), 5_000, queues) == ns(5_000)
    assert machine.due_ns(ns(FIRST_MS), 1_000, queues) == ns(FIRST_MS + PAUSE_MS)
