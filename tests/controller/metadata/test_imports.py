"""Groups that move here from another controller: ids and epochs kept, all or none."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from controller.metadata.commands import ImportedGroup, ImportGroups
from controller.metadata.groups import GroupKey, Replica
from controller.metadata.outcomes import Altered, BrokerIdRefused, Elected, Imported, Outcome, Refused, Registered
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import BROKER, KEY, Fleet, led, of, registered, seen

THERE = ImportedGroup(
    KEY, {1: Replica("10.0.0.1:10911", None), 2: Replica("10.0.0.2:10911", "10.0.0.2:10911;5"),
          4: Replica("10.0.0.4:10911", None)},
    next_broker_id=6, sync_state_set=frozenset({1, 2}), sync_state_set_epoch=17, master=1, master_epoch=9)
"""Ids 3 and 5 were cleaned there."""


def bring(fleet: Fleet, *groups: ImportedGroup) -> Outcome:
    return fleet.do(ImportGroups(term=fleet.term, groups=groups))


def test_a_group_goes_on_where_it_was() -> None:
    fleet = Fleet()
    assert of(bring(fleet, THERE), Imported).keys == (KEY,)
    assert fleet.state() == (1, 9, {1, 2}, 17) and fleet.machine.next_broker_id(KEY) == 6
    assert of(fleet.register(1, observed=seen(1)), Registered).master == 1
    assert of(fleet.alter(1, {1, 2, 4}), Altered).sync_state_set_epoch == 18
    assert of(fleet.elect(BROKER, 2, seen(2)), Elected).master_epoch == 10


def test_an_id_whose_code_is_not_known_is_nobody_else() -> None:
    fleet = Fleet()
    bring(fleet, THERE)
    assert "not known" in of(fleet.apply_id(1, "10.0.0.1:10911;5"), BrokerIdRefused).remark
    assert not fleet.apply_id(2, "10.0.0.2:10911;5").changed


def test_a_group_that_never_had_a_master() -> None:
    fleet = Fleet()
    fresh = attrs.evolve(THERE, sync_state_set=frozenset(), sync_state_set_epoch=0, master=None, master_epoch=0)
    assert of(bring(fleet, fresh), Imported).changed
    assert of(fleet.elect(BROKER, 4, seen(4)), Elected).master_epoch == 1


def test_a_group_that_java_made_unelectable_is_electable_here() -> None:
    """Master epoch 1 and an empty SyncStateSet, from a controller's election before the first master."""
    fleet = Fleet()
    bricked = attrs.evolve(THERE, sync_state_set=frozenset(), sync_state_set_epoch=0, master=None, master_epoch=1)
    assert of(bring(fleet, bricked), Imported).changed
    assert of(fleet.elect(BROKER, 2, seen(2)), Elected).master_epoch == 2


def test_an_import_may_be_repeated() -> None:
    fleet = Fleet()
    bring(fleet, THERE)
    before = fleet.group
    assert not of(bring(fleet, THERE), Imported).changed and fleet.group is before


@pytest.mark.parametrize(("other", "what"), [
    ({"master_epoch": 10}, "master epoch 9 here, 10 there"),
    ({"sync_state_set_epoch": 18}, "SyncStateSet epoch 17 here, 18 there"), ({"master": 2}, "master 1 here, 2 there"),
    ({"sync_state_set": frozenset({1})}, "SyncStateSet [1, 2] here, [1] there"),
    ({"replicas": {1: Replica("10.0.0.1:10911", None)}, "sync_state_set": frozenset({1})}, "[1] there"),
    ({"replicas": {**THERE.replicas, 1: Replica("10.0.0.9:1", None)}}, "at 10.0.0.9:1 there"),
    ({"replicas": {**THERE.replicas, 2: Replica("10.0.0.2:10911", "10.0.0.2:10911;6")}}, "check code"),
])
def test_a_group_that_is_here_with_other_data_is_refused(other: dict[str, Any], what: str) -> None:
    fleet = Fleet()
    bring(fleet, THERE)
    outcome = of(bring(fleet, attrs.evolve(THERE, **other)), Refused)
    assert outcome.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "other data" in outcome.remark and what in outcome.remark


