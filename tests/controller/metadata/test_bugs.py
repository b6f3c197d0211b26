"""Defects of RocketMQ's controller that are not here. Rows and sources are in ``bugs.py``."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from controller.metadata import commands
from controller.metadata.codec import FORMAT, encode
from controller.metadata.commands import (
    ApplyBrokerId,
    CleanBrokerData,
    Command,
    ElectMaster,
    LiveReplica,
    Observation,
)
from controller.metadata.groups import GroupKey
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import (
    Altered,
    BrokerIdApplied,
    BrokerIdRefused,
    Cleaned,
    Elected,
    NotElected,
    Outcome,
    Refused,
    Registered,
    Superseded,
    Unreadable,
)
from remoting.codes import ResponseCode
from tests.controller.metadata.bugs import HAZARDS, ROWS, rows_tested
from tests.controller.metadata.fleet import (
    ADMIN,
    BROKER,
    CONTROLLER,
    GATED,
    KEY,
    Fleet,
    led,
    of,
    raised,
    registered,
    restored,
    seen,
    snapshot_of,
)


def test_every_row_has_its_test_that_says_what_holds() -> None:
    found = list(rows_tested())
    assert {row for row, _, _ in found} == set(ROWS) and all(holds for _, _, holds in found)
    assert {row for rows in HAZARDS.values() for row in rows} <= set(ROWS)


def test_BUG_K1_a_replay_decides_the_same() -> None:
    """What an election is decided from is in its entry, so every replay of the log elects the same."""
    entries: list[bytes] = []
    fleet = registered(1, 2, 3)
    for broker_id in (1, 2, 3):
        entries.append(encode(ApplyBrokerId(
            term=1, key=KEY, broker_id=broker_id, check_code=f"10.0.0.{broker_id}:10911;1"), FORMAT))
    for observed in (seen(1, 2, 3), seen(1), Observation(), seen(1, 2)):
        command = ElectMaster(term=1, key=KEY, trigger=BROKER, broker_id=1, observation=observed)
        fleet.do(command)
        entries.append(encode(command, FORMAT))
    for upto in range(len(entries) + 1):
        replayed = raised(MetadataMachine())
        for data in entries[:upto]:
            replayed.apply_at(data, 1)
        resumed = restored(snapshot_of(replayed))
        for data in entries[upto:]:
            resumed.apply_at(data, 1)
        assert resumed.state_hash() == fleet.machine.state_hash()


def test_BUG_K2_one_epoch_for_one_loss() -> None:
    """A lost master costs one epoch, however often nobody can be elected."""
    fleet = led(1)
    for _ in range(9):
        fleet.lost(2, 3)
    assert fleet.group.master_epoch == 2
    assert of(fleet.elect(BROKER, 1, seen(1)), Elected).master_epoch == 3


def test_BUG_K3_a_group_without_a_master_is_elected_for_again() -> None:
    """The controller may ask again for a group whose master is none, and wins when an electable one is back."""
    fleet = led(1, 2)
    fleet.lost(3)
    assert not fleet.lost(3).changed
    assert of(fleet.lost(2, 3), Elected).master == 2


@pytest.mark.parametrize("unclean", [False, True])
def test_BUG_K4_no_election_bricks_a_new_group(unclean: bool) -> None:
    """Before the first master the controller's election writes nothing, and the first master can be elected."""
    fleet = registered(1, 2)
    for _ in range(3):
        assert not of(fleet.elect(CONTROLLER, None, seen(1, 2), unclean=unclean), NotElected).changed
    assert fleet.state() == (None, 0, set(), 0)
    assert of(fleet.elect(BROKER, 2, seen(1, 2)), Elected).master_epoch == 1


@pytest.mark.parametrize(("broker_id", "trigger", "code"), [
    (99, BROKER, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED),
    (99, ADMIN, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED),
    (2, BROKER, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED),
])
def test_BUG_K5_the_first_master_is_a_living_member(
    broker_id: int, trigger: commands.Trigger, code: ResponseCode
) -> None:
    """The first election takes a living member alone, whoever is named."""
    fleet = registered(1, 2)
    assert fleet.elect(trigger, broker_id, seen(1, 99)).code == code and fleet.group.master is None


def test_BUG_K6_a_partial_clean_leaves_a_whole_group() -> None:
    """Members stay members whoever is cleaned, and the next id applied joins them."""
    fleet = led(1)
    assert isinstance(fleet.clean({1}), Refused)  # it would leave nobody in sync
    fleet.lost(2, 3, unclean=True)
    assert of(fleet.clean({1}), Cleaned).removed_ids == {1}
    assert of(fleet.apply_id(4), BrokerIdApplied).next_broker_id == 5
    assert list(fleet.group.replicas) == [2, 3, 4] and fleet.group.master == 2
    assert of(fleet.register(3), Registered).sync_state_set == {2}


def test_BUG_K7_forcing_cleans_those_named() -> None:
    """Cleaning by force removes whom it names and nobody else."""
    fleet = led()
    assert of(fleet.clean({2}, 1, 2, 3, force=True), Cleaned).removed_ids == {2}
    assert list(fleet.group.replicas) == [1, 3] and fleet.group.master == 1


