"""The active controller's core over a real metadata: what happens to groups, and what it then asks for."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from controller.active import RETRY_MS, ActiveController, ElectionSettings, Todo
from controller.liveness import MS, Heartbeat, Life, Liveness
from controller.metadata.codec import encode
from controller.metadata.commands import (
    AlterSyncStateSet,
    AnyCommand,
    ApplyBrokerId,
    CleanBrokerData,
    DropEligible,
    ElectMaster,
    LiveReplica,
    Observation,
    RegisterBroker,
    Trigger,
)
from controller.metadata.groups import BrokerGroup, GroupKey
from controller.metadata.invariants import Checker
from controller.metadata.machine import MetadataMachine
from controller.metadata.outcomes import Elected, EligibleDropped, NotElected, Outcome
from remoting.codes import ResponseCode
from tests.controller.metadata.fleet import raised

KEY = GroupKey("c", "a")
GATED = LiveReplica(min_in_sync_replicas=2)
NOBODY = NotElected(code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, key=KEY, master_epoch=1)
LEASED: dict[str, Any] = {"master_lease_ms": 800}


def run(liveness: Liveness, until_ns: int) -> None:
    """Look each time that a look is due."""
    while liveness.next_deadline() is not None and (due := liveness.attention.next_look) <= until_ns:
        liveness.attention.look(due)


class Stage:
    """One controller, and its log: what is proposed is committed when the test says so. Times in milliseconds."""

    def __init__(self, *, active: bool = True, **settings: Any) -> None:
        self.checker = Checker()
        self.machine = raised(MetadataMachine(self.checker))
        self.active = ActiveController(
            self.machine, Liveness(default_timeout_ms=1_000), ElectionSettings(**settings))
        self.now = 0
        self.term = 1
        if active:
            self.active.activate(0, 1)

    def at(self, now_ms: int) -> Stage:
        """Let time pass; this controller runs meanwhile, so it looks when it means to."""
        run(self.active.liveness, now_ms * MS)
        self.now = now_ms
        return self

    def wake(self, now_ms: int) -> Stage:
        """Go on after a pause that ends now."""
        self.now = now_ms
        return self

    @property
    def group(self) -> BrokerGroup:
        group = self.machine.group(KEY)
        assert group is not None
        return group

    def commit(self, command: AnyCommand) -> Outcome:
        """In the log and applied; whoever asked has not heard of it yet."""
        outcome = self.machine.apply_at(encode(command, self.machine.format), self.term)
        self.active.applied(self.now * MS, outcome)
        return outcome

    def beat(self, broker_id: int, channel: object = None, key: GroupKey = KEY, lease: bool = True,
             replica: LiveReplica | None = None, address: str = "", **more: Any) -> bool:
        beat = Heartbeat(key, broker_id, address or f"b{broker_id}:1", replica or LiveReplica(), **more)
        channel = f"{key.name} {broker_id}" if channel is None else channel
        return self.active.heartbeat(self.now * MS, beat, channel, raft_lease=lease)

    def close(self, broker_id: int, key: GroupKey = KEY) -> None:
        self.active.closed(f"{key.name} {broker_id}")

    def poll(self) -> Todo:
        return self.active.poll(self.now * MS)

    def asked(self) -> list[AnyCommand]:
        return self.poll().commands

    def carry_out(self) -> list[Outcome]:
        """All that the core wants, through the log."""
        outcomes = []
        for command in self.asked():
            outcomes.append(self.commit(command))
            self.active.answered(self.now * MS, command, outcomes[-1])
        return outcomes

    def form(self, *in_sync: int, key: GroupKey = KEY, **announced: Any) -> Stage:
        """Brokers 1 to 3, alive; the first of those in sync is master."""
        for broker_id in (1, 2, 3):
            self.commit(ApplyBrokerId(term=self.term, key=key, broker_id=broker_id, check_code=f"b{broker_id}:1;1"))
            self.beat(broker_id, key=key, **announced)
        observed = Observation({i: announced.get("replica", LiveReplica()) for i in (1, 2, 3)})
        self.commit(ElectMaster(
            term=self.term, key=key, trigger=Trigger.BROKER, broker_id=in_sync[0], observation=observed))
        if len(in_sync) > 1:
            self.commit(AlterSyncStateSet(
                term=self.term, key=key, broker_id=in_sync[0], master_epoch=1, sync_state_set=frozenset(in_sync),
                sync_state_set_epoch=1, observation=observed))
        assert self.asked() == []
        return self


def test_BUG_A4_a_closed_channel_elects_at_once() -> None:
    """Decided so although only this controller's link may be lost: waiting would cost every failover a timeout."""
    stage = Stage().form(1, 2)
    stage.at(10).close(1)
    (elected,) = stage.carry_out()
    assert isinstance(elected, Elected) and elected.master == 2
    assert stage.asked() == []


