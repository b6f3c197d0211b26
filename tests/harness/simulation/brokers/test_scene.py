"""The simulation of the brokers' cores: seeds pass, repeat exactly, and a bug is found, made small and repeated.

Planted bugs by the dozen are in ``run_mutants``; here is one that a few seeds find.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from broker.ha.insync import InSync
from broker.store.files import MemoryFiles
from harness.simulation.brokers.contract import Excuse, Loss, excuse
from harness.simulation.brokers.delays import DELAYED
from harness.simulation.brokers.deletions import DELETED
from harness.simulation.brokers.plan import draw
from harness.simulation.brokers.popped import POPPED
from harness.simulation.brokers.scene import BROKERS
from harness.simulation.brokers.statements import PREDICATES, STATEMENTS
from raft.sim.campaign import Result, run
from raft.sim.command import main
from raft.sim.tape import Tape
from tests.harness.planting import Planted, can_be_planted
from tests.harness.simulation.brokers.mutants import PLANTED
from tests.harness.simulation.planted import found_small_and_repeated

SEEDS_MAX = 40


def play(seed: int, profile: str = "swarm") -> Result:
    return run(Tape(seed), profile, program=BROKERS)


@pytest.mark.parametrize(("profile", "seed"), [
    ("swarm", 3), ("swarm", 48), ("swarm", 65), ("swarm", 109), ("swarm", 139), ("swarm", 140), ("swarm", 50092),
    ("swarm", 53235), ("swarm", 500169), ("swarm", 500265), ("swarm", 501334), ("swarm", 3000030), ("swarm", 3000303),
    ("swarm", 5000026), ("swarm", 9640054), ("power", 4), ("power", 14), ("roles", 2), ("weak", 3), ("weak", 9025),
    ("calm", 5), ("demands", 9), ("silence", 4), ("disks", 6), ("delays", 3), ("delays", 6), ("delays", 219),
    ("timers", 1), ("timers", 3), ("transactions", 2), ("transactions", 3), ("pops", 10), ("pops", 20), ("pops", 71),
    ("pops", 75), ("pops", 87), ("pops", 1092), ("pops", 1147), ("pops", 1215), ("pops", 12000005),
    ("pops", 45100486), ("pops", 45300174), ("pops", 45301046), ("pops", 45301689), ("pops", 45303151),
    ("pops", 45311417), ("deletions", 2)])
def test_seeds_pass(profile: str, seed: int) -> None:
    """Some of them once failed."""
    result = play(seed, profile)
    assert result.failure is None, result.message
    assert result.predicates["INV_B22"] == result.predicates["INV_C17"] == 1


@pytest.mark.parametrize(("profile", "first", "kinds"), [
    ("delays", 8, ("INV_B36", *DELAYED)),
    ("timers", 6, ("INV_B36", "timer delivered", "timer delivered by a later master")),
    ("pops", 1, ("INV_B45", *POPPED)), ("deletions", 3, ("INV_B62", *DELETED))])
def test_what_waits_comes_in_the_end_though_masters_change(profile: str, first: int, kinds: tuple[str, ...]) -> None:
    """From a seed on until each kind of event was seen: which seed shows which differs with all that is drawn."""
    unseen = {*kinds}
    for seed in range(first, first + SEEDS_MAX):
        result = play(seed, profile)
        assert result.failure is None, (seed, result.message)
        unseen -= {kind for kind in unseen if result.applied.get(kind) or result.predicates.get(kind)}
        if not unseen:
            return
    pytest.fail(f"{SEEDS_MAX} seeds showed nothing of {', '.join(sorted(unseen))}")


def test_a_tape_of_before_has_no_features() -> None:
    assert draw(Tape(3, {}), "swarm").features == ()


def test_a_seed_is_the_same_every_time() -> None:
    first, second = play(11), play(11)
    assert first.events > 1_000
    assert (first.fingerprint, first.predicates, first.applied) == (
        second.fingerprint, second.predicates, second.applied)


def test_every_property_of_the_table_is_asked() -> None:
    numbers = {f"INV_B{number}" for number in (*range(1, 26), 28, 29, 30, 31, *range(36, 47), *range(48, 54), 62, 64)}
    numbers |= {f"INV_C{number}" for number in (*range(14, 18), 25)}
    assert numbers <= set(STATEMENTS) <= set(PREDICATES)


def test_a_failure_is_made_small_and_repeats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(InSync, "_others", lambda self: [])
    found_small_and_repeated(BROKERS, "INV_B", "calm", monkeypatch, tmp_path, capsys)


def test_a_disk_that_loses_what_was_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFiles, "sync_dir", lambda self, path: None)
    assert any((play(seed, "power").failure or "").startswith("INV_B21") for seed in range(1, 20))


def test_a_campaign_in_which_nothing_happens_is_invalid(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--events", "1", "--jobs", "1", "--out", str(tmp_path)], BROKERS) == 2
    assert "never happened: " in capsys.readouterr().out
    everything = Counter(dict.fromkeys((*BROKERS.predicates, *BROKERS.faults), 1))
    assert BROKERS.missing(everything, everything) == []


@pytest.mark.parametrize("profile", BROKERS.profiles)
def test_every_profile_can_be_drawn(profile: str) -> None:
    for seed in range(20):
        plan = draw(Tape(seed), profile)
        plan.ha()
        assert plan.beat_ms * 2 < plan.timeout_ms and plan.lease_ms < plan.timeout_ms and plan.learners < plan.brokers


@pytest.mark.parametrize(("all_ack", "sync_flush", "unclean", "unsafe", "same", "why"), [
    (True, True, False, True, False, None),
    (True, False, False, False, False, None),
    (True, False, False, True, False, Excuse.POWER),
    (False, False, False, False, False, Excuse.MODE),
    (False, False, False, False, True, None),
    (False, False, False, True, True, Excuse.POWER),
    (False, True, False, True, True, None),
    (True, True, True, False, False, Excuse.UNCLEAN),
])
def test_what_each_mode_may_lose(
    all_ack: bool, sync_flush: bool, unclean: bool, unsafe: bool, same: bool, why: Excuse | None
) -> None:
    assert excuse(Loss(all_ack, sync_flush, unclean, unsafe, same)) is why
    assert excuse(Loss(all_ack, sync_flush, unclean, unsafe, same, shown_early=True)) is (why or Excuse.BESIDE)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.name)
def test_every_planted_bug_can_still_be_planted(planted: Planted) -> None:
    can_be_planted(planted, BROKERS.predicates)
