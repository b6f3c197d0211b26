"""Of two processes with one id one is on record: who comes in place of whom, and what becomes of a mastership."""

from __future__ import annotations

import attrs
import pytest

from controller.metadata.codec import encode
from controller.metadata.commands import LiveReplica, Observation, RegisterBroker, Trigger
from controller.metadata.outcomes import Altered, Elected, MasterStillExists, NotElected, Refused, Registered
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import (
    ADMIN,
    BROKER,
    CONTROLLER,
    GATED,
    KEY,
    Fleet,
    led,
    of,
    registered,
    restored,
    seen,
    snapshot_of,
)

HERE, THERE = "10.0.0.1:10911", "10.9.9.9:10911"
FIRST, SECOND = 71, 72


def alive(*ids: int, **lives: int) -> Observation:
    """``b1=FIRST``: broker 1 was heard in that life."""
    return seen(*ids, **{name: LiveReplica(life=life, address=HERE) for name, life in lives.items()})


def led_by_a_life() -> Fleet:
    """Broker 1 is on record with its life, master in epoch 1, and in sync with 2 and 3."""
    fleet = led()
    fleet.register(1, life=FIRST, running=True)
    assert fleet.group.replicas[1].life == FIRST and fleet.group.leader == 1
    return fleet


def test_a_second_life_is_refused_while_the_first_is_not_known_to_be_dead() -> None:
    fleet = led_by_a_life()
    before = fleet.group
    for address in (HERE, THERE):
        refused = of(fleet.register(1, address, life=SECOND, dead=False), Refused)
        assert refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID and HERE in refused.remark
    assert fleet.group == before


def test_one_that_tells_no_life_is_refused_as_well() -> None:
    of(led_by_a_life().register(1, HERE, dead=False), Refused)


def test_without_a_life_on_record_another_address_is_another_process() -> None:
    """As Java's brokers are judged."""
    fleet = registered(1)
    of(fleet.register(1, THERE, dead=False), Refused)
    of(fleet.register(1, HERE, dead=False), Registered)
    assert of(fleet.register(1, THERE), Registered).changed and fleet.group.address_of(1) == THERE


def test_a_judgement_about_another_process_counts_for_nothing() -> None:
    """Two came at once in place of one that was dead: the first is on record when the second's turn comes."""
    fleet = led_by_a_life()
    judged = (HERE, FIRST)
    for life, address in ((SECOND, THERE), (73, "10.8.8.8:10911")):
        outcome = fleet.do(RegisterBroker(
            term=fleet.term, key=KEY, broker_id=1, address=address, life=life, instead_of=judged, observation=seen()))
        assert isinstance(outcome, Registered) == (life == SECOND)
    assert fleet.group.replicas[1].life == SECOND


def test_the_same_life_may_register_again_from_another_address() -> None:
    fleet = led_by_a_life()
    assert of(fleet.register(1, THERE, life=FIRST, dead=False, observed=alive(b1=FIRST)), Registered).master == 1
    assert fleet.group.address_of(1) == THERE and fleet.group.leader == 1


def test_a_running_broker_that_tells_its_life_costs_no_role_and_nobody_who_is_eligible() -> None:
    fleet = led()
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    eligible = fleet.group.eligible
    assert eligible == {1, 3}
    told = of(fleet.register(2, life=SECOND, running=True, dead=False, observed=alive(b2=SECOND)), Registered)
    assert (told.master, told.life) == (2, SECOND)
    assert fleet.group.eligible == eligible and fleet.group.leader == 2
    of(fleet.register(2, life=SECOND, dead=False, observed=alive(b2=SECOND)), Registered)  # an answer was lost
    assert fleet.group.eligible == eligible
    fleet = led()
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    fleet.register(2, life=SECOND)  # it was not running: another process, at the same address
    assert not fleet.group.eligible


