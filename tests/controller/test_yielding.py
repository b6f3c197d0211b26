"""Masters that live and are of no use: who follows them, on what evidence, and how often. Times in milliseconds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import pytest

from controller.active import Todo
from controller.liveness import MS
from controller.metadata.commands import AlterSyncStateSet, AnyCommand, ElectMaster, LiveReplica, Observation
from controller.metadata.groups import GroupKey
from controller.metadata.outcomes import Elected, Outcome
from controller.yielding import Ask, NoSuccessor, _clique
from tests.controller.test_active import KEY, Stage

OURS: dict[str, Any] = {
    "interval_ms": 250, "timeout_ms": 10_000, "all_ack_in_sync_state_set": True, "master_lease_ms": 1_500}
"""A broker of this release; a master missed two of its heartbeats after 500 ms."""
GATE = LiveReplica(epoch=1, max_offset=100, min_in_sync_replicas=2)
OTHER: dict[str, Any] = {**OURS, "all_ack_in_sync_state_set": False}
"""In another mode than all-ack."""


class Group(Stage):
    """Three brokers that beat each 50 ms when time is let pass, but for those that are ``gone``; 1 is master."""

    def __init__(
        self, *in_sync: int, replica: LiveReplica = GATE, ours: dict[str, Any] = OURS, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.ours = {**ours, "replica": replica}
        self.says: dict[int, dict[str, Any]] = {1: {}, 2: {}, 3: {}}
        self.gone: set[int] = set()
        self.renewed = 0
        """When the master's lease was renewed last."""
        self.form(*(in_sync or (1, 2, 3)), **self.ours)

    def at(self, now_ms: int) -> Group:
        super().at(now_ms)
        return self

    def silent(self, **reaches: set[int]) -> Group:
        """Brokers 2 and 3 do not hear the master of the present epoch, and reach these."""
        for broker_id in (2, 3):
            self.says[broker_id] = {"silent_epoch": self.group.master_epoch, "reaches": frozenset(
                reaches.get(f"b{broker_id}", {5 - broker_id}))}
        return self

    def pass_time(self, until: int) -> list[Outcome]:
        """All beat and the controller looks, each 50 ms; what it wants is carried out."""
        outcomes: list[Outcome] = []
        while self.now < until:
            self.at(self.now + 50)
            outcomes += self.all_beat()
        return outcomes

    def all_beat(self) -> list[Outcome]:
        for broker_id in {1, 2, 3} - self.gone:
            if self.beat(broker_id, **{**self.ours, **self.says[broker_id]}):
                self.renewed = self.now
        return self.carry_out()

    def ask(self, reason: str = "silence", *holders: int) -> AnyCommand | NoSuccessor:
        """By the present master."""
        group = self.group
        assert group.master is not None
        return self.active.yields(self.now * MS, KEY, Ask(group.master, group.master_epoch, reason, frozenset(holders)))

    def replace(self, asked: AnyCommand | NoSuccessor) -> int:
        """What was granted is carried out; who leads now."""
        assert isinstance(asked, ElectMaster), asked
        self.active.asked(asked)
        outcome = self.commit(asked)
        self.active.answered(self.now * MS, asked, outcome)
        assert isinstance(outcome, Elected)
        return outcome.master


def refused(asked: object) -> tuple[bool, str]:
    """Whether to ask again soon, and why not now."""
    assert isinstance(asked, NoSuccessor), asked
    return asked.wait, asked.remark


# --- a master asks, for silence

def test_a_master_that_its_members_do_not_hear_is_replaced_when_it_asks() -> None:
    group = Group().silent()
    group.pass_time(200)
    assert group.replace(group.ask()) in (2, 3) and group.group.master_epoch == 2


def test_it_waits_until_enough_members_said_so() -> None:
    group = Group().silent()
    del group.says[3]["silent_epoch"]
    group.pass_time(200)
    wait, why = refused(group.ask())
    assert wait and why == "it is silent for 2; of these reach each other: 2; 2 are demanded"


