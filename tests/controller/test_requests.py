"""Requests as commands: what each field becomes, and what of the moment goes into the command."""

from __future__ import annotations

from typing import Any

import pytest

from controller.active import ActiveController, ElectionSettings
from controller.liveness import MS, Heartbeat, Liveness
from controller.metadata.codec import encode
from controller.metadata.commands import (
    PRIORITY_DEFAULT,
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    LiveReplica,
    Observation,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import GroupKey
from controller.metadata.identity import REPLICAS_MAX
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Refused, UnknownLife
from controller.requests import WRITES, Seen, read_command, read_heartbeat
from controller.yielding import NoSuccessor
from remoting.bodies.controller import SyncStateSet
from remoting.codes import RequestCode, ResponseCode
from remoting.command import request
from remoting.errors import BodyError, HeaderError
from remoting.headers.controller import HEARTBEAT_TIMEOUT_MS_MAX
from tests.controller.metadata.fleet import raised

KEY = GroupKey("c", "a")
SETTINGS = ElectionSettings(unclean=True, policy="preferred", preferred={KEY: 2})
NAMES = {"clusterName": "c", "brokerName": "a"}


def seen(*clusters: str, names: dict[str, GroupKey] | None = None, settings: ElectionSettings = SETTINGS) -> Seen:
    """A moment of an active controller in term 7, whose groups are called a; brokers 1 and 2 of c/a are alive."""
    machine = raised(MetadataMachine())
    for cluster in clusters or ("c",):
        machine.apply_at(encode(ApplyBrokerId(
            term=1, key=GroupKey(cluster, "a"), broker_id=1, check_code="b1:1;1"), machine.format), 1)
    active = ActiveController(machine, Liveness(), settings)
    active.activate(0, 7)
    for broker_id in (1, 2):
        active.heartbeat(0, Heartbeat(KEY, broker_id, f"b{broker_id}:1", LiveReplica(max_offset=broker_id)), broker_id)
    return Seen(MS, machine, active, names or {})


LIVE = Observation({1: LiveReplica(max_offset=1), 2: LiveReplica(max_offset=2)})


def sent(code: int, body: bytes = b"", /, **ext: str) -> Any:
    command = request(code, body=body)
    command.ext.update(ext)
    return command


def elect(**fields: Any) -> ElectMaster:
    return ElectMaster(term=7, key=KEY, unclean=True, policy="preferred", preferred=2, observation=LIVE, **fields)


ROWS: list[tuple[Any, Command]] = [
    (sent(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, SyncStateSet(frozenset({1, 2}), 4).to_json(), brokerName="a",
          masterBrokerId="1", masterEpoch="3"),
     AlterSyncStateSet(term=7, key=KEY, broker_id=1, master_epoch=3, sync_state_set=frozenset({1, 2}),
                       sync_state_set_epoch=4, observation=LIVE)),
    (sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="1"), elect(trigger=Trigger.BROKER, broker_id=1)),
    (sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="1", designateElect="true"),
     elect(trigger=Trigger.ADMIN, broker_id=1, designate=True)),
    (sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="-1"), elect(trigger=Trigger.ADMIN, broker_id=None)),
    (sent(RequestCode.CONTROLLER_ELECT_MASTER, brokerName="a"), elect(trigger=Trigger.ADMIN, broker_id=None)),
    (sent(RequestCode.CONTROLLER_REGISTER_BROKER, **NAMES, brokerId="9", brokerAddress="b1:2"),
     RegisterBroker(term=7, key=KEY, broker_id=9, address="b1:2", observation=LIVE)),
    (sent(RequestCode.CONTROLLER_REGISTER_BROKER, **NAMES, brokerId="1", brokerAddress="b1:1", learner="true",
          brokerLife="71", alreadyRunning="true"),
     RegisterBroker(term=7, key=KEY, broker_id=1, address="b1:1", learner=True, life=71, running=True,
                    observation=LIVE)),
    (sent(RequestCode.CLEAN_BROKER_DATA, **NAMES, brokerControllerIdsToClean="1;2"),
     CleanBrokerData(term=7, key=KEY, broker_ids=frozenset({1, 2}), observation=LIVE)),
    (sent(RequestCode.CLEAN_BROKER_DATA, **NAMES, isCleanLivingBroker="true"),
     CleanBrokerData(term=7, key=KEY, broker_ids=None, clean_living=True, observation=LIVE)),
    (sent(RequestCode.CONTROLLER_APPLY_BROKER_ID, **NAMES, appliedBrokerId="3", registerCheckCode="b3:1;9"),
     ApplyBrokerId(term=7, key=KEY, broker_id=3, check_code="b3:1;9")),
]


