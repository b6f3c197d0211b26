"""The simulation of groups without controllers: seeds pass and repeat, and bugs are found and repeated.

More planted bugs are in ``run_mutants``. That all properties are asked, and all faults happen, a campaign says.
"""

from __future__ import annotations

import pytest

from broker.acting.right import ActingRight
from broker.ledger.part import LedgerPart
from harness.simulation.brokers.acting.plan import draw_acting
from harness.simulation.brokers.acting.scene import ActingScene
from harness.simulation.brokers.scene import ACTING_CHANCE, BROKERS, drawn
from raft.sim.campaign import Result, run
from raft.sim.tape import Tape


def play(seed: int, profile: str = "acting") -> Result:
    return run(Tape(seed), profile, program=BROKERS)


@pytest.mark.parametrize(("profile", "seed", "asked"), [
    ("acting", 1, ("INV_B56", "INV_B57", "INV_B58", "INV_B59", "INV_B60", "INV_B63")),
    ("acting", 3, ("INV_B56", "INV_B60")),
    ("acting", 88, ("INV_B58",)),
    ("acting", 45000123, ("INV_B59",)),
    ("acting", 45001626, ("INV_B63",)),
    ("acting", 43100013, ("INV_B58",)),
    ("acting", 10240011, ("INV_B36",)),
    ("acting", 45010537, ("INV_B55",)),
    ("locks", 1, ("INV_B61",)),
    ("swarm", 70110, ("INV_B59",)),
    ("swarm", 700074, ("INV_B57",)),
])
def test_seeds_pass(profile: str, seed: int, asked: tuple[str, ...]) -> None:
    result = play(seed, profile)
    assert result.failure is None, result.message
    assert all(result.predicates[name] for name in asked)


def test_a_seed_is_the_same_every_time() -> None:
    first, second = play(3), play(3)
    assert first.events > 1_000
    assert (first.fingerprint, first.predicates, first.applied) == (
        second.fingerprint, second.predicates, second.applied)


def test_the_boring_tape_is_a_calm_master_with_one_slave() -> None:
    plan = draw_acting(Tape(3, {}))
    assert (plan.slaves, plan.servers, plan.harms, plan.rates_ppm, plan.strict) == (1, 3, (), (), False)
    assert draw_acting(Tape(3, {}), "locks").strict
    result = run(Tape(3, {}), "acting", program=BROKERS)
    assert result.failure is None, result.message
    assert not result.applied.get("delayed delivered"), "its clients do nothing"


def test_some_seeds_of_all_have_no_controllers() -> None:
    without = sum(isinstance(drawn(Tape(seed), "swarm"), ActingScene) for seed in range(100))
    assert 0 < without < 300 * ACTING_CHANCE


def test_a_failure_repeats_from_its_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedgerPart, "_join", lambda self, entry: None)
    failed = next(result for seed in range(1, 20) if (result := play(seed)).failure)
    assert failed.failure in ("INV_B57", "INV_B58")
    again = run(Tape(failed.seed, failed.deviations), "acting", program=BROKERS)
    assert (again.failure, again.message, again.fingerprint) == (failed.failure, failed.message, failed.fingerprint)


def test_two_deliverers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActingRight, "_enough", lambda self, now_ns: True)
    assert any(play(seed).failure == "INV_B56" for seed in range(1, 10))


def test_an_answer_that_no_disk_keeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedgerPart, "_when_kept", lambda self, answer: answer)
    assert any(play(seed).failure == "INV_B63" for seed in range(1, 5))


def test_two_holders_of_a_queue_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.locks.part.won", lambda asked, grants, needed: list(asked))
    assert any(play(seed, "locks").failure == "INV_B61" for seed in range(1, 5))