def test_BUG_A5_a_silent_master_is_elected_away_at_its_deadline() -> None:
    """One timeout after its last heartbeat, and the core says when to look."""
    stage = Stage().form(1, 2)
    stage.at(900).beat(2)
    polls = 0
    while (due := stage.active.next_deadline()) is not None and due <= 1_000 * MS:
        assert stage.active.poll(due).commands == []
        polls += 1
    assert due == 1_000 * MS + 1 and polls < 5
    assert stage.at(1_000).asked() == []
    assert [type(each) for each in stage.at(1_001).carry_out()] == [Elected]
    assert stage.group.master == 2


@pytest.mark.parametrize("until", [1_001, 1_500, 12_000])
def test_a_controller_that_stood_still_deposes_nobody(until: int) -> None:
    """As a process that was stopped, or a machine: what came meanwhile is read after its timers have gone off."""
    stage = Stage().form(1, 2)
    assert stage.wake(until).asked() == []
    stage.beat(1)
    assert stage.asked() == [] and stage.at(until + 1_000).asked() == []
    assert stage.group.master == 1 and stage.group.master_epoch == 1
    outcomes = stage.at(until + 1_001).carry_out()
    assert [type(each) for each in outcomes] == [NotElected], "2 came back no more than 1 did"


def test_who_died_while_a_controller_stood_still_has_one_more_timeout() -> None:
    stage = Stage().form(1, 2)
    assert stage.wake(12_000).asked() == []
    stage.at(12_500).beat(2)
    assert stage.at(13_000).asked() == []
    assert [type(each) for each in stage.at(13_001).carry_out()] == [Elected]
    assert stage.group.master == 2


def test_slaves_that_die_change_nothing() -> None:
    stage = Stage().form(1, 2, 3)
    stage.close(2)
    stage.at(900).beat(1)
    assert stage.asked() == [] and stage.at(1_500).asked() == []
    assert stage.group.master == 1


def test_BUG_A1_a_change_of_the_active_controller_deposes_nobody() -> None:
    """A controller that hears the master for the first time as the active one waits for a whole timeout."""
    stage = Stage(active=False)
    stage.form(1, 2)
    stage.active.liveness.forget(KEY, 1)
    stage.at(50_000).active.activate(50_000 * MS, 2)
    assert stage.asked() == [] and stage.at(50_900).asked() == []
    stage.beat(1)
    assert stage.at(51_800).asked() == []
    assert stage.group.master == 1


def test_a_new_active_controller_acts_at_once_on_a_close_it_saw_itself() -> None:
    stage = Stage(active=False).form(1, 2)
    stage.at(500).close(1)
    assert stage.asked() == []
    stage.active.activate(500 * MS, 1)
    (command,) = stage.asked()
    assert isinstance(command, ElectMaster) and set(command.observation.live) == {2, 3}


def test_BUG_A7_what_happened_before_it_was_active_is_not_lost() -> None:
    """The leader changed between the loss and the election: the next one looks at every group."""
    stage = Stage().form(1, 2)
    stage.close(1)
    assert len(stage.asked()) == 1
    stage.active.deactivate()
    assert stage.asked() == [] and stage.active.next_deadline() is None
    stage.active.activate(0, 1)
    assert [type(each) for each in stage.carry_out()] == [Elected]


def test_BUG_A7_a_group_without_a_master_is_elected_for_when_somebody_comes_back() -> None:
    """All died; the failed election writes one epoch; who was in sync comes back and is elected by the controller."""
    stage = Stage().form(1, 2)
    for broker_id in (1, 2, 3):
        stage.close(broker_id)
    (nobody,) = stage.carry_out()
    assert isinstance(nobody, NotElected) and stage.group.master is None
    stage.at(5_000).beat(3)
    assert stage.asked() == [], "it was not in sync"
    stage.beat(2)
    (elected,) = stage.carry_out()
    assert isinstance(elected, Elected) and elected.master == 2


