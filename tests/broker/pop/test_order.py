"""Batches that are out in order: Java's steps, and a model of what may be given, acknowledged and stored."""

from __future__ import annotations

import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.pop.order import Change, Ignored, Kept, OrderInfo, OrderKey, Orders, given
from remoting.errors import BodyError

KEY = OrderKey("T2", "G3", 0)
T0 = 1_700_000_000_000
HOLD_MS = 60_000


class Log:
    """Where changes are stored at once."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.records = orders, list[tuple[OrderKey, OrderInfo | None]]()

    def store(self, change: Change | Ignored | None) -> Change:
        assert isinstance(change, Change), change
        self.records.append((change.key, change.state))
        self.orders.stored(change, len(self.records) - 1, 1)
        return change


def test_javas_steps() -> None:
    """As its released classes were executed, step by step."""
    orders = Orders()
    log = Log(orders)
    first = log.store(orders.deliver(KEY, T0, HOLD_MS, [10, 11, 13], "A1"))
    assert (dict(first.counts), first.least) == ({}, 0)
    assert orders.blocked(KEY, T0 + 1, "A2") and not orders.blocked(KEY, T0 + 1, "A1")
    assert orders.blocked(KEY, T0 + 1, None)
    assert log.store(orders.ack(KEY, 11, T0, 10)).next_offset == 10
    assert orders.ack(KEY, 10, T0 + 1, 10) is Ignored.LATE, "another pop time"
    assert orders.ack(KEY, 12, T0, 10) is Ignored.NOT_IN_BATCH
    assert log.store(orders.ack(KEY, 10, T0, 10)).next_offset == 12
    assert not orders.blocked(KEY, T0 + HOLD_MS, "A2") and orders.blocked(KEY, T0 + HOLD_MS - 1, "A2")
    again = log.store(orders.deliver(KEY, T0 + HOLD_MS, HOLD_MS, [11, 13, 14], "A3"))
    assert (dict(again.counts), again.least) == ({11: 1, 13: 1}, 0)


def test_the_same_attempt_is_given_the_same_and_counts_once() -> None:
    orders = Orders()
    log = Log(orders)
    log.store(orders.deliver(KEY, T0, HOLD_MS, [4, 5], "A"))
    assert dict(log.store(orders.deliver(KEY, T0 + 9, HOLD_MS, [4, 5], "A")).counts) == {}
    third = log.store(orders.deliver(KEY, T0 + HOLD_MS + 9, HOLD_MS, [4, 5], "B"))
    assert (dict(third.counts), third.least) == ({4: 1, 5: 1}, 1)
    assert dict(log.store(orders.deliver(KEY, T0 + HOLD_MS + 10, HOLD_MS, [4, 5], "B")).counts) == {4: 1, 5: 1}
    assert dict(log.store(orders.deliver(KEY, T0 + 3 * HOLD_MS, HOLD_MS, [4, 5], None)).counts) == {4: 2, 5: 2}


def test_a_change_of_the_invisible_time_moves_the_block_of_one_message() -> None:
    orders = Orders()
    log = Log(orders)
    log.store(orders.deliver(KEY, T0, HOLD_MS, [4, 5], None))
    log.store(orders.change(KEY, 5, T0, T0 + 2 * HOLD_MS))
    assert orders.blocked(KEY, T0 + HOLD_MS + 1, None), "the other one's time is over"
    log.store(orders.ack(KEY, 5, T0, 4))
    assert orders.blocked(KEY, T0 + HOLD_MS - 1, None) and not orders.blocked(KEY, T0 + HOLD_MS, None)
    assert orders.change(KEY, 5, T0, T0) is Ignored.LATE, "it is done with"
    assert orders.change(KEY, 4, T0 + 1, T0) is Ignored.LATE, "another pop time"
    log.store(orders.change(KEY, 4, T0, T0 + 1))
    assert not orders.blocked(KEY, T0 + 1, None), "a shorter time counts, too"


def test_without_a_state_no_message_is_passed_over() -> None:
    """Java commits behind whatever is acknowledged, also where messages before it are not."""
    orders = Orders()
    assert orders.ack(KEY, 12, T0, 10) is Ignored.LATE
    assert orders.ack(KEY, 9, T0, 10) is Ignored.DONE
    change = orders.ack(KEY, 10, T0, 10)
    assert isinstance(change, Change) and change.next_offset == 11
    assert not orders.blocked(KEY, T0, None)


def test_what_is_refused_never_was_and_what_is_under_way_counts() -> None:
    orders = Orders()
    log = Log(orders)
    change = orders.deliver(KEY, T0, HOLD_MS, [1, 2], None)
    assert orders.blocked(KEY, T0, None), "it is being stored"
    orders.refused(change)
    assert not orders.blocked(KEY, T0, None) and orders.state(KEY) is None
    log.store(orders.deliver(KEY, T0, HOLD_MS, [1, 2], None))
    one, two = orders.ack(KEY, 1, T0, 1), orders.ack(KEY, 2, T0, 1)
    assert isinstance(one, Change) and isinstance(two, Change)
    assert two.next_offset == 3, "the first is in it"
    log.store(one)
    orders.refused(two)
    state = orders.state(KEY)
    assert state is not None and state.open == [2]


def test_what_was_stored_is_not_undone_by_what_is_heard_later() -> None:
    orders = Orders()
    log = Log(orders)
    log.store(orders.deliver(KEY, T0, HOLD_MS, [1, 2], None))
    log.store(orders.ack(KEY, 1, T0, 1))
    for place, (key, state) in enumerate(log.records):
        orders.heard(key, state, place, 1)
        kept = orders.state(KEY)
        assert kept is not None and kept.open == [2]
    log.store(orders.clear(KEY))
    orders.heard(KEY, log.records[0][1], 0, 1)
    assert orders.state(KEY) is None and orders.clear(KEY) is None
    orders.passed(3)
    assert orders.least_place() is None


def test_what_was_removed_does_not_come_back_by_a_late_answer() -> None:
    """The record of the removal is read before the put of the batch is answered."""
    orders = Orders()
    batch, removal = orders.deliver(KEY, T0, HOLD_MS, [1, 2], None), orders.clear(KEY)
    assert removal is not None
    for place, change in enumerate((batch, removal)):
        orders.heard(KEY, change.state, place, 1)
    orders.stored(removal, 1, 1)
    orders.passed(2)
    orders.stored(batch, 0, 1)
    assert orders.state(KEY) is None


def test_states_from_before_a_reign_that_left_no_word_are_void() -> None:
    orders = Orders()
    state = given([1], T0, HOLD_MS, None)
    keys = [OrderKey("T", "G", number) for number in range(4)]
    for place, (key, epoch) in enumerate(zip(keys, (3, 5, 6, 8), strict=True)):
        orders.heard(key, state, place, epoch)
    assert orders.void([3, 4, 5, 6, 8, 9], [3, 5, 6, 8], 9) == keys[:1], "4 was another kind of master"
    assert orders.void([3, 5, 6, 7, 8, 9], [3, 5, 6, 8], 9) == keys[:3]
    assert orders.void([3, 5, 6, 8, 9], [3, 5, 6, 8], 9) == [], "9 is now"
    orders.kept[keys[0]] = Kept(state, -1, 0)
    assert orders.void([1, 9], [], 9) == [], "a state of this store's own file is no former reign's"


def test_states_are_javas_json() -> None:
    """``consumerOrderInfo.json`` of 5.5.0, but for numeric keys in quotes, which both read."""
    java = (b'{"a":"A1","cm":1,"i":60000,"l":5,"o":[10,1,3],"ot":{11:1700000099000},'
            b'"popTime":1700000000000}')
    read = OrderInfo.from_json(java)
    assert read.offsets == [10, 11, 13] and read.open == [11, 13] and read.visible == {11: 1_700_000_099_000}
    assert read.to_json() == java.replace(b"{11:", b'{"11":')
    assert OrderInfo.from_json(b'{"o":[10],"popTime":5}').is_blocked(7, None, 3), "the time of who asks"


@pytest.mark.parametrize("distances", [[], [-1], [3, 0], [3, 2, 2], [3, 5, 1], list(range(1, 66))])
def test_a_batch_that_is_none_is_named(distances: list[int]) -> None:
    with pytest.raises(BodyError, match="1 to 64 that rise are possible"):
        OrderInfo(T0, distances).check()


def test_all_64_bits_are_javas_signed_long() -> None:
    state = given(range(100, 164), T0, HOLD_MS, None)
    state.check()
    for offset in range(100, 163):
        state = state.acked(offset)
    assert state.bits == (1 << 63) - 1 and state.open == [163]
    state = state.acked(163)
    assert state.bits == -1 and state.open == [] and state.next_offset == 164 and state.until_ms() == 0
    assert OrderInfo.from_json(state.to_json()) == state


def test_what_is_done_with_in_the_middle_is_not_given_again() -> None:
    """Java gives the whole batch again, and forgets what of it was acknowledged."""
    orders = Orders()
    log = Log(orders)
    log.store(orders.deliver(KEY, T0, HOLD_MS, [0, 1, 2, 5], None))
    log.store(orders.ack(KEY, 1, T0, 0))
    log.store(orders.ack(KEY, 5, T0, 0))
    assert orders.done(KEY) == [1, 5]
    log.store(orders.deliver(KEY, T0 + HOLD_MS, HOLD_MS, [0], None))
    assert orders.done(KEY) == [1, 5], "though the batch ended before them"
    assert log.store(orders.ack(KEY, 0, T0 + HOLD_MS, 0)).next_offset == 2, "nobody acknowledged it"
    assert not orders.blocked(KEY, T0 + HOLD_MS, None), "nobody has it"
    assert orders.done(KEY) == [0, 1, 5]
    change = log.store(orders.deliver(KEY, T0 + HOLD_MS, HOLD_MS, [2, 3], None))
    assert change.counts == {2: 1} and change.least == 0
    assert log.store(orders.ack(KEY, 2, T0 + HOLD_MS, 2)).next_offset == 3
    assert log.store(orders.ack(KEY, 3, T0 + HOLD_MS, 2)).next_offset == 6
    log.store(orders.clear(KEY))
    assert orders.done(KEY) == ()
    many = given(range(64), T0, HOLD_MS, None)
    for offset in range(1, 64):
        many = many.acked(offset)
    assert len(given([0, *range(64, 95)], T0, HOLD_MS, None, many).distances) == 64


@generated(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=64, unique=True).map(sorted), st.data())
def test_the_group_goes_on_at_the_first_that_is_not_done(offsets: list[int], data: st.DataObject) -> None:
    state = given(offsets, T0, HOLD_MS, "A")
    done = data.draw(st.lists(st.sampled_from(offsets), max_size=64))
    for offset in done:
        state = state.acked(offset)
    left = [offset for offset in offsets if offset not in done]
    front = offsets[:offsets.index(left[0])] if left else offsets
    assert state.open == left and state.next_offset == (front[-1] + 1 if front else offsets[0])
    assert OrderInfo.from_json(state.to_json()) == state
    assert state.is_blocked(T0, "B") == bool(left)


class Queue(RuleBasedStateMachine):
    """One queue that consumers pop in order. Changes are in the log in the order that they were asked in, and answered
    in any: a put that demanded more replicas waits longer. Masters come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.log = list[tuple[OrderKey, OrderInfo | None]]()
        self.orders, self.now, self.committed = Orders(), T0, 0
        self.waiting = list[tuple[Change, int]]()
        """What is in the log and not answered, with its place."""
        self.acked, self.asked = set[int](), set[int]()
        self.given: dict[int, tuple[int, int]] = {}
        """By offset: the pop time, and until when nobody else may have it."""

    def ask(self, change: Change, answered: str) -> None:
        if answered == "never":
            self.orders.refused(change)
            return
        self.log.append((change.key, change.state))
        self.waiting.append((change, len(self.log) - 1))
        if answered == "now":
            self.answer(len(self.waiting) - 1)

    def answer(self, at: int) -> None:
        change, place = self.waiting.pop(at)
        self.orders.stored(change, place, 1)
        if change.next_offset is not None and self.orders.is_last(change):
            self.committed = change.next_offset
        state = change.state
        assert state is not None
        if not state.bits:
            until = state.until_ms()
            self.given |= dict.fromkeys(state.offsets, (state.pop_time_ms, until)) if until > self.now else {}
        else:
            self.acked.update(offset for offset in state.done if offset in self.asked)

    @rule(count=st.integers(1, 4), hold=st.integers(1, 50), answered=st.sampled_from(["now", "now", "later", "never"]))
    def pop(self, count: int, hold: int, answered: str) -> None:
        if self.orders.blocked(KEY, self.now, None):
            return
        state = self.orders.state(KEY)
        begin = max(self.committed, 0 if state is None else state.next_offset)
        found = [offset for offset in range(begin, begin + 99) if offset not in self.orders.done(KEY)]
        offsets = found[:count]
        for offset in offsets:
            assert offset not in self.acked, "acknowledged, and given again"
            assert offset in self.asked or self.given.get(offset, (0, 0))[1] <= self.now, "given to two at once"
        self.ask(self.orders.deliver(KEY, self.now, hold, offsets, None), answered)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), answered=st.sampled_from(["now", "now", "later", "later", "never"]))
    def ack(self, data: st.DataObject, answered: str) -> None:
        offset = data.draw(st.sampled_from(sorted(self.given)))
        self.asked.add(offset)
        change = self.orders.ack(KEY, offset, self.given[offset][0], self.committed)
        if isinstance(change, Change):
            self.ask(change, answered)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def one_is_answered(self, data: st.DataObject) -> None:
        self.answer(data.draw(st.integers(0, len(self.waiting) - 1)))

    @rule(ms=st.integers(1, 60))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: len(self.log) > 5)
    @rule(begin=st.integers(0, 3))
    def another_master(self, begin: int) -> None:
        """It read the order topic, from any place that still holds all that counts, and raised the group's offset."""
        least = self.orders.least_place()
        self.orders, self.waiting = Orders(), []
        for place, (key, state) in enumerate(self.log):
            if place >= min(begin, least if least is not None else len(self.log)):
                self.orders.heard(key, state, place, 1)
        state = self.orders.state(KEY)
        self.committed = state.next_offset if state is not None else 0

    @invariant()
    def the_group_is_past_nothing_that_nobody_acknowledged(self) -> None:
        assert self.asked.issuperset(range(self.committed))

    @invariant()
    def the_group_is_never_behind_what_is_not_done(self) -> None:
        state = self.orders.state(KEY)
        if state is not None and not self.waiting:
            assert self.committed <= state.next_offset
            assert all(offset not in self.acked for offset in state.open)


Queue.TestCase.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
test_any_order_of_events = Queue.TestCase
