"""What controllers say of groups: each promise broken in turn, histories that keep them all, and mutants."""

from __future__ import annotations

import inspect
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checkers import controllers
from harness.checkers.controllers import FUNCTIONS, PROMISES, check
from harness.checkers.verdict import Valid, Verdict
from harness.histories.events import FAIL, INFO, INVOKE, OK, Event, HistoryError


class Run:
    """A history that is written as it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, kind: str, f: str, value: Any, process: int = 0, key: Any = "g0") -> Run:
        at = len(self.events)
        self.events.append(Event(at, kind, process, f, key, value, at * 1_000_000))
        return self

    def begin(self, f: str, value: Any = None, process: int = 9) -> Run:
        return self.add(INVOKE, f, value, process)

    def end(self, f: str, value: Any = None, process: int = 9, kind: str = OK) -> Run:
        return self.add(kind, f, value, process)

    def did(self, f: str, value: Any, told: Any, kind: str = OK) -> Run:
        return self.begin(f, value, 0).end(f, told, 0, kind)

    def ids(self, *ids: int) -> Run:
        for each in ids:
            self.did("apply-id", {"id": each, "code": f"c{each}"}, {"id": each})
        return self

    def read(self, *told: Any, f: str = "replica-info") -> Run:
        return self.did(f, None, group(*told))

    def elect(self, broker: int, *told: Any, designate: bool = False) -> Run:
        return self.did("elect", {"broker": broker, "designate": designate}, group(*told))

    def alter(self, broker: int, epoch: int, members: list[int], set_epoch: int, told: Any = None,
              kind: str = OK) -> Run:
        told = {"set": members, "set_epoch": set_epoch + 1} if told is None and kind == OK else told
        return self.did("alter", alter(broker, epoch, members, set_epoch), told, kind)

    def verdict(self) -> Verdict:
        return check(self.events)


def group(master: int | None, epoch: int | None, members: list[int], set_epoch: int) -> dict[str, Any]:
    return {"master": master, "master_epoch": epoch, "set": members, "set_epoch": set_epoch}


def alter(broker: int, epoch: int, members: list[int], set_epoch: int) -> dict[str, Any]:
    return {"broker": broker, "master_epoch": epoch, "set": members, "set_epoch": set_epoch}


def begun() -> Run:
    """Three brokers, of which the first is master, and two are in sync."""
    return Run().ids(1, 2, 3).elect(1, 1, 1, [1], 1).alter(1, 1, [1, 2], 1)


METADATA = {"node": "n1", "leader": "n1", "leads": True, "peers": ["n1", "n2", "n3"]}
BROKEN: list[tuple[Run, str]] = [
    (begun().elect(2, 2, 2, [2], 3).read(1, 1, [1, 2], 3), "epochs"),
    (Run().ids(1).elect(1, 1, 2, [1], 2).read(1, 2, [], 1), "epochs"),
    (begun().read(1, 1, [1], 1), "visible"),
    (begun().read(2, 1, [1, 2], 2), "master"),
    (begun().elect(2, 2, 1, [2], 3), "master"),
    (begun().read(1, 1, [1], 2), "set"),
    (begun().begin("replica-info").elect(2, 2, 2, [2], 3).end("replica-info", group(1, 1, [1], 4)), "pairs"),
    (begun().begin("replica-info").elect(2, 2, 5, [2], 3).end("replica-info", group(1, 6, [1], 2)), "pairs"),
    (begun().elect(2, 2, 2, [2], 3).alter(1, 1, [1, 3], 3), "fenced"),
    (begun().alter(1, 1, [1, 3], 2).alter(1, 1, [1], 2), "fenced"),
    (begun().alter(1, 1, [1, 3], 2, {"set": [1, 2], "set_epoch": 2}), "accepted"),
    (begun().alter(1, 1, [1, 2, 3], 2, {"set": [1, 2, 3], "set_epoch": 4}), "accepted"),
    (begun().elect(3, 2, 2, [2], 3, designate=True), "designated"),
    (begun().elect(2, 9, 2, [9], 3), "phantom"),
    (begun().read(1, 1, [1, 2, 3], 3), "phantom"),
    (begun().begin("alter", alter(1, 1, [1, 3], 2)).read(1, 1, [1, 2, 3], 3), "phantom"),
    (begun().did("next-id", None, {"next": 6}), "phantom"),
    (begun().alter(1, 1, [1, 3], 2, kind=FAIL).read(1, 1, [1, 3], 3), "denied"),
    (Run().ids(1).did("apply-id", {"id": 1, "code": "other"}, {"id": 1}), "bound"),
    (Run().ids(1).did("apply-id", {"id": 1, "code": "c1"}, {"refused": 2014, "next": 2}, FAIL), "bound"),
    (Run().ids(1).did("register", {"broker": 1, "address": "a"}, {"refused": 2010}, FAIL), "bound"),
    (Run().ids(1, 2).did("next-id", None, {"next": 2}), "next"),
    (Run().ids(1, 2).did("apply-id", {"id": 1, "code": "x"}, {"refused": 2014, "next": 2}, FAIL), "next"),
    (begun().did("metadata", None, {**METADATA, "node": "n2"}), "leader"),
    (begun().did("metadata", None, {**METADATA, "node": "n9", "leader": "n9"}), "leader"),
]


@pytest.mark.parametrize(("run", "promise"), BROKEN, ids=[f"{promise}-{at}" for at, (_, promise) in enumerate(BROKEN)])
def test_each_promise_is_broken(run: Run, promise: str) -> None:
    verdict = run.verdict()
    assert verdict.valid is Valid.FALSE
    assert promise in {each.promise for each in verdict.broken}
    assert all(each.words for each in verdict.broken)


def test_there_is_a_broken_history_of_every_promise() -> None:
    assert {promise for _, promise in BROKEN} == set(PROMISES)


HOLDS: list[Run] = [
    begun().read(1, 1, [1, 2], 2).read(1, 1, [1, 2], 2, f="sync-state"),
    begun().begin("replica-info").alter(1, 1, [1, 2, 3], 2).end("replica-info", group(1, 1, [1, 2], 2)),  # in between
    begun().begin("alter", alter(1, 1, [1, 3], 2)).end("alter", None, kind=INFO).read(1, 1, [1, 3], 3),
    begun().begin("alter", alter(1, 1, [1, 3], 2)).end("alter", None, kind=INFO).read(1, 1, [1, 2], 2),
    begun().begin("alter", alter(1, 1, [1, 3], 2)).read(1, 1, [1, 3], 3),  # it never ended
    begun().read(None, 2, [1, 2], 2).elect(2, 2, 3, [2], 3),  # the lost master was recorded as none
    begun().did("register", {"broker": 1, "address": "a"}, group(None, None, [1, 2], 2)),  # it is not known to live
    begun().alter(1, 1, [1, 2], 2, {"set": [1, 2], "set_epoch": 2}),  # the accepted one already
    begun().alter(1, 1, [1, 3], 1, {"refused": 2001}, FAIL).read(1, 1, [1, 2], 2),
    begun().did("apply-id", {"id": 1, "code": "x"}, {"refused": 2014, "next": 4}, FAIL),
    begun().did("apply-id", {"id": 1, "code": "c1"}, None, FAIL),  # it reached nobody
    begun().did("apply-id", {"id": 4, "code": "x"}, None, INFO).did("next-id", None, {"next": 5}),
    begun().did("rest", {"broker": 1}, {"broker": 1}).did("metadata", None, METADATA),
    begun().elect(3, 3, 2, [3], 3, designate=True),
]


@pytest.mark.parametrize("run", HOLDS, ids=range(len(HOLDS)))
def test_what_may_be_is_no_breach(run: Run) -> None:
    verdict = run.verdict()
    assert verdict.valid is Valid.TRUE, verdict.broken
    assert verdict.asked["compared"] >= 1


def test_groups_are_apart() -> None:
    run = begun()
    run.add(INVOKE, "replica-info", None, key="g1").add(OK, "replica-info", group(None, 0, [], 0), key="g1")
    assert run.verdict().valid is Valid.TRUE


@pytest.mark.parametrize("run", [
    Run(), Run().did("next-id", None, {"next": 1}), Run().did("metadata", None, METADATA),
    Run().did("replica-info", None, None, FAIL)])
def test_what_was_not_asked_is_unknown(run: Run) -> None:
    assert run.verdict().valid is Valid.UNKNOWN


@pytest.mark.parametrize(("value", "words"), [
    ("much", "an object is wanted"), ({"set": 3}, "a list of ids is wanted"),
    ({"set": [True], "set_epoch": 1}, "a list of ids is wanted"), ({"set": [1]}, "has no set_epoch"),
    ({"set": [1], "set_epoch": True}, "a whole number is wanted")])
def test_values_of_others_are_refused_in_words(value: Any, words: str) -> None:
    with pytest.raises(HistoryError, match=words):
        Run().did("replica-info", None, value).verdict()


def test_a_breach_names_both_answers_and_the_shortest_beginning() -> None:
    verdict = begun().read(1, 1, [1], 1).read(1, 1, [1, 2], 2).verdict()
    assert verdict.prefix == len(begun().read(1, 1, [1], 1).events)
    assert verdict.broken[0].words == (
        "replica-info (event 11) tells set epoch 1, and alter (event 9) had told 2 before it began")


# --- a group that keeps its promises -----------------------------------------------------------------------------


@attrs.define
class Model:
    """A broker group as it is: operations happen at one moment each, and controllers elect unasked."""

    codes: dict[int, str] = attrs.field(factory=dict)
    master: int | None = None
    epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @property
    def following(self) -> int:
        return max(self.codes, default=0) + 1

    def told(self) -> dict[str, Any]:
        return group(self.master, self.epoch, sorted(self.members), self.set_epoch)

    def elected(self, master: int) -> None:
        self.master, self.epoch, self.members = master, self.epoch + 1, frozenset({master})
        self.set_epoch += 1

    def lost(self) -> None:
        self.master, self.epoch = None, self.epoch + 1

    def do(self, f: str, value: Any) -> tuple[str, Any]:
        """What happens, and what is told of it."""
        if f == "next-id":
            return OK, {"next": self.following}
        if f == "apply-id":
            if value["id"] == self.following:
                self.codes[value["id"]] = value["code"]
            fits = self.codes.get(value["id"]) == value["code"]
            return (OK, {"id": value["id"]}) if fits else (FAIL, {"refused": 2014, "next": self.following})
        if f == "register" and value["broker"] not in self.codes:
            return FAIL, {"refused": 2010}
        if f == "elect":
            if value["broker"] not in self.codes:
                return FAIL, {"refused": 2010}
            if self.master is None or (value["designate"] and value["broker"] != self.master):
                self.elected(value["broker"])
        if f == "alter":
            if (value["broker"], value["master_epoch"], value["set_epoch"]) != (
                    self.master, self.epoch, self.set_epoch) or not set(value["set"]) <= self.codes.keys():
                return FAIL, {"refused": 2001}
            if frozenset(value["set"]) != self.members:
                self.members, self.set_epoch = frozenset(value["set"]), self.set_epoch + 1
            return OK, {"set": sorted(self.members), "set_epoch": self.set_epoch}
        return OK, self.told()


def drawn(chance: Random, model: Model) -> tuple[str, Any]:
    """An operation that somebody may ask for."""
    broker = chance.randint(1, model.following)
    f = chance.choice(("next-id", "apply-id", "register", "elect", "alter", "alter", "replica-info", "sync-state"))
    if f == "apply-id":
        return f, {"id": broker, "code": f"c{chance.randint(1, 3)}"}
    if f == "register":
        return f, {"broker": broker, "address": "a"}
    if f == "elect":
        return f, {"broker": broker, "designate": chance.random() < 0.5}
    if f == "alter":
        late = chance.choice((0, 0, 0, 1))
        others = [each for each in model.codes if chance.random() < 0.6]
        mine = model.master or broker
        return f, alter(mine, model.epoch, sorted({mine, *others}), max(model.set_epoch - late, 0))
    return f, None


def kept(seed: int, steps: int = 60) -> Run:
    """A history of four clients, each of whose operations happens between its begin and its end, later, or never."""
    chance, run, model = Random(seed), Run(), Model()
    model.codes[1] = "c1"
    run.did("apply-id", {"id": 1, "code": "c1"}, {"id": 1})
    model.elected(1)
    waiting: dict[int, tuple[str, Any]] = {}
    done: dict[int, tuple[str, str, Any]] = {}
    astray: list[tuple[str, Any]] = []
    processes = list(range(1, 5))
    for _ in range(steps):
        process = chance.choice(processes)
        if process in waiting:
            f, _ = waiting[process]
            if chance.random() < 0.1:  # nobody knows
                run.end(f, None, process, INFO)
                astray.append(waiting.pop(process))
                processes[processes.index(process)] = max(processes) + 1
            else:
                kind, told = model.do(*waiting.pop(process))
                done[process] = f, kind, told
        elif process in done:
            f, kind, told = done.pop(process)
            run.end(f, told, process, kind)
        else:
            waiting[process] = drawn(chance, model)
            run.begin(*waiting[process], process)
        if astray and chance.random() < 0.1:
            model.do(*astray.pop(chance.randrange(len(astray))))
        if chance.random() < 0.03:
            chance.choice((model.lost, lambda: model.elected(chance.choice(list(model.codes)))))()
    return run


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_a_group_that_keeps_its_promises_is_never_accused(seed: int) -> None:
    verdict = kept(seed).verdict()
    assert verdict.valid is not Valid.FALSE, verdict.broken


def spoilt(run: Run, chance: Random) -> tuple[Run, str] | None:
    """One answer changed into one that cannot be, and the promise that it breaks; None where none fits."""
    told: dict[int, dict[str, Any]] = {event.index: event.value for event in run.events
                                       if event.type == OK and event.f in {"replica-info", "sync-state"}}
    if len(told) < 2:
        return None
    first, last = min(told), max(told)
    if last - first < 4 or not any(
            event.type == INVOKE and event.index > first and event.process == run.events[last].process
            for event in run.events[:last]):
        return None
    before, changed = told[first], dict(told[last])
    kind = chance.choice(("epochs", "set", "phantom"))
    if kind == "epochs":
        changed |= {"master_epoch": before["master_epoch"] - 1, "set_epoch": before["set_epoch"] - 1}
    elif kind == "set":
        changed |= {"set_epoch": before["set_epoch"], "set": [*before["set"], max(before["set"], default=0) + 1]}
    else:
        changed["set"] = [*changed["set"], 99]
    made = Run()
    made.events = [event._replace(value=changed) if event.index == last else event for event in run.events]
    return made, kind


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_an_answer_that_cannot_be_is_found(seed: int) -> None:
    found = spoilt(kept(seed), Random(seed))
    if found is not None:
        assert found[0].verdict().valid is Valid.FALSE, found[1]


def test_the_histories_ask_of_everything() -> None:
    verdicts = [kept(seed).verdict() for seed in range(60)]
    for what in ("alters acknowledged", "compared", "ids bound", "master epochs"):
        assert sum(each.asked[what] for each in verdicts) > 60, what
    spoilt_ones = [each for seed in range(60) if (each := spoilt(kept(seed), Random(seed))) is not None]
    assert len(spoilt_ones) > 30 and len({kind for _, kind in spoilt_ones}) == 3
    assert {event.f for seed in range(9) for event in kept(seed).events} == FUNCTIONS - {"metadata", "rest"}


# --- mutants -----------------------------------------------------------------------------------------------------

MUTANTS = {
    "floors are those of the end": ("Open(event, group.floor, bound_to)", "Open(event, Floor(), bound_to)"),
    "master epochs may go back": ('("master epoch", told.master_epoch, floor.master_epoch, floor.of_master),',
                                  '("master epoch", None, floor.master_epoch, floor.of_master),'),
    "set epochs may go back": ('("set epoch", told.set_epoch, floor.set_epoch, floor.of_set),\n                ("next',
                               '("set epoch", None, floor.set_epoch, floor.of_set),\n                ("next'),
    "next ids may go back": ('("next id", told.next_id, floor.next_id', '("next id", None, floor.next_id'),
    "two masters": ("        if had[0] != master:\n", "        if False:\n"),
    "two sets": ("        if had[0] != found:\n", "        if False:\n"),
    "pairs below": ("(set_epoch < high) if other < epoch", "False if other < epoch"),
    "pairs above": ("else (set_epoch > low)", "else False"),
    "stale senders": ("            if sent < floor:\n", "            if False:\n"),
    "other sets are acknowledged": ("told.members != wanted or", "False or"),
    "other epochs are acknowledged": ("or told.set_epoch not in (known, known + 1)", ""),
    "designations are not looked at": ('if event.f == ELECT and fields(asked.event).get("designate") and',
                                       "if False and"),
    "masters from nowhere": ("if not 0 < master <= group.asked_id:", "if False:"),
    "sets from nowhere": ("if len(found) < 2 or any(", "if True or any("),
    "who was refused may have been heard": ("group.denied", "group.masters"),
    "strangers in sets": ("if not 0 < each <= group.asked_id)", "if False)"),
    "next ids from nowhere": ("told.next_id > group.asked_id + 1", "False"),
    "one id, two codes": ("        if had[0] != code:\n", "        if False:\n"),
    "ids are forgotten": ("if asked.bound_to is not None and own:", "if False:"),
    "registrations are forgotten": ('event.value["refused"] == NO_SUCH_ID if', "False if"),
    "strange leaders": ("leader not in peers", "False"),
    "two leaders": ('leader != value.get("node")', "False"),
    "any alter makes a set": ("and each.members == found", ""),
    "alters of any epoch make a set": ("group.alters.get(epoch - 1, ())",
                                       "[each for all_of in group.alters.values() for each in all_of]"),
    "unknown counts as refused": ("        elif event.type == FAIL:\n", "        else:\n"),
    "nobody was asked, and all holds": ('if not self.counts["compared"]:', "if False:"),
    "an alter's numbers are unknown": ("elif event.f == ALTER:\n            self._altered(asked, event)",
                                       "elif event.f == ALTER:\n            pass"),
    "only elections raise the floor": ("        group.floor = group.floor.above(told)\n\n    def _not_back",
                                       "        group.floor = group.floor\n\n    def _not_back"),
    "elections without a name are masters": ("if told.master is not None and told.master_epoch is not None:",
                                             "if told.master_epoch is not None:"),
    "an acknowledged id raises nothing": (
        "group.floor = group.floor.above(GroupAnswer(words(event), event.f, next_id=broker_id + 1))", "pass"),
}


def judged(judge: Any) -> list[Any]:
    """All that the histories above come to."""
    found: list[Any] = []
    for run in [*(run for run, _ in BROKEN), *HOLDS, Run().did("next-id", None, {"next": 1})]:
        try:
            verdict = judge(run.events)
            found.append((verdict.valid.value, sorted(each.promise for each in verdict.broken)))
        except Exception as error:  # noqa: BLE001 - however a mutant fails, it is noticed
            found.append(type(error).__name__)
    return found


def test_the_source_as_it_is_says_the_same() -> None:
    """So what a mutant says otherwise is the mutant's."""
    same: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(inspect.getsource(controllers), "mutant", "exec"), same)
    assert judged(same["check"]) == judged(check)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_caught(mutant: str) -> None:
    before, after = MUTANTS[mutant]
    source = inspect.getsource(controllers)
    assert source.count(before) >= 1, "the mutant changes something"
    spoiled: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(source.replace(before, after), "mutant", "exec"), spoiled)
    assert judged(spoiled["check"]) != judged(check)
