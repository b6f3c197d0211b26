"""A group of controllers of two releases: the old format until all read the new one; who cannot read it stops in words.

There is one format today, so these tests play a second: ``FORMAT`` is 2, and controllers are told what they read.
"""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from controller.metadata import codec
from controller.metadata.commands import RaiseFormat
from raft.errors import RaftError
from remoting.codes import RequestCode
from remoting.daemon.process import leaves, words
from tests.controller.world import World, group_of, world


@pytest.fixture(autouse=True)
def _two_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "FORMAT", 2)


def formats(made: World) -> set[int]:
    return {running.core.machine.format for running in made.running.values()}


async def upgraded(made: World, name: str, reads: int = 2) -> None:
    """Stopped, and started again as another release, from its disk."""
    await made.kill(name)
    made.reads[name] = reads
    await made.start(name)


async def sound(made: World, group: str) -> None:
    """Commands are carried out, the same everywhere."""
    first, _ = await group_of(made, group, 2)
    await first.kill()
    await made.wait_master(group, 2)
    await trio.sleep(1)
    assert len({running.core.machine.state_hash() for running in made.running.values()}) == 1


async def test_a_group_that_reads_it_goes_on_to_the_next_format(autojump_clock: MockClock) -> None:
    async with world() as made:
        await sound(made, "a")
        assert formats(made) == {1}
        await trio.sleep(10)
        assert formats(made) == {2}
        await sound(made, "b")
        for name in made.names:
            await made.kill(name)
        await made.start_all()
        await sound(made, "c")
        assert formats(made) == {2}


async def test_a_rolling_upgrade(autojump_clock: MockClock) -> None:
    async with world(reads=1) as made:
        await sound(made, "a")
        for number, name in enumerate(made.names):
            await trio.sleep(12)
            assert formats(made) == {1}
            await upgraded(made, name)
            await sound(made, f"b{number}")
        with trio.fail_after(30):
            while formats(made) != {2}:
                await trio.sleep(1)
        await sound(made, "c")


async def test_a_member_that_is_down_is_waited_for(autojump_clock: MockClock) -> None:
    async with world() as made:
        active = await made.active()
        down = next(name for name in made.names if name != active)
        await made.kill(down)
        await trio.sleep(30)
        assert formats(made) == {1}
        await made.start(down)
        await trio.sleep(12)
        assert formats(made) == {2}


async def test_everybody_says_what_it_reads(autojump_clock: MockClock) -> None:
    async with world(reads=1) as made:
        await upgraded(made, "n1")
        said = [(await made.ask(name, RequestCode.CONTROLLER_GET_METADATA_INFO)).ext["readsFormat"]
                for name in made.names]
        assert said == ["1", "2", "1"]


async def test_an_old_controller_that_meets_the_new_format_stops_in_words(autojump_clock: MockClock) -> None:
    """Nobody who can be asked is left behind; this one was downgraded while it was down."""
    async with world() as made:
        active = await made.active()
        old = next(name for name in made.names if name != active)
        made.reads[old] = 1
        await made.kill(old)
        machine = made.running[active].core.machine
        await made.running[active].core.node.propose(
            codec.encode(RaiseFormat(term=made.running[active].core.active.term, format=2), machine.format))
        await made.start(old)
        await trio.sleep(5)
        (failure,) = leaves(made.failed[old])
        assert "the group uses format 2; this version reads up to 1: upgrade this node" in words(failure)
        assert old not in made.running and formats(made) == {2}
        await sound(made, "a")
        made.reads[old] = 2
        await made.start(old)
        await sound(made, "b")


async def test_an_old_controller_does_not_start_from_a_snapshot_in_the_new_format(autojump_clock: MockClock) -> None:
    async with world() as made:
        await sound(made, "a")
        await trio.sleep(10)
        active = await made.active()
        down = next(name for name in made.names if name != active)
        await made.running[down].core.node.take_snapshot()
        await made.kill(down)
        made.reads[down] = 1
        said = []
        try:
            async with trio.open_nursery() as made.nursery:
                await made.start(down)
        except* RaftError as failures:
            said = [words(failure) for failure in leaves(failures)]
        assert len(said) == 1 and "this version reads up to 1: upgrade this node" in said[0]
