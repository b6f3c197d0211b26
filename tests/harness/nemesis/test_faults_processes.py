"""Faults of processes, on real ones: what each does, and that its undoing is done once."""

from __future__ import annotations

import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from harness.nemesis.errors import NotHere
from harness.nemesis.faults import fault
from harness.nemesis.forwarding import forwarders
from harness.processes.handle import running
from harness.processes.ports import reserved
from tests.harness.nemesis.nodes import Place, answers, echoes

NAMES = ("a", "b")


@asynccontextmanager
async def place(root: Path) -> AsyncIterator[tuple[Place, int]]:
    """Two nodes that serve, and the port where each listens at its own address."""
    async with forwarders(NAMES) as network, AsyncExitStack() as stack:
        port = stack.enter_context(reserved())
        made = Place(echoes(root, network, NAMES, port), network)
        with trio.fail_after(60):
            for node in made.nodes.values():
                await stack.enter_async_context(running(node.handle))
            yield made, port


@pytest.mark.parametrize("name", ["kill", "restart", "wipe"])
async def test_a_node_is_down_until_it_is_undone(name: str, tmp_path: Path) -> None:
    async with place(tmp_path) as (scene, port):
        chosen = fault(name)
        begun = await chosen.begin(scene, ["a"], chosen.checked({}))
        assert (scene.nodes["a"].running, scene.nodes["b"].running) == (False, True)
        assert list(begun.nodes) == ["a"] and "a" in begun.words
        await begun.undo()
        assert await answers(scene.network.bind("a"), port)
        assert scene.nodes["a"].lives == (1 if name == "wipe" else 2)
        pid = scene.nodes["a"].pid
        await begun.undo()
        assert scene.nodes["a"].pid == pid, "what is undone is not undone again"


async def test_a_paused_node_is_silent_and_goes_on(tmp_path: Path) -> None:
    async with place(tmp_path) as (scene, port):
        begun = await fault("pause").begin(scene, list(NAMES), {})
        assert not await answers(scene.network.bind("a"), port, within_s=0.1)
        await begun.undo()
        assert await answers(scene.network.bind("a"), port)


async def test_rolling_restart_ends_one_after_the_other(tmp_path: Path) -> None:
    async with place(tmp_path) as (scene, _):
        rolling = fault("rolling-restart")
        begun = await rolling.begin(scene, list(NAMES), rolling.checked({"between_ms": 0}))
        assert [node.lives for node in scene.nodes.values()] == [2, 2]
        await begun.undo()


async def test_rolling_upgrade_starts_each_as_another_version(tmp_path: Path) -> None:
    async with place(tmp_path) as (scene, _):
        rolling = fault("rolling-upgrade")
        for node in scene.nodes.values():
            node.upgrades = 0
        begun = await rolling.begin(scene, list(NAMES), rolling.checked({"between_ms": 0}))
        assert [(node.lives, node.upgrades) for node in scene.nodes.values()] == [(2, 1), (2, 1)]
        await begun.undo()
        assert begun.words == "upgrade a, b, one after the other"
        scene.nodes["a"].upgrades = -1
        with pytest.raises(NotHere, match="a has no other version"):
            await rolling.begin(scene, ["a"], rolling.checked({}))


async def test_what_does_not_run_is_passed_over(tmp_path: Path) -> None:
    async with place(tmp_path) as (scene, _):
        first = await fault("kill").begin(scene, ["a"], {})
        second = await fault("kill").begin(scene, ["a", "b"], {})
        assert list(second.nodes) == ["b"]
        await second.undo()
        assert (scene.nodes["a"].running, scene.nodes["b"].running) == (False, True), "who killed it starts it"
        await first.undo()
        assert scene.nodes["a"].lives == 2


def connected(address: str) -> int:
    """How many connections a server at this address has now."""
    host, _, port = address.rpartition(":")
    local = f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{int(port):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1] == local and row[3] == "01" for row in rows)


async def test_strangers_come_stay_come_again_and_leave(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place(tmp_path) as (scene, port):
        crowd = fault("crowd")
        scene.nodes["a"].handle.address = address = f"{scene.network.bind('a')}:{port}"
        begun = await crowd.begin(scene, ["a"], crowd.checked({"connections": 7}))
        await until(lambda: connected(address) == 7)
        await scene.nodes["a"].kill()
        await until(lambda: connected(address) == 0)
        await scene.nodes["a"].start()
        await until(lambda: connected(address) == 7)
        await begun.undo()
        await until(lambda: connected(address) == 0)
        with pytest.raises(NotHere, match="a has no port ha; it has echo"):
            await crowd.begin(scene, ["a"], crowd.checked({"port": "ha"}))
        monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 100))
        with pytest.raises(NotHere, match="a process may open 100 files here, and 69 connections need 101"):
            await crowd.begin(scene, ["a"], crowd.checked({"connections": 69}))


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await trio.sleep(0.02)