@pytest.mark.parametrize(("asked", "command"), ROWS, ids=lambda each: type(each).__name__)
def test_what_a_request_becomes(asked: Any, command: Command) -> None:
    assert read_command(asked, seen()) == command


def test_another_process_than_the_one_on_record_is_refused_in_any_format() -> None:
    asked = sent(RequestCode.CONTROLLER_REGISTER_BROKER, **NAMES, brokerId="1", brokerAddress="b1:2")
    refused = read_command(asked, seen())
    assert isinstance(refused, Refused) and refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID


def registering(known: str | None, life: str = "73", address: str = "b1:1") -> Any:
    lives = {} if known is None else {"knownLives": known}
    return sent(RequestCode.CONTROLLER_REGISTER_BROKER, **NAMES, brokerId="1", brokerAddress=address, brokerLife=life,
                **lives)


def on_record(life: int | None, *, dead: bool = True) -> Seen:
    """Broker 1 is on record with this life."""
    moment = seen()
    if life is not None:
        moment.machine.apply_at(encode(RegisterBroker(
            term=7, key=KEY, broker_id=1, address="b1:1", life=life, running=True, observation=LIVE), 2), 7)
        moment.active.heartbeat(0, Heartbeat(KEY, 1, "b1:1", LiveReplica(life=life)), 1)
    if dead:
        moment.active.closed(1)
    return moment


@pytest.mark.parametrize(("life", "known"), [
    (71, "70,71,73"), (71, None), (73, "70"), (None, "70")])
def test_a_store_that_knows_the_life_on_record_comes_in(life: int | None, known: str | None) -> None:
    """So does one that tells none, or of which none is on record."""
    command = read_command(registering(known), on_record(life))
    assert isinstance(command, RegisterBroker)
    assert command.instead_of == (("b1:1", 71) if life == 71 else None)


@pytest.mark.parametrize("known", ["70", "", "7,1", "70,72,73"])
def test_a_store_that_does_not_know_the_life_on_record_is_told_that_it_is_older(known: str) -> None:
    refused = read_command(registering(known), on_record(71))
    assert isinstance(refused, UnknownLife) and refused.life == 71
    assert refused.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID and "older copy" in refused.remark


def test_who_is_not_known_to_be_dead_is_in_the_way_whatever_the_store_knows() -> None:
    refused = read_command(registering("70", address="b1:2"), on_record(71, dead=False))
    assert isinstance(refused, Refused) and not isinstance(refused, UnknownLife)


def test_who_was_registered_while_a_store_was_judged_is_not_replaced_by_it() -> None:
    """The store knows the life that was on record then, and not this one."""
    moment = on_record(71)
    command = read_command(registering("71"), moment)
    assert isinstance(command, RegisterBroker)
    moment.machine.apply_at(encode(RegisterBroker(
        term=7, key=KEY, broker_id=1, address="b1:1", life=72, instead_of=("b1:1", 71), observation=LIVE), 2), 7)
    assert isinstance(moment.machine.apply_at(encode(command, 2), 7), Refused)


@pytest.mark.parametrize("known", ["x", "1;2", "1,,2", "9" * 30])
def test_lives_that_are_no_numbers(known: str) -> None:
    refused = read_command(registering(known), seen())
    assert isinstance(refused, Refused) and refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST


def test_every_write_has_a_row() -> None:
    assert {asked.code for asked, _ in ROWS} == set(WRITES)


@pytest.mark.parametrize(("clusters", "names", "ext", "key"), [
    (("c",), {}, {}, KEY),
    (("c", "d"), {"a": GroupKey("d", "a")}, {}, GroupKey("d", "a")),
    (("c", "d"), {"a": GroupKey("d", "a")}, {"clusterName": "c"}, KEY),
    (("c", "d"), {}, {}, ResponseCode.CONTROLLER_INVALID_REQUEST),
])
def test_which_group_a_name_means(
    clusters: tuple[str, ...], names: dict[str, GroupKey], ext: dict[str, str], key: GroupKey | ResponseCode
) -> None:
    """The cluster that the request names, else the group this connection spoke for, else the only one of that name."""
    asked = sent(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, SyncStateSet(frozenset({1}), 1).to_json(),
                 brokerName="a", masterBrokerId="1", masterEpoch="1", **ext)
    command = read_command(asked, seen(*clusters, names=names))
    if isinstance(command, Refused):
        assert command.code == key and "clusterName" in command.remark
    else:
        assert isinstance(command, AlterSyncStateSet) and command.key == key


