"""The promises of queues, each broken in turn; what is not asked is unknown; one pass says what a slow look says."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checkers import queues
from harness.checkers.queues import Rules, check
from harness.checkers.verdict import Valid, Verdict
from harness.histories.events import FAIL, INFO, INVOKE, OK, Event, HistoryError


class Run:
    """A history that is written as it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, f: str, value: Any, process: int = 0, key: Any = None) -> None:
        at = len(self.events)
        self.events.append(Event(at, kind, process, f, key, value, at * 1_000_000))

    def send(self, value: Any, told: Any = None, kind: str = OK, key: Any = None) -> Run:
        self.add(INVOKE, "send", value, key=key)
        self.add(kind, "send", value if told is None else told, key=key)
        return self

    def receive(self, *values: Any, f: str = "receive", key: Any = None, process: int = 1) -> Run:
        self.add(INVOKE, f, None, process, key)
        self.add(OK, f, list(values), process, key)
        return self

    def verdict(self, **rules: Any) -> Verdict:
        return check(self.events, Rules(**rules))


def promises(verdict: Verdict) -> list[str]:
    return [each.promise for each in verdict.broken]


def test_what_was_sent_came() -> None:
    verdict = Run().send("a").send("b").receive("a", "b").verdict(ordered=True, once=True)
    assert verdict.valid is Valid.TRUE
    assert verdict.asked == {"acknowledged": 2, "received": 2, "read at the end": 0, "orders": 1}


BROKEN: list[tuple[Run, dict[str, Any], str]] = [
    (Run().send("a").send("b").receive("a").receive(f="drain"), {}, "lost"),
    (Run().send("a").send("b").receive("a"), {"drained": True}, "lost"),
    (Run().send("a", {"offset": 0}, key="q").send("b", {"offset": 1}, key="q").receive(
        {"body": "a", "offset": 0}, f="read-all", key="q"), {}, "lost"),
    (Run().send("a", {"offset": 0}, key="q").receive("a", key="q").receive(f="read-all", key="q"), {}, "lost"),
    (Run().send("a").receive("a").receive("a"), {"once": True}, "once"),
    (Run().send("a").receive("a", "b"), {}, "phantom"),
    (Run().send("a").receive({"body": "b", "offset": 0}, f="read-all").receive("a"), {}, "phantom"),
    (Run().send("a", kind=FAIL).receive("a"), {}, "denied"),
    (Run().send("a", {"offset": 3}, key="q").send("b", {"offset": 3}, key="q").receive("a", "b"), {}, "place"),
    (Run().send("a").send("b").receive({"body": "a", "offset": 0}).receive({"body": "b", "offset": 0}), {}, "place"),
    (Run().send("a", kind=INFO).receive({"body": "a", "offset": 0}).receive(f="read-all"), {}, "unseen"),
    (Run().send("a", {"offset": 0}, key="q").send("b", {"offset": 1}, key="q").receive("a", f="read-all", key="q"), {},
     "lost"),
    (Run().send("a", {"offset": 0}).send("b", {"offset": 1}).receive("a", {"body": "b", "offset": 1}).receive(
        "a", {"body": "a", "offset": 0}, f="read-all"), {}, "lost"),
    (Run().send("a", kind=INFO).receive({"body": "a", "offset": 0}).send("b").receive("b", f="read-all"), {}, "unseen"),
    (Run().send("a").send("b").receive("b", "a"), {"ordered": True}, "order"),
    (Run().send("a").send("b").receive("b").receive("a"), {"ordered": True}, "order"),
    (Run().send({"body": "a", "due_ms": 900}).receive("a"), {}, "early"),
    (Run().send({"body": "a", "delay_ms": 4}, "a").receive("a"), {}, "early"),
    (Run().send({"body": "a", "delay_ms": 4.0}, "a").receive("a"), {}, "early"),
    (Run().send({"body": "a", "delay_ms": 1}, "a").receive().receive("a"), {"late_ms": 2}, "late"),
    (Run().send({"body": "a", "delay_ms": 0.5}, "a").receive().receive("a"), {"late_ms": 2}, "late"),
    (Run().send({"body": "a", "due_ms": 0}).receive("a"), {"late_ms": 2}, "late"),
    (Run().send("a").send("a").receive("a"), {}, "unique"),
    (Run().send("a").send("b").receive("a", "b", f="read-all").receive("b").receive("a"), {"ordered": True}, "order"),
    (Run().send({"body": "a", "due_ms": 900}).receive("a", f="read-all").receive("a"), {}, "early"),
    (Run().send({"body": "a", "due_ms": 0}).receive("a", f="read-all").receive("a"), {"late_ms": 2}, "late"),
    (Run().send("a").receive("a", f="read-all").receive("a").receive("a"), {"once": True}, "once"),
    (Run().send("a").receive("a", "a", f="read-all"), {"once": True}, "once"),
    (Run().send("a").receive({"body": "a", "offset": 0}, {"body": "a", "offset": 1}, f="read-all"), {"once": True},
     "once"),
    (Run().send("a").send("b").receive("b", "a", f="read-all"), {"ordered": True}, "order"),
    (Run().send("a").send("b").receive({"body": "a", "offset": 1}, {"body": "b", "offset": 0}, f="read-all"),
     {"ordered": True}, "order"),
]


