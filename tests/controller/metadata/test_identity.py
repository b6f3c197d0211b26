"""Ids are bound once and for ever; registration says where a broker is."""

from __future__ import annotations

import pytest

from controller.metadata.commands import ApplyBrokerId, Observation, RegisterBroker
from controller.metadata.groups import BrokerGroup, GroupKey, Replica
from controller.metadata.identity import (
    BROKER_ID_MAX,
    CHECK_CODE_CHARS_MAX,
    NAME_CHARS_MAX,
    REPLICAS_MAX,
    apply_broker_id,
)
from controller.metadata.outcomes import BrokerIdApplied, BrokerIdRefused, Elected, Refused, Registered
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import BROKER, KEY, Fleet, led, of, registered, seen

INVALID_REQUEST = ResponseCode.CONTROLLER_INVALID_REQUEST


def test_ids_start_at_one_and_follow_each_other() -> None:
    fleet = Fleet()
    for broker_id in (1, 2, 3):
        assert fleet.machine.next_broker_id(KEY) == broker_id
        outcome = of(fleet.apply_id(broker_id), BrokerIdApplied)
        assert outcome.changed and outcome.next_broker_id == broker_id + 1
    assert list(fleet.group.replicas) == [1, 2, 3]
    assert fleet.group.replicas[2].address == "10.0.0.2:10911" and not fleet.group.replicas[2].learner


def test_asking_again_with_the_same_code_is_success() -> None:
    fleet = registered(1, 2)
    outcome = of(fleet.apply_id(1), BrokerIdApplied)
    assert not outcome.changed and outcome.next_broker_id == 3


def test_of_two_that_race_for_an_id_one_gets_it() -> None:
    fleet = Fleet()
    assert of(fleet.apply_id(1, "a:1;1"), BrokerIdApplied).changed
    outcome = of(fleet.apply_id(1, "b:1;1"), BrokerIdRefused)
    assert outcome.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID and outcome.next_broker_id == 2
    assert of(fleet.apply_id(2, "b:1;1"), BrokerIdApplied).changed


def test_the_same_code_may_have_two_ids_only_by_asking_for_both() -> None:
    fleet = Fleet()
    assert of(fleet.apply_id(1, "a:1;1"), BrokerIdApplied).changed
    assert of(fleet.apply_id(2, "a:1;1"), BrokerIdApplied).changed


@pytest.mark.parametrize("broker_id", [2, 0, -1, 2**62])
def test_the_first_id_of_a_group_is_one(broker_id: int) -> None:
    fleet = Fleet()
    assert of(fleet.apply_id(broker_id, "a:1;1"), BrokerIdRefused).next_broker_id == 1
    assert fleet.machine.group(KEY) is None and not fleet.machine.groups


def test_ids_out_of_order_are_refused() -> None:
    fleet = registered(1)
    outcome = of(fleet.apply_id(5), BrokerIdRefused)
    assert outcome.next_broker_id == 2 and "out of order" in outcome.remark


def test_a_cleaned_id_is_never_bound_again_not_even_to_its_code() -> None:
    fleet = registered(1, 2)
    fleet.clean({2})
    outcome = of(fleet.apply_id(2), BrokerIdRefused)
    assert outcome.next_broker_id == 3 and "never is again" in outcome.remark
    fleet.clean({1})
    assert "never is again" in of(fleet.apply_id(1), BrokerIdRefused).remark


def test_a_group_has_so_many_members_at_a_time() -> None:
    replicas = {i: Replica(f"a:{i}", f"a:{i};1") for i in range(1, REPLICAS_MAX + 1)}
    full = BrokerGroup(replicas, REPLICAS_MAX + 1)
    command = ApplyBrokerId(term=1, key=KEY, broker_id=REPLICAS_MAX + 1, check_code="a:0;1")
    outcome, after = apply_broker_id(full, command)
    assert of(outcome, BrokerIdRefused).remark.endswith(
        "has 1000 members and has given out 1000 ids, which is all it may") and after is full
    one_less = BrokerGroup({i: r for i, r in replicas.items() if i != 7}, REPLICAS_MAX + 1)
    assert of(apply_broker_id(one_less, command)[0], BrokerIdApplied).changed


def test_limits_are_the_same_on_every_controller_of_every_version() -> None:
    """What one binds another must not refuse, so a number here changes with a format or never."""
    assert (NAME_CHARS_MAX, CHECK_CODE_CHARS_MAX, REPLICAS_MAX, BROKER_ID_MAX) == (255, 512, 1_000, 2**53)


def test_ids_end_where_json_loses_count() -> None:
    command = ApplyBrokerId(term=1, key=KEY, broker_id=BROKER_ID_MAX, check_code="a:0;1")
    assert isinstance(apply_broker_id(BrokerGroup(next_broker_id=BROKER_ID_MAX), command)[0], BrokerIdRefused)


@pytest.mark.parametrize("code", [
    "", "  ", ";", ";1", "a#b:1;1", "a b:1;1", "a\n:1;1", "x" * NAME_CHARS_MAX + "yz;1",
    "a:1;" + "1" * CHECK_CODE_CHARS_MAX,
])
def test_a_check_code_without_an_address_is_refused(code: str) -> None:
    fleet = Fleet()
    outcome = fleet.do(ApplyBrokerId(term=1, key=KEY, broker_id=1, check_code=code))
    assert of(outcome, Refused).code == INVALID_REQUEST and "check code" in outcome.remark
    assert not fleet.machine.groups