def test_it_waits_until_they_reach_each_other_both_ways() -> None:
    group = Group().silent(b3=set())
    group.pass_time(200)
    assert refused(group.ask())[0]
    group.silent().pass_time(250)
    assert isinstance(group.ask(), ElectMaster)


def test_where_too_few_live_it_is_refused_at_once() -> None:
    group = Group().silent()
    group.pass_time(200)
    group.close(3)
    assert refused(group.ask()) == (False, "2 could go on without it, led by 2, and 2 are demanded")


def test_whose_minimum_is_one_goes_on_alone() -> None:
    group = Group(replica=LiveReplica(epoch=1, max_offset=100)).silent()
    group.pass_time(200)
    assert refused(group.ask()) == (False, "it demands 1 in sync, and can go on alone")


@pytest.mark.parametrize("unfit", [
    {"disk_trouble": True}, {"log_in_doubt": True}, {"replica": attrs.evolve(GATE, learner=True)},
    {"interval_ms": None}], ids=["disk", "doubt", "learner", "java"])
def test_who_is_not_fit_does_not_count(unfit: dict[str, Any]) -> None:
    group = Group().silent()
    group.says[3].update(unfit)
    group.pass_time(200)
    assert refused(group.ask())[0] is False


def test_what_was_said_of_an_earlier_epoch_does_not_count() -> None:
    group = Group().silent()
    group.says[3]["silent_epoch"] = 0
    group.pass_time(200)
    assert refused(group.ask())[0]


def test_an_old_heartbeat_is_no_evidence() -> None:
    """It is one once, and not for as long as its sender's timeout."""
    group = Group().silent()
    group.pass_time(200)
    group.gone = {3}
    group.pass_time(700)
    assert isinstance(group.ask(), ElectMaster)
    group = Group().silent()
    group.pass_time(200)
    group.gone = {3}
    group.pass_time(750)
    assert refused(group.ask())[0]


def test_who_is_not_in_sync_may_go_on_too_and_does_not_lead() -> None:
    """A set that lost one slave just before the other: the first one follows the second, and joins."""
    longer = attrs.evolve(GATE, max_offset=200)
    for ours, gone in ((OURS, ()), ({**OTHER, "master_lease_ms": 0}, ()), (OURS, (1,))):
        group = Group(1, 3, ours=ours).silent()
        group.says[2]["replica"] = longer
        group.gone = {*gone}
        group.pass_time(200)
        if not gone:
            assert group.replace(group.ask()) == 3
        else:
            (elected,) = group.pass_time(750)
            assert isinstance(elected, Elected) and elected.master == 3
        assert group.group.sync_state_set == {3}


def test_who_is_not_in_sync_must_be_fit_too() -> None:
    group = Group(1, 2).silent()
    group.says[3]["disk_trouble"] = True
    group.pass_time(200)
    assert refused(group.ask()) == (False, "2 could go on without it, led by 2, and 2 are demanded")


def test_where_nobody_that_lives_may_be_elected_it_is_refused_at_once() -> None:
    group = Group(1, replica=LiveReplica(epoch=1, max_offset=100)).silent()
    group.ours["replica"] = GATE
    group.pass_time(200)
    assert refused(group.ask()) == (False, "2, 3 could go on without it, led by nobody, and 2 are demanded")


def test_who_hears_it_and_is_not_in_sync_keeps_no_master() -> None:
    """Whom the master could not take in without this controller."""
    group = Group(1, 2, replica=LiveReplica(epoch=1, max_offset=100)).silent(b2=set())
    del group.says[3]["silent_epoch"]
    group.gone = {1}
    (elected,) = group.pass_time(750)
    assert isinstance(elected, Elected) and elected.master == 2