@pytest.mark.parametrize(("run", "rules", "promise"), BROKEN)
def test_each_promise_is_broken_in_turn(run: Run, rules: dict[str, Any], promise: str) -> None:
    verdict = run.verdict(**rules)
    assert verdict.valid is Valid.FALSE
    assert promises(verdict) == [promise]
    assert promise in verdict.why


@pytest.mark.parametrize(("run", "rules", "promise"), BROKEN)
def test_what_is_not_promised_is_counted_and_breaks_nothing(run: Run, rules: dict[str, Any], promise: str) -> None:
    verdict = run.verdict(not_promised=frozenset({promise}), **rules)
    assert verdict.valid is not Valid.FALSE and not verdict.broken
    assert verdict.counts[f"{promise}, not promised"] >= 1
    assert verdict.valid is Valid.UNKNOWN or f"{promise} " in verdict.why
    others = frozenset(queues.PROMISES) - {promise}
    assert promises(run.verdict(not_promised=others, **rules)) == [promise]


ALLOWED: list[tuple[Run, dict[str, Any]]] = [
    (Run().send("a").receive("a").receive("a"), {}),
    (Run().send("a").send("b").receive("b", "a"), {}),
    (Run().send("a", key=1).send("b", key=2).receive("b", "a"), {"ordered": True}),
    (Run().send("a", kind=INFO).send("b").receive("b", "a"), {"ordered": True}),
    (Run().send("a", kind=INFO).send("b").receive("b").receive("a"), {"ordered": True}),
    (Run().send({"body": "a", "due_ms": 0}).receive("a"), {"late_ms": 5}),
    (Run().send({"body": "a", "due_ms": 8}).receive("a"), {"early_ms": 5}),
    (Run().send("a", {"offset": 0}, key="q").receive({"body": "a", "offset": 0}, f="read-all", key="q"), {}),
    (Run().send("a").receive("a", f="read-all").receive("a").receive("a", f="read-all"), {"once": True}),
    (Run().send("a").receive("a", f="read-all").receive(f="drain"), {}),
    (Run().send("a", {"offset": 0}).send("b", {"offset": 1}).receive("a", "b", f="read-all"), {}),
    (Run().send("a", {"offset": 0}).send("b", {"offset": 1}).receive(
        {"body": "a", "offset": 0}, "b", f="read-all"), {}),
    (Run().send("a", kind=INFO).receive({"body": "a", "offset": 0}).send("b").receive("b", "a", f="read-all"), {}),
    (Run().send("a", {"offset": 0}).receive({"body": "a", "offset": 0}, f="read-all").send("b").receive(
        {"body": "b", "offset": 1}), {}),
    (Run().send("a").receive({"body": "a", "offset": 0}, {"body": "a", "offset": 0}, f="read-all"), {"once": True}),
    (Run().send("a").receive("a", f="read-all").receive("a", f="read-all"), {"once": True}),
    (Run().send("a").send("b").receive("a", "b", "a", f="read-all"), {"ordered": True}),
    (Run().send("a").send("b").receive({"body": "b", "offset": 1}, {"body": "a", "offset": 0}, f="read-all"),
     {"ordered": True}),
    (Run().send("a", key=1).send("b", key=2).receive("b", "a", f="read-all"), {"ordered": True}),
    (Run().send("a", kind=INFO).send("b").receive("b", "a", f="read-all"), {"ordered": True}),
]


