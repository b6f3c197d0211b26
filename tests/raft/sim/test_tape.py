"""The tape: only deviations are kept, streams are independent, and a file brings a run back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raft.errors import UsageError
from raft.sim.tape import Tape, TapeRandom, count, load, save

ROOT = Path(__file__).parents[3]


def draws(tape: Tape) -> list[object]:
    """A run that asks every kind of question of three streams."""
    out: list[object] = []
    loss, late, what = tape.stream("loss"), tape.stream("late"), tape.stream("what")
    for _ in range(50):
        out += [loss.chance(0.1), late.between(3, 9), what.pick(("a", "b", "c"), "a"),
                what.draw(None, lambda chance: ["x", int(chance() * 4)] if chance() < 0.3 else None)]
    return out


def test_a_replay_gives_the_same_decisions() -> None:
    recorded = Tape(7)
    assert draws(Tape(7, recorded_deviations(recorded))) == draws(Tape(7))


def recorded_deviations(tape: Tape) -> dict[str, dict[int, object]]:
    draws(tape)
    return tape.deviations


def test_boring_decisions_are_not_kept() -> None:
    tape = Tape(7)
    stream = tape.stream("never")
    assert [stream.chance(0.0) for _ in range(100)] == [False] * 100
    assert tape.deviations == {}
    assert stream.count == 100


def test_a_replay_without_deviations_is_all_boring() -> None:
    assert draws(Tape(7, {})) == [False, 3, "a", None] * 50


def test_what_happens_now_and_then_takes_its_number_along() -> None:
    tape = Tape(7)
    stream = tape.stream("seldom")
    drawn = [stream.seldom(0.2, lambda number, chance: [number, chance()]) for _ in range(500)]
    kept = [value for value in drawn if value is not None]
    assert 60 < len(kept) == count(tape.deviations) < 140
    assert all(number < 0.2 for number, _ in kept)
    again = Tape(7, tape.deviations).stream("seldom")
    assert [again.seldom(0.0, lambda number, chance: [number, chance()]) for _ in range(500)] == drawn


def test_what_never_happens_costs_no_chance() -> None:
    beside, alone = Tape(3).stream("one"), Tape(3).stream("one")
    assert beside.seldom(0.0, lambda number, chance: number) is None
    assert (beside.between(0, 10**9), beside.count) == (alone.between(0, 10**9), 2)


def test_taking_one_deviation_away_leaves_all_others_as_they_were() -> None:
    tape = Tape(7)
    before = draws(tape)
    kept = tape.deviations
    number = next(iter(kept["late"]))
    del kept["late"][number]
    after = draws(Tape(7, kept))
    assert [at for at, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]] == [4 * number + 1]


def test_streams_do_not_disturb_each_other() -> None:
    alone, beside = Tape(3), Tape(3)
    beside.stream("other").between(0, 1_000_000)
    assert [alone.stream("one").between(0, 10**9) for _ in range(9)] == [
        beside.stream("one").between(0, 10**9) for _ in range(9)]


def test_seeds_differ() -> None:
    assert draws(Tape(1)) != draws(Tape(2))


def test_a_value_that_no_longer_fits_falls_back_to_the_boring_one() -> None:
    tape = Tape(1, {"late": {0: 99, 1: "x"}, "what": {0: "gone"}})
    assert [tape.stream("late").between(3, 9) for _ in range(2)] == [3, 3]
    assert tape.stream("what").pick(("a", "b"), "a") == "a"


def test_an_empty_choice_is_boring() -> None:
    assert Tape(1).stream("what").pick((), "none") == "none"


def test_a_file_brings_a_tape_back(tmp_path: Path) -> None:
    tape = Tape(7)
    before = draws(tape)
    path = tmp_path / "tape.json"
    save(path, 7, tape.deviations, profile="calm")
    again, notes = load(path)
    assert (draws(again), notes, again.seed) == (before, {"profile": "calm"}, 7)
    assert count(tape.deviations) == count(again.deviations)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 1, "seed": "x", "deviations": {}}',
                                  '{"format": 9, "seed": 1, "deviations": {}}',
                                  '{"format": 1, "seed": 1, "deviations": {"a": {"b": 1}}}'])
def test_anything_but_a_tape_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tape.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a tape"):
        load(path)


def test_a_replicas_rng_draws_on_the_tape_and_its_bits_do_not() -> None:
    tape = Tape(5)
    rng = tape.rng("timeouts/n0", 0.25)
    assert isinstance(rng, TapeRandom)
    drawn = [rng.uniform(1.0, 2.0) for _ in range(4)]
    bits = [rng.getrandbits(64) for _ in range(4)]
    assert count(tape.deviations) == 4
    again = Tape(5, tape.deviations).rng("timeouts/n0", 0.25)
    assert [again.uniform(1.0, 2.0) for _ in range(4)] == drawn
    assert [again.getrandbits(64) for _ in range(4)] == bits
    boring = Tape(5, {}).rng("timeouts/n0", 0.25)
    assert [boring.uniform(1.0, 2.0) for _ in range(4)] == [1.25] * 4
    assert [boring.getrandbits(64) for _ in range(4)] == bits


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_decisions_do_not_depend_on_the_hash_seed(hash_seed: str) -> None:
    code = ("from raft.sim.tape import Tape\nt = Tape(11)\n"
            "print([t.stream(n).between(0, 10**6) for n in ('a', 'b', 'link/raft/n0>n1') for _ in range(3)])")
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": hash_seed}, cwd=ROOT,
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[881793, 428866, 279773, 206223, 798837, 810966, 408998, 228012, 646933]"