def test_while_another_election_is_under_way_nothing_is_decided() -> None:
    group = Group().silent()
    group.pass_time(200)
    designated = ElectMaster(term=1, key=KEY, trigger=3, broker_id=2, designate=True,  # type: ignore[arg-type]
                             observation=group.active.observe(group.now * MS, KEY))
    group.active.asked(designated)
    assert refused(group.ask()) == (True, "an election of c/a is under way")
    group.active.answered(group.now * MS, designated, None)
    assert refused(group.ask()) == (True, "an election of c/a is under way")


def test_an_election_that_comes_too_late_leaves_the_master() -> None:
    """The set has shrunk on the way, so the members have heard it."""
    group = Group().silent()
    group.pass_time(200)
    asked = group.ask()
    assert isinstance(asked, ElectMaster)
    group.commit(AlterSyncStateSet(
        term=1, key=KEY, broker_id=1, master_epoch=1, sync_state_set=frozenset({1}), sync_state_set_epoch=2,
        observation=Observation({1: GATE})))
    group.commit(asked)
    assert (group.group.master, group.group.master_epoch) == (1, 1)


def test_an_unknown_reason_is_refused() -> None:
    group = Group().silent()
    group.pass_time(200)
    assert refused(group.ask("boredom")) == (False, "yieldReason = boredom: silence or disk")


# --- other modes than all-ack

def test_in_other_modes_its_lease_ends_as_it_asks_and_is_over_before_the_election() -> None:
    group = Group(ours=OTHER).silent()
    group.pass_time(200)
    renewed = group.renewed
    assert renewed == 200
    asks = 0
    while isinstance(group.ask(), NoSuccessor) and asks < 50:
        asks += 1
        group.pass_time(group.now + 100)
    assert group.renewed == renewed and group.now == renewed + 1_500 and asks == 15


def test_an_ask_that_came_late_replaces_no_master_that_goes_on() -> None:
    """It holds the lease back for a moment, and that is all."""
    group = Group(ours=OTHER).silent()
    group.pass_time(200)
    assert refused(group.ask()) == (True, "the master's lease lasts for 1.5 s")
    group.pass_time(1_150)
    assert group.renewed == 200
    group.pass_time(1_300)
    assert group.renewed == 1_300


def test_a_refused_ask_costs_no_lease() -> None:
    group = Group(ours=OTHER).silent()
    group.pass_time(200)
    refused(group.ask("boredom"))
    group.pass_time(250)
    assert group.renewed == 250


def test_with_all_ack_asking_costs_no_lease() -> None:
    group = Group().silent(b3=set())
    group.pass_time(200)
    assert refused(group.ask())[0]
    group.pass_time(250)
    assert group.renewed == 250


def test_in_other_modes_who_lacks_what_another_has_does_not_follow() -> None:
    group = Group(ours={**OTHER, "master_lease_ms": 0}).silent()
    group.says[3]["replica"] = attrs.evolve(GATE, max_offset=200)
    group.pass_time(200)
    assert group.replace(group.ask()) == 3
    group = Group(ours={**OTHER, "master_lease_ms": 0}, policy="priority").silent()
    group.says[2]["replica"] = attrs.evolve(GATE, max_offset=150, priority=1)
    group.says[3]["replica"] = attrs.evolve(GATE, max_offset=200)
    group.pass_time(200)
    assert group.replace(group.ask()) == 3


def test_in_other_modes_nobody_follows_while_one_with_a_bad_disk_holds_more() -> None:
    group = Group(ours=OTHER, replica=LiveReplica(epoch=1, max_offset=100)).silent()
    group.says[3] = {"disk_trouble": True, "replica": LiveReplica(epoch=1, max_offset=200)}
    group.gone = {1}
    assert group.pass_time(3_000) == []
    group.says[3]["replica"] = LiveReplica(epoch=1, max_offset=100)
    (elected,) = group.pass_time(3_300)
    assert isinstance(elected, Elected) and elected.master == 2


# --- a master asks, for its disk

