"""What comes back of a revive queue: a model of timers that deliver in any order, of refusals, restarts and masters."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.pop.revive import BACK_OFF_S, Outstanding, ReviveQueue, put_again
from remoting.bodies.popping import CheckPoint

T0 = 1_700_000_000_000


def checkpoint(start: int = 0, diffs: tuple[int, ...] = (0, 1, 2), *, pop_ms: int = T0, hold_ms: int = 10_000,
               bits: int = 0, re_puts: str | None = None) -> CheckPoint:
    return CheckPoint(start, pop_ms, hold_ms, len(diffs), 0, "T", "G", bits, 0, list(diffs), "b", re_puts)


def offsets(found: list[Outstanding]) -> list[list[int]]:
    return [sorted(each.left) for each in found]


def ripe(queue: ReviveQueue, now_ms: int) -> list[list[int]]:
    return offsets(queue.ripe(now_ms))


def test_what_was_not_acknowledged_comes_back_two_seconds_behind_its_time() -> None:
    queue, ck = ReviveQueue(-1), checkpoint()
    queue.checkpoint(ck, 500)
    queue.acked(ck.key, [1], T0 + 10_000)
    queue.stands_below(T0 + 11_001, 2)
    assert ripe(queue, T0 + 12_000) == [] and queue.processed == -1
    found = queue.ripe(T0 + 12_001)
    assert offsets(found) == [[0, 2]] and found[0].logged == 500
    assert queue.ripe(T0 + 99_999) == [], "once"
    assert not queue.done(found[0], 0) and queue.processed == -1
    assert queue.done(found[0], 2) and queue.processed == 1 and queue.waiting == 0


@pytest.mark.parametrize("first_goes", [False, True])
def test_of_two_checkpoints_of_one_name_both_hear_of_acknowledgements(first_goes: bool) -> None:
    """A POP behind a reset, and the change of a time in the same millisecond, make such."""
    queue, one, all_of_it = ReviveQueue(-1), checkpoint(diffs=(0,), hold_ms=1_000), checkpoint()
    queue.checkpoint(one, 0)
    queue.checkpoint(all_of_it, 0)
    queue.checkpoint(all_of_it, 0)  # a duplicate
    assert queue.waiting == 2 and one.key == all_of_it.key
    if first_goes:
        queue.stands_below(T0 + 5_000, 3)
        (found,) = queue.ripe(T0 + 5_000)
        queue.acked(one.key, [1], T0 + 5_000)
        assert queue.done(found, 0) and queue.waiting == 1 and queue.late == 0
    else:
        queue.acked(one.key, [0, 1], T0 + 5_000)
        assert queue.waiting == 1, "the first one is done with"
    queue.acked(one.key, [2], T0 + 6_000)
    queue.stands_below(T0 + 20_000, 5)
    assert ripe(queue, T0 + 20_000) == ([[0]] if first_goes else [])
    assert queue.processed == (0 if first_goes else 4)


def test_what_a_ledger_says_was_acknowledged_counts_until_it_comes_back() -> None:
    queue, ck, other = ReviveQueue(-1), checkpoint(), checkpoint(10)
    queue.acked_elsewhere(ck.key, [0])
    assert (queue.waiting, queue.processed) == (0, -1), "of a checkpoint that is not known nothing is kept"
    queue.checkpoint(ck, 500)
    queue.checkpoint(other, 900)
    queue.acked_elsewhere(ck.key, [0, 2])
    assert (queue.waiting, queue.processed) == (2, -1)
    queue.acked_elsewhere(other.key, [10, 11, 12])
    assert queue.waiting == 1
    queue.stands_below(T0 + 20_000, 2)
    found = queue.ripe(T0 + 20_000)
    assert offsets(found) == [[1]]
    queue.acked_elsewhere(ck.key, [1])
    assert offsets(found) == [[1]], "it is on its way"
    assert queue.done(found[0], 1) and queue.processed == 1


def test_it_waits_until_the_timers_say_that_all_acknowledgements_are_there_and_they_are_read() -> None:
    queue, ck = ReviveQueue(-1), checkpoint()
    queue.checkpoint(ck, 0)
    queue.stands_below(T0 + 11_000, 1)
    assert ripe(queue, T0 + 60_000) == [], "one that was due at 11,000 may be missing"
    queue.stands_below(T0 + 11_001, 3)
    assert ripe(queue, T0 + 60_000) == [], "two records are to be read yet"
    queue.nothing()
    queue.acked(ck.key, [0, 1, 2], T0 + 60_000)
    assert ripe(queue, T0 + 60_000) == [] and queue.processed == 2


def test_an_end_that_moves_on_does_not_hold_it_back_for_ever() -> None:
    """Of what the timers say while records pour in, one word is kept until it is reached."""
    queue, ck = ReviveQueue(-1), checkpoint(diffs=(0,))
    queue.checkpoint(ck, 0)
    for number in range(1, 50):
        queue.stands_below(T0 + 12_000 + number, 2 + 2 * number)
        queue.nothing()
    assert ripe(queue, T0 + 60_000) == [[0]]


def test_an_acknowledgement_in_front_of_its_checkpoint_counts_and_is_not_passed() -> None:
    queue, ck = ReviveQueue(6), checkpoint()
    queue.acked(ck.key, [0], T0 + 10_000)
    assert queue.processed == 6, "the next process must read it again"
    queue.nothing(2)
    queue.checkpoint(ck, 0)
    assert queue.processed == 6
    queue.acked(ck.key, [1], T0 + 10_100)
    queue.stands_below(T0 + 20_000, 12)
    found = queue.ripe(T0 + 20_000)
    assert offsets(found) == [[2]] and queue.processed == 6
    queue.done(found[0], 2)
    assert queue.processed == 11
    queue.acked(ck.key, [2], T0 + 20_000)
    assert queue.processed == 11, "its checkpoint may be behind it"
    queue.stands_below(T0 + 21_001, 13)
    assert ripe(queue, T0 + 22_000) == [] and queue.processed == 12 and queue.late == 1


@pytest.mark.parametrize("late", [False, True])
def test_progress_never_stands_between_an_acknowledgement_and_its_checkpoint_behind_it(late: bool) -> None:
    """A master that began there would read the checkpoint without the acknowledgement, and bring its message back."""
    one, other, third = checkpoint(0), checkpoint(3), checkpoint(6)

    def reads(queue: ReviveQueue, begin: int) -> None:
        for ck, acked in [(one, [0]), (other, None), (third, None), (one, None)][begin:]:
            if acked is None:
                queue.checkpoint(ck, 0)
            else:
                queue.acked(ck.key, acked if late else [0, 1, 2], T0 + 10_000)

    queue = ReviveQueue(-1)
    reads(queue, 0)
    if late:
        queue.acked(one.key, [1, 2], T0 + 10_000)
    assert queue.processed == -1, "the others are open"
    queue.acked(other.key, [3, 4, 5], T0 + 10_000)
    assert queue.processed == -1, "it would be 1, between both"
    queue.acked(third.key, [6, 7, 8], T0 + 10_000)
    assert queue.processed == queue.at - 1 and not queue.waiting


def test_one_that_comes_when_its_messages_are_on_their_way_is_late() -> None:
    queue, ck = ReviveQueue(-1), checkpoint()
    queue.checkpoint(ck, 0)
    queue.stands_below(T0 + 20_000, 1)
    found = queue.ripe(T0 + 20_000)
    queue.acked(ck.key, [0, 1, 2], T0 + 20_000)
    assert offsets(found) == [[0, 1, 2]] and queue.late == 1 and queue.processed == -1


def test_one_that_was_put_again_is_no_copy_of_the_first() -> None:
    """They may have the same start, and the first one still wait for its other messages."""
    queue, ck = ReviveQueue(-1), checkpoint()
    queue.checkpoint(ck, 0)
    queue.checkpoint(ck, 0)
    queue.stands_below(T0 + 20_000, 2)
    first = queue.ripe(T0 + 20_000)
    assert offsets(first) == [[0, 1, 2]], "a copy adds nothing"
    again = put_again(ck, 0, T0 + 20_000)
    assert again.key == ck.key
    queue.done(first[0], 0)
    queue.checkpoint(again, 0)
    queue.checkpoint(checkpoint(0, (0, 7)), 0)
    queue.stands_below(T0 + 50_000, 4)
    assert sorted(ripe(queue, T0 + 60_000)) == [[0], [0, 7]], "nor is another one with its key"


def test_the_pause_of_one_that_is_put_again_grows() -> None:
    ck, pauses = checkpoint(start=40, diffs=(0, 5)), []
    for _ in range(19):
        before, ck = ck, put_again(ck, 45, 0)
        assert ck.offsets == [45] and ck.pop_time_ms == T0
        pauses.append((ck.invisible_ms - before.invisible_ms) // 1_000)
    assert pauses == [*BACK_OFF_S, 7_200, 7_200] and ck.re_puts == "19"
    late = put_again(checkpoint(), 1, T0 + 86_400_000)
    assert late.revive_time_ms == T0 + 86_400_000 + 10_000, "a while from now, however old it is"
    assert put_again(checkpoint(re_puts="x"), 0, 0).re_puts == "1"


def test_bits_that_java_set_are_acknowledged() -> None:
    queue = ReviveQueue(-1)
    queue.checkpoint(checkpoint(bits=0b101), 0)
    queue.checkpoint(checkpoint(9, (0,), bits=1), 0)
    queue.checkpoint(checkpoint(11, tuple(range(32)), bits=-1), 0)
    queue.stands_below(T0 + 60_000, 3)
    assert ripe(queue, T0 + 60_000) == [[1]]


def test_what_says_when_the_first_one_is_due() -> None:
    queue = ReviveQueue(-1)
    assert [queue.oldest_ms] == [None]
    one, two = checkpoint(0, (0,), hold_ms=5_000), checkpoint(7, (0,), hold_ms=6_000)
    queue.checkpoint(two, 0)
    queue.checkpoint(one, 0)
    assert queue.oldest_ms == T0 + 5_000
    queue.acked(one.key, [0], T0)
    assert queue.oldest_ms == T0 + 6_000


@pytest.mark.parametrize("seen", [1, 3, 9])
def test_marks_that_go_back_say_nothing(seen: int) -> None:
    queue = ReviveQueue(-1)
    queue.checkpoint(checkpoint(), 0)
    queue.stands_below(T0 + 20_000, 1)
    queue.stands_below(T0 + seen, 0)
    assert ripe(queue, T0 + 20_000) == [[0, 1, 2]]


# --- a model -------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Given:
    """A checkpoint as its consumer knows it."""

    found: CheckPoint
    acked: set[int] = attrs.field(factory=set)
    """Within its time, and answered."""


@attrs.define(eq=False)
class Timer:
    due_ms: int
    given: Given
    acks: set[int]
    """None of them: it is the checkpoint."""


class World(RuleBasedStateMachine):
    """A master's revive queue, and who becomes master behind it: that one knows all records, and an older offset."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms, self.next = T0, 0
        self.timers, self.records = list[Timer](), list[Timer]()
        self.given = list[Given]()
        self.queue = ReviveQueue(-1)
        self.offsets = [-1]
        self.begun = list[Outstanding]()
        self.back: dict[int, int] = {}
        """How often each message came back."""

    @rule(count=st.integers(1, 4), hold_ms=st.sampled_from([1_000, 2_500, 7_000]))
    def pop(self, count: int, hold_ms: int) -> None:
        found = checkpoint(self.next, tuple(range(count)), pop_ms=self.now_ms, hold_ms=hold_ms)
        self.next += count
        self.given.append(given := Given(found))
        self.timers.append(Timer(found.revive_time_ms - 1_000, given, set()))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """One that comes too late is stored and answered as well, and may change nothing."""
        given = data.draw(st.sampled_from(self.given[-6:]))
        offset = data.draw(st.sampled_from(given.found.offsets))
        due_ms = given.found.revive_time_ms
        self.timers.append(Timer(max(due_ms, self.now_ms), given, {offset}))
        if self.now_ms <= due_ms:
            given.acked.add(offset)

    @rule(ms=st.integers(1, 4_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(data=st.data())
    def some_are_delivered(self, data: st.DataObject) -> None:
        """In any order: some are refused at first."""
        due = [timer for timer in self.timers if timer.due_ms <= self.now_ms]
        for timer in data.draw(st.lists(st.sampled_from(due), unique_by=id) if due else st.just([])):
            self.timers.remove(timer)
            self.records.append(timer)

    @rule()
    def timers_say_how_far_they_are(self) -> None:
        first_ms = min((timer.due_ms for timer in self.timers), default=self.now_ms)
        self.queue.stands_below(min(first_ms, self.now_ms), len(self.records))

    @rule(most=st.integers(1, 9))
    def read(self, most: int) -> None:
        for timer in self.records[self.queue.at:self.queue.at + most]:
            if timer.acks:
                self.queue.acked(timer.given.found.key, timer.acks, self.now_ms)
            else:
                self.queue.checkpoint(timer.given.found, 0)

    @rule(most=st.integers(1, 3))
    def look(self, most: int) -> None:
        for waiting in self.queue.ripe(self.now_ms, most):
            assert self.now_ms > waiting.checkpoint.revive_time_ms + 2_000
            self.begun.append(waiting)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def one_is_stored(self, data: st.DataObject) -> None:
        """The others are refused for the time being."""
        waiting = data.draw(st.sampled_from(self.begun))
        offset = data.draw(st.sampled_from(sorted(waiting.left)))
        acked = next(each for each in self.given if each.found is waiting.checkpoint).acked
        assert offset not in acked, "acknowledged in time"
        self.back[offset] = self.back.get(offset, 0) + 1
        if self.queue.done(waiting, offset):
            self.begun.remove(waiting)

    @rule()
    def the_offset_is_kept(self) -> None:
        self.offsets.append(self.queue.processed)

    @rule(data=st.data())
    def another_master(self, data: st.DataObject) -> None:
        self.queue = ReviveQueue(data.draw(st.sampled_from(self.offsets[-3:])))
        self.begun = []

    @invariant()
    def the_offset_never_passes_what_is_left(self) -> None:
        for place, timer in enumerate(self.records[:self.queue.processed + 1]):
            if not timer.acks:
                left = set(timer.given.found.offsets) - timer.given.acked - set(self.back)
                late = {offset for other in self.records for offset in other.acks if other.given is timer.given}
                assert not left - late, f"record {place} is passed, and {left} never came back"

    @invariant()
    def the_offset_never_parts_an_acknowledgement_from_its_checkpoint(self) -> None:
        places = {id(timer.given): place for place, timer in enumerate(self.records) if not timer.acks}
        for place, timer in enumerate(self.records[:self.queue.processed + 1]):
            assert places.get(id(timer.given), place) <= self.queue.processed, f"record {place} is passed alone"

    def teardown(self) -> None:
        """At last everything that was not acknowledged has come back."""
        self.now_ms += 100_000
        self.records += self.timers
        self.timers = []
        self.timers_say_how_far_they_are()
        self.read(len(self.records))
        self.look(1 << 30)
        for waiting in self.begun:
            for offset in sorted(waiting.left):
                self.back[offset] = self.back.get(offset, 0) + 1
                self.queue.done(waiting, offset)
        for given in self.given:
            late = {offset for timer in self.records for offset in timer.acks if timer.given is given}
            for offset in given.found.offsets:
                assert offset in self.back or offset in late, f"{offset} is lost"
                assert not (offset in given.acked and offset in self.back), f"{offset} came back"
        self.now_ms += 100_000
        self.timers_say_how_far_they_are()
        assert self.queue.ripe(self.now_ms) == []
        assert self.queue.processed == len(self.records) - 1


World.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_any_order_of_events = World.TestCase


def test_it_says_from_when_on_it_is_to_be_looked_at() -> None:
    queue, ck = ReviveQueue(-1), checkpoint()
    assert queue.due_ms() is None, "nothing waits"
    queue.checkpoint(ck, 0)
    assert queue.due_ms() == T0 + 11_000, "a second before it may be ripe"
    assert ripe(queue, T0 + 12_000) == []
    queue.acked(ck.key, [0, 1, 2], T0 + 10_000)
    assert queue.due_ms() is None
    queue.acked(checkpoint(9).key, [9], T0 + 10_000)
    assert queue.due_ms() == 0, "it waits for its checkpoint, for a while"
    queue.stands_below(T0 + 20_000, 3)
    queue.ripe(T0 + 20_000)
    assert queue.due_ms() is None
