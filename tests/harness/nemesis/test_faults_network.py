"""Faults of links, between real processes on hosts of their own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from harness.nemesis import abilities
from harness.nemesis.fault import Ability, Begun
from harness.nemesis.faults import FAULTS, fault
from harness.nemesis.forwarding import forwarders
from harness.nemesis.network import CLIENTS, namespaces
from harness.processes.handle import running
from tests.harness.nemesis import sandboxed
from tests.harness.nemesis.nodes import Place, answers, echoes

NAMES = ("a", "b", "c")
ASK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2])) as peer:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began = time.monotonic()
    for _ in range(int(sys.argv[3])):
        peer.sendall(b"x" * int(sys.argv[4]))
        left = int(sys.argv[4])
        while left:
            left -= len(peer.recv(left))
    print(time.monotonic() - began)
"""


@asynccontextmanager
async def place(root: Path) -> AsyncIterator[Place]:
    """Three nodes that serve."""
    async with namespaces(NAMES, "7") as network, AsyncExitStack() as stack:
        made = Place(echoes(root, network, NAMES), network)
        with trio.fail_after(90):
            for node in made.nodes.values():
                await stack.enter_async_context(running(node.handle))
            yield made


async def begun(scene: Place, name: str, nodes: list[str], **args: object) -> Begun:
    chosen = fault(name)
    return await chosen.begin(scene, nodes, chosen.checked(args))


async def asked(scene: Place, source: str, target: str, *, times: int = 1, size: int = 5,
                within_s: float = 0.25) -> float | None:
    """How many seconds so many echoes took from one host to another; None, if there were none in time."""
    command = [*scene.network.prefix(source), "python3", "-c", ASK, scene.network.address(target), str(within_s),
               str(times), str(size)]
    ran = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    return float(ran.stdout) if ran.returncode == 0 else None


HEAR = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    here.bind((sys.argv[1], 7001))
    here.settimeout(0.5)
    print("up", flush=True)
    heard = []
    try:
        while True:
            heard.append(here.recv(99).decode())
    except TimeoutError:
        print(*heard)
"""
SAY = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
    for number in range(int(sys.argv[2])):
        here.sendto(b"%d" % number, (sys.argv[1], 7001))
"""
DATAGRAMS = 100
"""Twice as many fit into what a socket holds for a receiver that has no time."""