def test_a_master_with_a_bad_disk_is_followed_by_a_holder_with_a_good_one() -> None:
    group = Group()
    group.says[2]["disk_trouble"] = True
    group.pass_time(50)
    assert refused(group.ask("disk", 2, 3)) == (True, "3 may be about to tell of the same disk")
    group.pass_time(150)
    assert group.replace(group.ask("disk", 2, 3)) == 3


def test_a_disk_that_all_share_and_the_master_tells_of_first_elects_nobody() -> None:
    """They find out within a look of each other; before that one would be elected whose disk hangs as well."""
    group = Group()
    group.says[1]["disk_trouble"] = True
    group.pass_time(50)
    assert refused(group.ask("disk", 2, 3))[0]
    group.says = {each: {"disk_trouble": True} for each in group.says}
    group.pass_time(150)
    assert refused(group.ask("disk", 2, 3)) == (False, "of 2, 3 nobody may follow it, lives and has a good disk")


def test_a_master_that_asked_long_ago_asks_for_the_first_time_again() -> None:
    group = Group()
    group.pass_time(50)
    assert refused(group.ask("disk", 2, 3))[0]
    group.pass_time(1_100)
    assert refused(group.ask("disk", 2, 3))[0]


def test_a_disk_that_all_share_elects_nobody() -> None:
    group = Group()
    group.says = {each: {"disk_trouble": True} for each in group.says}
    group.pass_time(50)
    assert refused(group.ask("disk", 2, 3)) == (False, "of 2, 3 nobody may follow it, lives and has a good disk")


def test_who_is_not_named_does_not_follow() -> None:
    group = Group()
    group.says[2]["disk_trouble"] = True
    group.pass_time(50)
    assert refused(group.ask("disk", 2))[0] is False


def test_in_other_modes_a_holder_has_told_that_it_is_level() -> None:
    """What the master named may be of before it went on, and wrote."""
    group = Group(ours={**OTHER, "master_lease_ms": 0})
    group.says[1]["replica"] = attrs.evolve(GATE, max_offset=200)
    group.pass_time(50)
    assert refused(group.ask("disk", 2, 3)) == (True, "2, 3 have not told yet that they hold all")
    group.says[3]["replica"] = attrs.evolve(GATE, max_offset=200)
    group.pass_time(200)
    assert group.replace(group.ask("disk", 2, 3)) == 3


# --- nobody asks

def test_a_silent_master_is_replaced_unasked() -> None:
    """With all-ack as soon as this controller missed two of its heartbeats, too."""
    group = Group()
    group.pass_time(200)
    group.gone = {1}
    group.silent().pass_time(700)
    assert group.group.master == 1
    (elected,) = group.pass_time(750)
    assert isinstance(elected, Elected) and elected.master in (2, 3) and elected.previous == 1


def test_a_master_that_this_controller_hears_is_not_replaced_unasked() -> None:
    group = Group().silent()
    assert group.pass_time(9_000) == []


def test_in_other_modes_it_is_replaced_when_its_lease_is_over() -> None:
    group = Group(ours=OTHER)
    group.pass_time(200)
    group.gone = {1}
    assert group.silent().pass_time(1_650) == [] and group.renewed == 200
    (elected,) = group.pass_time(1_700)
    assert isinstance(elected, Elected)


def test_without_a_lease_other_modes_wait_for_its_timeout() -> None:
    group = Group(ours={**OTHER, "master_lease_ms": 0})
    group.gone = {1}
    assert group.silent().pass_time(9_950) == []
    assert len(group.pass_time(10_050)) == 1


@pytest.mark.parametrize("java", [1, 3])
def test_where_a_member_does_not_tell_of_silence_its_timeout_is_waited_for(java: int) -> None:
    group = Group().silent()
    group.says[java] = {"interval_ms": None}
    group.pass_time(50)
    group.gone = {1}
    assert group.pass_time(9_950) == []


