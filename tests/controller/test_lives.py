"""Two processes of one id as a controller sees them: whose heartbeats count, who may come in, what is told to whom."""

from __future__ import annotations

import pytest

from controller.liveness import MS, RIVALS_MAX, Heartbeat, Life, Liveness
from controller.metadata.codec import encode
from controller.metadata.commands import ElectMaster, LiveReplica, Observation, RegisterBroker, Trigger
from controller.metadata.groups import GroupKey, Replica
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Elected, Registered
from tests.controller.metadata.fleet import snapshot_of
from tests.controller.test_active import KEY, Stage

FIRST, SECOND, THIRD = 71, 72, 73
HERE, THERE = "b1:1", "elsewhere:1"


def beat_of(life: int | None, address: str = HERE, timeout_ms: int | None = None) -> Heartbeat:
    return Heartbeat(KEY, 1, address, LiveReplica(life=life), timeout_ms)


def formed(**settings: object) -> Stage:
    """Broker 1 is master, on record with its life and heard; 2 and 3 are in sync and tell none."""
    stage = Stage(**settings)  # type: ignore[arg-type]
    stage.form(1, 2, 3)
    stage.commit(RegisterBroker(
        term=1, key=KEY, broker_id=1, address=HERE, life=FIRST, running=True, observation=stage.active.observe(0, KEY)))
    stage.beat(1, "first", replica=LiveReplica(life=FIRST))
    assert not stage.asked()
    return stage


def in_format_1(*in_sync: int) -> Stage:
    stage = Stage()
    stage.machine = stage.active._metadata = MetadataMachine()
    return stage.form(*in_sync)


def may_come(stage: Stage, life: int = SECOND, address: str = THERE) -> bool:
    return stage.active.instead_of(stage.now * MS, KEY, 1, address, life) == (HERE, FIRST)


def test_heartbeats_of_another_life_keep_nobody_alive() -> None:
    stage = formed()
    for now in range(100, 1_000, 100):
        stage.at(now)
        assert not stage.beat(1, "second", replica=LiveReplica(life=SECOND))
        stage.beat(2), stage.beat(3)
    stage.at(1_001)
    (outcome,) = stage.carry_out()
    assert isinstance(outcome, Elected) and outcome.master != 1


def test_a_channel_of_another_life_that_closes_says_nothing_of_the_master() -> None:
    stage = formed()
    stage.beat(1, "second", replica=LiveReplica(life=SECOND))
    stage.active.closed("second")
    assert not stage.asked() and stage.active.liveness.life(stage.now * MS, KEY, 1) is Life.ALIVE


def test_without_a_life_on_record_the_address_says_whose_heartbeat_it_is() -> None:
    stage = Stage().form(1, 2)
    assert stage.beat(1)
    assert not stage.beat(1, "copy", address=THERE, replica=LiveReplica(life=SECOND))
    assert stage.beat(1, replica=LiveReplica(life=FIRST)), "it has its address"


def test_a_second_life_may_come_when_the_firsts_channel_closed() -> None:
    stage = formed()
    assert not may_come(stage) and not may_come(stage, address=HERE)
    stage.active.closed("first")
    assert may_come(stage)


def test_or_when_its_heartbeats_stayed_away() -> None:
    stage = formed()
    stage.beat(2), stage.beat(3)
    stage.at(1_000).poll()
    assert not may_come(stage)
    stage.at(1_001).poll()
    assert may_come(stage)


def test_a_slave_that_fell_silent_is_waited_for_as_well() -> None:
    stage = formed()
    stage.at(500).beat(1, "first", replica=LiveReplica(life=FIRST))
    assert stage.active.instead_of(500 * MS, KEY, 2, THERE, SECOND) is None
    stage.at(1_001).poll()
    assert stage.active.instead_of(1_001 * MS, KEY, 2, THERE, SECOND) == ("b2:1", None)


def test_a_controller_that_never_heard_the_first_waits_but_for_who_serves_at_its_address() -> None:
    stage = formed()
    stage.active.deactivate()
    fresh = Stage(active=False)
    fresh.machine.restore_from(iter([snapshot_of(stage.machine)]))
    fresh.active.activate(0, 2)
    fresh.term = 2
    assert not may_come(fresh)
    assert may_come(fresh, address=HERE)
    fresh.at(1_001).poll()
    assert may_come(fresh)
    assert fresh.active.instead_of(1_001 * MS, KEY, 2, THERE, SECOND) is None, "its time begins when it is asked for"
    fresh.at(2_100).poll()
    assert fresh.active.instead_of(2_100 * MS, KEY, 2, THERE, SECOND) == ("b2:1", None)


def test_a_master_whose_lease_is_waited_for_is_not_dead() -> None:
    stage = formed(wait_master_lease=True)
    stage.beat(1, "first", replica=LiveReplica(life=FIRST), master_lease_ms=800)
    stage.active.closed("first")
    assert not may_come(stage)
    stage.at(801)
    assert may_come(stage)