async def heard(scene: Place, source: str, target: str) -> list[int]:
    """The numbers of datagrams in the order in which they come; nobody mends there what the link does."""
    hear = [*scene.network.prefix(target), "python3", "-c", HEAR, scene.network.bind(target)]
    say = [*scene.network.prefix(source), "python3", "-c", SAY, scene.network.address(target), str(DATAGRAMS)]
    process = await trio.lowlevel.open_process(hear, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = b""
    while b"\n" not in said:
        said += await process.stdout.receive_some()
    await trio.run_process(say)
    async for some in process.stdout:
        said += some
    await process.wait()
    return [*map(int, said.removeprefix(b"up\n").split())]


async def datagrams(folder: Path) -> None:
    async with namespaces(NAMES, "7") as network:
        scene, sent = Place(echoes(folder, network, NAMES), network), [*range(DATAGRAMS)]
        assert await heard(scene, "a", "b") == sent
        twice = await begun(scene, "duplicate", ["b"], share=1.0)
        found = await heard(scene, "a", "b")
        assert found == [number for number in sent for _ in range(2)], found
        await twice.undo()
        mixed = await begun(scene, "reorder", ["b"], share=0.3)
        found = await heard(scene, "a", "b")
        assert found != sent and sorted(found) == sent
        await mixed.undo()
        some = await begun(scene, "lose", ["b"], share=0.5)
        found = await heard(scene, "a", "b")
        assert found == sorted(set(found)) and 0.3 * DATAGRAMS < len(found) < 0.7 * DATAGRAMS
        await some.undo()
        assert await heard(scene, "a", "b") == sent


async def cuts(folder: Path) -> None:
    async with place(folder) as scene:
        assert await asked(scene, "a", "b") is not None
        cut = await begun(scene, "cut", ["a"], **{"from": ["b"]})
        assert cut.words == "cut a from b"
        assert (await asked(scene, "a", "b"), await asked(scene, "b", "a")) == (None, None)
        assert await answers(scene.network.address("a")), "clients reach it"
        again = await begun(scene, "cut", ["a"])
        assert await asked(scene, CLIENTS, "a") is None
        await again.undo()
        await again.undo()
        assert await asked(scene, "a", "b") is None, "the other cut is there still"
        await cut.undo()
        assert await asked(scene, "a", "b") is not None
        one_way = await begun(scene, "cut", ["a"], side="in")
        assert await asked(scene, "a", "b") is None
        assert "still hear it" in one_way.words
        await one_way.undo()
        parted = await begun(scene, "partition", list(NAMES))
        heard = [pair for pair in (("a", "b"), ("a", "c"), ("b", "c")) if await asked(scene, *pair) is not None]
        assert len(heard) == 1, parted.words
        await parted.undo()
        alone = await begun(scene, "isolate", list(NAMES))
        assert not [pair for pair in (("a", "b"), ("b", "c"), (CLIENTS, "a")) if await asked(scene, *pair) is not None]
        await alone.undo()
        assert await asked(scene, "b", "c") is not None


async def shapes(folder: Path) -> None:
    assert Ability.LINKS not in abilities.probe(folder).why_not
    async with place(folder) as scene:
        slow = await begun(scene, "slow", ["a"], delay_ms=100, side="out")
        took = await asked(scene, "a", "b", times=3, within_s=5)
        assert took is not None and took >= 0.3, "each echo is late once: its way back is not shaped"
        both = await begun(scene, "slow", ["a"], delay_ms=50)
        took = await asked(scene, "b", "a", times=3, within_s=5)
        assert took is not None and took >= 0.6
        cut = await begun(scene, "cut", ["a"], **{"from": ["b"]})
        assert await asked(scene, "a", "b") is None, "a link that is slow and cut is cut"
        await cut.undo()
        for each in (slow, both, slow):
            await each.undo()
        began = time.monotonic()
        assert await asked(scene, "a", "b", times=50) is not None and time.monotonic() - began < 0.1 * 50
        gone = await begun(scene, "lose", ["b"], share=1.0)
        assert await asked(scene, "a", "b") is None
        await gone.undo()
        for name, args in (("lose", {"share": 0.2}), ("duplicate", {"share": 1.0}), ("reorder", {"share": 0.3})):
            bad = await begun(scene, name, ["b"], **args)
            assert await asked(scene, "a", "b", size=100_000, within_s=30) is not None, "TCP mends it"
            await bad.undo()
        narrow = await begun(scene, "throttle", ["b"], bytes_per_s=200_000, side="in")
        took = await asked(scene, "a", "b", size=150_000, within_s=30)
        assert took is not None and took >= 0.5
        await narrow.undo()


def test_links_are_cut_one_way_both_and_in_halves(tmp_path: Path) -> None:
    sandboxed.run(cuts, tmp_path)


@pytest.mark.parametrize("user", [False, True])
def test_links_are_slow_lossy_and_narrow(user: bool, tmp_path: Path) -> None:
    sandboxed.run(shapes, tmp_path, user=user)


def test_packets_come_twice_out_of_order_or_not_at_all(tmp_path: Path) -> None:
    """TCP mends what its packets suffer, and says nothing of it."""
    sandboxed.run(datagrams, tmp_path)


@pytest.mark.parametrize(("name", "args"), [
    ("cut", {"from": ["a"]}), ("cut", {"from": []}), ("partition", {}), ("slow", {"from": ["a"]})])
async def test_a_fault_of_no_link_is_of_no_node(name: str, args: dict[str, object], tmp_path: Path) -> None:
    async with forwarders(NAMES) as network:
        scene = Place(echoes(tmp_path, network, NAMES), network)
        assert list((await begun(scene, name, ["a"], **args)).nodes) == ([] if args != {"from": []} else ["a"])


def test_every_fault_of_a_link_has_a_test() -> None:
    of_links = {name for name, each in FAULTS.items() if each.needs & {Ability.CUTS, Ability.LINKS}}
    assert of_links == {"cut", "isolate", "partition", "slow", "lose", "duplicate", "reorder", "throttle",
                        "host-loss", "power-cut"}, "the last two: test_faults_disks.py"