def test_a_changed_setting_reaches_a_group_without_a_master() -> None:
    stage = Stage().form(1)
    for broker_id in (1, 2, 3):
        stage.close(broker_id)
    stage.carry_out()
    stage.beat(3)
    assert stage.asked() == []
    stage.active.settings = attrs.evolve(stage.active.settings, unclean=True)
    stage.at(100).beat(3)
    (elected,) = stage.carry_out()
    assert isinstance(elected, Elected) and elected.master == 3 and not elected.clean


def test_INV_C22_a_master_lost_for_long_costs_one_epoch() -> None:
    stage = Stage().form(1)
    for broker_id in (1, 2, 3):
        stage.close(broker_id)
    stage.carry_out()
    epoch = stage.group.master_epoch
    for now in range(0, 100_000, 700):
        stage.at(now).beat(3)
        stage.carry_out()
    assert stage.group.master_epoch == epoch == 2


def test_BUG_A8_many_groups_are_one_batch() -> None:
    """A host with the masters of many groups dies: all elections are asked for in one turn."""
    stage = Stage()
    keys = [GroupKey("c", f"g{number:03}") for number in range(100)]
    for key in keys:
        stage.form(1, 2, key=key)
        stage.beat(1, "host", key=key)
    stage.active.closed("host")
    assert [each.key for each in stage.asked() if isinstance(each, ElectMaster)] == keys


def test_BUG_A9_a_lost_proposal_is_asked_for_again() -> None:
    """Nobody knows what became of it: a little later the group is looked at again, as it is then."""
    stage = Stage().form(1, 2)
    stage.close(1)
    (command,) = stage.asked()
    stage.active.answered(0, command, None)
    assert stage.asked() == []
    assert stage.active.next_deadline() == RETRY_MS * MS
    (again,) = stage.at(RETRY_MS).asked()
    assert again == command


def test_a_lost_answer_of_an_election_that_took_place_repeats_nothing() -> None:
    stage = Stage().form(1, 2)
    stage.close(1)
    (command,) = stage.asked()
    stage.commit(command)
    stage.active.answered(0, command, None)
    assert not any(isinstance(each, ElectMaster) for each in stage.at(RETRY_MS).asked())


def test_BUG_A10_an_answer_that_is_no_failure_is_not_asked_for_again() -> None:
    """2011, the master is alive, and 2004, nobody can be elected, are answers: nothing is proposed until something
    happens."""
    stage = Stage().form(1, 2)
    for broker_id in (1, 2, 3):
        stage.close(broker_id)
    assert len(stage.carry_out()) == 1
    for now in (0, RETRY_MS, 10 * RETRY_MS, 100 * RETRY_MS):
        assert stage.at(now).asked() == []


def test_one_command_at_a_time_for_a_group() -> None:
    stage = Stage().form(1, 2)
    stage.close(1)
    (command,) = stage.asked()
    stage.beat(1, "again")
    stage.active.closed("again")
    assert stage.asked() == []
    stage.active.answered(0, command, stage.commit(command))
    assert stage.asked() == []


def test_what_an_earlier_leadership_asked_for_means_nothing() -> None:
    stage = Stage().form(1, 2)
    stage.close(1)
    (command,) = stage.asked()
    stage.active.deactivate()
    stage.active.activate(0, 1)
    (again,) = stage.asked()
    stage.active.answered(0, command, None)
    assert stage.at(RETRY_MS).asked() == [] and again == command


def test_BUG_A13_the_eligible_go_when_the_gate_does() -> None:
    """Former members stay electable only while the master announces that it acknowledges nothing alone."""
    stage = Stage().form(1, 2, replica=GATED)
    stage.close(1)
    stage.carry_out()
    assert stage.group.master == 2 and stage.group.eligible == {1}
    stage.beat(2, replica=GATED)
    assert stage.asked() == []
    stage.beat(2)
    (dropped,) = stage.carry_out()
    assert isinstance(dropped, EligibleDropped) and stage.group.eligible == frozenset()


