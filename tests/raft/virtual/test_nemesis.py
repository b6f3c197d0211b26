"""The nemesis of hosts: it does what it is told to whom it is told, and undoes all of it."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from raft.virtual import VirtualHost, VirtualWorld, run_on_virtual_time, torture

NAMES = ("a", "b", "c")


async def rest(host: VirtualHost) -> None:
    host.ready()
    await trio.sleep_forever()


async def tortured(world: VirtualWorld, faults: tuple[str, ...], most_down: int) -> int:
    """The most hosts that were down at once."""
    most = 0
    for name in NAMES:
        await world.host(name).start(rest)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(torture, world, faults=faults, hosts=NAMES, most_down=most_down, every_s=0.2))
        while trio.current_time() < 30:
            most = max(most, sum(not world.host(name).running for name in NAMES))
            await trio.sleep(0.05)
    assert all(world.host(name).running for name in NAMES) and not world.network.blocked
    return most


@pytest.mark.parametrize(("faults", "happened"), [
    (("kill",), {"is killed"}), (("power",), {"loses power"}), (("cut",), {"cut"}), (("partition",), {"partition"}),
    (("kill", "cut"), {"is killed", "cut"})])
def test_what_is_named_happens_and_nothing_else(faults: tuple[str, ...], happened: set[str]) -> None:
    assert run_on_virtual_time(tortured, faults, 1).happened.keys() == happened


@pytest.mark.parametrize("most_down", [1, 2])
def test_so_many_are_down_at_once_and_no_more(most_down: int) -> None:
    assert max(run_on_virtual_time(tortured, ("kill", "power"), most_down, seed=seed).value for seed in range(3)) == (
        most_down)


def test_nobody_is_tortured_who_runs_nothing() -> None:
    async def main(world: VirtualWorld) -> None:
        world.host("idle")
        await torture(world, faults=("kill", "power"))

    assert run_on_virtual_time(main).happened == {}
