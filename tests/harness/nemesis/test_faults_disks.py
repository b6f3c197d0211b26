"""Faults of disks, clocks and hosts, on real processes with disks of their own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from harness.nemesis import abilities, disks, sandbox, shim
from harness.nemesis.errors import NotHere
from harness.nemesis.fault import OF_DISKS, Ability, Begun
from harness.nemesis.faults import FAULTS, fault
from harness.nemesis.network import namespaces
from harness.processes.handle import running
from tests.harness.nemesis import sandboxed
from tests.harness.nemesis.nodes import Place, asked, echoes

NAMES = ("a", "b")
SIZE = 32 << 20


@asynccontextmanager
async def place(root: Path, *, shims: bool = True) -> AsyncIterator[Place]:
    """Two nodes that serve."""
    made = disks.make(root, NAMES, SIZE, sandbox.inside(), shims=shims)
    async with namespaces(NAMES) as network, AsyncExitStack() as stack:
        scene = Place(echoes(root, network, NAMES, disks=made), network, made)
        with trio.fail_after(100):
            for node in scene.nodes.values():
                await stack.enter_async_context(running(node.handle))
            try:
                yield scene
            finally:
                for disk in made.values():
                    await disk.resume()


async def begun(scene: Place, name: str, nodes: list[str], **args: object) -> Begun:
    chosen = fault(name)
    return await chosen.begin(scene, nodes, chosen.checked(args))


async def ask(scene: Place, question: str, within_s: float = 20) -> str:
    return await asked(scene.network.address("a"), question, within_s=within_s)


async def troubles(folder: Path) -> None:
    """Each kind of disk stalls, fills up, fails and is slow; and goes on."""
    async with place(folder) as scene:
        assert (await ask(scene, "write one"), await ask(scene, "sync one")) == ("None", "None")
        stalled = await begun(scene, "stall-disk", ["a"])
        assert await ask(scene, "write one", within_s=0.2) == ""
        assert await asked(scene.network.address("b"), "write one", within_s=20) == "None"
        await stalled.undo()
        await stalled.undo()
        unsynced = await begun(scene, "stall-syncs", ["a"])
        assert await ask(scene, "write two") == "None"
        assert await ask(scene, "sync two", within_s=0.2) == ""
        await unsynced.undo()
        assert await ask(scene, "sync two") == "None"
        full = await begun(scene, "fill-disk", ["a"])
        assert "No space" in [await ask(scene, f"write {'n' * 60}{number}") for number in range(64)][-1] or \
            "No space" in await ask(scene, "write one")
        await full.undo()
        assert await ask(scene, "write one") == "None"
        for what, answers in (("writes", ("Input/output error", "None")), ("syncs", ("None", "Input/output error"))):
            broken = await begun(scene, "fail-disk", ["a"], what=what)
            assert (await ask(scene, "write one"), await ask(scene, "sync one")) == answers
            await broken.undo()
        slow = await begun(scene, "slow-disk", ["a"], what="writes", longer_ms=300)
        assert await ask(scene, "write one", within_s=0.2) == ""
        await slow.undo()
        for name, args, least_s in (("step-clock", {"step_ms": -7_200_000}, 7_000), ("step-clock", {}, 50)):
            wrong = await begun(scene, name, ["a"], **args)
            apart = int(await ask(scene, "clock")) - int(await asked(scene.network.address("b"), "clock"))
            assert abs(apart) > least_s * 1e9, wrong.words
            await wrong.undo()
        drift = await begun(scene, "drift-clock", ["a"], gains_ppm=1e7)
        first = int(await ask(scene, "clock"))
        await trio.sleep(0.2)
        assert int(await ask(scene, "clock")) - first > 2e9
        await drift.undo()


async def losses(folder: Path) -> None:
    """Who loses power keeps what was synced; a disk that lies keeps nothing since; a lost host is silent."""
    able = abilities.probe(folder)
    async with place(folder, shims=False) as scene:
        assert [await ask(scene, each) for each in ("write kept", "sync kept")] == ["None"] * 2
        lying = await begun(scene, "lie-disk", ["a"])
        assert [await ask(scene, each) for each in ("write lied", "sync lied")] == ["None"] * 2
        await lying.undo()
        await lying.undo()
        store = scene.nodes["a"].data
        assert sorted(os.listdir(store)) == ["kept", "lives"] and scene.nodes["a"].lives == 2
        lost = await begun(scene, "host-loss", ["a"])
        assert not scene.nodes["a"].running and await ask(scene, "hello", within_s=0.1) == ""
        await lost.undo()
        assert await ask(scene, "hello") == "hello"
        with pytest.raises(NotHere, match="a: it was started without the shim"):
            await begun(scene, "fail-disk", ["a"])
        if Ability.POWER not in able.why_not:
            assert [await ask(scene, each) for each in ("write synced", "sync synced", "write gone")] == ["None"] * 3
            cut = await begun(scene, "power-cut", ["a"])
            assert (store / "synced").read_text() == "synced"
            assert not (store / "gone").exists() or (store / "gone").read_text() == ""
            await cut.undo()
            assert [await ask(scene, each) for each in ("hello", "write on", "sync on")] == ["hello", "None", "None"]
        else:
            assert "loop devices need root" in able.missing(fault("power-cut"))
            assert any("take from a disk what was not synced" in each for each in able.cannot)


@pytest.mark.parametrize("user", [False, True])
def test_disks_and_clocks_are_in_trouble_and_well_again(user: bool, tmp_path: Path) -> None:
    if why := shim.impossible():
        pytest.skip(f"NOT RUN: {why}")
    sandboxed.run(troubles, tmp_path, user=user)


@pytest.mark.parametrize("user", [False, True])
def test_what_was_not_synced_is_lost(user: bool, tmp_path: Path) -> None:
    sandboxed.run(losses, tmp_path, user=user)


def test_every_fault_of_a_disk_has_a_test() -> None:
    of_disks = {name for name, each in FAULTS.items() if each.needs & OF_DISKS}
    assert of_disks == {"stall-disk", "stall-syncs", "fill-disk", "fail-disk", "slow-disk", "lie-disk", "power-cut",
                        "step-clock", "drift-clock"}
