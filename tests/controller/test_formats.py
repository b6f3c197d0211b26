"""A group of controllers of two releases: the old format until all read the new one; who cannot read it stops in words.

Controllers are told what they read: 1 plays a controller of the release that knew no other format.
"""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from controller.metadata import codec
from controller.metadata.commands import RaiseFormat
from controller.metadata.outcomes import Refused
from controller.own_codes import OwnCode
from harness.simulation.worlds.controllers import World, group_of, world
from raft.errors import RaftError
from remoting.codes import RequestCode
from remoting.daemon.process import leaves, words


def formats(made: World) -> set[int]:
    return {running.core.machine.format for running in made.running.values()}


async def raised(made: World, to: int = codec.FORMAT) -> None:
    with trio.fail_after(5):
        while formats(made) != {to}:
            await trio.sleep(0.05)


async def said(made: World, name: str) -> str:
    return (await made.ask(name, OwnCode.EXPLAIN)).body.decode()


async def upgraded(made: World, name: str, reads: int = codec.FORMAT) -> None:
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


async def test_a_fresh_group_goes_on_to_the_newest_format_at_once_and_only_once(
        autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world() as made:
        await raised(made)
        await sound(made, "a")
        for name in made.names:
            await made.kill(name)
        await made.start_all()
        await sound(made, "b")
        assert formats(made) == {codec.FORMAT}
        await trio.sleep(30)
    told = [record for record in caplog.records if "it is in use" in record.message]
    assert [record.__dict__["format"] for record in told] == list(range(2, codec.FORMAT + 1))


async def test_a_rolling_upgrade(autojump_clock: MockClock) -> None:
    async with world(reads=1) as made:
        await sound(made, "a")
        for number, name in enumerate(made.names):
            await trio.sleep(12)
            assert formats(made) == {1}
            await upgraded(made, name)
            await sound(made, f"b{number}")
        await raised(made)
        await sound(made, "c")


async def test_a_member_that_is_down_is_waited_for(autojump_clock: MockClock) -> None:
    async with world(late=1) as made:
        await trio.sleep(30)
        assert formats(made) == {1}
        await made.start(made.names[-1])
        await raised(made)


async def test_everybody_says_what_it_reads_and_what_is_in_use(autojump_clock: MockClock) -> None:
    async with world(reads=1) as made:
        await upgraded(made, "n1")
        answers = [(await made.ask(name, RequestCode.CONTROLLER_GET_METADATA_INFO)).ext for name in made.names]
        assert [answer["readsFormat"] for answer in answers] == ["1", str(codec.FORMAT), "1"]
        assert {answer["formatInUse"] for answer in answers} == {"1"}


async def test_the_active_controller_says_who_holds_the_format_back(autojump_clock: MockClock) -> None:
    async with world(late=1) as made:
        await trio.sleep(2)
        assert "Format 1 of the log stays in use, not 2: n2 does not say what it reads." in await said(
            made, await made.active())
        made.reads["n2"] = 1
        await made.start("n2")
        await trio.sleep(2)
        sentences = await said(made, await made.active())
        assert "Format 1 of the log stays in use, not 2: n2 reads 1 at most: upgrade it." in sentences
        assert "All is well" in sentences
        await upgraded(made, "n2")
        await raised(made)
        await trio.sleep(1)
        for name in made.names:
            assert "stays in use" not in await said(made, name)


async def test_a_raise_to_any_other_format_is_refused_by_all_alike(autojump_clock: MockClock) -> None:
    async with world() as made:
        await raised(made)
        core = made.running[await made.active()].core
        for wanted in (1, codec.FORMAT + 2, 2**40):
            refused = await core.node.propose(
                codec.encode(RaiseFormat(term=core.active.term, format=wanted), core.machine.format))
            assert isinstance(refused, Refused) and f"not {wanted}" in refused.remark
        await sound(made, "a")
        assert formats(made) == {codec.FORMAT} and not made.failed


async def test_an_old_controller_that_meets_the_new_format_stops_in_words(autojump_clock: MockClock) -> None:
    """Nobody who can be asked is left behind; this one was downgraded while it was down."""
    async with world(late=1) as made:
        old = made.names[-1]
        machine = made.running[await made.active()].core.machine
        await made.running[await made.active()].core.node.propose(
            codec.encode(RaiseFormat(term=made.running[await made.active()].core.active.term, format=2),
                         machine.format))
        made.reads[old] = 1
        await made.start(old)
        await trio.sleep(5)
        (failure,) = leaves(made.failed[old])
        assert "the group uses format 2; this version reads up to 1: upgrade this node" in words(failure)
        assert old not in made.running and formats(made) == {2}
        await sound(made, "a")
        made.reads[old] = codec.FORMAT
        await made.start(old)
        await sound(made, "b")


async def test_an_old_controller_does_not_start_from_a_snapshot_in_the_new_format(autojump_clock: MockClock) -> None:
    async with world() as made:
        await sound(made, "a")
        await raised(made)
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