def test_who_hear_it_are_not_outvoted_by_as_many() -> None:
    group = Group(replica=LiveReplica(epoch=1, max_offset=100)).silent()
    group.says[3] = {}
    group.pass_time(50)
    group.gone = {1}
    assert group.pass_time(3_000) == []
    group.silent()
    assert len(group.pass_time(3_300)) == 1


def test_a_minimum_of_one_needs_one_witness_and_the_controller() -> None:
    group = Group(1, 2, replica=LiveReplica(epoch=1, max_offset=100)).silent(b2=set())
    group.gone = {1}
    (elected,) = group.pass_time(600)
    assert isinstance(elected, Elected) and elected.master == 2


def test_a_new_active_controller_gives_the_master_time() -> None:
    group = Group()
    group.pass_time(200)
    group.gone = {1}
    group.silent().pass_time(600)
    group.active.deactivate()
    group.term = 2
    group.active.activate(600 * MS, 2)
    assert group.pass_time(1_100) == []
    assert len(group.pass_time(1_150)) == 1


def test_who_stood_still_accuses_nobody_by_what_it_reads_first() -> None:
    """What members said meanwhile is read before what the master said."""
    group = Group()
    group.pass_time(200)
    group.at(4_000).silent()
    group.gone = {1}
    for now in (4_000, 4_010, 4_050, 4_090):
        assert group.at(now).all_beat() == []
        wait, _ = refused(group.ask())
        assert wait
    group.gone = set()
    group.says = {1: {}, 2: {}, 3: {}}
    assert group.pass_time(6_000) == []


def test_who_looks_late_begins_anew() -> None:
    group = Group().silent()
    group.pass_time(200)
    group.gone = {1}
    assert group.pass_time(500) == []
    for now in (800, 880, 895):
        assert group.at(now).all_beat() == []
    assert len(group.at(900).all_beat()) == 1


