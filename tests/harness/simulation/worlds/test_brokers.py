"""A whole cluster in a seeded world: each seed is one run, in every process and under every hash seed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from harness.simulation.worlds.brokers import cluster
from raft.virtual import run_on_virtual_time, search
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from tests.harness.simulation.worlds.failovers import failovers
from tests.raft.virtual.twice import elsewhere


def test_each_seed_is_one_run_and_nothing_is_left_of_it() -> None:
    """That no task is left is looked for in each run."""
    one, two, other = (run_on_virtual_time(failovers, seed=seed) for seed in (1, 1, 2))
    assert (one.digest, one.value, one.notes) == (two.digest, two.value, two.notes)
    assert one.digest != other.digest
    assert [words for _, words in one.notes] == ["the master is dead", "the active controller is dead"]
    assert len(set(one.value)) == 6 and one.steps > 5_000


def test_more_seeds_lose_nothing() -> None:
    report = search(failovers, seeds=3, first=11)
    assert report.seeds == 3 and report.virtual_s > 3


@pytest.mark.slow
def test_other_processes_with_other_hash_seeds_make_the_same_runs() -> None:
    """``python -m tests.raft.virtual.twice --world tests.harness.simulation.worlds.failovers:failovers`` for more."""
    world = "tests.harness.simulation.worlds.failovers:failovers"
    one, two = (elsewhere(world, range(1, 4), hash_seed) for hash_seed in ("1", "77"))
    assert len(set(one)) == 3 and one == two


async def test_what_is_sent_by_hand_is_pulled_routed_and_looked_up(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(fileReservedTime="1")
        await made.wait_route("TBW102", {0: node.address})
        assert await made.route("T") == {}
        assert (await made.send(node.address, b"hello")).code == ResponseCode.SUCCESS
        await made.wait_route("T", {0: node.address})
        assert b"hello" in (await made.pull(node.address)).body
        assert node.topics.get("T") is not None
        assert made.controllers is None


async def test_a_copy_of_a_machine_has_what_was_on_its_disks(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.send(node.address, b"hello")
        await trio.sleep(2)
        other = await made.copy(node, "10.0.0.9")
        assert b"hello" in (await made.pull(other.address)).body
        await made.send(node.address, b"later")
        assert b"later" not in (await made.pull(other.address)).body, "the disks are its own"


async def test_a_name_server_that_is_killed_knows_brokers_again_when_it_is_back(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node()
        await made.wait_route("TBW102", {0: node.address})
        await made.kill_namesrv()
        with pytest.raises((RemotingError, OSError)):
            await made.route("TBW102")
        await made.start_namesrv()
        assert await made.route("TBW102") == {}
        await made.wait_route("TBW102", {0: node.address})