def test_BUG_K8_a_living_group_is_not_cleaned_by_leaving_out_the_ids() -> None:
    """A group with a living member is cleaned as a whole by force only, with or without a master."""
    fleet = led(1)
    fleet.lost(2, 3)
    assert "alive" in of(fleet.clean(None, 2, 3), Refused).remark and len(fleet.group.replicas) == 3


def test_BUG_K9_a_clean_raises_epochs_and_leaves_no_master_behind() -> None:
    """A removed member raises the SyncStateSet's epoch, a removed master the master's, and is master no more."""
    fleet = led()
    fleet.clean({3}, 1, 2)
    assert fleet.state() == (1, 1, {1, 2}, 3)
    fleet.clean({1}, 2)
    assert fleet.state() == (None, 2, {2}, 4)


def test_BUG_K10_ids_out_of_order_stop_nobody() -> None:
    """The next id is always free: one out of order is refused and named the next."""
    fleet = registered(1)
    refused = of(fleet.apply_id(5), BrokerIdRefused)
    for broker_id in range(refused.next_broker_id, 8):
        assert of(fleet.apply_id(fleet.machine.next_broker_id(KEY)), BrokerIdApplied).broker_id == broker_id


@pytest.mark.parametrize(("broker_id", "master_epoch", "code"), [
    (1, 1, ResponseCode.CONTROLLER_INVALID_MASTER), (2, 1, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
])
def test_BUG_K11_a_deposed_master_learns_of_it(broker_id: int, master_epoch: int, code: ResponseCode) -> None:
    """The fences answer before the set is looked at; only the master in its epoch is told that nothing changed."""
    fleet = led()
    fleet.lost(2)
    assert fleet.state() == (2, 2, {2}, 3)
    assert of(fleet.alter(broker_id, {2}, master_epoch=master_epoch), Refused).code == code
    assert not of(fleet.alter(2, {2}), Altered).changed


def test_BUG_K12_the_longer_log_wins_at_any_distance() -> None:
    """Offsets are compared at full width: a log that is 2 GiB and more longer wins."""
    for distance in (2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**62):
        fleet = led()
        observed = seen(b2=LiveReplica(epoch=1, max_offset=0), b3=LiveReplica(epoch=1, max_offset=distance))
        assert of(fleet.elect(CONTROLLER, None, observed), Elected).master == 3


def test_BUG_K13_former_members_stay_electable_where_that_is_safe() -> None:
    """Beside a new master that acknowledges nothing alone, former members are electable until its first alter."""
    fleet = led()
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    assert of(fleet.lost(3), Elected).clean
    fleet = led()
    fleet.lost(2, 3)
    assert isinstance(fleet.lost(3), NotElected)


@pytest.mark.parametrize("by_heartbeat", [False, True])
def test_BUG_K14_learners_are_never_master(by_heartbeat: bool) -> None:
    """A learner, by registration or by heartbeat, wins no first, no clean and no unclean election."""
    learner = LiveReplica(learner=by_heartbeat)
    fleet = registered(1, 2)
    fleet.register(1, learner=not by_heartbeat)
    assert isinstance(fleet.elect(BROKER, 1, seen(2, b1=learner)), NotElected)
    assert of(fleet.elect(BROKER, 2, seen(2, b1=learner)), Elected).master == 2
    assert isinstance(fleet.elect(CONTROLLER, None, seen(b1=learner), unclean=True), NotElected)


def test_BUG_K15_one_epoch_names_one_set() -> None:
    """Whatever changes a SyncStateSet gives it a new epoch: two sets never share one."""
    fleet = led(1, 2)
    sets = {2: frozenset({1, 2})}
    all_changes: list[Callable[[], Outcome]] = [
        lambda: fleet.alter(1, {1, 2, 3}), lambda: fleet.clean({3}), lambda: fleet.alter(1, {1}),
        lambda: fleet.alter(1, {1, 2}), lambda: fleet.lost(2), lambda: fleet.clean(None, force=True),
    ]
    for change in all_changes:
        assert change().changed
        group = fleet.machine.groups[KEY]
        assert sets.setdefault(group.sync_state_set_epoch, group.sync_state_set) == group.sync_state_set
    assert list(sets) == [2, 3, 4, 5, 6, 7, 8]


def test_BUG_K16_a_dead_master_is_nobody_to_follow() -> None:
    """Who registers is told of a master only while it is alive."""
    fleet = led()
    assert of(fleet.register(2, observed=seen(2, 3)), Registered).master is None
    assert of(fleet.register(2, observed=seen(1, 2)), Registered).master == 1


def test_BUG_K17_a_master_may_be_preferred() -> None:
    """By name of the policy one broker, or the smallest priority, wins among those that lack nothing confirmed."""
    shorter, longer = LiveReplica(1, 50, 40, 1), LiveReplica(1, 90, 50, 2)
    for more in ({"policy": "preferred", "preferred": 3}, {"policy": "priority"}):
        assert of(led().elect(CONTROLLER, None, seen(b2=longer, b3=shorter), **more), Elected).master == 3
    assert of(led().elect(CONTROLLER, None, seen(b2=longer, b3=shorter), preferred=3), Elected).master == 2


def test_BUG_K18_clusters_do_not_share_a_group() -> None:
    """The same broker name in another cluster is another group; a name alone means one of them or is refused."""
    fleet = led()
    other = GroupKey("OtherCluster", KEY.name)
    before = fleet.group
    assert fleet.machine.next_broker_id(other) == 1
    assert of(fleet.apply_id(1, "x:1;1", key=other), BrokerIdApplied).changed
    assert fleet.group is before and isinstance(fleet.machine.resolve(KEY.name), Refused)


def test_BUG_K19_what_an_earlier_leadership_wanted_is_void() -> None:
    """A command takes effect in the term of the leader that proposed it, and in no other."""
    fleet = led()
    command = ElectMaster(term=1, key=KEY, trigger=CONTROLLER, broker_id=None, observation=seen(2, 3))
    fleet.term = 3
    assert isinstance(fleet.do(command), Superseded) and fleet.group.master == 1


def test_BUG_K20_a_snapshot_is_the_whole_state() -> None:
    """Who starts from a snapshot, at any point, ends like those who saw every entry."""
    fleet = led()
    fleet.elect(CONTROLLER, None, seen(b2=GATED, b3=GATED))
    fleet.register(3, learner=True)
    fleet.apply_id(1, key=GroupKey("Other", "b"))
    fleet.lost()
    again = restored(snapshot_of(fleet.machine))
    assert again.groups == fleet.machine.groups
    command = encode(ElectMaster(term=1, key=KEY, trigger=BROKER, broker_id=1, observation=seen(1)), 1)
    assert again.apply_at(command, 1) == fleet.machine.apply_at(command, 1)
    assert again.state_hash() == fleet.machine.state_hash()


@pytest.mark.parametrize("poison", [
    b"", b"\xff\xff", b"\x9f" * 500, encode(commands.RaiseFormat(term=1, format=1), 1)[:-1],
])
def test_BUG_K21_no_entry_stops_the_machine(poison: bytes) -> None:
    """Bytes that are no command are refused with an outcome, and the next command is carried out."""
    fleet = led()
    assert isinstance(fleet.machine.apply_at(poison, 1), Unreadable)
    assert of(fleet.lost(2, 3), Elected).master == 2


def test_BUG_K22_no_clock_decides() -> None:
    """No command carries a time: who is alive is a verdict of the leader that proposed it."""
    kinds = [kind for kind in vars(commands).values() if isinstance(kind, type) and issubclass(kind, Command)]
    fields = {field.name for kind in (*kinds, LiveReplica, Observation) for field in attrs.fields(kind)}
    assert len(kinds) > 8 and not [name for name in fields if "time" in name or name.endswith(("_ms", "_ns"))]


@pytest.mark.parametrize("code", ["", " ", ";1700000000000"])
def test_BUG_K23_a_missing_check_code_is_named(code: str) -> None:
    """A blank check code is an invalid request that says so, and binds nothing."""
    fleet = Fleet()
    outcome = fleet.do(ApplyBrokerId(term=1, key=KEY, broker_id=1, check_code=code))
    assert outcome.code == ResponseCode.CONTROLLER_INVALID_REQUEST and "check code" in outcome.remark


def test_BUG_K24_priorities_far_apart_keep_their_order() -> None:
    """Priorities are compared, not subtracted."""
    observed = seen(b2=LiveReplica(1, 1, priority=2**31 - 1), b3=LiveReplica(1, 1, priority=-(2**31)))
    assert of(led().elect(CONTROLLER, None, observed), Elected).master == 3


def test_BUG_K25_without_a_cluster_the_living_are_still_alive() -> None:
    """A clean that names no cluster means the only group of that name, whose living members it does not remove."""
    fleet = led()
    key = fleet.machine.resolve(KEY.name, None)
    assert isinstance(key, GroupKey)
    outcome = fleet.do(CleanBrokerData(term=1, key=key, broker_ids=frozenset({3}), observation=seen(3)))
    assert "alive" in of(outcome, Refused).remark


def test_BUG_K26_a_lost_answer_costs_no_id() -> None:
    """Applying again with the same check code gives the same id, however much happened in between."""
    fleet = registered(1, 2)
    fleet.apply_id(3)
    fleet.apply_id(4)
    outcome = of(fleet.apply_id(3), BrokerIdApplied)
    assert outcome.broker_id == 3 and not outcome.changed and fleet.machine.next_broker_id(KEY) == 5


def test_BUG_K27_a_group_that_comes_back_is_not_behind_its_brokers() -> None:
    """Next id and epochs outlive a cleaned group, through a snapshot too."""
    fleet = led()
    fleet.clean(None, 1, 2, 3, force=True)
    fleet.machine.restore_from(iter([snapshot_of(fleet.machine)]))
    assert isinstance(fleet.apply_id(1), BrokerIdRefused)
    fleet.apply_id(4)
    assert of(fleet.elect(BROKER, 4, seen(4)), Elected).master_epoch == 3