def test_a_lowered_gate_is_confirmed_by_a_renewal_only_when_nobody_is_eligible() -> None:
    """Whoever acts on the renewal alone can lose nothing, however often controllers die in between."""
    stage = Stage().form(1, 2, replica=GATED)
    stage.close(1)
    stage.carry_out()
    assert stage.beat(2, replica=GATED)
    assert not stage.beat(2), "announced, and somebody is eligible"
    (command,) = stage.asked()
    assert isinstance(command, DropEligible)
    assert not stage.beat(2), "under way"
    stage.active.answered(0, command, stage.commit(command))
    assert stage.beat(2)


def test_a_gate_is_judged_by_how_many_are_in_sync_not_by_whether_it_is_two() -> None:
    """Of three demanded two are in sync, and one may be elected beside them, until two are enough."""
    stage = Stage().form(1, 2, 3, replica=LiveReplica(min_in_sync_replicas=3))
    stage.commit(AlterSyncStateSet(
        term=1, key=KEY, broker_id=1, master_epoch=1, sync_state_set=frozenset({1, 2}), sync_state_set_epoch=2,
        observation=stage.active.observe(0, KEY), least=3))
    assert stage.group.eligible == {3}
    assert stage.beat(1, replica=LiveReplica(min_in_sync_replicas=3)) and stage.asked() == []
    assert not stage.beat(1, replica=GATED), "two are in sync: it may acknowledge as soon as that is answered"
    (dropped,) = stage.carry_out()
    assert isinstance(dropped, EligibleDropped) and stage.group.eligible == frozenset()
    assert stage.beat(1, replica=GATED)


def test_who_is_eligible_stays_so_while_the_minimum_is_raised() -> None:
    """A master that was left alone and demands more than before still acknowledges nothing."""
    stage = Stage().form(1, 2, replica=GATED)
    stage.close(1)
    stage.carry_out()
    for least in (3, 2, 5):
        assert stage.beat(2, replica=LiveReplica(min_in_sync_replicas=least)) and stage.asked() == []
        assert stage.group.eligible == {1}


@pytest.mark.parametrize(("who", "raft_lease", "active", "renewed"), [
    (1, True, True, True), (2, True, True, False), (1, False, True, False), (1, True, False, False),
])
def test_who_may_renew_a_masters_lease(who: int, raft_lease: bool, active: bool, renewed: bool) -> None:
    stage = Stage().form(1, 2, **LEASED)
    if not active:
        stage.active.deactivate()
    assert stage.beat(who, lease=raft_lease, **LEASED) is renewed


def test_no_renewal_while_an_election_is_under_way() -> None:
    stage = Stage().form(1, 2, **LEASED)
    command = ElectMaster(
        term=1, key=KEY, trigger=Trigger.ADMIN, broker_id=2, designate=True, observation=Observation())
    stage.active.asked(command)
    assert not stage.beat(1, **LEASED)
    stage.active.answered(0, command, NOBODY)
    assert stage.beat(1, **LEASED)


def test_the_end_of_one_election_is_not_the_end_of_another() -> None:
    """Two are under way in one group: the master's lease is held back until both are through."""
    stage = Stage().form(1, 2, **LEASED)
    both = [ElectMaster(term=1, key=KEY, trigger=Trigger.ADMIN, broker_id=i, designate=True, observation=Observation())
            for i in (2, 3)]
    for command in both:
        stage.active.asked(command)
    stage.active.answered(0, both[0], NOBODY)
    assert not stage.beat(1, **LEASED)
    stage.active.answered(0, both[1], NOBODY)
    assert stage.beat(1, **LEASED)


def test_an_election_in_doubt_holds_the_lease_back_until_a_later_entry_is_applied() -> None:
    """Its deadline passed: it may still be committed after the master is back, and then nothing must be renewed."""
    stage = Stage().form(1, 2, **LEASED)
    stage.close(1)
    (command,) = stage.asked()
    stage.active.answered(0, command, None)
    stage.at(50)
    assert not stage.beat(1, "again", **LEASED)
    (marker,) = stage.at(RETRY_MS).asked()
    assert isinstance(marker, DropEligible) and not stage.beat(1, "again", **LEASED)
    before = stage.group
    stage.active.answered(RETRY_MS * MS, marker, stage.commit(marker))
    assert stage.group == before and stage.beat(1, "again", **LEASED)
    assert stage.asked() == []


