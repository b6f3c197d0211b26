"""The longest time in which two brokers of a group deliver, measured: the table in ``docs/reference/acting.md``.

``python -m tests.broker.acting.overlaps`` prints them. Each is the longest of many seeds of one kind of trouble.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import attrs

from broker.acting.right import ActingRight, Always
from tests.broker.acting.test_right import MS, RIGHT_MS, TIMEOUT_MS, Scene

SEEDS: Final = 60


@attrs.define(eq=False)
class JavaSlave(Always):
    """Acts while the last list that it got names no master: it has no right that ends."""

    lists_master: bool = True

    def heard(self, name_server: str, addresses: Mapping[int, str], *, asked_ns: int, beaten_ns: int | None,
              now_ns: int) -> None:
        self.lists_master = 0 in addresses

    def why_not(self, now_ns: int) -> str:
        return "the master lives" if self.lists_master else ""


def _all_links(scene: Scene, number: int) -> set[tuple[int, str]]:
    return {(number, server.name) for server in scene.servers}


def _hearing(scene: Scene) -> None:
    """Slaves hear their master over the replication port."""
    for broker in scene.brokers[1:]:
        broker.right = ActingRight(broker.number, f"b{broker.number}:1", timeout_ns=TIMEOUT_MS * MS,
                                   right_ns=RIGHT_MS * MS, hears_master=lambda: True)
        broker.right.use([server.name for server in scene.servers])


def silence(rng: Random) -> Scene:
    """Brokers die, stop for a while, and links lose all in silence."""
    scene = Scene(rng.randint(1, 4), rng.randint(1, 2), rng)
    scene.run(8_000)
    for _ in range(4):
        broker = rng.choice(scene.brokers)
        what = rng.randrange(3)
        if what == 0:
            broker.paused_until_ms = scene.now_ms + rng.uniform(0, 25_000)
        elif what == 1:
            broker.dead = not broker.dead
        else:
            scene.cut ^= _all_links(scene, broker.number)
        scene.run(rng.uniform(0, 16_000))
    return scene


def forgotten(rng: Random, *, hears: bool, servers: int) -> Scene:
    """Name servers begin anew with empty tables; all links are well."""
    scene = Scene(servers, rng.randint(1, 2), rng)
    if hears:
        _hearing(scene)
    scene.run(8_000 + rng.uniform(0, 1_000))
    for server in scene.servers:
        server.last_ms.clear()
    scene.run(2 * TIMEOUT_MS)
    return scene


def closed(rng: Random, number: int, servers: int) -> Scene:
    """The name servers forget a broker that lives, and it does not come through to them for a while. For 1, the first
    slave, the master is dead, and another slave is there."""
    scene = Scene(servers, 2, rng)
    scene.run(8_000 + rng.uniform(0, 1_000))
    if number:
        scene.brokers[0].dead = True
        scene.first(1, 2 * TIMEOUT_MS)
        scene.run(rng.uniform(0, 5_000))
    scene.cut = _all_links(scene, number)
    for server in scene.servers:
        server.last_ms.pop(number, None)
    scene.run(rng.uniform(0, 1.2 * TIMEOUT_MS))
    scene.cut.clear()
    scene.run(2 * TIMEOUT_MS)
    return scene


def java(rng: Random) -> Scene:
    """The master is cut off from its name servers for as long as this lasts; its slave is RocketMQ's."""
    scene = Scene(1, 1, rng)
    scene.brokers[0].right, scene.brokers[1].right = Always(), JavaSlave()
    scene.run(8_000)
    scene.cut = _all_links(scene, 0)
    scene.run(6 * TIMEOUT_MS)
    return scene


ROWS: Final[Mapping[str, Callable[[Random], Scene]]] = {
    "brokers die, stop for a while, links lose everything in silence": silence,
    "a name server loses its table, and the slave hears its master":
        lambda rng: forgotten(rng, hears=True, servers=rng.randint(1, 3)),
    "one name server alone, which loses its table, and the slave does not hear its master":
        lambda rng: forgotten(rng, hears=False, servers=1),
    "a connection of the master to its name server is closed, both live, and the slave does not hear it either":
        lambda rng: closed(rng, 0, rng.randint(1, 3)),
    "the same of a slave that acts": lambda rng: closed(rng, 1, rng.randint(1, 3)),
    "a Java broker in the group, `totalReplicas=1`, no name servers": java,
}


def longest_ms(row: str, seeds: int = SEEDS) -> float:
    return max(ROWS[row](Random(seed)).longest_ms for seed in range(seeds))


if __name__ == "__main__":
    for each in ROWS:
        sys.stdout.write(f"{longest_ms(each) / 1e3:6.2f} s  {each}\n")
