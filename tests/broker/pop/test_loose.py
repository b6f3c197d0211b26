"""Checkpoints and acknowledgements of a slave that acts: they stand in no revive queue, and wait in their timers."""

from __future__ import annotations

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from broker.pop.revive import Loose, Outstanding, ReviveQueue
from tests.broker.pop.test_revive import T0, Given, Timer, checkpoint, offsets, ripe

SLOT_MS = 1_000


@attrs.define
class Timers:
    """Loose records, and which of them were let go."""

    gone: list[str] = attrs.field(factory=list)
    made: int = 0

    def loose(self, name: str) -> Loose:
        self.made += 1
        return Loose(-1 - self.made, lambda: self.gone.append(name))

    def settle(self, queue: ReviveQueue) -> list[str]:
        """Those that are let go now."""
        before = len(self.gone)
        for loose in queue.let_go(queue.processed):
            loose.done()
        return self.gone[before:]


def test_a_checkpoint_is_needed_until_its_messages_are_done_with_and_its_acknowledgements_as_long() -> None:
    queue, ck, timers = ReviveQueue(-1), checkpoint(), Timers()
    queue.checkpoint(ck, 0, timers.loose("ck"))
    queue.acked(ck.key, [1], T0 + 10_000, timers.loose("ack"))
    queue.stands_below(T0 + 11_001, 0)
    (found,) = queue.ripe(T0 + 12_001)
    assert offsets([found]) == [[0, 2]] and queue.processed == -1 and queue.held == 2
    queue.acked(ck.key, [2], T0 + 12_001, timers.loose("late"))
    queue.done(found, 0)
    assert timers.settle(queue) == []
    queue.done(found, 2)
    assert queue.done(found, 2), "told twice"
    assert timers.settle(queue) == ["ck", "ack", "late"]
    assert queue.held == 0 and queue.processed == -1 and queue.late == 1


def test_an_acknowledgement_of_a_record_in_the_queue_is_needed_until_that_is_passed() -> None:
    """Else the master, which reads it again, would not find it."""
    queue, timers = ReviveQueue(-1), Timers()
    first, second = checkpoint(0, (0,)), checkpoint(9, (0,))
    queue.checkpoint(first, 0)
    queue.checkpoint(second, 0)
    queue.acked(second.key, [9], T0 + 10_000, timers.loose("ack"))
    queue.stands_below(T0 + 11_001, 2)
    (found,) = queue.ripe(T0 + 12_001)
    assert queue.processed == -1 and timers.settle(queue) == []
    queue.done(found, 0)
    assert queue.processed == 1 and timers.settle(queue) == ["ack"]


def test_an_acknowledgement_may_come_first_from_either_side() -> None:
    queue, ck, timers = ReviveQueue(-1), checkpoint(diffs=(0, 1)), Timers()
    queue.acked(ck.key, [0], T0 + 10_000, timers.loose("loose"))
    queue.acked(ck.key, [1], T0 + 10_000)
    assert queue.processed == -1, "a checkpoint may need it"
    queue.checkpoint(ck, 0, timers.loose("ck"))
    assert timers.settle(queue) == ["loose", "ck"] or timers.gone == ["ck", "loose"]
    assert queue.processed == 0 and queue.waiting == 0


def test_an_acknowledgement_of_nothing_is_let_go() -> None:
    queue, timers = ReviveQueue(-1), Timers()
    queue.acked(checkpoint().key, [0], T0, timers.loose("ack"))
    queue.stands_below(T0 + 1_000, 0)
    assert ripe(queue, T0 + 60_000) == [] and timers.settle(queue) == []
    queue.stands_below(T0 + 1_001, 0)
    assert ripe(queue, T0 + 60_000) == [] and timers.settle(queue) == ["ack"]


def test_the_same_checkpoint_in_the_queue_and_loose() -> None:
    queue, ck, timers = ReviveQueue(-1), checkpoint(diffs=(0,)), Timers()
    queue.checkpoint(ck, 0)
    queue.checkpoint(ck, 0, timers.loose("ck"))
    queue.stands_below(T0 + 11_001, 1)
    (found,) = queue.ripe(T0 + 12_001)
    queue.done(found, 0)
    assert timers.settle(queue) == ["ck"] and queue.processed == 0


# --- a model -------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Slotted(Timer):
    place: int

    @property
    def slot_ms(self) -> int:
        return self.due_ms // SLOT_MS * SLOT_MS


