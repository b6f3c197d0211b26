"""Bounds that whole servers keep, asked in seeded worlds: how long a failover takes, and how much memory answers fill.

    chaos sim tests/harness/simulation/worlds/bounds.py:killed_together --seed 1 --seeds 20
    chaos sim tests/harness/simulation/worlds/bounds.py:nobody_reads --seed 1 --seeds 20
"""

from __future__ import annotations

from typing import Final

import trio

from harness.simulation.worlds.brokers import cluster, new_master, three
from harness.simulation.worlds.streams import Net, Wire
from raft.violation import InvariantViolation
from raft.virtual import VirtualWorld
from remoting.command import Command, response
from remoting.config import ServerConfig
from remoting.server import Server
from tests.remoting.test_connection import before

TOGETHER: Final = "TOGETHER"
"""A master and the active controller die together: a new master serves soon after a new controller is active."""
AFTER_MS: Final = 100
"""The election's round trips and syncs. Nothing waits for a heartbeat. Brokers take these controllers for strangers, as
they take one that is configured by its host's name: they ask at once who leads."""
OUTGOING: Final = "OUTGOING"
"""Answers that nobody reads fill no more than their budget."""
KIB: Final = 1 << 10
ANSWER: Final = 64 * KIB
BUDGET: Final = 1_024 * KIB
CONFIG: Final = ServerConfig(
    frame_bytes_max=2 * ANSWER, outgoing_bytes_max=4_096 * KIB, outgoing_bytes_pause=256 * KIB,
    outgoing_bytes_budget=BUDGET, outgoing_stall_ms=5_000)
COME: Final = 24


async def killed_together(world: VirtualWorld) -> float:
    """The milliseconds from the moment that a new controller is active until a new master serves."""
    chance = world.stream("deaths")
    async with cluster(controllers=3, network=world.network) as made:
        assert made.controllers is not None
        master, *slaves = await three(made, allAckInSyncStateSet="true", minInSyncReplicas="2")
        await trio.sleep(chance.between(0, 1_000) / 1e3)
        await made.controllers.kill(await made.controllers.active())
        await master.kill()
        world.note("the active controller and the master are killed")
        await made.controllers.active()
        active = trio.current_time()
        world.note("another controller is active")
        await new_master(*slaves)
        took_ms = (trio.current_time() - active) * 1e3
        world.note("another master serves")
    if took_ms > AFTER_MS:
        raise InvariantViolation(TOGETHER, f"another master serves {took_ms:,.0f} ms after a controller is active, of "
                                           f"at most {AFTER_MS}")
    return took_ms


async def nobody_reads(world: VirtualWorld) -> int:
    """The most bytes that waited for those who ask and do not read."""
    chance, most = world.stream("readers"), 0
    server = Server({1: lambda _, asked: response(asked, body=bytes(ANSWER))}, config=CONFIG)

    def waiting(*_: object) -> None:
        nonlocal most
        most = max(most, sum(each.queued_bytes for each in server.connections))

    server._endpoint.on_answer = waiting
    async with trio.open_nursery() as nursery:
        made = Net(nursery)
        await made.serve("s:1", server)
        for number in range(COME):
            await trio.sleep(0.05)
            if not chance.chance(0.4):
                continue
            there = server.connections
            wire = Wire(await made.connect("s:1"))
            await wire.ask(Command(99))
            [connection] = server.connections - there
            before(connection._stream, trio.sleep_forever)
            asks = chance.between(1, 40)
            world.note(f"client {number} asks {asks} times, and does not read")
            await wire.send(*[Command(1, each) for each in range(asks)])
        await trio.sleep(0.1)
        waiting()
        nursery.cancel_scope.cancel()
    if most > BUDGET + 2 * ANSWER:
        raise InvariantViolation(OUTGOING, f"{most:,} bytes wait for those who do not read, of at most {BUDGET:,}")
    return most