def test_orders_count_keys_whose_values_were_only_read() -> None:
    verdict = Run().send("a", key="q").send("b", key="p").receive("a", f="read-all", key="q").receive("b").verdict(
        ordered=True)
    assert verdict.valid is Valid.TRUE and verdict.asked["orders"] == 2


def test_a_reading_finds_what_is_denied_later() -> None:
    run = Run()
    run.add(INVOKE, "send", "a")
    run.receive("a", f="read-all").add(FAIL, "send", "a")
    assert promises(run.verdict()) == ["denied"]


@pytest.mark.parametrize(("run", "rules"), ALLOWED)
def test_what_is_allowed_is_counted_at_most(run: Run, rules: dict[str, Any]) -> None:
    assert run.verdict(**rules).valid is Valid.TRUE


@pytest.mark.parametrize("key", [False, True])
def test_true_is_not_1(key: bool) -> None:
    """Python takes them for equal, a client does not."""
    run = Run().send(True).receive(1).receive(f="drain")
    assert set(promises(run.verdict())) == {"lost", "phantom"}
    run = Run().send("a", {"offset": 0}, key=True).send("b", {"offset": 0}, key=1 if key else 2)
    assert not promises(run.verdict()), "places of two queues"


def test_two_receivers_at_once_have_no_order() -> None:
    run = Run().send("a").send("b")
    for process in (1, 2):
        run.add(INVOKE, "receive", None, process)
    run.add(OK, "receive", "b", 1)
    run.add(OK, "receive", "a", 2)
    assert run.verdict(ordered=True).valid is Valid.TRUE


def unknown(run: Run, f: str = "dequeue", asked: Any = None, process: int = 2) -> Run:
    run.add(INVOKE, f, asked, process)
    run.add(INFO, f, None, process)
    return run


def late(first: Run, *values: str) -> Run:
    """The last value comes first."""
    for value in (values[-1], *values[:-1]):
        first.receive(value, f="dequeue")
    return first


def sends(*values: str) -> Run:
    run = Run()
    for value in values:
        run.send(value)
    return run


UNSEEN: list[tuple[Run, dict[str, Any], Valid]] = [
    (late(unknown(sends("a", "b")), "a", "b"), {}, Valid.UNKNOWN),
    (late(unknown(sends("a", "b")), "a", "b"), {"not_promised": frozenset({"order"})}, Valid.TRUE),
    (late(unknown(sends("a", "b")), "a", "b"), {"once": True}, Valid.FALSE),
    (late(unknown(sends("a", "b")), "a", "b"), {"once": True, "not_promised": frozenset({"once"})}, Valid.UNKNOWN),
    (late(unknown(sends("a", "b", "c")), "a", "b", "c"), {}, Valid.FALSE),
    (late(unknown(unknown(sends("a", "b", "c")), process=3), "a", "b", "c"), {}, Valid.UNKNOWN),
    (late(unknown(sends("a", "b", "c"), "pop", {"most": 2}), "a", "b", "c"), {}, Valid.UNKNOWN),
    (late(unknown(sends("a", "b", "c"), "pop"), "a", "b", "c"), {}, Valid.UNKNOWN),
    (late(unknown(sends("a", "b"), "receive"), "a", "b"), {}, Valid.FALSE),
    (unknown(sends("a", "b")).receive("b", "a", f="pop"), {}, Valid.UNKNOWN),
    (unknown(sends("a", "b").receive("b")).receive("a"), {}, Valid.FALSE),
    (unknown(unknown(sends("a", "b").receive("b")).receive("a").send("c").send("d"), process=3).receive("d").receive(
        "c"), {}, Valid.FALSE)]


def test_a_loss_beside_a_receive_without_an_answer_says_what_may_be_wrong_with_the_history() -> None:
    """A service whose receives take messages away was accused of what a lost answer had taken."""
    for f in ("receive", "dequeue"):
        verdict = unknown(sends("a", "b", "c").receive("c"), f).receive(f="drain").verdict()
        assert verdict.why.startswith("broken: lost 2 times")
        assert ("1 receives were not answered, which take nothing away here" in verdict.why) is (f == "receive")
    assert "dequeue" not in sends("a").receive(f="drain").verdict().why