class Acting(RuleBasedStateMachine):
    """A master that is lost: what of its records stands in the revive queue, and what in timers. A slave takes those of
    slot after slot. Another slave, and at last the master, go on where the ledger says that the one before was."""

    @initialize(data=st.data())
    def the_master_is_lost(self, data: st.DataObject) -> None:
        self.now_ms = T0
        given, timers, offset = list[Given](), list[Slotted](), 0
        for _ in range(data.draw(st.integers(1, 6))):
            count = data.draw(st.integers(1, 3))
            one = Given(checkpoint(offset, tuple(range(count)), pop_ms=T0 + data.draw(st.integers(-9_000, 0)),
                                   hold_ms=data.draw(st.sampled_from([10_000, 11_500, 15_000]))))
            offset += count
            given.append(one)
            due_ms = one.found.revive_time_ms
            timers.append(Slotted(due_ms - 1_000, one, set(), 0))
            for acks in data.draw(st.lists(st.sampled_from(one.found.offsets), max_size=3, unique=True)):
                one.acked.add(acks)
                timers.append(Slotted(due_ms, one, {acks}, 0))
        timers.sort(key=lambda timer: timer.due_ms)
        for number, timer in enumerate(timers):
            timer.place = -2 - number
        self.given = given
        delivered = data.draw(st.integers(0, len(timers)))
        self.records, self.timers = timers[:delivered], timers[delivered:]
        self.now_ms = max([T0, *(timer.due_ms for timer in self.records)])
        self.back = dict[int, int]()
        self.settled = set[int]()
        """Messages of checkpoints that nobody looks at again."""
        self.kept = (-1, min((timer.slot_ms for timer in self.timers), default=0))
        """What the ledger says: the offset, and the time of the timers."""
        self.known = [self.kept]
        self._begins(self.kept)

    def _begins(self, kept: tuple[int, int]) -> None:
        self.kept = kept
        processed, done_ms = kept
        self.queue, self.begun = ReviveQueue(processed), list[Outstanding]()
        self.unseen = [timer for timer in self.timers if timer.slot_ms >= done_ms]
        self.not_gone = list(self.unseen)
        self.settled = {
            offset for place, timer in [*enumerate(self.records), *((-1, timer) for timer in self.timers)]
            if not timer.acks and (place <= processed if place >= 0 else timer.slot_ms < done_ms)
            for offset in timer.given.found.offsets}

    @rule(ms=st.integers(1, 4_000))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(data=st.data())
    def timers_come_due(self, data: st.DataObject) -> None:
        """Those of one slot in any order; one that cannot be read now comes later."""
        due = [timer for timer in self.unseen if timer.slot_ms + SLOT_MS <= self.now_ms]
        for timer in data.draw(st.lists(st.sampled_from(due), unique_by=id) if due else st.just([])):
            self.unseen.remove(timer)
            self._hand(timer)

    def _hand(self, timer: Slotted) -> None:
        not_gone = self.not_gone
        loose = Loose(timer.place, lambda: not_gone.remove(timer))
        if timer.acks:
            self.queue.acked(timer.given.found.key, timer.acks, self.now_ms, loose)
        else:
            self.queue.checkpoint(timer.given.found, 0, loose)

    @rule()
    def timers_say_how_far_they_are(self) -> None:
        first_ms = min((timer.slot_ms for timer in self.unseen), default=self.now_ms)
        self.queue.stands_below(min(first_ms, self.now_ms // SLOT_MS * SLOT_MS), len(self.records))

    @rule(most=st.integers(1, 9))
    def read(self, most: int) -> None:
        for timer in self.records[self.queue.at:self.queue.at + most]:
            if timer.acks:
                self.queue.acked(timer.given.found.key, timer.acks, self.now_ms)
            else:
                self.queue.checkpoint(timer.given.found, 0)

    @rule()
    def look(self) -> None:
        self.begun += self.queue.ripe(self.now_ms)

    @precondition(lambda self: self.begun)
    @rule(data=st.data())
    def one_escapes(self, data: st.DataObject) -> None:
        waiting = data.draw(st.sampled_from(self.begun))
        self._escapes(waiting, data.draw(st.sampled_from(sorted(waiting.left))))

    def _escapes(self, waiting: Outstanding, offset: int) -> None:
        acked = next(each for each in self.given if each.found is waiting.checkpoint).acked
        assert offset not in acked, "acknowledged in time"
        assert offset not in self.settled, "what the ledger says is done with came again"
        self.back[offset] = self.back.get(offset, 0) + 1
        if self.queue.done(waiting, offset):
            self.begun.remove(waiting)

    @rule()
    def it_is_noted(self) -> None:
        processed = self.queue.processed
        for loose in self.queue.let_go(processed):
            loose.done()
        done_ms = min((timer.slot_ms for timer in self.not_gone), default=self.now_ms // SLOT_MS * SLOT_MS)
        self.kept = max(processed, self.kept[0]), max(done_ms, self.kept[1])
        self.known.append(self.kept)

    @rule(data=st.data())
    def the_next_slave(self, data: st.DataObject) -> None:
        """As far as it was copied."""
        self._begins(data.draw(st.sampled_from(self.known[-3:])))

    def teardown(self) -> None:
        """The master is back, and delivers what is left of its timers in its own queue."""
        if not hasattr(self, "kept"):
            return
        self._begins(self.kept)
        self.records += self.unseen
        self.unseen = []
        self.now_ms += 100_000
        self.timers_say_how_far_they_are()
        self.read(len(self.records))
        self.look()
        for waiting in list(self.begun):
            for offset in sorted(waiting.left):
                self._escapes(waiting, offset)
        for given in self.given:
            for offset in given.found.offsets:
                assert (offset in self.back) != (offset in given.acked), f"{offset} is lost, or came back"


Acting.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_any_order_of_events_on_a_slave_that_acts = Acting.TestCase
