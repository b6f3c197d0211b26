"""Hosts: what a kill leaves, what a power cut takes, what others notice, and tasks that do not end."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio

from raft.errors import UsageError
from raft.virtual import LeakedTasks, VirtualHost, VirtualWorld, run_on_virtual_time
from tests.raft.virtual.services import echo


async def keep(host: VirtualHost, synced: bool) -> None:
    """Writes a file once, and waits."""
    if "kept" not in host.disk.list(""):
        file = host.disk.open("kept", create=True)
        host.disk.sync_dir("")
        file.pwrite([b"precious"], 0)
        if synced:
            file.sync()
    host.ready(host.disk.open("kept").pread(8, 0))
    try:
        await trio.sleep_forever()
    finally:
        host.disk.open("kept").pwrite([b"a clean "], 0)


@pytest.mark.parametrize("synced", [True, False])
def test_a_kill_keeps_what_was_written_and_a_power_cut_what_was_synced(synced: bool) -> None:
    async def main(world: VirtualWorld) -> list[bytes]:
        host, found = world.host("a"), []
        await host.start(keep, synced)
        await host.kill()
        found.append(await host.restart())
        await host.cut_power()
        found.append(await host.restart())
        return found

    found = [run_on_virtual_time(main, seed=seed).value for seed in range(20)]
    assert {each[0] for each in found} == {b"precious"}, "what cleans up behind a kill writes nothing"
    assert ({each[1] for each in found} == {b"precious"}) is synced


def test_what_runs_cannot_be_started_and_what_never_ran_not_restarted() -> None:
    async def main(world: VirtualWorld) -> None:
        with pytest.raises(UsageError, match="never ran"):
            await world.host("a").restart()
        await world.host("a").start(echo)
        with pytest.raises(UsageError, match="runs a program already"):
            await world.host("a").start(echo)

    run_on_virtual_time(main)


def test_a_program_that_fails_fails_the_run_and_one_that_is_killed_does_not() -> None:
    async def fails(host: VirtualHost, after_s: float) -> None:
        host.ready()
        try:
            await trio.sleep(after_s)
        finally:
            raise ZeroDivisionError

    async def main(world: VirtualWorld, after_s: float) -> bool:
        await world.host("a").start(fails, after_s)
        await trio.sleep(5)
        await world.host("a").kill()
        return world.host("a").running

    assert run_on_virtual_time(main, 10).value is False
    with pytest.raises(ZeroDivisionError):
        run_on_virtual_time(main, 1)


def test_a_task_that_outlives_its_host_is_named() -> None:
    async def stubborn(host: VirtualHost) -> None:
        host.ready()
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1_000)

    async def main(world: VirtualWorld) -> None:
        await world.host("a").start(stubborn)
        await world.host("a").kill()

    with pytest.raises(LeakedTasks, match=r"tasks of a live on 60 s after it was ended: trio\.sleep"):
        run_on_virtual_time(main)


def test_a_task_outside_all_nurseries_is_a_leak() -> None:
    async def main(world: VirtualWorld) -> None:
        trio.lowlevel.spawn_system_task(trio.sleep_forever)

    with pytest.raises(LeakedTasks, match=r"1 tasks live on .*trio\.sleep_forever"):
        run_on_virtual_time(main)


async def told(world: VirtualWorld, what: str) -> tuple[str, float]:
    """What a client hears of the end of a host that it is connected with, and when."""
    server = world.host("server")
    await server.start(echo)
    stream = await world.host("client").connect("server:7")
    await stream.send_all(b"1")
    assert await stream.receive_some() == b"1"
    began = trio.current_time()
    await (server.kill if what == "kill" else server.cut_power)()
    with trio.move_on_after(30), suppress(trio.BrokenResourceError):
        return ("the end" if await stream.receive_some() == b"" else "bytes"), trio.current_time() - began
    return "nothing", trio.current_time() - began


def test_a_kill_is_noticed_at_once_and_a_power_cut_is_not() -> None:
    words, after_s = run_on_virtual_time(told, "kill").value
    assert words == "the end" and after_s < 0.1
    assert run_on_virtual_time(told, "power").value == ("nothing", 30.0)


def test_faults_are_counted_and_noted() -> None:
    run = run_on_virtual_time(told, "kill")
    assert run.happened == {"is killed": 1}
    assert [words for _, words in run.notes] == ["server is killed"]
