"""Each property objects to what it is about, and says so under its name."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from controller.metadata.commands import (
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    CleanBrokerData,
    DropEligible,
    ElectMaster,
    ImportGroups,
    LiveReplica,
    Observation,
    RegisterBroker,
    Trigger,
)
from controller.metadata.events import Applied
from controller.metadata.groups import BrokerGroup, Replica
from controller.metadata.invariants import INVARIANTS, Checker, History, Step
from controller.metadata.outcomes import (
    Altered,
    BrokerIdApplied,
    BrokerIdRefused,
    Cleaned,
    Elected,
    EligibleDropped,
    Imported,
    NotElected,
    Outcome,
    Registered,
)
from raft.invariants import InvariantViolation
from tests.controller.metadata.fleet import CONTROLLER, GATED, KEY, led, registered, seen

THREE = {i: Replica(f"a:{i}", f"a:{i};1") for i in (1, 2, 3)}
LED = BrokerGroup(THREE, 4, frozenset({1, 2}), 5, 1, 3)
ELECT = ElectMaster(term=1, key=KEY, trigger=CONTROLLER, broker_id=None, observation=seen(2, 3))
ALTER = AlterSyncStateSet(term=1, key=KEY, broker_id=1, master_epoch=3, sync_state_set=frozenset({1, 2, 3}),
                          sync_state_set_epoch=5, observation=seen(1, 2, 3))
APPLY = ApplyBrokerId(term=1, key=KEY, broker_id=4, check_code="a:4;1")
CLEAN = CleanBrokerData(term=1, key=KEY, broker_ids=frozenset({3}), observation=seen(1, 2))
DROP = DropEligible(term=1, key=KEY, broker_id=1, master_epoch=3)


def elected(master: int, **more: Any) -> Elected:
    fields: dict[str, Any] = {
        "key": KEY, "master": master, "address": "a:1", "master_epoch": 4, "sync_state_set": frozenset({master}),
        "sync_state_set_epoch": 6, "members": {}, "previous": 1, "clean": True}
    return Elected(**(fields | more))


def won(master: int, **more: Any) -> BrokerGroup:
    """``LED`` after this one was elected."""
    fields: dict[str, Any] = {
        "master": master, "master_epoch": 4, "sync_state_set": frozenset({master}), "sync_state_set_epoch": 6}
    return attrs.evolve(LED, **(fields | more))


ALTERED = Altered(key=KEY, changed=True, sync_state_set=frozenset(), sync_state_set_epoch=6)
GROWN = attrs.evolve(LED, sync_state_set=frozenset({1, 2, 3}), sync_state_set_epoch=6)
NOBODY = NotElected(key=KEY, master_epoch=4, changed=True)
BOUND = BrokerIdApplied(key=KEY, broker_id=4, next_broker_id=5, changed=True)
FOUR = {**THREE, 4: Replica("a:4", "a:4;1")}
CLEANED = Cleaned(key=KEY, changed=True, removed_ids=frozenset({3}), group_removed=False, lost_master=False)
TWO = {1: THREE[1], 2: THREE[2]}
REJECTED = BrokerIdRefused(key=KEY, next_broker_id=4)

LIVED = attrs.evolve(LED, replicas={**THREE, 1: Replica("a:1", "a:1;1", life=7)})
COME = RegisterBroker(term=1, key=KEY, broker_id=1, address="b:1", life=9, instead_of=("a:1", None),
                      observation=seen(1, 2))
CAME = Registered(key=KEY, broker_id=1, changed=True, master=None, address=None, master_epoch=None,
                  sync_state_set=LED.sync_state_set, sync_state_set_epoch=5)

WRONG: list[tuple[str, BrokerGroup, AnyCommand, Outcome, BrokerGroup]] = [
    ("INV_C2", LED, ELECT, elected(2), won(2, sync_state_set=frozenset({1}))),
    ("INV_C3", LED, ELECT, elected(2), won(2, master_epoch=5)),
    ("INV_C3", LED, ELECT, elected(2), won(2, sync_state_set_epoch=5)),
    ("INV_C3", LED, ELECT, NOBODY, attrs.evolve(LED, master=None)),
    ("INV_C3", LED, ALTER, ALTERED, attrs.evolve(GROWN, sync_state_set_epoch=5)),
    ("INV_C3", LED, ALTER, ALTERED, attrs.evolve(GROWN, master_epoch=4)),
    ("INV_C3", LED, ImportGroups(term=1, groups=()), Imported(keys=(), changed=True),
     attrs.evolve(LED, master_epoch=2)),
    ("INV_C4", LED, ALTER, ALTERED, attrs.evolve(GROWN, sync_state_set=frozenset({1, 9}))),
    ("INV_C4", LED, CLEAN, CLEANED, attrs.evolve(
        LED, replicas=TWO, sync_state_set=frozenset(), sync_state_set_epoch=6, master=None, master_epoch=4)),
    ("INV_C5", LED, attrs.evolve(ALTER, broker_id=2), ALTERED, GROWN),
    ("INV_C5", LED, attrs.evolve(ALTER, master_epoch=2), ALTERED, GROWN),
    ("INV_C5", LED, attrs.evolve(ALTER, sync_state_set_epoch=4), ALTERED, GROWN),
    ("INV_C5", LED, attrs.evolve(ALTER, observation=seen(1, 2)), ALTERED, GROWN),
    ("INV_C5", LED, attrs.evolve(ALTER, sync_state_set=frozenset({1})), ALTERED, GROWN),
    ("INV_C6", LED, ELECT, elected(2), won(2, sync_state_set=frozenset({1, 2}))),
    ("INV_C7", LED, ELECT, elected(3), won(3)),
    ("INV_C8", LED, attrs.evolve(ELECT, observation=seen(1, 2)), elected(2), won(2)),
    ("INV_C8", LED, attrs.evolve(ELECT, trigger=Trigger.BROKER, broker_id=2, observation=seen(1, 2)),
     NotElected(key=KEY, master_epoch=3), LED),
    ("INV_C8", LED, attrs.evolve(ELECT, observation=seen(1, 2)), NotElected(key=KEY, master_epoch=3), LED),
    ("INV_C9", LED, attrs.evolve(ELECT, observation=seen(3)), elected(2), won(2)),
    ("INV_C9", LED, attrs.evolve(ELECT, observation=seen(b2=LiveReplica(learner=True))), elected(2), won(2)),
    ("INV_C9", LED, attrs.evolve(ELECT, unclean=True), elected(3), won(3)),
    ("INV_C9", attrs.evolve(LED, sync_state_set=frozenset({1, 2, 3})),
     attrs.evolve(ELECT, observation=seen(2, b3=LiveReplica(max_offset=2**33))), elected(2), won(2)),
    ("INV_C10", LED, APPLY, BOUND, attrs.evolve(LED, replicas={**THREE, 0: FOUR[4]})),
    ("INV_C11", LED, APPLY, BOUND, LED),
    ("INV_C11", LED, attrs.evolve(APPLY, broker_id=3, check_code="a:3;1"), REJECTED, LED),
    ("INV_C11", LED, APPLY, REJECTED, attrs.evolve(LED, replicas=FOUR, next_broker_id=5)),
    ("INV_C11", LED, APPLY, BOUND, attrs.evolve(
        LED, replicas={**FOUR, 3: Replica("b:3", "a:3;1")}, next_broker_id=5)),
    ("INV_C12", LED, APPLY, BOUND, attrs.evolve(LED, replicas=FOUR)),
    ("INV_C12", LED, CLEAN, CLEANED, attrs.evolve(LED, replicas=TWO, next_broker_id=3)),
    ("INV_C19", LED, attrs.evolve(CLEAN, observation=seen(3)), CLEANED, attrs.evolve(LED, replicas=TWO)),
    ("INV_C19", LED, attrs.evolve(CLEAN, broker_ids=frozenset({2})), CLEANED, attrs.evolve(LED, replicas=TWO)),
    ("INV_C19", LED, CLEAN, CLEANED, LED),
    ("INV_C19", LED, CLEAN, attrs.evolve(CLEANED, group_removed=True), attrs.evolve(LED, replicas=TWO)),
    ("INV_C22", attrs.evolve(LED, master=None), CLEAN, NOBODY, attrs.evolve(LED, master=None, master_epoch=4)),
    ("INV_C23", attrs.evolve(LED, vacant=True), DROP, EligibleDropped(key=KEY), LED),
    ("INV_C23", LED, COME, CAME, attrs.evolve(LED, replicas={**THREE, 1: Replica("b:1", "a:1;1")})),
    ("INV_C23", LIVED, COME, CAME, attrs.evolve(LIVED, replicas={**THREE, 1: Replica("a:1", "a:1;1", life=9)})),
    ("INV_C24", attrs.evolve(LED, replicas={**THREE, 2: Replica("a:2", "a:2;1", life=8)}),
     attrs.evolve(ELECT, observation=seen(b2=LiveReplica(life=7, address="a:2"))), elected(2, address="a:2", life=8),
     won(2)),
    ("INV_C24", LED, ELECT, elected(2, address="b:2"), won(2)),
    ("INV_C24", LIVED, COME, CAME, LED),
    ("INV_ELIGIBLE", LED, DROP, EligibleDropped(key=KEY, changed=True), attrs.evolve(LED, eligible=frozenset({3}))),
    ("INV_ELIGIBLE", LED, ELECT, elected(2), won(2, eligible=frozenset({3}))),
]


@pytest.mark.parametrize(("name", "before", "command", "outcome", "after"), WRONG)
def test_each_objects(
    name: str, before: BrokerGroup, command: AnyCommand, outcome: Outcome, after: BrokerGroup
) -> None:
    with pytest.raises(InvariantViolation) as caught:
        INVARIANTS[name](Step(KEY, before, command, outcome, after), History())
    assert caught.value.id == name


def test_an_outcome_must_tell_of_a_change() -> None:
    hidden = Applied(1, DROP, EligibleDropped(key=KEY), ((KEY, LED, attrs.evolve(LED, eligible=frozenset({3}))),))
    with pytest.raises(InvariantViolation, match="INV_C13"):
        Checker()(hidden)


@pytest.mark.parametrize(("name", "before", "after"), [
    ("INV_C1", LED, attrs.evolve(LED, master=2)),
    ("INV_C1", LED, attrs.evolve(LED, master=None)),
    ("INV_C10", LED, attrs.evolve(LED, replicas={**THREE, 3: Replica("a:3", "b:3;1")})),
    ("INV_C10", attrs.evolve(LED, replicas=TWO), LED),
    ("INV_C12", attrs.evolve(LED, replicas=TWO), attrs.evolve(LED, replicas=TWO, next_broker_id=3)),
    ("INV_C23", LIVED, attrs.evolve(LED, replicas={**THREE, 1: Replica("a:1", "a:1;1", life=9)})),
], ids=["two masters", "a master and none", "bound anew", "back from a clean", "next id in use before", "two lives"])
def test_what_was_is_remembered(name: str, before: BrokerGroup, after: BrokerGroup) -> None:
    history = History()
    dropped = EligibleDropped(key=KEY, changed=True)
    history.remember(Step(KEY, LED, DROP, dropped, LED if name != "INV_C23" else LIVED))
    with pytest.raises(InvariantViolation) as caught:
        INVARIANTS[name](Step(KEY, before, DROP, dropped, after), history)
    assert caught.value.id == name


def test_every_property_is_asked_in_an_ordinary_life() -> None:
    fleet = led()
    fleet.apply_id(3)
    fleet.apply_id(3, "other:1;1")
    fleet.lost(1, 2, 3)
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    fleet.lost()
    fleet.clean({1})
    fleet.elect(Trigger.BROKER, 3, Observation({3: GATED}))
    for life in (7, 8):
        fleet.register(3, life=life)
    assert set(INVARIANTS) == {name for name, count in fleet.checker.counts.items() if count}


def test_a_question_without_an_answer_is_not_counted() -> None:
    fleet = registered(1)
    assert fleet.checker.counts["INV_C3"] == 2 and not fleet.checker.counts["INV_C6"]
    assert not fleet.checker.counts["INV_C2"] and not fleet.checker.counts["INV_ELIGIBLE"]
