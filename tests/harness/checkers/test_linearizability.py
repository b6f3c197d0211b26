"""The search for an order: as brute force says, on hard histories in time, and each of its short cuts is needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checkers import linearizability
from harness.checkers.linearizability import Limits, Search, check, shortest
from harness.checkers.models import MODELS, Base, Call, Register, State, UnknownOperation
from harness.checkers.verdict import Valid
from harness.histories.events import FAIL, INFO, INVOKE, OK, Event, operations
from tests.harness.checkers import brute
from tests.harness.checkers.generated import history, register_answers, register_call, spoiled

OPERATIONS_MAX = 6
MOST_STEPS = 700
MEAN_STEPS = 90
"""About twice what a hundred registers of 85 operations take."""


def calls(values: st.SearchStrategy[int]) -> dict[str, st.SearchStrategy[tuple[str, object, object]]]:
    """By model: (f, value, result) of operations, right or wrong."""
    several = st.lists(values, max_size=3)
    return {
        "register": st.one_of(
            st.tuples(st.just("read"), st.none(), st.one_of(values, st.none())),
            values.map(lambda value: ("write", value, value)),
            st.tuples(st.just("cas"), st.lists(values, min_size=2, max_size=2), st.sampled_from([True, False]))),
        "set": st.one_of(
            values.map(lambda value: ("add", value, value)), values.map(lambda value: ("remove", value, value)),
            st.tuples(st.just("read"), st.none(), several),
            st.tuples(st.just("contains"), values, st.booleans())),
        "log": st.one_of(
            st.tuples(st.just("append"), values, st.one_of(st.none(), values)),
            st.tuples(st.just("read"), st.none(), several)),
        "kv": st.one_of(
            st.tuples(st.just("get"), st.none(), st.one_of(values, st.none())),
            values.map(lambda value: ("put", value, value)), st.just(("delete", None, None)),
            values.map(lambda value: ("txn", [["r", "k", None], ["w", "k", 9]], [["r", "k", value], ["w", "k", 9]]))),
        "fifo": st.one_of(
            values.map(lambda value: ("enqueue", value, value)),
            st.tuples(st.just("dequeue"), st.none(), st.one_of(values, st.none()))),
        "mutex": st.sampled_from([("acquire", None, None), ("release", None, None)]),
    }


@st.composite
def histories(draw: st.DrawFn, model: str) -> list[Event]:
    """At most six operations, in any overlap, with any outcome."""
    chosen = draw(st.lists(calls(st.integers(0, 2))[model], min_size=1, max_size=OPERATIONS_MAX))
    outcomes = [draw(st.sampled_from([OK, OK, OK, INFO, FAIL, None])) for _ in chosen]
    moments = sorted((draw(st.integers(0, 12)), side, number)
                     for number in range(len(chosen)) for side in (0, 1))
    begun: set[int] = set()
    events: list[Event] = []
    for _, _, number in moments:
        f, value, result = chosen[number]
        kind = INVOKE if number not in begun else outcomes[number]
        begun.add(number)
        if kind is not None:
            events.append(Event(len(events), kind, number, f, "k", result if kind == OK else value, len(events)))
    return events


def asked_anything(events: list[Event]) -> bool:
    """Whether an answer came that could be wrong."""
    begun = {event.process: event.value for event in events if event.type == INVOKE}
    blind = {"write", "add", "remove", "put", "delete", "enqueue"}
    return any(event.type == OK and event.f not in blind and (
        event.f != "append" or event.value not in (None, begun[event.process])) for event in events)


@pytest.mark.parametrize("name", MODELS)
def test_it_says_what_brute_force_says(name: str) -> None:
    seen = {True: 0, False: 0}

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(histories(name))
    def compare(events: list[Event]) -> None:
        verdict = check(events, MODELS[name])
        if not asked_anything(events):
            assert verdict.valid is Valid.UNKNOWN
            return
        expected = brute.linearizable(events, MODELS[name])
        seen[expected] += 1
        assert verdict.valid is (Valid.TRUE if expected else Valid.FALSE)
        if not expected:
            assert not brute.linearizable(events[:verdict.prefix], MODELS[name])
            assert brute.linearizable(events[:verdict.prefix - 1], MODELS[name])

    compare()
    assert min(seen.values()) > 5, "both answers are asked for"


def register_histories(count: int, *, unknown: float) -> list[list[Event]]:
    chance = Random(85)
    return [history(chance, Register(), register_call, register_answers, operations=85, unknown=unknown)
            for _ in range(count)]


@pytest.mark.parametrize("unknown", [0.0, 0.1, 0.25])
def test_a_hundred_registers_take_few_steps(unknown: float) -> None:
    """They have 8,500 operations. What a step costs is measured by ``benchmarks.checkers``."""
    steps = [check(events, Register).asked["steps"] for events in register_histories(100, unknown=unknown)]
    assert max(steps) <= MOST_STEPS and sum(steps) <= 100 * MEAN_STEPS


def test_right_histories_with_many_unknown_pass_and_spoiled_ones_are_told_where() -> None:
    chance = Random(20)
    told = 0
    for events in register_histories(20, unknown=0.3):
        lost = sum(event.type == INFO for event in events)
        assert lost >= 10
        assert check(events, Register).valid is Valid.TRUE
        verdict = check(spoiled(chance, events), Register)
        if verdict.valid is Valid.FALSE:
            told += 1
            assert verdict.failing is not None and verdict.prefix and verdict.states
    assert told >= 5, "many unknown writes explain much"


def test_twenty_pending_unknown_are_no_matter() -> None:
    """Each could happen at any time; a read of what nobody wrote is still impossible, and every other is explained."""
    events = [Event(number, INVOKE, number, "write", None, number, number) for number in range(20)]
    for number in range(20):
        events.append(Event(len(events), INVOKE, 100, "read", None, None, len(events)))
        events.append(Event(len(events), OK, 100, "read", None, 19 - number, len(events)))
    assert check(events, Register).valid is Valid.TRUE
    wrong = [*events, Event(len(events), INVOKE, 100, "read", None, None, len(events)),
             Event(len(events) + 1, OK, 100, "read", None, 77, len(events) + 1)]
    verdict = check(wrong, Register, limits=Limits(steps=200_000))
    assert verdict.valid is Valid.FALSE
    assert verdict.prefix == len(wrong)


def after(made: list[Event], *done: tuple[str, object]) -> list[Event]:
    """More operations, one after the other."""
    for f, value in done:
        made.append(Event(len(made), INVOKE, 9, f, None, None if f == "read" else value, len(made)))
        made.append(Event(len(made), OK, 9, f, None, value, len(made)))
    return made


def two_writes_of_unknown_outcome(*values: int) -> list[Event]:
    begun = [Event(0, INVOKE, 0, "write", None, 1, 0), Event(1, INVOKE, 1, "write", None, 2, 1)]
    return after(begun, *(("read", value) for value in values))


def a_write_or_a_cas(*, swapped: bool = False) -> list[Event]:
    """Both make a 1 of the 0; only the write does so of the 2."""
    made = after([], ("write", 0))
    begun = [("write", 1), ("cas", [0, 1])]
    for process, (f, value) in enumerate(begun[::-1] if swapped else begun):
        made.append(Event(len(made), INVOKE, process, f, None, value, len(made)))
    return after(made, ("read", 1), ("write", 2), ("read", 1))


def test_a_store_may_say_nothing_in_two_ways() -> None:
    events = after([], ("put", "a"))
    events.append(Event(len(events), INVOKE, 0, "put", None, None, len(events)))
    events += [Event(3, INVOKE, 1, "get", None, None, 3), Event(4, OK, 1, "get", None, "", 4)]
    assert check(events, MODELS["kv"]).valid is Valid.TRUE


def test_a_value_cannot_be_written_twice_by_one_unknown_write() -> None:
    assert check(two_writes_of_unknown_outcome(1, 2), Register).valid is Valid.TRUE
    assert check(two_writes_of_unknown_outcome(1, 2, 1), Register).valid is Valid.FALSE


def test_of_two_unknown_operations_the_one_that_is_needed_later_is_kept() -> None:
    assert check(a_write_or_a_cas(), Register).valid is Valid.TRUE
    assert check(a_write_or_a_cas(swapped=True), Register).valid is Valid.TRUE


def hard(key: object, first: int) -> list[Event]:
    """Many writes at once, and a read of what none wrote: all their orders are tried."""
    made = [Event(first + number, INVOKE, f"{key}/{number}", "append", key, number, first + number)
            for number in range(14)]
    made.append(Event(first + 14, INVOKE, f"{key}/r", "read", key, None, first + 14))
    made.append(Event(first + 15, OK, f"{key}/r", "read", key, [*range(14), 99], first + 15))
    return made + [Event(first + 16 + number, OK, f"{key}/{number}", "append", key, number, first + 16 + number)
                   for number in range(14)]


def easy_and_wrong(key: object, first: int) -> list[Event]:
    return [Event(first, INVOKE, f"{key}", "read", key, None, first),
            Event(first + 1, OK, f"{key}", "read", key, [5], first)]


def test_a_hard_key_does_not_hide_one_that_is_broken() -> None:
    events = hard("a", 0)
    events += easy_and_wrong("b", len(events))
    verdict = check(events, MODELS["log"], limits=Limits(steps=40_000))
    assert verdict.valid is Valid.FALSE
    assert verdict.failing is not None and verdict.failing.invoked.key == "b"


@pytest.mark.parametrize("wrong", [["a", "b", "c"], ["c", "b", "a"], ["b", "c"], ["c", "a", "b"]])
def test_the_shortest_beginning_is_that_of_all_keys(wrong: list[str]) -> None:
    """Keys are searched in the order of their first events, and the one that fails first may fail last."""
    events: list[Event] = []
    for key in ("a", "b", "c"):
        events.append(Event(len(events), INVOKE, key, "write", key, 1, len(events)))
        events.append(Event(len(events), OK, key, "write", key, 1, len(events)))
    for key in wrong:
        events.append(Event(len(events), INVOKE, key, "read", key, None, len(events)))
        events.append(Event(len(events), OK, key, "read", key, 2, len(events)))
    verdict = check(events, Register)
    assert verdict.prefix == 8
    assert f"of key {wrong[0]} explains process {wrong[0]}: read of {wrong[0]}" in verdict.why


def test_a_key_that_is_too_hard_does_not_keep_a_verdict_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearizability, "STEPS_TURN", 20_000)
    events = hard("a", 0)
    events += easy_and_wrong("b", len(events))
    verdict = check(events, MODELS["log"])
    assert verdict.failing is not None and verdict.failing.invoked.key == "b" and verdict.prefix == len(events)


@pytest.mark.parametrize("limits", [Limits(steps=30_000), Limits(memory_bytes=1_000_000)])
def test_what_was_given_up_is_unknown_and_never_passes(limits: Limits) -> None:
    verdict = check(hard("a", 0), MODELS["log"], limits=limits)
    assert verdict.valid is Valid.UNKNOWN
    assert "keys" in verdict.why


def test_nothing_asked_is_unknown() -> None:
    assert check([], Register).valid is Valid.UNKNOWN
    lone = [Event(0, INVOKE, 0, "write", None, 1, 0)]
    assert check(lone, Register).valid is Valid.UNKNOWN


@pytest.mark.parametrize(("name", "write"), [
    ("register", ("write", 1)), ("set", ("add", 1)), ("log", ("append", 1)), ("kv", ("put", 1)),
    ("kv", ("txn", [["w", "k", 1]])), ("fifo", ("enqueue", 1))])
@pytest.mark.parametrize("told", [FAIL, INFO, None])
def test_what_is_written_and_never_read_is_unknown(name: str, write: tuple[str, object], told: str | None) -> None:
    """A service whose every read fails has said nothing that could be wrong."""
    events = after([], write)
    events.append(Event(2, INVOKE, 1, "dequeue" if name == "fifo" else "read", None, None, 2))
    if told is not None:
        events.append(events[2]._replace(index=3, type=told, time_ns=3))
    verdict = check(events, MODELS[name])
    assert verdict.valid is Valid.UNKNOWN
    assert verdict.asked["operations"] == 1 and verdict.asked["answers"] == 0 and "nothing was asked" in verdict.why


def test_an_answer_that_can_be_wrong_is_counted() -> None:
    for name, done in {
        "register": ("cas", [None, 1]), "set": ("contains", False), "log": ("append", 0), "kv": ("get", None),
        "fifo": ("dequeue", None), "mutex": ("acquire", None)}.items():
        events = [Event(0, INVOKE, 0, done[0], None, "x" if name == "log" else done[1], 0),
                  Event(1, OK, 0, done[0], None, done[1], 1)]
        verdict = check(events, MODELS[name])
        assert (verdict.valid, verdict.asked["answers"]) == (Valid.TRUE, 1), name


def test_what_a_model_does_not_know_is_said() -> None:
    events = [Event(0, INVOKE, 0, "fly", None, 1, 0), Event(1, OK, 0, "fly", None, 1, 1)]
    with pytest.raises(UnknownOperation, match=r"register knows read.*not fly"):
        check(events, Register)
    over = [Event(0, INVOKE, 0, "txn", None, [["r", 1, None], ["w", 2, 1]], 0),
            Event(1, OK, 0, "txn", None, [["r", 1, 5], ["w", 2, 1]], 1)]
    with pytest.raises(UnknownOperation, match="over 2 keys"):
        check(over, MODELS["kv"])


@pytest.mark.parametrize(("model", "f"), [("set", "add"), ("log", "append")])
@pytest.mark.parametrize("told", [3, 0, False, "[1]", {"a": 1}])
def test_a_read_of_elements_that_has_none_is_refused_in_words(model: str, f: str, told: object) -> None:
    """A counter has the functions of a set: its answers are numbers, and there was a TypeError, or a verdict."""
    events = after([], (f, 1), ("read", told))
    with pytest.raises(UnknownOperation, match=r"a read of a set or a log is answered with a list, not .*--model"):
        check(events, MODELS[model])
    assert check(after([], ("read", None), ("read", list[object]())), MODELS[model]).valid is Valid.TRUE


@pytest.mark.parametrize(("key", "value", "told", "words"), [
    (None, 3, 3, "line 7: a transaction is a list of"), (None, [["r", 1]], None, "line 7: a transaction is a list of"),
    (1, 3, 3, "the value of txn is a list of"), (1, [["r", 1]], None, "the value of txn is a list of"),
    (1, [["r", 1, None]], 3, "the answer to txn .* not 3"), (1, [["r", 1, None]], [], r"the answer to txn .* not \[\]"),
    (1, [["r", 1, None]], [["r", 1]], "the answer to txn .* not "),
])
def test_a_transaction_of_another_form_is_refused_in_words(
    key: object, value: object, told: object, words: str,
) -> None:
    events = [Event(0, INVOKE, 0, "txn", key, value, 0, line=7), Event(1, OK, 0, "txn", key, told, 1, line=8)]
    with pytest.raises(UnknownOperation, match=words):
        check(events, MODELS["kv"])


@pytest.mark.parametrize(("key", "parts"), [("g", [1, 2]), ("g", ["g", 2]), ("g", [1]), (None, [])])
def test_a_transaction_with_a_key_is_of_that_key(key: object, parts: list[object]) -> None:
    """It was one object, so the write of one key explained the read of another."""
    value = [["w", each, 1] for each in parts[:1]] + [["r", each, 1] for each in parts[1:]]
    events = [Event(0, INVOKE, 0, "txn", key, value, 0, line=7), Event(1, OK, 0, "txn", key, value, 1, line=8)]
    keys = len({key, *parts} - {None})
    with pytest.raises(UnknownOperation, match=f"line 7: a transaction over {keys} keys"):
        check(events, MODELS["kv"])


def test_a_users_model_has_three_methods() -> None:
    class Counter:
        def begin(self) -> State:
            return 0

        def step(self, state: State, asked: Call) -> State:
            assert isinstance(state, int)
            return state + 1 if asked.f == "add" else state

        def reads(self, asked: Call) -> bool:
            return False

    events = [Event(0, INVOKE, 0, "add", None, None, 0), Event(1, OK, 0, "add", None, None, 1)]
    assert check(events, Counter).valid is Valid.TRUE


def test_the_shortest_beginning_may_end_after_the_operation_that_fails() -> None:
    """A read saw a write that is refused only later: until then all was fine."""
    events = [Event(0, INVOKE, 0, "write", None, 1, 0), Event(1, INVOKE, 1, "read", None, None, 1),
              Event(2, OK, 1, "read", None, 1, 2), Event(3, FAIL, 0, "write", None, 1, 3)]
    verdict = check(events, Register)
    assert verdict.valid is Valid.FALSE
    assert verdict.prefix == 4
    assert "process 1: read" in verdict.why


# --- mutants -----------------------------------------------------------------------------------------------------

MUTANTS = {
    "reads are put in order though they say something else": ("if after == state:", "if True:"),
    "an end is passed over": ("if not done & bits[number]:", "if False:"),
    "unknown operations may happen before they began": ("if since > number:", "if False:"),
    "an unknown operation happens twice": ("if spent & bit:", "if False:"),
    "unknown operations never happen": ("if self._unknown:", "if False:"),
    "ways are forgotten though they spent less": ("if before & spent == before:", "if True:"),
    "an impossible answer is taken": ("return -1", "return state"),
    "what began later is open before": (
        "begun[coming].invoked.index < self._ends[number]", "begun[coming].invoked.index < self._ends[-1]"),
    "refused operations happened": ("each.ended.type == OK]", "each.ended.type in (OK, 'fail')]"),
    "the memo knows no state": ("state << width | done", "done"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_of_the_search_is_caught(mutant: str) -> None:
    before, after = MUTANTS[mutant]
    source = inspect.getsource(linearizability)
    assert source.count(before) >= 1, "the mutant changes something"
    spoilt: dict[str, object] = {"__name__": linearizability.__name__}
    exec(compile(source.replace(before, after), "mutant", "exec"), spoilt)
    wrong = spoilt["check"]
    assert callable(wrong)
    assert differs(wrong)


def differs(wrong: Callable[..., Any]) -> bool:
    """Whether it says something else than the search does, of small histories."""
    chance = Random(7)
    made = [two_writes_of_unknown_outcome(1, 2, 1), a_write_or_a_cas(), a_write_or_a_cas(swapped=True)]
    while len(made) < 1_500:
        events = history(chance, Register(), register_call, register_answers, operations=chance.randrange(2, 9),
                         clients=4, unknown=0.3)
        if chance.random() < 0.7 and any(event.f == "read" and event.type == OK for event in events):
            events = spoiled(chance, events)
        made.append(events)
    for events in made:
        try:
            said = wrong(events, Register, limits=Limits(steps=20_000))
            if said.valid.value != check(events, Register).valid.value:  # the mutant has classes of its own
                return True
        except (IndexError, KeyError):
            return True
    return False


def test_a_search_can_be_stopped_and_gone_on_with() -> None:
    events = register_histories(1, unknown=0.3)[0]
    whole, parts = Search(operations(events), Register()), Search(operations(events), Register())
    assert whole.run(10**9) is True
    turns = 0
    while (found := parts.run(7)) is None:
        turns += 1
    assert found is True and turns > 1 and parts.steps == whole.steps


def test_where_steps_do_not_decide_a_longer_beginning_is_told() -> None:
    events = [Event(0, INVOKE, 0, "write", None, 1, 0), Event(1, INVOKE, 1, "read", None, None, 1),
              Event(2, OK, 1, "read", None, 1, 2), Event(3, FAIL, 0, "write", None, 1, 3)]
    found = operations(events)
    assert shortest(found, found[1], Register, steps=0) == 4


def test_every_model_says_states_in_words() -> None:
    for name, (asked, words) in {
        "register": (Call("write", [1, True], [1, True]), "[1, True]"),
        "set": (Call("add", "x", "x"), "{'x'}"), "log": (Call("append", 3, None), "[3]"),
        "fifo": (Call("enqueue", 3, 3), "[3]"), "kv": (Call("append", 3, None), "[3]"),
    }.items():
        model: Base = MODELS[name]()
        assert model.words(model.step(model.begin(), asked)) == words