@pytest.mark.parametrize(("run", "rules", "valid"), UNSEEN)
def test_what_an_unknown_answer_may_have_brought_before_is_not_surely_out_of_order(
    run: Run, rules: dict[str, Any], valid: Valid,
) -> None:
    """Some came first, perhaps, to a client that saw no answer, and came again."""
    verdict = run.verdict(ordered=True, **rules)
    assert verdict.valid is valid
    assert promises(verdict) == ["order"] * (valid is Valid.FALSE) or len(promises(verdict)) > 1
    assert valid is not Valid.UNKNOWN or "out of order" in verdict.why


def test_a_dequeue_that_is_under_way_may_have_brought_what_comes_late() -> None:
    run = sends("a", "b")
    run.add(INVOKE, "dequeue", None, 2)
    verdict = late(run, "a", "b").verdict(ordered=True)
    assert verdict.valid is Valid.UNKNOWN and "1 values are out of order" in verdict.why
    run.add(INFO, "dequeue", None, 2)
    assert run.verdict(ordered=True) == verdict
    run.events[-1] = run.events[-1]._replace(type=OK)
    assert promises(run.verdict(ordered=True)) == ["order"], "it brought nothing"


@pytest.mark.parametrize(("run", "rules", "words"), [
    (Run(), {}, "no send was ever acknowledged"),
    (Run().send("a", kind=FAIL).receive(), {}, "no send was ever acknowledged"),
    (Run().send("a"), {"drained": True}, "lost"),
    (Run().send("a").receive(), {}, "nothing was ever received"),
    (Run().send("a").send("b").receive("a"), {}, "no drain says"),
    (Run().send("a").receive("a").send("b").receive("b").send("c"), {"memory_bytes": 500}, "more than 500 bytes"),
])
def test_what_nobody_asked_is_unknown_and_never_passes(run: Run, rules: dict[str, Any], words: str) -> None:
    verdict = run.verdict(**rules)
    assert verdict.valid is not Valid.TRUE
    assert words in verdict.why


def test_what_an_unknown_dequeue_may_have_taken_is_not_lost() -> None:
    run = Run().send("a").send("b").receive("a", f="dequeue")
    run.add(INVOKE, "dequeue", None, 2)
    run.add(INFO, "dequeue", None, 2)
    verdict = run.receive(f="drain").verdict()
    assert verdict.valid is Valid.UNKNOWN
    assert "may have taken" in verdict.why


@pytest.mark.parametrize("f", ["dequeue", "pop", "drain"])
def test_what_is_under_way_at_the_end_may_have_taken_a_message(f: str) -> None:
    run = Run().send("a").send("b")
    run.add(INVOKE, f, None, 2)
    run.receive("b", f="drain", process=3)
    verdict = run.verdict()
    assert verdict.valid is Valid.UNKNOWN
    run.add(INFO, f, None, 2)
    assert run.verdict() == verdict, "as one of unknown outcome"


def test_of_a_queue_that_needs_too_much_memory_nothing_is_lost() -> None:
    """What came behind the bound was not looked at."""
    run = Run()
    for number in range(9):
        run.send(number, {"offset": number}, key="q")
    run.receive({"body": 0, "offset": 0}, key="q").receive(*range(9), f="read-all", key="q")
    for bound in (1_000, 10_000):
        verdict = run.verdict(drained=True, memory_bytes=bound)
        assert verdict.valid is (Valid.UNKNOWN if bound == 1_000 else Valid.TRUE)


@pytest.mark.parametrize(("f", "asked", "lost", "valid"), [
    ("pop", {"most": 2}, 2, Valid.UNKNOWN), ("pop", {"most": 2}, 3, Valid.FALSE), ("pop", None, 3, Valid.UNKNOWN),
    ("dequeue", None, 2, Valid.FALSE), ("drain", None, 3, Valid.UNKNOWN), ("receive", None, 1, Valid.FALSE)])
def test_how_many_an_unknown_answer_may_have_brought(f: str, asked: Any, lost: int, valid: Valid) -> None:
    run = Run().send("a").receive("a")
    for number in range(lost):
        run.send(number)
    run.add(INVOKE, f, asked, 2)
    run.add(INFO, f, None, 2)
    assert run.receive(f="drain").verdict().valid is valid


