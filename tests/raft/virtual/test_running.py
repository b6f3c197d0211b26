"""Runs on virtual time: one seed is one run, in any process, and what may not be left behind is looked for."""

from __future__ import annotations

import logging

import pytest
import trio

from raft.virtual import StandsStill, VirtualWorld, run_on_virtual_time, running
from tests.raft.virtual.services import counts, echoes
from tests.raft.virtual.twice import SERVICES, elsewhere


def test_the_same_seed_is_the_same_run_and_another_seed_another() -> None:
    runs = [run_on_virtual_time(echoes, seed=seed) for seed in (*range(12), *range(12))]
    assert [run.digest for run in runs[:12]] == [run.digest for run in runs[12:]]
    assert len({run.digest for run in runs}) == 12
    assert len({run.value for run in runs}) > 3, "what clients hear interleaves otherwise"
    assert all(run.steps > 100 and run.not_replayable == "" for run in runs)


def test_raft_under_faults_is_the_same_run() -> None:
    one, two = (run_on_virtual_time(counts, seed=3) for _ in range(2))
    assert (one.digest, one.steps, one.notes) == (two.digest, two.steps, two.notes)
    assert one.value[-1] >= 8 and one.virtual_s > 5
    assert sum(one.happened.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("world", "seeds"), [("echoes", 20), ("counts", 3)])
def test_other_processes_with_other_hash_seeds_make_the_same_runs(world: str, seeds: int) -> None:
    """A thousand seeds: ``python -m tests.raft.virtual.twice``."""
    one, two = (elsewhere(f"{SERVICES}:{world}", range(1, 1 + seeds), hash_seed) for hash_seed in ("1", "4242"))
    assert len(one) == seeds and one == two
    assert len(set(one)) == seeds


def test_faults_happen_to_raft() -> None:
    happened: set[str] = set()
    for seed in range(6):
        happened |= run_on_virtual_time(counts, seed=seed).happened.keys()
    assert happened == {"is killed", "loses power", "cut", "partition"}


def test_what_stands_still_ends_in_words() -> None:
    async def main(world: VirtualWorld) -> None:
        await trio.sleep_forever()

    with pytest.raises(StandsStill, match="did not end within 50 s of virtual time"):
        run_on_virtual_time(main, limit_s=50)


def test_exceptions_come_out_as_they_were_raised() -> None:
    async def main(world: VirtualWorld, number: int) -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            return 1 / number

    with pytest.raises(ZeroDivisionError):
        run_on_virtual_time(main, 0)


def test_a_run_that_no_seed_decides_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "NOT_REPLAYABLE", "not replayable: trio 9.9 has no _r")
    with caplog.at_level(logging.WARNING, "raft.virtual"):
        run = run_on_virtual_time(echoes)
    assert run.not_replayable == "not replayable: trio 9.9 has no _r"
    assert [record.message for record in caplog.records] == [run.not_replayable]