def test_doubt_ends_with_the_leadership() -> None:
    stage = Stage().form(1, 2, **LEASED)
    stage.close(1)
    stage.active.answered(0, stage.asked()[0], None)
    stage.active.deactivate()
    stage.beat(1, "again", **LEASED)
    stage.active.activate(0, 2)
    assert stage.asked() == [] and stage.beat(1, "again", **LEASED)


def test_BUG_A14_a_close_can_wait_for_the_masters_lease() -> None:
    """With the option, an announced lease is waited for: by the controller, and by whoever else asks meanwhile."""
    stage = Stage(wait_master_lease=True).form(1, 2, **LEASED)
    assert stage.at(100).beat(1, **LEASED)
    stage.at(200).close(1)
    assert stage.asked() == []
    assert stage.active.liveness.life(200 * MS, KEY, 1) is Life.CLOSED
    assert 1 in stage.active.observe(200 * MS, KEY).live, "nobody else may have it elected away either"
    assert stage.at(899).asked() == []
    assert stage.active.next_deadline() == 900 * MS
    assert 1 not in stage.active.observe(900 * MS, KEY).live
    assert [type(each) for each in stage.at(900).carry_out()] == [Elected]


@pytest.mark.parametrize("announced", [{}, {**LEASED, "all_ack_in_sync_state_set": True}])
def test_without_a_lease_that_matters_nobody_waits(announced: dict[str, Any]) -> None:
    """Java masters announce none; one that needs every member's acknowledgement can do no harm alone."""
    stage = Stage(wait_master_lease=True).form(1, 2, **announced)
    stage.beat(1, **announced)
    stage.close(1)
    assert len(stage.asked()) == 1
    assert 1 not in stage.active.observe(0, KEY).live


def test_a_master_that_is_back_before_its_lease_is_over_stays() -> None:
    stage = Stage(wait_master_lease=True).form(1, 2, **LEASED)
    stage.beat(1, **LEASED)
    stage.close(1)
    assert stage.asked() == []
    stage.at(300).beat(1, "again", **LEASED)
    assert stage.at(850).asked() == []
    assert stage.group.master == 1


def test_BUG_A11_a_first_master_is_for_a_broker_to_ask_for() -> None:
    """A group that never had one is left alone, whoever beats."""
    stage = Stage()
    stage.commit(ApplyBrokerId(term=1, key=KEY, broker_id=1, check_code="b1:1;1"))
    stage.beat(1)
    assert stage.asked() == []
    stage.close(1)
    assert stage.at(5_000).asked() == []
    assert stage.group.master_epoch == 0


def test_members_are_told_of_an_election() -> None:
    stage = Stage().form(1, 2)
    told = {each.broker_id: each.address for each in stage.poll().notifications}
    assert told == {}, "all were told when the group was formed"
    stage.close(1)
    stage.carry_out()
    assert {each.broker_id: each.address for each in stage.poll().notifications} == {2: "b2:1", 3: "b3:1"}
    stage.at(10).beat(1, "again")
    (late,) = stage.poll().notifications
    assert late.broker_id == 1 and late.change.master == 2


def test_a_broker_that_moved_is_told_where_it_is_now() -> None:
    stage = Stage().form(1, 2)
    stage.close(2)
    stage.close(1)
    stage.commit(RegisterBroker(term=1, key=KEY, broker_id=2, address="elsewhere:1",
                                instead_of=("b2:1", None), observation=Observation()))
    stage.beat(2, address="elsewhere:1")
    stage.carry_out()
    assert {each.broker_id: each.address for each in stage.poll().notifications} == {2: "elsewhere:1", 3: "b3:1"}


def test_cleaned_brokers_are_forgotten() -> None:
    stage = Stage().form(1, 2)
    stage.close(1)
    stage.carry_out()
    stage.commit(CleanBrokerData(term=1, key=KEY, broker_ids=frozenset({1}), observation=Observation()))
    assert stage.active.liveness.beat(KEY, 1) is None
    assert all(each.broker_id != 1 for each in stage.poll().notifications)


def test_a_cleaned_master_is_replaced() -> None:
    stage = Stage().form(1, 2)
    stage.commit(CleanBrokerData(
        term=1, key=KEY, broker_ids=frozenset({1}), clean_living=True, observation=Observation()))
    (elected,) = stage.carry_out()
    assert isinstance(elected, Elected) and elected.master == 2


