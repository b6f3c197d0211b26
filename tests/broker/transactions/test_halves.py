"""The table of open transactions against a plain model: whatever order, however often, however often put back."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from broker.transactions.halves import Ended, Halves
from broker.transactions.records import COMMITTED, PUT_BACK, ROLLED_BACK, Half


def half(offset: int, queue_offset: int, *, unique: str = "u", first: int | None = None, checks: int = 0,
         born_ms: int = 0, topic: str = "T") -> Half:
    return Half(offset, 10, queue_offset, unique, "g", topic, 0, born_ms, 0, checks, None, first, born_ms)


@attrs.define
class Told:
    """One transaction, as the model has it."""

    first: int
    unique: str
    places: list[tuple[int, int]]
    checks: int = 0
    decision: str = ""
    given_up: bool = False


class AgainstAModel(RuleBasedStateMachine):
    """What a log may hold: halves are put back, decided by any of their places, given up and brought back."""

    def __init__(self) -> None:
        super().__init__()
        self.halves, self.end, self.queue_end = Halves(), 0, 0
        self.told: list[Told] = []

    def _place(self) -> tuple[int, int]:
        self.end += 10
        self.queue_end += 1
        return self.end - 10, self.queue_end - 1

    def _some(self, data: st.DataObject) -> Told:
        return data.draw(st.sampled_from(self.told))

    @rule(unique=st.sampled_from(["u", "v"]))
    def sent(self, unique: str) -> None:
        place = self._place()
        self.told.append(Told(place[0], unique, [place]))
        found = self.halves.half(half(*place, unique=unique))
        assert found is not None and found.first == place[0]

    @precondition(lambda self: self.told)
    @rule(data=st.data(), again=st.booleans())
    def put_back(self, data: st.DataObject, again: bool) -> None:
        told = self._some(data)
        place = self._place()
        told.places.append(place)
        told.checks += 1
        told.given_up = False
        for _ in range(1 + again):
            found = self.halves.half(half(*place, unique=told.unique, first=told.first, checks=told.checks))
            assert (found is None) is bool(told.decision)

    @precondition(lambda self: self.told)
    @rule(data=st.data(), decision=st.sampled_from([COMMITTED, ROLLED_BACK]), by_mark=st.booleans())
    def decided(self, data: st.DataObject, decision: str, by_mark: bool) -> None:
        told = self._some(data)
        offset, queue_offset = data.draw(st.sampled_from(told.places))
        self.end += 10
        new = (self.halves.mark(queue_offset, decision, self.end - 10) if by_mark
               else self.halves.decided(offset, decision, self.end - 10))
        assert new is (not told.decision), "it is decided once"
        told.decision = told.decision or decision

    @precondition(lambda self: self.told)
    @rule(data=st.data(), says=st.booleans())
    def gave_up(self, data: st.DataObject, says: bool) -> None:
        told = self._some(data)
        self.end += 10
        if says:
            self.halves.gave_up(told.first, told.unique, told.checks, 0, self.end - 10)
            told.given_up = told.given_up or not told.decision

    @invariant()
    def they_agree(self) -> None:
        open_ones = {each.first: each for each in self.halves}
        assert open_ones.keys() == {told.first for told in self.told if not told.decision}
        for told in self.told:
            if told.decision:
                for offset, _ in told.places:
                    ended = self.halves.ended(offset)
                    assert isinstance(ended, Ended) and ended.decision == told.decision
                    assert self.halves.of(offset) is None
            else:
                assert open_ones[told.first].places == told.places
                assert open_ones[told.first].given_up is told.given_up
        waiting = [told.places[-1][1] for told in self.told if not told.decision and not told.given_up]
        assert [each.half.queue_offset for each in self.halves.waiting()] == sorted(waiting)
        assert self.halves.least_queue_offset() == min(waiting, default=None)
        assert self.halves.counts.total() == len(open_ones)


def test_the_table_agrees_with_a_model() -> None:
    run_state_machine_as_test(
        AgainstAModel, settings=settings(max_examples=60, stateful_step_count=30, deadline=None))


def test_what_java_put_back_is_known_by_its_id_its_birth_and_its_count() -> None:
    halves = Halves()
    one, other = halves.half(half(0, 0, born_ms=1)), halves.half(half(10, 1, born_ms=2))
    assert one is not None and other is not None
    assert halves.half(half(20, 2, born_ms=2, checks=1)) is other
    assert halves.half(half(30, 3, born_ms=1, checks=1)) is one
    assert halves.half(half(40, 4, born_ms=1, checks=2)) is one
    assert halves.half(half(50, 5, born_ms=1)) not in (one, other), "it was sent once more"
    assert halves.decided(0, COMMITTED, 60)
    assert halves.of(40) is None
    assert halves.half(half(70, 6, born_ms=1, checks=3)) is None, "it was put back before its master saw the decision"


def test_a_name_of_another_transaction_is_not_believed() -> None:
    halves = Halves()
    halves.half(half(0, 0, unique="mine"))
    stranger = halves.half(half(10, 1, unique="other", first=0))
    assert stranger is not None and stranger.first == 10
    assert len(halves) == 2


def test_what_ended_before_the_memory_reaches_stays_ended() -> None:
    halves = Halves(ended_max=2)
    for number in range(5):
        halves.half(half(10 * number, number, unique=str(number)))
        halves.mark(number, COMMITTED, 1_000 + number)
    assert halves.ended(0) is None
    assert halves.half(half(2_000, 5, unique="0", first=0, checks=1)) is None
    assert list(halves.unmarked) == [5], "and a mark is to say so"


def test_a_half_from_before_its_knowledge_begins_is_open() -> None:
    halves = Halves(since=100)
    found = halves.half(half(200, 7, first=50, checks=1))
    assert found is not None and found.first == 50
    assert halves.decided(50, COMMITTED, 300)


@pytest.mark.parametrize("given_up", [True, False])
def test_what_is_decided_without_a_mark_is_remembered_until_one_comes(given_up: bool) -> None:
    """A half that was given up has one."""
    halves = Halves()
    halves.half(half(0, 0))
    assert not given_up or halves.gave_up(0, "u", 0, 0, 5)
    halves.decided(0, COMMITTED, 10)
    assert list(halves.unmarked) == ([] if given_up else [0])
    halves.mark(0, PUT_BACK, 20)
    assert not halves.unmarked


def test_a_mark_of_an_earlier_half_is_none_of_the_present_one() -> None:
    halves = Halves()
    halves.half(half(0, 0))
    halves.half(half(100, 1, first=0, checks=1))
    assert halves.mark(0, ROLLED_BACK, 200)
    assert list(halves.unmarked) == [1], "a Java master would ask for it"


def test_a_half_is_not_given_up_by_what_lies_before_it() -> None:
    halves = Halves()
    halves.half(half(0, 0))
    back = halves.half(half(100, 1, first=0))
    assert back is not None
    assert not halves.gave_up(0, "u", 0, 0, 50)
    assert halves.gave_up(None, "u", 1, 0, 150), "Java's copy counts one more"
    assert halves.least_queue_offset() is None and halves.waiting() == []
    assert halves.decided(100, COMMITTED, 200), "a producer may still decide"


def test_deleted_halves_are_dropped_and_their_names_are_free() -> None:
    halves = Halves()
    halves.half(half(0, 0))
    halves.half(half(100, 1, unique="v"))
    assert (halves.drop_before(50), len(halves)) == (1, 1)
    again = halves.half(half(200, 2, first=0))
    assert again is not None and again.first == 0, "it was brought back"


def test_the_order_is_kept_in_bounds() -> None:
    halves, rng = Halves(ended_max=10), Random(1)
    halves.half(half(0, 0, unique="stuck"))
    for number in range(1, 20_000):
        halves.half(half(10 * number, number, unique=str(number)))
        halves.decided(10 * number, rng.choice((COMMITTED, ROLLED_BACK)), 10 * number + 5)
    assert halves.least_queue_offset() == 0
    assert len(halves._order) < 2_000
    assert len(halves._by_offset) < 20
    assert len(halves._by_unique) < 20


def test_it_tells_whether_anything_of_an_id_may_be_open() -> None:
    table = Halves()
    assert not table.is_open("u")
    table.half(half(0, 0))
    table.half(half(10, 1))
    assert table.is_open("u") and not table.is_open("v")
    table.mark(0, COMMITTED, 20)
    assert table.is_open("u"), "another one of that id is"
    table.mark(1, COMMITTED, 30)
    assert not table.is_open("u")
    for number in range(4, 20):
        table.half(half(10 * number, number))
        table.mark(number, COMMITTED, 10 * number + 5)
    assert table.is_open("u"), "of so many nobody looks"


def test_it_has_the_half_that_counts_by_its_place_alone() -> None:
    table = Halves()
    table.half(half(0, 0))
    table.half(half(10, 1, first=0))
    assert table.at(0) is None, "it was put back"
    found = table.at(10)
    assert found is not None and found.first == 0
    table.mark(1, ROLLED_BACK, 20)
    assert table.at(10) is None