def test_while_older_controllers_are_there_a_master_is_replaced_before_its_id_moves() -> None:
    """Format 1 has no word for an epoch that nobody leads any more."""
    stage = in_format_1(1, 2)
    stage.close(1)
    assert stage.active.instead_of(0, KEY, 1, THERE, SECOND) is None
    stage.carry_out()
    assert stage.active.instead_of(0, KEY, 1, THERE, SECOND) == (HERE, None)


def test_while_older_controllers_are_there_no_id_moves_during_an_election() -> None:
    """It may be in the log before the registration, and would then name the second process master as well."""
    stage = in_format_1(1, 2)
    stage.close(1)
    stage.carry_out()
    elect = ElectMaster(term=1, key=KEY, trigger=Trigger.ADMIN, broker_id=1, designate=True,
                        observation=stage.active.observe(0, KEY))
    stage.active.asked(elect)
    assert stage.active.instead_of(0, KEY, 1, THERE, SECOND) is None
    stage.active.answered(0, elect, None)
    assert stage.active.instead_of(0, KEY, 1, THERE, SECOND) is None, "it may be in the log or not"
    stage.at(1_000).carry_out()
    assert stage.active.instead_of(1_000 * MS, KEY, 1, THERE, SECOND) == (HERE, None)


def comes_in(stage: Stage) -> RegisterBroker:
    return RegisterBroker(
        term=1, key=KEY, broker_id=1, address=THERE, life=SECOND, instead_of=(HERE, FIRST),
        observation=stage.active.observe(stage.now * MS, KEY))


def come_in(stage: Stage) -> None:
    outcome = stage.commit(comes_in(stage))
    assert isinstance(outcome, Registered) and outcome.master is None


def test_in_the_masters_place_it_is_elected_as_soon_as_its_log_is_known() -> None:
    """Not before: the others' may be shorter."""
    stage = formed()
    come_in(stage)
    assert not stage.asked() and not stage.active.observe(0, KEY).live.keys() & {1}
    longer = LiveReplica(epoch=1, max_offset=100, life=SECOND)
    assert not stage.beat(1, "second", replica=longer, address=THERE), "it leads nothing yet"
    (outcome,) = stage.carry_out()
    assert isinstance(outcome, Elected)
    assert (outcome.master, outcome.address, outcome.life, outcome.master_epoch) == (1, THERE, SECOND, 2)
    assert stage.beat(1, "second", replica=longer, address=THERE)


def test_who_came_in_and_is_not_heard_is_replaced_after_its_timeout() -> None:
    stage = formed()
    come_in(stage)
    stage.at(900)
    stage.beat(2), stage.beat(3)
    assert not stage.asked()
    stage.at(1_001)
    (command,) = stage.asked()
    assert isinstance(command, ElectMaster) and command.observation.live.keys() == {2, 3}


def test_it_has_its_time_to_beat_before_a_third_may_come() -> None:
    stage = formed()
    stage.active.closed("first")
    come_in(stage)
    assert stage.active.instead_of(0, KEY, 1, "third:1", THIRD) is None
    stage.at(1_001).poll()
    assert stage.active.instead_of(1_001 * MS, KEY, 1, "third:1", THIRD) == (THERE, SECOND)


def test_who_was_heard_before_its_registration_was_applied_here_is_alive_with_it() -> None:
    """On a controller that is behind: its heartbeat, and the end of its channel, must not be missed."""
    stage = formed()
    stage.beat(1, "second", replica=LiveReplica(life=SECOND), address=THERE)
    come_in(stage)
    assert stage.active.liveness.life(0, KEY, 1) is Life.ALIVE
    stage.active.closed("first")
    assert stage.active.liveness.life(0, KEY, 1) is Life.ALIVE
    stage.active.closed("second")
    assert stage.active.liveness.life(0, KEY, 1) is Life.CLOSED


@pytest.mark.parametrize("heard", [True, False])
def test_who_was_put_on_record_by_a_snapshot_is_the_member_to_a_new_active_controller(heard: bool) -> None:
    """A controller that was behind had heard it as a rival, found its master dead, and replaced one that lived."""
    stage = formed()
    stage.active.deactivate()
    stage.active.closed("first")
    if heard:
        stage.beat(1, "second", replica=LiveReplica(life=SECOND), address=THERE)
    elected = ElectMaster(term=1, key=KEY, trigger=Trigger.ADMIN, broker_id=1, designate=True,
                          observation=Observation({1: LiveReplica(life=SECOND, address=THERE)}))
    for command in (comes_in(stage), elected):  # nobody is told of what a snapshot holds
        assert stage.machine.apply_at(encode(command, stage.machine.format), 1).changed
    stage.active.activate(0, 1)
    assert stage.group.leader == 1 and not stage.asked()
    assert stage.active.liveness.life(0, KEY, 1) is (Life.ALIVE if heard else Life.UNKNOWN)
    if heard:
        stage.active.closed("second")
    stage.at(1_001)
    stage.beat(2), stage.beat(3)
    (asked,) = stage.asked()
    assert isinstance(asked, ElectMaster) and asked.observation.live.keys() == {2, 3}


