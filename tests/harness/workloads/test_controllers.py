"""What brokers ask of controllers: a client gets an id, registers, and asks from what answers told."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from harness.checkers.controllers import FUNCTIONS, check
from harness.checkers.verdict import Valid
from harness.histories.events import INVOKE, Event
from harness.workloads.controllers import ControllerLoad
from harness.workloads.workload import LoadOp, LoadOutcome, Recipe
from tests.harness.checkers.test_controllers import Model

CLIENTS = 4


def load_of(seed: int = 1, **args: object) -> ControllerLoad:
    return ControllerLoad(Recipe(CLIENTS, 2, Random(seed), args))


def played(seed: int, steps: int, **args: object) -> tuple[list[LoadOp], list[Event]]:
    """What clients ask for, one after the other, of groups that keep their promises."""
    load, groups = load_of(seed, **args), {"g0": Model(), "g1": Model()}
    asked: list[LoadOp] = []
    events: list[Event] = []
    metadata = {"node": "n1", "leader": "n1", "leads": True, "peers": ["n1"]}
    for number in range(steps):
        op = load.next(number % CLIENTS)
        assert op is not None
        plain: tuple[str, Any] = ("ok", metadata if op.f == "metadata" else op.value)
        kind, told = plain if op.f in {"metadata", "rest"} else groups[op.key].do(op.f, op.value)
        asked.append(op)
        for each, value in ((INVOKE, op.value), (kind, told)):
            events.append(Event(len(events), each, number % CLIENTS, op.f, op.key, value, len(events)))
        load.seen(number % CLIENTS, op, LoadOutcome(kind, told))
    return asked, events


def test_everything_is_asked_and_alters_are_mostly_accepted() -> None:
    asked, events = played(3, 2_000)
    assert {op.f for op in asked} == FUNCTIONS
    verdict = check(events)
    assert verdict.valid is Valid.TRUE, verdict.broken
    assert verdict.asked["ids bound"] >= 2 * CLIENTS and verdict.asked["master epochs"] > 20
    alters = Counter(event.type for event in events if event.f == "alter" and event.type != INVOKE)
    assert alters["ok"] > alters["fail"] > 10


def test_a_client_first_gets_an_id_and_registers() -> None:
    load = load_of()
    first = load.next(0)
    assert first is not None and first.f == "next-id"
    for key in ("g0", "g1"):
        load.seen(0, LoadOp("next-id", key), LoadOutcome("ok", {"next": 4}))
    applied = load.next(0)
    assert applied is not None
    assert (applied.f, applied.value) == ("apply-id", {"id": 4, "code": "10.79.0.0:10911;0"})
    load.seen(0, applied, LoadOutcome("info"))
    again = next(op for _ in range(99) if (op := load.next(0)) is not None and op.key == applied.key)
    assert again == applied, "the same once more, as nobody knows"
    load.seen(0, applied, LoadOutcome("fail", {"refused": 2014, "next": 7}))
    other = next(op for _ in range(99) if (op := load.next(0)) is not None and op.key == applied.key)
    assert other.value["id"] == 7
    load.seen(0, other, LoadOutcome("ok", {"id": 7}))
    registers = next(op for _ in range(99) if (op := load.next(0)) is not None and op.key == applied.key)
    assert (registers.f, registers.value["broker"]) == ("register", 7)


def test_old_answers_teach_nothing() -> None:
    asked, _ = played(5, 400, stale=0.0, strangers=0.0, rests=0.0, elects=0.0)
    alters = [op.value for op in asked if op.f == "alter"]
    for key in ("g0", "g1"):
        epochs = [op.value["set_epoch"] for op in asked if op.f == "alter" and op.key == key]
        assert epochs == sorted(epochs) and len(set(epochs)) > 10
    assert all(each["broker"] in each["set"] for each in alters)


def test_at_the_end_each_group_is_read_in_each_way() -> None:
    assert [(op.f, op.key) for op in load_of().last()] == [
        (f, key) for key in ("g0", "g1") for f in ("replica-info", "sync-state", "next-id")]