def test_it_looks_by_itself() -> None:
    """No further heartbeat is needed once all is said."""
    group = Group().silent()
    group.pass_time(200)
    group.gone = {1}
    group.pass_time(550)
    for _ in range(20):
        due = group.active.next_deadline()
        assert due is not None
        group.at(max(-(-due // MS), group.now))
        if group.carry_out():
            break
    assert (group.group.master_epoch, group.now) == (2, 701)


# --- how often

def elections(group: Group, until: int) -> list[int]:
    """Members that are hindered again by whoever leads, and a master that asks each 100 ms."""
    times = []
    while group.now < until:
        group.all_beat()
        master, epoch = group.group.master, group.group.master_epoch
        others = {1, 2, 3} - {master}
        for each in others:
            group.says[each] = {"silent_epoch": epoch, "reaches": frozenset(others)}
        asked = group.ask()
        if isinstance(asked, ElectMaster):
            times.append(group.now)
            group.replace(asked)
            group.commit(AlterSyncStateSet(
                term=1, key=KEY, broker_id=group.group.master or 0, master_epoch=group.group.master_epoch,
                sync_state_set=frozenset({1, 2, 3}), sync_state_set_epoch=group.group.sync_state_set_epoch,
                observation=group.active.observe(group.now * MS, KEY)))
        group.at(group.now + 100)
    return times


def test_elections_per_minute_are_bounded_when_nobody_can_do_better() -> None:
    times = elections(Group(), 400_000)
    gaps = [round((after - before) / 1_000) for before, after in pairwise(times)]
    assert gaps[:6] == [1, 2, 4, 8, 16, 32] and set(gaps[6:]) == {60}
    assert all(sum(start <= each < start + 60_000 for each in times) <= 6 for start in times)


def test_what_was_long_ago_is_forgotten() -> None:
    group = Group()
    assert len(elections(group, 20_000)) == 5
    group.says = {1: {}, 2: {}, 3: {}}
    group.pass_time(330_000)
    assert len(elections(group, 331_500)) == 2


# --- any election

def test_any_election_prefers_a_good_disk() -> None:
    group = Group(policy="priority")
    group.says[2] = {"disk_trouble": True, "replica": attrs.evolve(GATE, priority=1, max_offset=200)}
    group.pass_time(50)
    group.close(1)
    (elected,) = group.carry_out()
    assert isinstance(elected, Elected) and elected.master == 3


def test_nobody_waits_for_a_good_disk() -> None:
    group = Group()
    group.says[2] = group.says[3] = {"disk_trouble": True}
    group.pass_time(50)
    group.close(1)
    assert [type(each) for each in group.carry_out()] == [Elected]


def test_in_other_modes_a_good_disk_that_holds_less_is_not_preferred() -> None:
    group = Group(ours=OTHER)
    group.says[2] = {"disk_trouble": True, "replica": attrs.evolve(GATE, max_offset=200)}
    group.pass_time(50)
    group.close(1)
    (elected,) = group.carry_out()
    assert isinstance(elected, Elected) and elected.master == 2


def test_a_living_master_with_a_bad_disk_is_not_passed_over() -> None:
    """It is replaced when it asks, and by no other one's election."""
    group = Group()
    group.says[1] = {"disk_trouble": True}
    group.pass_time(50)
    observation, _ = group.active.candidates(KEY, group.active.observe(group.now * MS, KEY))
    assert 1 in observation.live


# --- words, and bounds

def test_it_is_explained() -> None:
    group = Group().silent(b3=set())
    group.says[3]["disk_trouble"] = True
    group.pass_time(200)
    assert group.active.explain(group.now * MS) == [
        "c/a: trouble with their disks tell 3.",
        "c/a: its master, broker 1, is silent for 2; of these reach each other: 2. This controller heard it 0.0 s ago."]
    group.says[3] = {}
    group.silent().pass_time(500)
    group.replace(group.ask())
    assert group.active.explain(group.now * MS) == [
        "c/a: no master that lives is replaced for 1.0 s, as one was just before."]
    group.active.deactivate()
    assert group.active.explain(group.now * MS) == []


def test_it_is_written_down() -> None:
    group = Group().silent()
    group.pass_time(200)
    group.replace(group.ask())
    assert group.active.stirred
    todo: Todo = group.poll()
    assert todo.replaced == [(GroupKey("c", "a"), 1, "it is silent for 2, 3, who reach each other")]
    assert group.poll().replaced == []


@pytest.mark.parametrize(("said", "electable", "best"), [
    ({}, "12345", set()),
    ({1: ""}, "12345", {1}),
    ({1: ""}, "2345", set()),
    ({1: "2", 2: "1", 3: "12"}, "12345", {1, 2}),
    ({1: "234", 2: "134", 3: "12", 4: "12"}, "12345", {1, 2, 4}),
    ({1: "234", 2: "134", 3: "12", 4: "12"}, "123", {1, 2, 3}),
    ({1: "234", 2: "134", 3: "12", 4: "12"}, "4", {1, 2, 4}),
    ({1: "2345", 2: "1", 3: "145", 4: "135", 5: "134"}, "12345", {1, 3, 4, 5}),
    ({1: "2345", 2: "1", 3: "145", 4: "135", 5: "134"}, "2", {1, 2}),
])
def test_a_clique_is_the_largest_that_one_may_lead_and_of_several_that_of_the_longest_logs(
    said: dict[int, str], electable: str, best: set[int]
) -> None:
    replicas = {each: LiveReplica(max_offset=100 + (each == 4)) for each in range(1, 6)}
    reached = {each: {*map(int, reaches)} for each, reaches in said.items()}
    assert _clique(reached, replicas, {*map(int, electable)}) == best


def test_a_group_of_hundreds_is_judged_in_no_time() -> None:
    everybody = frozenset(range(300))
    replicas = {each: LiveReplica(max_offset=each) for each in everybody}
    assert _clique(dict.fromkeys(everybody, everybody), replicas, everybody) == frozenset(range(284, 300))
