"""Checkpoints on their way: where the next POP reads, and how far its group is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.pop.chain import Checkpoints, Underway
from broker.pop.progress import Key

KEY: Key = ("T", "G", 0)
OTHER: Key = ("T", "G", 1)


class Offsets(dict[Key, int]):
    """Of groups; 0 where nobody said."""

    def __missing__(self, key: Key) -> int:
        return 0

    def of(self) -> Checkpoints:
        return Checkpoints(self.__setitem__)


def add(chain: Checkpoints, offsets: Offsets, count: int, key: Key = KEY, *, looked: int = 0) -> Underway:
    begin, at = chain.where(key, offsets[key])
    return chain.add(key, begin, at + count, max(looked, at + count))


def test_the_next_pop_reads_behind_what_is_not_stored_yet() -> None:
    offsets = Offsets()
    chain = offsets.of()
    first = add(chain, offsets, 3)
    assert chain.where(KEY, offsets[KEY]) == (3, 3)
    assert chain.where(OTHER, 7) == (7, 7)
    second = add(chain, offsets, 2)
    assert offsets == {}
    chain.stored(first, 100)
    chain.settle(99)
    assert offsets == {}
    chain.settle(100)
    assert offsets == {KEY: 3}
    chain.stored(second, 200)
    chain.settle(250)
    assert offsets == {KEY: 5}
    assert len(chain) == 0
    assert chain.where(KEY, 5) == (5, 5)


def test_one_that_is_refused_opens_its_messages_and_those_behind() -> None:
    offsets = Offsets()
    chain = offsets.of()
    first, second, third = add(chain, offsets, 3), add(chain, offsets, 2), add(chain, offsets, 1)
    chain.stored(first, 100)
    chain.refused(second)
    assert chain.where(KEY, offsets[KEY]) == (3, 3)
    chain.stored(third, 200)
    chain.settle(300)
    assert offsets == {KEY: 3}, "what stands in the log behind a gap takes nobody on"
    chain.refused(second)
    assert chain.where(KEY, 3) == (3, 3)


def test_what_a_filter_leaves_out_is_passed_in_its_order() -> None:
    offsets = Offsets()
    chain = offsets.of()
    chain.passed(KEY, 50)
    assert offsets == {KEY: 50}
    link = add(chain, offsets, 2)
    chain.passed(KEY, 90)
    assert chain.where(KEY, 50) == (52, 90), "a checkpoint says where the one before it ended"
    assert offsets == {KEY: 50}
    chain.stored(link, 10)
    chain.settle(10)
    assert offsets == {KEY: 90}


def test_a_reset_and_the_end_of_a_reign_take_nobody_anywhere() -> None:
    offsets = Offsets()
    chain = offsets.of()
    first, other = add(chain, offsets, 3), add(chain, offsets, 4, OTHER)
    chain.forget(KEY)
    chain.forget(KEY)
    chain.stored(first, 10)
    chain.stored(other, 20)
    chain.settle(20)
    assert offsets == {OTHER: 4}
    third = add(chain, offsets, 1)
    chain.forget_topic("T")
    assert len(chain) == 0
    chain.clear()
    chain.refused(third)
    chain.stored(third, 30)
    chain.settle(30)
    assert offsets == {OTHER: 4}


class Queue(RuleBasedStateMachine):
    """Against a list of what was given, and of what is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets()
        self.chain = self.offsets.of()
        self.links: list[Underway] = []
        """That are not answered, in the order of their puts."""
        self.log_end = 0
        self.stored: list[Underway] = []
        self.sure = 0

    @rule(count=st.integers(1, 5), more=st.integers(0, 3))
    def give(self, count: int, more: int) -> None:
        begin, at = self.chain.where(KEY, self.offsets[KEY])
        assert begin <= at
        self.links.append(self.chain.add(KEY, begin, at + count, at + count + more))

    @rule(count=st.integers(1, 5))
    def leave_out(self, count: int) -> None:
        self.chain.passed(KEY, self.chain.where(KEY, self.offsets[KEY])[1] + count)

    @precondition(lambda self: self.links)
    @rule()
    def store(self) -> None:
        link = self.links.pop(0)
        self.log_end += 10
        self.chain.stored(link, self.log_end)
        self.stored.append(link)

    @precondition(lambda self: self.links)
    @rule()
    def refuse(self) -> None:
        link = self.links.pop(0)
        self.chain.refused(link)
        assert link.gone

    @rule(part=st.floats(0, 1))
    def confirm(self, part: float) -> None:
        self.chain.settle(int(part * self.log_end))

    @invariant()
    def nothing_open_is_passed(self) -> None:
        offset = self.offsets[KEY]
        assert all(link.begin >= offset for link in self.links if not link.gone)
        assert self.chain.where(KEY, offset)[1] >= offset


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.booleans(), max_size=12))
def test_the_offset_stops_in_front_of_the_first_that_is_refused(outcomes: list[bool]) -> None:
    offsets = Offsets()
    chain = offsets.of()
    links = [add(chain, offsets, 2) for _ in outcomes]
    for number, (link, good) in enumerate(zip(links, outcomes, strict=True)):
        chain.stored(link, number + 1) if good else chain.refused(link)
    chain.settle(len(outcomes))
    assert offsets[KEY] == 2 * (outcomes.index(False) if False in outcomes else len(outcomes))
    assert chain.where(KEY, offsets[KEY]) == (offsets[KEY], offsets[KEY])
