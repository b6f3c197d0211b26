"""Simulated controllers and brokers: seeds pass, repeat exactly, and a bug is found, made small and told how to repeat.

Planted bugs by the dozen are in ``run_mutants``; here are those that a few seeds find.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs
import pytest

from controller.active import ActiveController, ElectionSettings
from controller.liveness import MS, Liveness
from controller.metadata import machine
from controller.metadata.commands import ElectMaster, Observation
from controller.metadata.elect import elect
from controller.metadata.groups import BrokerGroup
from controller.metadata.invariants import INVARIANTS
from controller.metadata.outcomes import Elected, Outcome
from harness.simulation.brokers.contract import Excuse
from harness.simulation.brokers.scene import BROKERS
from harness.simulation.controllers.fleet import FleetGroup
from harness.simulation.controllers.machine import Machine
from harness.simulation.controllers.plan import draw
from harness.simulation.controllers.scene import CONTROLLERS, ControllerScene, Progress, make
from harness.simulation.controllers.watch import OF_BROKERS_ALONE, PREDICATES
from raft.sim.campaign import Result, run
from raft.sim.command import main
from raft.sim.tape import Tape
from raft.violation import InvariantViolation
from tests.harness.planting import Planted, can_be_planted
from tests.harness.simulation.controllers.mutants import PLANTED
from tests.harness.simulation.planted import found_small_and_repeated


def play(seed: int, profile: str = "swarm") -> Result:
    return run(Tape(seed), profile, program=CONTROLLERS)


@pytest.mark.parametrize(("profile", "seed"), [
    ("swarm", 2), ("swarm", 42), ("swarm", 83), ("swarm", 1019), ("swarm", 1026), ("swarm", 8000009),
    ("swarm", 8000035), ("swarm", 9600066), ("swarm", 9600131), ("brokers", 3), ("controllers", 4), ("calm", 5),
    ("successors", 6), ("deposed", 12), ("leases", 1),
    ("demands", 1), ("demands", 920005), ("swarm", 56000070), ("swarm", 57000018),
    ("swarm", 58500351), ("swarm", 59000093)])
def test_seeds_pass(profile: str, seed: int) -> None:
    """Some of them once failed."""
    result = play(seed, profile)
    assert result.failure is None, result.message
    assert result.predicates["INV_C21"] + result.predicates["INV_C17"] > 0


def test_what_a_young_master_held_was_seen_by_nobody_when_another_leads_without_it() -> None:
    """Twice elected in turn, nobody in sync: one's unacknowledged end of the log, the other's without it. When
    new masters showed all that they had, the first of these seeds lost what had been seen."""
    for result in (play(43), play(6, "successors")):
        assert result.failure is None, result.message
        assert not result.applied.get(Excuse.BESIDE.value)
    assert result.predicates["INV_B24"]


def without_all_disks(killed: int = 0) -> tuple[ControllerScene, FleetGroup]:
    """Three replicas in sync; then the last one's disk is lost, the first ``killed`` processes die, and the machines
    of the others. Nobody is master any more, and everything is up again."""
    tape = Tape(1)
    plan = draw(tape, "calm")
    plan.java, plan.groups, plan.brokers, plan.settings = False, 1, 3, ElectionSettings()
    plan.fleet = attrs.evolve(
        plan.fleet, brokers=3, all_ack=True, in_sync_replicas=1, sync_flush=False, learners=0, min_in_sync=1)
    scene = ControllerScene(tape, plan)
    (fleet,) = scene.fleets.values()
    scene.cluster.run_until(fleet.watch.level, 10_000)
    assert fleet.watch.level()
    for number, host in enumerate(fleet.hosts):
        host.machine.crash(lambda: True, power=number >= killed)
    fleet.wipe(fleet.hosts[2])
    scene.cluster.run_until(lambda: (group := fleet.group()) is not None and group.master is None, 10_000)
    scene._heal()
    return scene, fleet


GIVEN_UP = "an operator gave up a lost disk"


def test_what_waits_for_a_lost_disk_waits_for_its_operator_who_gives_that_up() -> None:
    """The disk may have held what all the others lost in the power cut."""
    scene, fleet = without_all_disks()
    Progress(scene).demand()
    group = fleet.group()
    assert scene.counts[GIVEN_UP] == 1 and group is not None and 3 not in group.replicas
    assert scene.watch.counts["INV_C17"] == 1


def test_a_lost_disk_is_no_excuse_where_one_that_lost_nothing_could_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, fleet = without_all_disks(killed=1)
    Progress(scene).demand()
    group = fleet.group()
    assert scene.counts[GIVEN_UP] == 0 and group is not None and 3 in group.replicas
    scene, _ = without_all_disks(killed=1)
    monkeypatch.setattr(ActiveController, "candidates", lambda self, key, observation: (Observation({}), "default"))
    with pytest.raises(InvariantViolation, match="INV_C17"):
        Progress(scene).demand()
    assert scene.counts[GIVEN_UP] == 0


def test_where_only_lost_disks_may_lead_all_join_anew() -> None:
    scene, fleet = without_all_disks()
    for host in [*fleet.hosts]:
        host.machine.crash(lambda: True)
        fleet.wipe(host)
        scene.start_machine(host.machine)
    Progress(scene).demand()
    group = fleet.group()
    assert scene.counts[GIVEN_UP] == 1 and group is not None and min(group.replicas) > 3


def test_an_operator_whose_connection_leads_to_a_dead_controller_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controllers were killed and started again, and nobody told the operator."""
    scene, fleet = without_all_disks()
    for host in [*fleet.hosts]:
        host.machine.crash(lambda: True)
        fleet.wipe(host)
        scene.start_machine(host.machine)
    monkeypatch.setattr(scene, "bury", lambda process: None)
    for name in scene.cluster.names:
        assert scene.admin._connect(name) is not None
        scene.cluster.crash(name)
        scene.cluster.start(name)
    Progress(scene).demand()
    group = fleet.group()
    assert scene.counts[GIVEN_UP] == 1 and group is not None and min(group.replicas) > 3