def test_what_was_overwritten_is_lost_though_it_was_received() -> None:
    """Where a mode does not promise places, what it loses is told all the same, and once."""
    run = Run().send("a", {"offset": 0}, key="q").receive("a", key="q").send("b", {"offset": 0}, key="q")
    last = run.receive({"body": "b", "offset": 0}, f="read-all", key="q")
    verdict = last.verdict(not_promised=frozenset({"place"}))
    assert promises(verdict) == ["lost"]
    assert verdict.broken[0].words == "a was acknowledged at q, offset 0, and the last reading finds b there"
    again = last.receive({"body": "b", "offset": 0}, {"body": "a", "offset": 1}, f="read-all", key="q")
    assert again.verdict(not_promised=frozenset({"place"})).valid is Valid.TRUE, "it is there, at another place"


def test_a_delay_is_asked_only_where_a_message_came_that_had_one() -> None:
    run = Run().send("a").receive("a")
    assert run.verdict().valid is Valid.TRUE
    for rules in ({"delayed": True}, {"late_ms": 5}):
        verdict = run.verdict(**rules)
        assert verdict.valid is Valid.UNKNOWN and "when it is due" in verdict.why
    assert run.send({"body": "b", "delay_ms": 1}, "b").receive("b").verdict(delayed=True).valid is Valid.TRUE
    assert Run().send({"body": "b", "delay_ms": 4}, "b").receive("b").verdict(early_ms=2).valid is Valid.TRUE


def test_a_part_of_a_millisecond_is_never_too_early_or_too_late() -> None:
    run = Run().send({"body": "a", "delay_ms": 3.5}, "a").receive("a").send({"body": "b", "due_ms": 5.5}).receive("b")
    assert run.verdict(delayed=True, late_ms=1).valid is Valid.TRUE


@pytest.mark.parametrize("name", ["delay_ms", "due_ms"])
@pytest.mark.parametrize("value", ["5000", True, [], {}, float("inf"), float("nan")])
def test_a_time_that_is_no_number_is_refused_with_its_line(name: str, value: object) -> None:
    run = Run().send("a").send({"body": "b", name: value}, "b")
    run.events[2] = run.events[2]._replace(line=3)
    with pytest.raises(HistoryError, match=f"line 3: {name} is a number of milliseconds"):
        run.verdict()


@pytest.mark.parametrize("f", ["send", "receive", "drain", "read-all"])
@pytest.mark.parametrize("offset", ["3", True, [3], {"at": 3}, 3.5])
def test_an_offset_that_is_no_whole_number_is_refused_with_its_line(f: str, offset: object) -> None:
    """A list there ended the check without a verdict."""
    told = {"body": "b", "offset": offset}
    run = Run().send("a", {"offset": 0}).send("b", told if f == "send" else None)
    run.receive("b", told, f=f if f != "send" else "receive")
    at = 3 if f == "send" else 5
    run.events[at] = run.events[at]._replace(line=at + 1)
    for once in (False, True):
        with pytest.raises(HistoryError, match=f"line {at + 1}: offset is a whole number, not "):
            run.verdict(once=once)


def test_only_the_first_breaches_are_told_and_all_are_counted() -> None:
    verdict = Run().send("a").receive(*range(25), "a").verdict()
    assert len(verdict.broken) == 10
    assert "phantom 25 times" in verdict.why
    assert verdict.prefix == 4


