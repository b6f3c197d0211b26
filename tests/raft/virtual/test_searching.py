"""``search``: a planted bug is found, cut down to the faults that it needs, told, and repeated from its file."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
import trio

from raft.errors import UsageError
from raft.sim.tape import count, load
from raft.virtual import (
    Counterexample,
    NotRepeatable,
    VirtualHost,
    VirtualWorld,
    run_on_virtual_time,
    search,
    torture,
)
from tests.raft.virtual.services import echoes


async def keep(host: VirtualHost, syncs: bool) -> None:
    """A store of one number, which has a planted bug where it does not sync what it acknowledges."""
    if "number" not in host.disk.list(""):
        host.disk.open("number", create=True).pwrite([b"0"], 0)
        host.disk.open("number").sync()
        host.disk.sync_dir("")
    file = host.disk.open("number")

    async def answer(stream: trio.abc.Stream) -> None:
        while await stream.receive_some():
            number = int(file.pread(20, 0)) + 1
            file.pwrite([b"%d" % number], 0)
            if syncs:
                file.sync()
            await stream.send_all(b"%d" % number)

    listener = host.listen(f"{host.name}:9")
    host.ready()
    await trio.serve_listeners(answer, [listener])


async def numbers(world: VirtualWorld, syncs: bool) -> None:
    """What was acknowledged is never acknowledged again."""
    await world.host("store").start(keep, syncs)
    last = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(torture, world, hosts=["store"], seconds=10, longest_s=1))
        while trio.current_time() < 11:
            with trio.move_on_after(1):
                try:
                    stream = await world.host("client").connect("store:9")
                    await stream.send_all(b"+")
                    said = await stream.receive_some()
                except (OSError, trio.BrokenResourceError):
                    said = b""
                if said:
                    assert int(said) > last, f"{int(said)} after {last}"
                    last = int(said)
            await trio.sleep(0.2)


async def lazy(world: VirtualWorld) -> None:
    await numbers(world, syncs=False)


async def careful(world: VirtualWorld) -> None:
    await numbers(world, syncs=True)


def test_a_planted_bug_is_found_cut_down_told_and_repeated(tmp_path: Path) -> None:
    with pytest.raises(Counterexample) as caught:
        search(lazy, seeds=40, corpus=tmp_path)
    found = caught.value
    tape, notes = load(found.tape)
    assert count(tape.deviations) <= 6 < notes["deviations_before"]
    assert found.failure == "AssertionError in test_searching.py:numbers"
    assert [line.split("ms")[1].strip() for line in found.script] == ["store loses power", "store starts again"]
    assert f'search(..., replay="{found.tape}")' in str(found)
    with pytest.raises(Counterexample, match="the failure is still there"):
        search(lazy, replay=found.tape)
    with pytest.raises(AssertionError, match=r"\d after \d"):
        run_on_virtual_time(lazy, seed=found.seed)


def test_what_is_right_passes_and_the_report_says_what_happened(tmp_path: Path) -> None:
    report = search(careful, seeds=10, corpus=tmp_path)
    assert report.seeds == 10 and report.virtual_s > 100 and report.steps > 10_000
    assert report.happened["loses power"] > 3 and report.happened["is killed"] > 3
    assert not list(tmp_path.iterdir())


def test_several_processes_play_the_same(tmp_path: Path) -> None:
    assert search(careful, seeds=4, jobs=2, corpus=tmp_path) == search(careful, seeds=4, corpus=tmp_path)


def test_what_cannot_be_repeated_is_no_finding(tmp_path: Path) -> None:
    async def hangs_on_chance(world: VirtualWorld) -> None:
        await trio.sleep(random.Random().random())  # its seed is not the run's

    with pytest.raises(NotRepeatable, match="seed 1 gave two different runs"):
        search(hangs_on_chance, seeds=1, corpus=tmp_path)


def test_wrong_use_is_no_finding(tmp_path: Path) -> None:
    async def wrong(world: VirtualWorld) -> None:
        await trio.open_tcp_stream("127.0.0.1", 80)

    with pytest.raises(UsageError, match="a real socket"):
        search(wrong, seeds=1, corpus=tmp_path)


def test_a_search_without_faults_repeats_too(tmp_path: Path) -> None:
    async def main(world: VirtualWorld) -> None:
        await echoes(world)

    assert search(main, seeds=3, corpus=tmp_path).happened == {}