def test_nobody_leads_an_epoch_whose_master_another_process_came_in_place_of() -> None:
    fleet = led_by_a_life()
    state = fleet.state()
    told = of(fleet.register(1, THERE, life=SECOND, observed=alive(2, 3)), Registered)
    assert told.master is None and fleet.group.vacant and fleet.group.leader is None
    assert fleet.state() == state
    again = of(fleet.register(1, THERE, life=SECOND, observed=alive(2, 3, b1=SECOND)), Registered)
    assert again.master is None


def test_the_former_process_alters_nothing_any_more() -> None:
    fleet = led_by_a_life()
    fleet.register(1, THERE, life=SECOND)
    assert fleet.alter(1, {1}).code == ResponseCode.CONTROLLER_INVALID_MASTER


@pytest.mark.parametrize("trigger", [BROKER, CONTROLLER, ADMIN])
def test_the_next_master_begins_an_epoch_though_it_be_the_same_broker(trigger: Trigger) -> None:
    fleet = led_by_a_life()
    fleet.register(1, THERE, life=SECOND)
    elected = of(fleet.elect(trigger, 1, alive(b1=SECOND)), Elected)
    assert (elected.master, elected.address, elected.life, elected.master_epoch) == (1, THERE, SECOND, 2)
    assert fleet.group.leader == 1
    assert of(fleet.elect(BROKER, 1, alive(b1=SECOND)), MasterStillExists).life == SECOND


def test_who_was_seen_in_another_life_is_not_elected_and_does_not_stay() -> None:
    """What was seen when the command was made is of a process that is on record no longer."""
    fleet = led_by_a_life()
    assert of(fleet.elect(CONTROLLER, None, alive(b1=SECOND)), NotElected).changed
    assert of(fleet.elect(BROKER, 1, alive(b1=SECOND)), NotElected).code == (
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    assert of(fleet.elect(BROKER, 1, alive(b1=FIRST)), Elected).address == HERE


def test_who_was_seen_at_another_address_is_not_elected_where_no_life_is_on_record() -> None:
    fleet = led()
    moved = seen(b1=LiveReplica(address=HERE))
    fleet.register(1, THERE)
    of(fleet.elect(CONTROLLER, None, moved), NotElected)
    assert of(fleet.elect(BROKER, 1, seen(b1=LiveReplica(address=THERE))), Elected).address == THERE


def test_who_was_seen_in_another_life_does_not_join() -> None:
    fleet = led(1)
    fleet.register(2, life=SECOND)
    refused = fleet.alter(1, {1, 2}, observed=alive(1, b2=FIRST))
    assert refused.code == ResponseCode.CONTROLLER_BROKER_NOT_ALIVE
    assert of(fleet.alter(1, {1, 2}, observed=alive(1, b2=SECOND)), Altered).changed


def test_a_cleaned_master_and_a_lost_one_leave_no_vacancy() -> None:
    fleet = led_by_a_life()
    fleet.register(1, THERE, life=SECOND)
    fleet.lost()
    assert fleet.group.master is None and not fleet.group.vacant
    fleet = led_by_a_life()
    fleet.register(1, THERE, life=SECOND)
    fleet.clean({1}, force=True)
    assert fleet.group.master is None and not fleet.group.vacant


def test_a_snapshot_keeps_lives_and_who_leads_no_more() -> None:
    fleet = led_by_a_life()
    fleet.register(1, THERE, life=SECOND)
    again = restored(snapshot_of(fleet.machine))
    assert again.groups == fleet.machine.groups and again.groups[KEY].vacant


def test_format_1_knows_no_lives() -> None:
    """Where older controllers are in the group: registered wherever it says that it is, as they decide."""
    fleet = Fleet(in_format=1)
    fleet.apply_id(1)
    fleet.elect(BROKER, 1, alive(b1=FIRST))
    command = RegisterBroker(term=1, key=KEY, broker_id=1, address=THERE, life=SECOND, running=True,
                             observation=alive(b1=FIRST))
    assert fleet.machine.preview(command) == fleet.do(command)
    replica = fleet.group.replicas[1]
    assert (replica.address, replica.life, fleet.group.leader) == (THERE, None, 1)
    plain = attrs.evolve(command, life=None, running=False, observation=seen(1))
    assert encode(command, 1) == encode(plain, 1)