def test_who_tells_no_life_and_was_taken_off_the_record_is_on_it_again_when_that_one_is_dead() -> None:
    """A Java broker whose channel broke for a moment, in which a copy came in; it registers at its start and never
    again."""
    stage = Stage().form(1, 2, 3)
    stage.close(2)
    copied = RegisterBroker(term=1, key=KEY, broker_id=2, address="copy:1", instead_of=("b2:1", None),
                            observation=stage.active.observe(0, KEY))
    assert stage.commit(copied).changed
    stage.beat(2, "copy", address="copy:1")
    stage.at(500)
    stage.beat(1), stage.beat(2, "again")
    assert not stage.asked(), "the copy lives"
    stage.active.closed("copy")
    stage.beat(2, "again")
    (outcome,) = stage.carry_out()
    assert isinstance(outcome, Registered) and stage.group.address_of(2) == "b2:1"
    assert stage.active.liveness.life(500 * MS, KEY, 2) is Life.ALIVE


def test_which_life_is_on_record_is_told_to_whoever_has_another() -> None:
    stage = formed()
    told = stage.active.on_record
    assert told(beat_of(FIRST)) is None and told(beat_of(None)) is None
    assert told(beat_of(SECOND)) == FIRST
    assert told(Heartbeat(KEY, 2, "b2:1", LiveReplica(life=SECOND))) == 0
    assert told(Heartbeat(KEY, 9, "b9:1", LiveReplica(life=SECOND))) is None
    old = in_format_1(1)
    assert old.active.on_record(beat_of(FIRST)) is None, "in format 1 nobody is asked for a life"


def test_rivals_are_few_and_go_with_their_channels() -> None:
    liveness = Liveness()
    key = GroupKey("c", "x")
    for life in range(1, 50):
        liveness.rival(0, Heartbeat(key, 1, "a:1", LiveReplica(life=life)), f"channel {life}")
    assert sum(len(each) for each in liveness._rivals.values()) == RIVALS_MAX
    assert len(liveness._by_connection) == RIVALS_MAX
    for life in range(1, 50):
        assert not liveness.closed(f"channel {life}")
    assert not liveness._rivals and not liveness._by_connection
    liveness.rival(0, Heartbeat(key, 1, "a:1", LiveReplica(life=7)), "one")
    liveness.rival(1, Heartbeat(key, 1, "a:1", LiveReplica(life=7)), "another")
    assert set(liveness._by_connection) == {"another"}
    liveness.forget(key, 1)
    assert not liveness._rivals and not liveness._by_connection
    liveness.registered(2, key, 1, Replica("a:1", None, life=7))
    assert liveness.life(2, key, 1) is Life.UNKNOWN


def power_cut(stage: Stage) -> None:
    """Broker 2's machine went down unheard, and is back: it registers in another life, at whoever is active."""
    stage.commit(RegisterBroker(
        term=1, key=KEY, broker_id=2, address="b2:1", life=SECOND, instead_of=("b2:1", FIRST),
        observation=stage.active.observe(stage.now * MS, KEY)))


def pair(least: int | None = None) -> Stage:
    """1 and 2 are in sync, 1 is master; 2 is on record with its life and heard."""
    announced = LiveReplica(min_in_sync_replicas=least)
    stage = Stage().form(1, 2, replica=announced)
    stage.commit(RegisterBroker(
        term=1, key=KEY, broker_id=2, address="b2:1", life=FIRST, running=True,
        observation=stage.active.observe(0, KEY)))
    stage.beat(2, "first", replica=LiveReplica(life=FIRST, min_in_sync_replicas=least, epoch=1, max_offset=90))
    assert not stage.asked()
    return stage


def in_doubt(stage: Stage, least: int | None = None) -> None:
    stage.beat(2, "second", replica=LiveReplica(life=SECOND, min_in_sync_replicas=least, epoch=1, max_offset=50),
               log_in_doubt=True, all_ack_in_sync_state_set=True, doubt_epoch=stage.group.master_epoch)


def test_what_was_heard_before_a_power_cut_counts_for_no_later_life() -> None:
    """A controller that has not heard the later one becomes active, and loses the master at that moment."""
    stage = pair()
    stage.active.deactivate()
    power_cut(stage)
    stage.active.activate(0, 1)
    stage.close(1)
    stage.carry_out()
    assert stage.group.master is None
    in_doubt(stage)
    stage.carry_out()
    assert stage.group.master is None, "1 may come back, and has lost nothing"
    stage.beat(1, "again")
    stage.carry_out()
    assert stage.group.master == 1


def test_who_was_elected_while_its_machine_was_down_waits_for_who_lost_nothing() -> None:
    """Nobody knows of the power cut yet. Where two are demanded, it has acknowledged nothing in between."""
    stage = pair(2)
    stage.close(1)
    stage.carry_out()
    assert stage.group.master == 2 and stage.group.eligible == {1}
    stage.active.closed("first")
    power_cut(stage)
    assert stage.group.vacant
    in_doubt(stage, 2)
    stage.carry_out()
    assert stage.group.leader is None
    stage.beat(1, "again", replica=LiveReplica(min_in_sync_replicas=2, epoch=1, max_offset=90))
    stage.carry_out()
    assert stage.group.leader == 1