def test_strangers_are_not_remembered_when_they_leave() -> None:
    stage = Stage().form(1, 2)
    stranger = GroupKey("c", "nobody")
    stage.beat(9, key=stranger)
    assert len(stage.active.liveness) == 4
    stage.close(9, stranger)
    assert len(stage.active.liveness) == 3
    stage.beat(9)
    stage.at(1_500).beat(1)
    stage.poll()
    assert stage.active.liveness.beat(KEY, 9) is None, "nor when they fall silent"


def test_settings_travel_in_elections() -> None:
    stage = Stage(policy="preferred", preferred={KEY: 3}, unclean=True).form(1, 2)
    stage.close(1)
    (command,) = stage.asked()
    assert isinstance(command, ElectMaster)
    assert (command.policy, command.preferred, command.unclean, command.trigger) == (
        "preferred", 3, True, Trigger.CONTROLLER)


def test_only_the_active_controller_asks_for_anything() -> None:
    stage = Stage(active=False).form(1, 2)
    stage.close(1)
    assert stage.poll() == Todo() and stage.active.next_deadline() is None
    assert not stage.beat(1)


def test_heartbeats_that_change_nothing_are_worth_no_turn() -> None:
    stage = Stage().form(1, 2)

    def stirred() -> bool:
        return stage.active.stirred

    stage.at(90).beat(1)
    assert not stirred()
    stage.beat(2, timeout_ms=5)
    assert stirred(), "it may be silent earlier than the next look"
    stage.poll()
    assert not stirred()
    stage.close(1)
    assert stirred()
    assert len(stage.asked()) == 1
    stage.active.deactivate()
    stage.beat(2)
    assert not stirred()


DOUBT: dict[str, Any] = {"log_in_doubt": True, "all_ack_in_sync_state_set": True}


def lone(doubted: dict[int, LiveReplica], sure: tuple[int, ...] = (), **settings: Any) -> Stage:
    """Brokers 1 and 2 were in sync, 3 was not; all died, then these came back."""
    stage = Stage(**settings).form(1, 2)
    stage.at(10)
    for broker_id in (2, 3, 1):
        stage.close(broker_id)
    stage.carry_out()
    stage.at(20)
    for broker_id, replica in doubted.items():
        stage.beat(broker_id, f"again {broker_id}", replica=replica, **DOUBT, doubt_epoch=stage.group.master_epoch)
    for broker_id in sure:
        stage.beat(broker_id, f"again {broker_id}")
    return stage


def masters(stage: Stage) -> int | None:
    stage.carry_out()
    return stage.group.master


def by_itself(stage: Stage, broker_id: int, *, designate: bool = False) -> Outcome:
    """As ``controller.requests`` reads it."""
    observation, policy = stage.active.observe(stage.now * MS, KEY), "default"
    if not designate:
        observation, policy = stage.active.candidates(KEY, observation)
    return stage.commit(ElectMaster(
        term=1, key=KEY, trigger=Trigger.ADMIN if designate else Trigger.BROKER, broker_id=broker_id,
        designate=designate, policy=policy, observation=observation))


LONG, SHORT = LiveReplica(epoch=1, max_offset=90), LiveReplica(epoch=1, max_offset=50)


def test_who_may_have_lost_something_waits_for_who_may_have_not() -> None:
    stage = lone({1: LONG})
    assert masters(stage) is None
    assert isinstance(by_itself(stage, 1), NotElected)
    stage.beat(2, "again 2", replica=SHORT)
    assert masters(stage) == 2, "it holds what was acknowledged, whatever else the other one has"


def test_where_all_who_may_be_elected_are_in_doubt_the_longest_log_leads() -> None:
    stage = lone({2: SHORT, 3: attrs.evolve(LONG, max_offset=99)})
    assert masters(stage) is None, "1 is not here, and 3 was not in sync"
    stage.beat(1, "again 1", replica=LONG, **DOUBT, doubt_epoch=2)
    assert masters(stage) == 1


def test_a_doubt_of_before_the_master_was_lost_may_be_over() -> None:
    """A replica is level with its master, and the master's machine goes down before the next heartbeat."""
    stage = lone({2: SHORT})
    stage.beat(1, "again 1", replica=LONG, **DOUBT, doubt_epoch=1)
    assert masters(stage) is None
    assert isinstance(by_itself(stage, 2), NotElected), "the other one may be in doubt no longer"
    stage.beat(1, "again 1", replica=SHORT)
    assert masters(stage) == 1