def test_a_check_code_may_be_an_address_alone() -> None:
    fleet = Fleet()
    assert of(fleet.apply_id(1, "host:10911"), BrokerIdApplied).changed
    assert fleet.group.replicas[1].address == "host:10911"


@pytest.mark.parametrize("key", [
    GroupKey("", "b"), GroupKey("c", " "), GroupKey("c#1", "b"), GroupKey("c", "a;b"), GroupKey("c", "a\x00"),
    GroupKey("c" * (NAME_CHARS_MAX + 1), "b"),
])
def test_names_that_cannot_be_stored_are_refused(key: GroupKey) -> None:
    fleet = Fleet()
    assert of(fleet.apply_id(1, key=key), Refused).code == INVALID_REQUEST and not fleet.machine.groups


def test_names_and_codes_may_be_as_long_as_allowed() -> None:
    key = GroupKey("c" * NAME_CHARS_MAX, "b" * NAME_CHARS_MAX)
    host = "h" * NAME_CHARS_MAX
    code = f"{host};" + "1" * (CHECK_CODE_CHARS_MAX - NAME_CHARS_MAX - 1)
    fleet = Fleet(key)
    assert of(fleet.apply_id(1, code), BrokerIdApplied).changed
    assert of(fleet.register(1, host), Registered).sync_state_set == set()


def test_refusals_say_why() -> None:
    fleet = registered(1)
    assert "no group" in Fleet().register(1).remark and "no broker 2 in group" in fleet.register(2).remark
    assert "was given out" not in fleet.apply_id(0).remark and "out of order" in fleet.apply_id(0).remark
    for blank in ("", "  "):
        command = ApplyBrokerId(term=1, key=KEY, broker_id=2, check_code=blank)
        assert fleet.do(command).remark == "the register check code is missing or blank"


def test_two_clusters_may_use_one_broker_name() -> None:
    fleet = registered(1, 2)
    other = GroupKey("OtherCluster", KEY.name)
    assert of(fleet.apply_id(1, "b:1;1", key=other), BrokerIdApplied).changed
    assert list(fleet.machine.named(KEY.name)) == [KEY, other]
    assert fleet.group.replicas[1].check_code != "b:1;1"


def test_registering_needs_an_id() -> None:
    assert of(Fleet().register(1), Refused).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    fleet = registered(1)
    outcome = of(fleet.register(2), Refused)
    assert outcome.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED and "apply" in outcome.remark


@pytest.mark.parametrize("address", ["", "a b:1", "x" * (NAME_CHARS_MAX + 1), "a:1\r\n"])
def test_registering_needs_an_address(address: str) -> None:
    fleet = registered(1)
    outcome = fleet.do(RegisterBroker(term=1, key=KEY, broker_id=1, address=address, observation=Observation()))
    assert of(outcome, Refused).code == INVALID_REQUEST


def test_registering_at_the_same_address_writes_nothing() -> None:
    fleet = registered(1)
    outcome = of(fleet.register(1), Registered)
    assert not outcome.changed and outcome.master is None and outcome.address is None and outcome.master_epoch is None
    assert outcome.sync_state_set == set() and outcome.sync_state_set_epoch == 0


def test_a_new_address_is_kept_with_the_check_code() -> None:
    fleet = registered(1)
    before = fleet.group.replicas[1]
    assert of(fleet.register(1, "10.9.9.9:10911"), Registered).changed
    after = fleet.group.replicas[1]
    assert after.address == "10.9.9.9:10911" and after.check_code == before.check_code


def test_the_latest_registration_says_whether_it_is_a_learner() -> None:
    fleet = registered(1)
    assert of(fleet.register(1, learner=True), Registered).changed and fleet.group.replicas[1].learner
    assert of(fleet.register(1), Registered).changed and not fleet.group.replicas[1].learner


def test_a_living_master_is_told_with_its_address() -> None:
    fleet = led(1)
    outcome = of(fleet.register(3, observed=seen(1, 3)), Registered)
    assert (outcome.master, outcome.address, outcome.master_epoch) == (1, "10.0.0.1:10911", 1)
    assert outcome.sync_state_set == {1} and outcome.sync_state_set_epoch == 1


def test_a_dead_master_is_not_told() -> None:
    outcome = of(led().register(3, observed=seen(2, 3)), Registered)
    assert outcome.master is None and outcome.address is None and outcome.master_epoch is None
    assert outcome.sync_state_set == {1, 2, 3} and outcome.sync_state_set_epoch == 2


def test_a_master_that_comes_back_in_time_is_told_of_itself() -> None:
    """By its address: it tells no life."""
    outcome = of(led().register(1, observed=seen(1, 2)), Registered)
    assert not outcome.changed
    assert (outcome.master, outcome.address, outcome.master_epoch) == (1, "10.0.0.1:10911", 1)


def test_an_election_tells_the_address_registered_last() -> None:
    fleet = registered(1)
    fleet.register(1, "10.9.9.9:10911")
    assert of(fleet.elect(BROKER, 1, seen(1)), Elected).address == "10.9.9.9:10911"