def test_all_or_none() -> None:
    fleet = led()
    fresh = attrs.evolve(THERE, key=GroupKey("c", "fresh"))
    assert of(bring(fleet, fresh, THERE), Refused).remark.startswith(f"cannot import {KEY}")
    assert fleet.machine.group(fresh.key) is None
    assert "twice" in of(bring(fleet, fresh, fresh), Refused).remark
    assert of(bring(fleet, fresh, attrs.evolve(THERE, key=GroupKey("d", "fresh"))), Imported).changed
    assert len(fleet.machine.named("fresh")) == 2


def test_what_is_here_and_what_is_brought_is_told_in_short() -> None:
    """A remark is for people, and goes into a header."""
    fleet = Fleet()
    many = {i: Replica(f"10.0.0.{i}:10911", None) for i in range(1, 101)}
    wide = attrs.evolve(THERE, replicas=many, next_broker_id=101)
    bring(fleet, attrs.evolve(wide, sync_state_set=frozenset(many)))
    remark = of(bring(fleet, attrs.evolve(wide, sync_state_set=frozenset(many) - {2})), Refused).remark
    here, there = str(list(many))[:200], str([1, *range(3, 101)])[:200]
    assert remark.endswith(f"SyncStateSet {here} here, {there} there")


@pytest.mark.parametrize("large", [
    {"replicas": {i: Replica("a:1", None) for i in range(1, 1_001)}, "next_broker_id": 1_001},
    {"next_broker_id": 2**53}, {"master_epoch": 2**30}, {"sync_state_set_epoch": 2**30},
], ids=["replicas", "next id", "master epoch", "SyncStateSet epoch"])
def test_a_group_may_be_as_large_as_there_can_be(large: dict[str, Any]) -> None:
    assert of(bring(Fleet(), attrs.evolve(THERE, **large)), Imported).changed


@pytest.mark.parametrize(("wrong", "why"), [
    ({"key": GroupKey("", "b")}, "cluster name"),
    ({"replicas": {}}, "0 brokers"),
    ({"replicas": {i: Replica("a:1", None) for i in range(1, 1_002)}, "next_broker_id": 1_002}, "1001 brokers"),
    ({"replicas": {0: Replica("a:1", None)}}, "broker ids"),
    ({"replicas": {1: Replica("a:1", None)}, "next_broker_id": 2**53 + 1}, "broker ids"),
    ({"next_broker_id": 4}, "next id"),
    ({"sync_state_set": frozenset({1, 3})}, "SyncStateSet"),
    ({"master": 4}, "not in the SyncStateSet"),
    ({"master_epoch": 0}, "master epoch"),
    ({"master_epoch": 2**30 + 1}, "master epoch"),
    ({"sync_state_set_epoch": 0}, "SyncStateSet epoch"),
    ({"sync_state_set_epoch": -1, "sync_state_set": frozenset(), "master": None}, "SyncStateSet epoch"),
    ({"replicas": {1: Replica("", None)}, "sync_state_set": frozenset({1})}, "broker 1"),
    ({"replicas": {1: Replica("a:1", "a#1")}, "sync_state_set": frozenset({1})}, "check code"),
])
def test_what_no_controller_can_have_is_refused(wrong: dict[str, Any], why: str) -> None:
    fleet = Fleet()
    assert why in of(bring(fleet, attrs.evolve(THERE, **wrong)), Refused).remark and not fleet.machine.groups


def test_epochs_and_ids_only_grow_over_a_removed_group() -> None:
    fleet = registered(1, 2)
    fleet.elect(BROKER, 1, seen(1))
    fleet.clean(None, force=True)  # next id 3, both epochs 2
    assert "never bound again" in of(bring(fleet, THERE), Refused).remark
    later = attrs.evolve(THERE, replicas={3: Replica("a:1", None)}, sync_state_set=frozenset({3}), master=3)
    for low in (attrs.evolve(later, master_epoch=1), attrs.evolve(later, sync_state_set_epoch=1)):
        assert "never fall" in of(bring(fleet, low), Refused).remark
    same = attrs.evolve(later, master_epoch=2, sync_state_set_epoch=2)
    assert of(fleet.machine.preview(ImportGroups(term=fleet.term, groups=(same,))), Imported).changed
    assert of(bring(fleet, later), Imported).changed and fleet.state() == (3, 9, {3}, 17)
