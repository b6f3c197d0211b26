"""Generators of operations: a seed repeats them, checkers know all that they ask, and users' own are found."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from harness.checkers.chosen import fitting
from harness.checkers.queues import QueueCheck
from harness.checkers.verdict import Valid
from harness.histories.events import Event
from harness.targets.fields import FormatError
from harness.workloads.chosen import OURS, check_args, find
from harness.workloads.queues import DelayedLoad, OrderedLoad
from harness.workloads.workload import LoadOp, LoadOutcome, Recipe

ARGS: dict[str, Any] = {"cas": 0.5, "txn": 0.3, "by_key": True, "read_all": True}


def recipe(seed: int = 1, **args: object) -> Recipe:
    return Recipe(3, 2, Random(seed), args)


def asked(name: str, seed: int, count: int = 60, **args: object) -> list[LoadOp]:
    """What three clients ask, all of which is answered."""
    load = find(name)(recipe(seed, **args))
    found = []
    for number in range(count):
        op = load.next(number % 3)
        if op is not None:
            found.append(op)
            load.seen(number % 3, op, LoadOutcome("ok"))
    last = load.last()
    op = next(last, None)
    while op is not None:
        found.append(op)
        try:
            op = last.send(LoadOutcome("ok"))
        except StopIteration:
            break
    return found


@pytest.mark.parametrize("name", OURS)
def test_a_seed_repeats_it_and_a_checker_knows_it(name: str) -> None:
    one = asked(name, 5, **ARGS)
    assert one == asked(name, 5, **ARGS) != asked(name, 6, **ARGS)
    assert fitting({op.f for op in one})
    assert len({op.key for op in one if op.key is not None}) == 2


def test_values_are_written_once() -> None:
    written = [op.value for op in asked("register", 3, 200) if op.f == "write"]
    assert len(set(written)) == len(written) > 50


def test_a_compare_and_set_begins_from_what_was_read() -> None:
    load = find("register")(recipe(reads=0.0, cas=1.0))
    for key in ("k0", "k1"):
        load.seen(0, LoadOp("read", key), LoadOutcome("ok", 7))
    op = load.next(0)
    assert op is not None and op.f == "cas" and op.value[0] == 7


def test_who_holds_a_lock_gives_it_back() -> None:
    load = find("mutex")(recipe())
    first = load.next(0)
    assert first is not None and first.f == "acquire"
    load.seen(0, first, LoadOutcome("ok"))
    assert load.next(0) == LoadOp("release", first.key)
    load.seen(0, LoadOp("release", first.key), LoadOutcome("info"))
    again = load.next(0)
    assert again is not None and again.f == "acquire"


def test_a_drain_is_asked_until_it_is_answered() -> None:
    last = find("queue")(recipe()).last()
    assert next(last) == LoadOp("drain")
    assert last.send(LoadOutcome("info")) == LoadOp("drain")
    with pytest.raises(StopIteration):
        last.send(LoadOutcome("ok"))


def test_who_takes_a_message_away_asks_for_a_dequeue() -> None:
    assert {op.f for op in asked("ordered-queue", 1, dequeue=True)} == {"send", "dequeue", "drain"}
    with pytest.raises(FormatError, match="dequeue is unknown"):
        check_args("pop", {"dequeue": True}, COMMON)


def test_senders_send_and_others_receive() -> None:
    load = find("delayed-queue")(recipe(senders=1, delay_ms=[5, 5]))
    ops = [(client, op) for client in (0, 1, 2) for _ in range(9) if (op := load.next(client)) is not None]
    assert {op.f for client, op in ops if client == 0} == {"send"}
    assert {op.f for client, op in ops if client} == {"receive"}
    assert all(op.value["delay_ms"] == 5 for client, op in ops if client == 0)


def test_a_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    def __init__(self, recipe): pass\n    def next(self, client): return None\n"
                    "    def seen(self, client, op, told): pass\n    def last(self): yield from ()\n")
    assert find(f"{file}:Mine")(recipe()).next(0) is None
    check_args(f"{file}:Mine", {"anything": object()}, COMMON)
    with pytest.raises(FormatError, match="no workload is called registr; did you mean register"):
        find("registr")
    file.write_text("class Mine: pass\n")
    with pytest.raises(FormatError, match="it has no next, seen, last"):
        find(f"{file}:Mine")
    with pytest.raises(FormatError, match="cannot be loaded"):
        find(f"{tmp_path}/none.py:Mine")


COMMON = ("name", "clients", "rate", "keys", "timeout_ms")


@pytest.mark.parametrize(("name", "args", "words"), [
    ("register", {"raeds": 0.9}, r"\[workload\] raeds is unknown; did you mean reads"),
    ("register", {"raet": 9.0}, r"\[workload\] raet is unknown; did you mean rate"),
    ("mutex", {"zzz": 1}, "zzz is unknown; known are clients, keys, name, rate, timeout_ms"),
    ("queue", {"delay_ms": [1, 2]}, "delay_ms is unknown"), ("register", {"reads": "0.9"}, "a number is wanted"),
    ("queue", {"by_key": 1}, "true or false is wanted"), ("queue", {"senders": 1.5}, "a whole number is wanted"),
    *(("delayed-queue", {"delay_ms": wrong}, "wanted") for wrong in (5, [1], [2, 1], [1, 2.5], [True, 2], [-1, 2]))])
def test_an_argument_that_a_workload_does_not_take(name: str, args: dict[str, object], words: str) -> None:
    """It was passed over: the run asked for something else than the scenario says."""
    with pytest.raises(FormatError, match=words):
        check_args(name, args, COMMON)


@pytest.mark.parametrize("name", OURS)
def test_each_argument_that_a_workload_looks_at_is_declared(name: str) -> None:
    class Noting(dict[str, object]):
        def get(self, key: str, default: object = None) -> Any:
            looked_at.add(key)
            return super().get(key, default)

    for args in ({}, {"cas": 0.5, "txn": 0.3, "senders": 1, "rests": 0.5, "elects": 0.5}):
        looked_at: set[str] = set()
        load = find(name)(Recipe(3, 2, Random(1), Noting(args)))
        for number in range(300):
            if (op := load.next(number % 3)) is not None:
                load.seen(number % 3, op, LoadOutcome("ok", op.value))
        next(load.last(), None)
        for each in looked_at:
            with pytest.raises(FormatError, match="wanted"):
                check_args(name, {each: "x"}, COMMON)
    check_args(name, {}, COMMON)


def test_what_is_rolled_back_is_said() -> None:
    sent = [op.value for op in asked("transactions", 1, 200) if op.f == "send"]
    commits = sum(each["commit"] for each in sent)
    assert len({each["body"] for each in sent}) == len(sent) and 0.5 < commits / len(sent) < 0.9


@pytest.mark.parametrize(("abandons", "lost"), [(False, 0), (True, 1)])
def test_what_was_abandoned_has_to_come_again(abandons: bool, lost: int) -> None:
    """A queue that forgets what it gave out is found out by those who do not acknowledge."""
    load, check = find("pop")(recipe(sends=0.0, abandons=float(abandons))), QueueCheck()
    taken, last = load.next(0), load.last()
    drain = next(last)
    assert taken is not None and drain.value == {"invisible_ms": 2_000}
    assert taken.value == {"invisible_ms": 2_000, "most": 8}
    ops = [(LoadOp("send", "q0", "m1"), "m1"), (taken, ["m1"]), (drain, [])]
    for number, (op, value) in enumerate(ops):
        check.add(Event(2 * number, "invoke", 0, op.f, op.key, op.value, 2 * number))
        check.add(Event(2 * number + 1, "ok", 0, op.f, op.key, value, 2 * number + 1))
    assert [each.promise for each in check.verdict().broken] == ["lost"] * lost


def test_a_pop_that_nobody_saw_the_answer_of_may_have_taken_messages() -> None:
    load, check = find("pop")(recipe(sends=0.0, abandons=0.0)), QueueCheck()
    taken = load.next(0)
    assert taken is not None
    ops: list[tuple[LoadOp, str, Any]] = [
        (LoadOp("send", "q0", "m1"), "ok", "m1"), (taken, "info", None), (next(load.last()), "ok", [])]
    for number, (op, told, value) in enumerate(ops):
        check.add(Event(2 * number, "invoke", number, op.f, op.key, op.value, 2 * number))
        check.add(Event(2 * number + 1, told, number, op.f, op.key, value, 2 * number + 1))
    verdict = check.verdict()
    assert not verdict.broken and verdict.valid is Valid.UNKNOWN


def test_delayed_messages_without_a_known_time_are_not_passed() -> None:
    load = find("delayed-queue")(recipe(sends=1.0))
    sent, drain = load.next(0), next(load.last())
    assert sent is not None and 500 <= sent.value["delay_ms"] <= 3_000
    assert drain == LoadOp("drain", None, {"delay_ms": 3_000})
    assert DelayedLoad.checks == {"delayed": True}


def test_an_ordered_queue_is_judged_by_its_order() -> None:
    assert {op.key for op in asked("ordered-queue", 1) if op.f == "receive"} == {"q0", "q1"}
    assert OrderedLoad.checks == {"ordered": True}
