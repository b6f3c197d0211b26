"""``explore``: planted bugs of a user's machine are found, cut down, told, kept and repeated; no silent pass."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raft.errors import UsageError
from raft.sim import Choices, Counterexample, Explored, NothingExplored, NotRepeatable, Operation, explore
from raft.sim.exploring import explored_by
from raft.sim.tape import count, load
from tests.raft.sim.registers import Register, reads_and_writes


def no_seventh(machine: Register) -> bool:
    return machine.writes % 7 != 6


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """``explore`` with a corpus of its own."""
    return lambda *args, **options: explore(*args, **{"corpus": tmp_path / "kept", "seeds": 2, **options})


def test_a_good_machine_passes_and_the_report_says_what_was_done(run: Callable[..., Any]) -> None:
    seen: list[Explored] = []
    report = run(Register, reads_and_writes, invariant=lambda machine: machine.writes >= 0, check=seen.append)
    assert report.seeds == 2 == len(seen) - 1, "the first seed is played twice"
    assert report.outcomes["ok"] > 200
    assert all(asked for asked in report.predicates.values())
    assert "operations done" in str(report)
    assert len({machine.value for machine in seen[0].machines.values()}) == 1


def test_a_broken_invariant_is_cut_down_told_kept_and_played_first(run: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(Counterexample) as caught:
        run(Register, reads_and_writes, invariant=no_seventh)
    found, said = caught.value, str(caught.value)
    assert found.failure == "no_seventh"
    tape, notes = load(found.tape)
    assert count(tape.deviations) <= 8 < notes["deviations_before"]
    assert "it returned False for the machine of n" in said
    assert said.count("write key x propose") == 6, said
    assert " leads, term " in said
    assert f'explore(..., replay="{found.tape}")' in said
    assert found.tape.with_suffix(".history.jsonl").read_text().count('"invoke"') == 6
    assert '"what": "Append, term 1"' in found.tape.with_suffix(".messages.jsonl").read_text()
    with pytest.raises(Counterexample, match="the failure is still there"):
        run(Register, reads_and_writes, invariant=no_seventh, replay=found.tape)
    with pytest.raises(Counterexample, match="an earlier failure is back"):
        run(Register, reads_and_writes, invariant=no_seventh)
    report = run(Register, reads_and_writes, invariant=lambda machine: True)
    assert report.replayed == 1


class Forgetful(Register):
    def snapshot(self) -> bytes:
        return json.dumps(["", self.writes]).encode()


def test_a_snapshot_that_forgets_is_found_without_a_predicate(run: Callable[..., Any]) -> None:
    with pytest.raises(Counterexample) as caught:
        run(Forgetful, reads_and_writes, seeds=20)
    assert caught.value.failure == "INV_R9"
    assert "snapshot" in str(caught.value)


class Dice(Register):
    def apply(self, command: bytes) -> bytes:
        super().apply(command)
        return b"%d" % random.SystemRandom().randrange(1 << 30)


def test_chance_without_a_seed_is_no_counterexample_that_cannot_be_repeated(run: Callable[..., Any]) -> None:
    with pytest.raises((NotRepeatable, Counterexample)) as caught:
        run(Dice, reads_and_writes)
    assert "INV_R9" in str(caught.value)


def test_a_workload_that_counts_by_itself_is_not_repeatable(run: Callable[..., Any]) -> None:
    made = 0

    def counts(choices: Choices) -> bytes:
        nonlocal made
        made += 1
        return b"%d" % made

    with pytest.raises(NotRepeatable, match="two different runs"):
        run(Register, counts)


def test_a_run_in_which_nothing_succeeded_is_no_pass(run: Callable[..., Any]) -> None:
    def few_and_large(choices: Choices) -> bytes | None:
        return bytes(20_000) if choices.serial < 1_000_000 else b"spare"

    with pytest.raises((NothingExplored, Counterexample), match=r"no operation succeeded in 2 seeds: .*larger than"):
        run(Register, few_and_large, profile="calm")


def test_questions_alone_are_refused_in_words(run: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="made no command"):
        run(Register, lambda choices: Operation(query=b""))


def test_what_the_workload_raises_is_its_own_fault(run: Callable[..., Any]) -> None:
    def breaks(choices: Choices) -> bytes:
        return {"a": b"1"}[choices.choice("ab")]

    with pytest.raises(UsageError, match=r"breaks, which makes operations, raised KeyError\('b'\)") as caught:
        run(Register, breaks)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_operation_that_is_none_is_the_workloads_fault(run: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"which makes operations, made 5: a command is bytes"):
        run(Register, lambda choices: 5)


def test_a_question_to_a_machine_that_answers_none_is_refused_in_words(run: Callable[..., Any]) -> None:
    class Mute:
        def apply(self, command: bytes) -> None:
            """Nothing to keep."""

    with pytest.raises(UsageError, match=r"^Mute has no query\(data\)$"):
        run(Mute, reads_and_writes)


@pytest.mark.parametrize(("options", "words"), [
    ({"profile": "typhoon"}, "no profile 'typhoon'"), ({"seeds": 0}, "seeds must be 1 or more"),
    ({"nodes": 0}, "at least one node"), ({"replay": "nowhere.json"}, "nowhere.json"),
])
def test_options_that_make_no_sense(options: dict[str, Any], words: str, run: Callable[..., Any]) -> None:
    with pytest.raises((UsageError, FileNotFoundError), match=words):
        run(Register, reads_and_writes, **options)


def test_several_processes_play_the_same_runs(run: Callable[..., Any]) -> None:
    one = run(Register, reads_and_writes, seeds=3)
    two = run(Register, reads_and_writes, seeds=3, jobs=2)
    assert (one.events, one.outcomes, one.applied) == (two.events, two.outcomes, two.applied)


def test_what_a_function_explores_is_found_without_running_it() -> None:
    def a_test(explore: Callable[..., Any]) -> None:
        explore(Register, reads_and_writes, seeds=7)

    assert explored_by(a_test).seeds == 7
    assert explored_by(lambda: explore(Register, reads_and_writes, nodes=4)).subject.nodes == 4
    with pytest.raises(UsageError, match="explores nothing"):
        explored_by(lambda: None)
    with pytest.raises(UsageError, match="wants tmp_path"):
        explored_by(lambda explore, tmp_path: None)