def test_a_seed_is_the_same_every_time() -> None:
    first, second = play(12), play(12)
    assert first.events > 1_000
    assert (first.fingerprint, first.predicates, first.applied) == (
        second.fingerprint, second.predicates, second.applied)


def test_every_property_of_the_table_is_asked() -> None:
    assert {f"INV_C{number}" for number in (*range(1, 25), 27)} <= set(PREDICATES)
    assert set(INVARIANTS) <= set(PREDICATES)


def keep_the_set(group: BrokerGroup, command: ElectMaster) -> tuple[Outcome, BrokerGroup]:
    outcome, after = elect(group, command)
    if isinstance(outcome, Elected):
        after = attrs.evolve(after, sync_state_set=after.sync_state_set | group.sync_state_set)
    return outcome, after


def test_a_failure_is_made_small_and_repeats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "elect", keep_the_set)
    found_small_and_repeated(CONTROLLERS, "INV_C6", "swarm", monkeypatch, tmp_path, capsys)


def test_a_controller_that_judges_silence_without_grace_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Liveness, "_deadline", lambda self, broker: broker.heard_ns + broker.timeout_ns + 1)
    assert any(play(seed).failure == "INV_C21" for seed in range(1, 60))


def test_a_campaign_in_which_nothing_happens_is_invalid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--events", "1", "--jobs", "1", "--out", str(tmp_path)], CONTROLLERS) == 2
    assert "never happened: " in capsys.readouterr().out
    everything = Counter(dict.fromkeys((*CONTROLLERS.predicates, *CONTROLLERS.faults), 1))
    assert CONTROLLERS.missing(everything, everything) == []


def test_what_is_not_asked_here_is_asked_by_campaigns_of_brokers() -> None:
    """They were declared here: no campaign of controllers could be valid, however long."""
    assert OF_BROKERS_ALONE <= {*BROKERS.predicates}
    assert not OF_BROKERS_ALONE & {*CONTROLLERS.predicates}
    asked = {name for seed in range(1, 7) for name, times in play(seed).predicates.items() if times}
    assert not OF_BROKERS_ALONE & asked


def test_a_copy_that_is_gone_for_good_leads_nobody_and_may_not_be_elected() -> None:
    """It took its original's id, and that one has joined anew: the judge went by the disk that nobody starts."""
    scene = make(Tape(5), "calm")
    key = scene.keys[0]
    fleet = scene.fleets[key]
    while not fleet.watch.agreed():
        scene.cluster.run_ms(50)
    group = fleet.group()
    assert group is not None and group.master is not None
    original = scene.host_of(key, group.master)
    assert original is not None
    progress = Progress(scene)
    copy = scene.copies["k0"] = Machine(scene, "k0", 200)
    fleet.copy(original, copy)
    there = attrs.evolve(group.replicas[group.master], address=copy.address)
    fleet._group = attrs.evolve(group, replicas={**group.replicas, group.master: there},
                                sync_state_set=frozenset({group.master}), eligible=frozenset())
    assert not fleet.watch.agreed() and not fleet.watch.level()
    assert progress.electable(key), "its original may take its place again"
    fleet.give_up_identity(original)
    assert not progress.electable(key)


def test_healing_ends_a_copy_for_good_also_one_that_is_about_to_start_again() -> None:
    """One that came back later took a member's place, and the judge, who counts no copies, missed that member."""
    scene = make(Tape(5), "calm")
    fleet = scene.fleets[scene.keys[0]]
    scene.cluster.run_until(fleet.watch.level, 10_000)
    assert fleet.watch.level()
    scene._do_copied_disk(fleet.hosts[0].machine, 60_000, 0)
    copy = scene.copies["k0"]
    scene._do_broker_crash(copy, 300, 1)
    scene._heal()
    scene.cluster.run_ms(1_000)
    assert (copy.up, scene.counts["broker crash"]) == (False, 1)
    scene.cluster.run_until(fleet.watch.level, 10_000)
    assert fleet.watch.level()


def test_a_master_is_level_once_its_request_for_a_member_that_was_cleaned_is_void() -> None:
    """It waits for all that may be in sync, and the judge gave up before."""
    scene = make(Tape(5), "calm")
    fleet = scene.fleets[scene.keys[0]]
    scene.cluster.run_until(lambda: fleet.watch.level() and not fleet.watch.asked_for(), 10_000)
    assert fleet.watch.waits_for_cleaned_ms() == 0
    master = fleet.watch._master()
    held = None if master is None else master.switch.in_sync
    assert master is not None and held is not None
    assert not fleet.watch.asked_for()
    held.ask(1_000_000, held.accepted | {99}, master.now - held.config.asked_void_ms * MS)
    assert fleet.watch.waits_for_cleaned_ms() == held.config.asked_void_ms and fleet.watch.asked_for()
    scene.cluster.run_until(lambda: not fleet.watch.waits_for_cleaned_ms(), 10_000)
    assert fleet.watch.waits_for_cleaned_ms() == 0


@pytest.mark.parametrize("profile", CONTROLLERS.profiles)
def test_every_profile_can_be_drawn(profile: str) -> None:
    for seed in range(20):
        plan = draw(Tape(seed), profile)
        plan.config()
        fleet = plan.fleet
        assert fleet.beat_ms * 2 < fleet.timeout_ms and fleet.lease_ms < fleet.timeout_ms


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.name)
def test_every_planted_bug_can_still_be_planted(planted: Planted) -> None:
    can_be_planted(planted, PREDICATES)