def test_those_in_doubt_do_not_choose_while_the_lost_master_is_on_record() -> None:
    """Whoever says so knew of the epoch in which there was a master."""
    stage = Stage().form(1, 2)
    stage.beat(2, "channel 2", replica=LONG, **DOUBT, doubt_epoch=1)
    stage.at(10).close(1)
    assert masters(stage) is None and stage.group.master_epoch == 2
    stage.beat(1, "again 1", replica=SHORT, **DOUBT, doubt_epoch=2)
    assert masters(stage) is None
    stage.beat(2, "channel 2", replica=LONG, **DOUBT, doubt_epoch=2)
    assert masters(stage) == 2


def test_a_master_that_lives_is_not_replaced_for_what_it_last_said_of_doubt() -> None:
    """Its heartbeat of before the election stands until the next one."""
    stage = lone({1: LONG, 2: SHORT})
    assert masters(stage) == 1
    outcome = by_itself(stage, 2)
    assert outcome.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST and stage.group.master == 1


@pytest.mark.parametrize("policy", ["preferred", "priority"])
def test_no_preference_counts_among_those_in_doubt(policy: str) -> None:
    last = attrs.evolve(SHORT, priority=1)
    stage = lone({1: LONG, 2: last}, policy=policy, preferred={KEY: 2})
    assert masters(stage) == 1


def test_a_later_epoch_counts_more_than_a_longer_log() -> None:
    assert masters(lone({1: LONG, 2: attrs.evolve(SHORT, epoch=2)})) == 2


def test_who_is_level_again_is_as_good_as_any() -> None:
    stage = lone({1: LONG})
    stage.beat(1, "again 1", replica=LONG)
    assert masters(stage) == 1


def test_an_operator_may_name_one_that_is_in_doubt() -> None:
    stage = lone({1: LONG})
    assert isinstance(by_itself(stage, 1, designate=True), Elected)


def test_with_unclean_elections_nobody_is_waited_for() -> None:
    assert masters(lone({1: LONG}, unclean=True)) == 1
    assert masters(lone({1: LONG}, (3,), unclean=True)) == 1, "a member of the SyncStateSet before any other one"


def test_a_group_of_one_goes_on() -> None:
    stage = Stage().form(1)
    stage.at(10).close(1)
    stage.carry_out()
    stage.beat(1, "again", replica=LONG, **DOUBT, doubt_epoch=2)
    assert masters(stage) == 1


def test_the_first_master_of_a_group_may_be_in_doubt() -> None:
    stage = Stage()
    stage.commit(ApplyBrokerId(term=1, key=KEY, broker_id=1, check_code="b1:1;1"))
    stage.beat(1, **DOUBT)
    assert isinstance(by_itself(stage, 1), Elected)


def test_a_group_without_a_master_is_named_and_so_are_members_that_were_never_heard() -> None:
    """As where brokers are told of other controllers: nothing else would say why nobody is elected."""
    stage = Stage(active=False).form(1, 2)
    assert stage.active.explain(0) == [], "it leads nothing"
    for broker_id in (1, 2, 3):
        stage.active.liveness.forget(KEY, broker_id)
    stage.at(50_000).active.activate(50_000 * MS, 1)
    assert stage.active.explain(50_500 * MS) == [], "they may beat yet"
    stage.at(51_001)
    assert [type(each) for each in stage.carry_out()] == [NotElected]
    stage.at(51_100).beat(3)
    assert stage.active.explain(51_100 * MS) == [
        "c/a: no master. Electable are 1, 2; alive are 3.",
        "c/a: this controller has never heard 1, 2: they are down, or beat at other addresses (their controllerAddr)."]


def test_whom_a_broker_reaches_is_kept_of_members_about_members() -> None:
    stage = Stage().form(1, 2)
    told = frozenset(range(1_000))
    for broker_id, key in ((2, KEY), (7, KEY), (1, GroupKey("c", "nobody's"))):
        stage.beat(broker_id, key=key, silent_epoch=1, reaches=told)
    kept = [beat.reaches for key, broker_id in ((KEY, 2), (KEY, 7), (GroupKey("c", "nobody's"), 1))
            if (beat := stage.active.liveness.beat(key, broker_id)) is not None]
    assert kept == [{1, 2, 3}, frozenset(), frozenset()]
