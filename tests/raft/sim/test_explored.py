"""One run of a user's machine: what its code raises comes out, predicates see all nodes, processes are sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raft.sim import Counterexample, Explored, explore
from raft.sim.history import History
from tests.raft.sim.registers import Register, reads_and_writes


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """``explore`` with a corpus of its own."""
    return lambda *args, **options: explore(*args, **{"corpus": tmp_path / "kept", "seeds": 2, **options})


class Raises(Register):
    def apply(self, command: bytes) -> bytes:
        if self.writes == 5:
            raise ZeroDivisionError("the sixth")
        return super().apply(command)


def test_what_apply_raises_comes_out_with_its_place(run: Callable[..., Any]) -> None:
    with pytest.raises(Counterexample) as caught:
        run(Raises, reads_and_writes)
    assert caught.value.failure == "ZeroDivisionError in test_explored.py:apply"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "the sixth" in str(caught.value)
    assert "of virtual time" in str(caught.value)


def test_a_check_that_fails_at_the_end_names_what_it_asserts(run: Callable[..., Any]) -> None:
    def nobody_reads(run: Explored) -> None:
        assert not run.history.of("ok", "read"), "somebody reads"

    with pytest.raises(Counterexample, match="somebody reads") as caught:
        run(Register, reads_and_writes, check=nobody_reads)
    assert "nobody_reads" in caught.value.failure


def test_every_step_sees_all_nodes(run: Callable[..., Any]) -> None:
    most = 0

    def look(run: Explored) -> None:
        nonlocal most
        most = max(most, len(run.machines))

    report = run(Register, reads_and_writes, every_step=look, seeds=1, nodes=5, profile="calm")
    assert most == 5
    assert report.predicates[next(iter(report.predicates))] > 1_000


def test_a_history_is_of_processes_that_do_one_thing_at_a_time(run: Callable[..., Any]) -> None:
    histories: list[History] = []
    run(Register, reads_and_writes, check=lambda run: histories.append(run.history), seeds=4)
    for history in histories:
        open_now: set[int] = set()
        gone: set[int] = set()
        for number, event in enumerate(history):
            assert event.index == number
            assert event.process not in gone
            if event.type == "invoke":
                assert event.process not in open_now
                open_now.add(event.process)
            else:
                open_now.remove(event.process)
            if event.type == "info":
                gone.add(event.process)
            if (event.type, event.f) == ("ok", "write"):
                assert json.loads(event.line())["value"] == event.value
        assert not open_now
        assert [event.time_ns for event in history] == sorted(event.time_ns for event in history)
    assert any(history.of("info") for history in histories)
