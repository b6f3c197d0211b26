"""A nemesis for hosts on virtual time. Kills, power cuts, cut ways and partitions are decisions on the tape.

A failure is shrunk to the faults that it needs. Knows hosts and ways; nothing of what their programs do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import trio

from raft.sim.tape import Chance, Value
from raft.virtual.hosts import VirtualHost, VirtualWorld

FAULTS: Final = ("kill", "power", "cut", "partition")


async def torture(
    world: VirtualWorld, *, faults: Sequence[str] = FAULTS, hosts: Iterable[str] = (), seconds: float = 20.0,
    every_s: float = 0.5, longest_s: float = 5.0, most_down: int = 1,
) -> None:
    """Apply a fault or none every ``every_s``; undo each within ``longest_s``, and all at the end.

    ``hosts`` names the hosts to hit; empty: all. At most ``most_down`` of them are down at once.
    """
    names = sorted(hosts) or sorted(world.hosts)
    stream = world.stream("nemesis")
    down: set[str] = set()

    def act(chance: Chance) -> list[Value] | None:
        if chance() < 0.5:
            return None
        what, span_s = faults[int(chance() * len(faults))], round(chance() * longest_s, 3)
        if what == "partition":
            return [what, span_s, *(name for name in names if chance() < 0.5)]
        return [what, span_s, names[int(chance() * len(names))], names[int(chance() * len(names))]]

    async with trio.open_nursery() as nursery:
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            if (drawn := stream.draw(None, act)) is not None:
                what, span_s, *whom = drawn
                if what not in ("kill", "power"):
                    nursery.start_soon(_cut, world, what, whom, span_s)
                elif whom[0] not in down and len(down) < most_down:
                    nursery.start_soon(_outage, world.host(whom[0]), what, span_s, down)
            await trio.sleep(every_s)
    world.heal()


async def _outage(host: VirtualHost, what: str, span_s: float, down: set[str]) -> None:
    if host.running:
        down.add(host.name)
        await (host.kill if what == "kill" else host.cut_power)()
        await trio.sleep(span_s)
        down.discard(host.name)
        await host.restart()


async def _cut(world: VirtualWorld, what: str, whom: list[str], span_s: float) -> None:
    if what == "partition":
        world.partition(whom)
    elif len(set(whom)) == 2:
        world.cut(*whom)
    else:
        return
    await trio.sleep(span_s)
    world.heal()