MUTANTS = {
    "what is lost is not told": ("for number in lost:", "for number in ():"),
    "what was refused may come": ("if number in self._failed:", "if False:"),
    "nobody need have sent it": ("if self._sent.begun[number] == _NEVER:", "if False:"),
    "two may be at one place": ("if before != number:", "if False:"),
    "an answer has no order": ("if order.answer == event.index and", "if False and"),
    "what was not acknowledged has order": ("if acked != _NEVER else len(order.ends)", ""),
    "what was not acknowledged has order in an answer": ("_NEVER < acked < order.in", "acked < order.in"),
    "an unknown answer brings any number": ("if count > most or", "if False or"),
    "an unknown answer brings what was taken": ("takes[at][0] < each.since", "True"),
    "what was taken comes again": ('(self.rules.once and "once"', '(False and "once"'),
    "keys have one order": ("self._keys[number] = self._key(event.key)", "self._keys[number] = 0"),
    "nothing is too early": ("if first_ms - now_ms > self.rules.early_ms:", "if False:"),
    "nothing is too late": ("now_ms - last_ms > self.rules.late_ms", "False"),
    "a place is never forgotten": ('return "nothing there"', 'return ""'),
    "what was seen may go": ("if reading is None or offset in reading.places", "if True or offset in reading.places"),
    "what was sent since should be there": ("self._places.since[where] >= reading.began or", "False or"),
    "bare bodies are nowhere": ("if there == number or number in reading.bare:", "if there == number:"),
    "what is nowhere among bare bodies is there": ('return "it nowhere" if', 'return "" if'),
    "a second time is no matter": ("if self.rules.once:", "if False:"),
    "a reading may have a value twice": ("if self.rules.once and number in numbers", "if False"),
    "a reading has no order": ("if acked != _NEVER and acked < before:", "if False:"),
    "a reading is ordered as it is told": ("if len(placed) == len(numbers)", "if False"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_caught(mutant: str) -> None:
    before, after = MUTANTS[mutant]
    source = inspect.getsource(queues)
    assert before in source, "the mutant changes something"
    spoilt: dict[str, Any] = {"__name__": queues.__name__}
    exec(compile(source.replace(before, after), "mutant", "exec"), spoilt)

    def said(run: Run, rules: dict[str, Any]) -> list[str]:
        return [each.promise for each in spoilt["check"](run.events, spoilt["Rules"](**rules)).broken]

    assert any(said(run, rules) != [promise] for run, rules, promise in BROKEN) or any(
        said(run, rules) for run, rules in ALLOWED) or any(
        ("order" in said(run, {"ordered": True} | rules)) != (valid is Valid.FALSE) for run, rules, valid in UNSEEN)


# --- a slow look at all --------------------------------------------------------------------------------------------


def slow_order(events: Sequence[Event]) -> Valid:
    """Whether some value came after one that was sent after it had been acknowledged; by each pair.

    UNKNOWN: it need not be so, if unknown answers had brought some of them before, one each.
    """
    begun = {each.value: each.index for each in events if each.f == "send" and each.type == INVOKE}
    acked = {each.value: each.index for each in events if each.f == "send" and each.type == OK}
    asked: dict[Any, int] = {}
    came: dict[Any, tuple[int, int, int]] = {}
    unknown = []
    for each in events:
        if each.f == "dequeue" and each.type == INVOKE:
            asked[each.process] = each.index
        elif each.f == "dequeue" and each.type == OK:
            for place, value in enumerate(each.value):
                came.setdefault(value, (asked[each.process], each.index, place))
            del asked[each.process]
        elif each.f == "dequeue":
            unknown.append(asked.pop(each.process))
    unknown += asked.values()
    late = [(earlier, came[later][1]) for earlier in came for later in came
            if earlier in acked and acked[earlier] < begun[later] and (
                came[later][1] < came[earlier][0]
                or (came[later][1] == came[earlier][1] and came[later][2] < came[earlier][2]))]
    values = {value for value, _ in late}
    explained = len(values) <= len(unknown) and any(
        all(chosen[value] < since for value, since in late)
        for some in permutations(unknown, len(values)) for chosen in [dict(zip(values, some, strict=True))])
    return Valid.TRUE if not late else Valid.UNKNOWN if explained else Valid.FALSE


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6))
def test_order_in_one_pass_is_order_by_each_pair(seed: int) -> None:
    chance = Random(seed)
    run, number, lost = Run(), 0, 0
    stored: list[Any] = []
    open_now: dict[int, tuple[str, Any]] = {}
    processes = [0, 1, 2, 3]
    for _ in range(chance.randrange(8, 40)):
        at = chance.randrange(4)
        process = processes[at]
        if process in open_now:
            f, value = open_now.pop(process)
            if f == "dequeue" and lost < 5 and chance.random() < 0.25:
                lost += 1
                processes[at] += 4
                run.add(INFO, f, None, process)
                continue
            if f == "dequeue":
                value = [stored.pop(min(chance.choice((0, 0, 0, 1)), len(stored) - 1))
                         for _ in range(chance.randrange(3)) if stored]
            else:
                stored.append(value)
            run.add(OK, f, value, process)
            continue
        f = "send" if at < 2 else "dequeue"
        number += f == "send"
        open_now[process] = f, f"m{number}" if f == "send" else None
        run.add(INVOKE, f, open_now[process][1], process)
    verdict = run.verdict(ordered=True)
    said = Valid.FALSE if "order" in promises(verdict) else Valid.UNKNOWN if "out of" in verdict.why else Valid.TRUE
    assert said is slow_order(run.events)