def test_an_election_by_a_broker_waits_for_a_lease_as_the_controllers_own_does() -> None:
    """What a request observes is what the active controller holds, its waiting for a lease included."""
    moment = seen(settings=ElectionSettings(wait_master_lease=True))
    active, machine = moment.active, moment.machine
    beat = Heartbeat(KEY, 1, "b1:1", LiveReplica(), master_lease_ms=500)
    active.heartbeat(0, beat, 1)
    machine.apply_at(encode(ElectMaster(
        term=1, key=KEY, trigger=Trigger.BROKER, broker_id=1, observation=Observation({1: LiveReplica()})),
        machine.format), 1)
    assert active.heartbeat(0, beat, 1, raft_lease=True)
    active.closed(1)
    asked = sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="2")
    for now, alive in ((499, {1, 2}), (500, {2})):
        command = read_command(asked, Seen(now * MS, machine, active, {}))
        assert isinstance(command, ElectMaster) and set(command.observation.live) == alive


@pytest.mark.parametrize(("broker_id", "epoch", "resigns"), [("1", "1", True), ("2", "1", False), ("1", "0", False)])
def test_a_master_may_resign_from_the_epoch_that_it_leads(broker_id: str, epoch: str, resigns: bool) -> None:
    """A late or wrong request of that kind is an election like others. Those alive are looked at anew after it."""
    moment = seen()
    machine = moment.machine
    for number in (1, 2):
        machine.apply_at(encode(RegisterBroker(
            term=1, key=KEY, broker_id=number, address=f"b{number}:1", observation=LIVE), machine.format), 1)
    machine.apply_at(encode(ElectMaster(
        term=1, key=KEY, trigger=Trigger.BROKER, broker_id=1, observation=Observation({1: LiveReplica()})),
        machine.format), 1)
    command = read_command(
        sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId=broker_id, lostEpoch=epoch), moment)
    assert isinstance(command, ElectMaster)
    assert (command.trigger is Trigger.CONTROLLER) is resigns
    machine.apply_at(encode(command, machine.format), 7)
    group = machine.group(KEY)
    assert group is not None
    assert (group.master, group.master_epoch) == ((None, 2) if resigns else (1, 1))


def led_by_the_first() -> Seen:
    """Brokers 1 and 2; 1 leads epoch 1."""
    moment = seen()
    for number in (1, 2):
        moment.machine.apply_at(encode(RegisterBroker(
            term=1, key=KEY, broker_id=number, address=f"b{number}:1", observation=LIVE), moment.machine.format), 1)
    moment.machine.apply_at(encode(ElectMaster(
        term=1, key=KEY, trigger=Trigger.BROKER, broker_id=1, observation=Observation({1: LiveReplica()})),
        moment.machine.format), 1)
    return moment


@pytest.mark.parametrize(("broker_id", "epoch", "more"), [
    ("2", "1", {}), ("1", "0", {}), ("1", "1", {"designateElect": "true"}), ("-1", "1", {})])
def test_only_the_master_asks_for_a_successor_in_its_own_epoch(
    broker_id: str, epoch: str, more: dict[str, str]
) -> None:
    """From anybody else, or too late, it is an election like others: it tells who leads."""
    moment = led_by_the_first()
    asked = sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId=broker_id, yieldEpoch=epoch,
                 yieldReason="silence", **more)
    assert isinstance(read_command(asked, moment), ElectMaster)
    master = read_command(sent(
        RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="1", yieldEpoch="1", yieldReason="disk",
        holders="2"), moment)
    assert isinstance(master, NoSuccessor) and master.remark.startswith("of 2 nobody may follow it")


@pytest.mark.parametrize("holders", ["2;3", "two", "2,,3", "9" * 30])
def test_holders_that_are_no_ids(holders: str) -> None:
    asked = sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="1", yieldEpoch="1", holders=holders)
    refused = read_command(asked, led_by_the_first())
    assert isinstance(refused, Refused) and refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert "with commas" in refused.remark and len(refused.remark) < 120


@pytest.mark.parametrize(("asked", "error"), [
    (sent(RequestCode.CONTROLLER_APPLY_BROKER_ID, **NAMES, appliedBrokerId="x", registerCheckCode="b"), HeaderError),
    (sent(RequestCode.CONTROLLER_REGISTER_BROKER, brokerName="a"), HeaderError),
    (sent(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, b"{", brokerName="a", masterBrokerId="1", masterEpoch="1"),
     BodyError),
])
def test_what_cannot_be_read_is_said(asked: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_command(asked, seen())


@pytest.mark.parametrize("ids", ["1;x", ";", "-1", "9" * 30])
def test_ids_that_are_none(ids: str) -> None:
    asked = sent(RequestCode.CLEAN_BROKER_DATA, **NAMES, brokerControllerIdsToClean=ids)
    refused = read_command(asked, seen())
    assert isinstance(refused, Refused) and refused.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA


BEAT = {**NAMES, "brokerAddr": "b1:1", "brokerId": "1"}


@pytest.mark.parametrize(("ext", "beat"), [
    ({}, Heartbeat(KEY, 1, "b1:1", LiveReplica(-1, -1, -1, PRIORITY_DEFAULT, address="b1:1"))),
    ({"epoch": "3", "maxOffset": str(2**40), "confirmOffset": "5", "electionPriority": "1",
      "heartbeatTimeoutMills": "3000"},
     Heartbeat(KEY, 1, "b1:1", LiveReplica(3, 2**40, 5, 1, address="b1:1"), 3_000)),
    ({"masterLeaseMs": "900", "allAckInSyncStateSet": "true", "minInSyncReplicas": "2", "learner": "true"},
     Heartbeat(KEY, 1, "b1:1", LiveReplica(learner=True, min_in_sync_replicas=2, address="b1:1"), None, 900, True)),
    ({"silentEpoch": "4", "reaches": "2,3", "diskTrouble": "stalled", "heartbeatIntervalMs": "250"},
     Heartbeat(KEY, 1, "b1:1", LiveReplica(address="b1:1"), silent_epoch=4, reaches=frozenset({2, 3}),
               disk_trouble=True, interval_ms=250)),
    ({"silentEpoch": "4", "reaches": "", "diskTrouble": ""},
     Heartbeat(KEY, 1, "b1:1", LiveReplica(address="b1:1"), silent_epoch=4)),
])
def test_what_a_heartbeat_tells(ext: dict[str, str], beat: Heartbeat) -> None:
    """Java's announces neither lease nor gate, an old one no epoch: absent is not zero."""
    assert read_heartbeat(sent(RequestCode.BROKER_HEARTBEAT, **BEAT, **ext)) == beat


@pytest.mark.parametrize("ext", [
    {"reaches": "2;3"}, {"reaches": "2,"}, {"reaches": ",".join(map(str, range(REPLICAS_MAX + 1)))},
    {"reaches": ",".join(["1" * 20] * REPLICAS_MAX)}, {"heartbeatIntervalMs": "0"}])
def test_heartbeats_that_say_nonsense_of_silence(ext: dict[str, str]) -> None:
    refused = read_heartbeat(sent(RequestCode.BROKER_HEARTBEAT, **BEAT, **ext))
    assert isinstance(refused, Refused) and refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST


def test_a_heartbeat_may_name_all_members_of_the_largest_group() -> None:
    ids = range(2**53 - REPLICAS_MAX, 2**53)
    beat = read_heartbeat(sent(RequestCode.BROKER_HEARTBEAT, **BEAT, reaches=",".join(map(str, ids))))
    assert isinstance(beat, Heartbeat) and beat.reaches == frozenset(ids)


def test_holders_are_bounded_too() -> None:
    holders = ",".join(map(str, range(REPLICAS_MAX + 1)))
    refused = read_command(sent(RequestCode.CONTROLLER_ELECT_MASTER, **NAMES, brokerId="1", yieldEpoch="1",
                                yieldReason="disk", holders=holders), seen())
    assert isinstance(refused, Refused) and f"{REPLICAS_MAX} at most" in refused.remark


def test_a_timeout_has_an_end() -> None:
    beat = read_heartbeat(sent(RequestCode.BROKER_HEARTBEAT, **BEAT, heartbeatTimeoutMills=str(2**62)))
    assert isinstance(beat, Heartbeat) and beat.timeout_ms == HEARTBEAT_TIMEOUT_MS_MAX


def test_a_heartbeat_for_a_name_server_is_none_for_a_controller() -> None:
    asked = sent(RequestCode.BROKER_HEARTBEAT, **{name: value for name, value in BEAT.items() if name != "brokerId"})
    refused = read_heartbeat(asked)
    assert isinstance(refused, Refused) and refused.code == ResponseCode.CONTROLLER_INVALID_REQUEST
