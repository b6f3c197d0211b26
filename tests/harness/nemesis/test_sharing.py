"""A group's part of a network: its hosts have names of their own there, and it heals no link of another group."""

from __future__ import annotations

import attrs

from harness.nemesis.network import CLIENTS, Namespaces, Share
from harness.nemesis.shaping import Shape

NAMES = ["a.node-1", "a.node-2", "b.node-1"]
SLOW = Shape(delay_ms=5.0)


@attrs.define
class Links(Namespaces):
    """A network whose links are only noted."""

    told: list[str] = attrs.field(factory=list)

    async def cut(self, source: str, target: str) -> None:
        self.told.append(f"cut {source} {target}")

    async def mend(self, source: str, target: str) -> None:
        self.told.append(f"mend {source} {target}")

    async def shape(self, source: str, target: str, shape: Shape) -> None:
        self.told.append(f"shape {source} {target}")

    async def unshape(self, source: str, target: str, shape: Shape) -> None:
        self.told.append(f"unshape {source} {target}")


def test_hosts_have_places_in_the_whole_network() -> None:
    whole = Links(NAMES)
    one, two = Share(whole, "a"), Share(whole, "b")
    assert one.address("node-1") == whole.address("a.node-1") != two.address("node-1") == whole.address("b.node-1")
    assert one.address(CLIENTS) == two.address(CLIENTS) == whole.address(CLIENTS)
    assert two.prefix("node-1") == ("ip", "netns", "exec", "b.node-1")
    assert one.bind("node-2") == whole.bind("a.node-2")


async def test_a_group_heals_its_own_links_and_no_others() -> None:
    whole = Links(NAMES)
    one, two = Share(whole, "a"), Share(whole, "b")
    await one.cut("node-1", CLIENTS)
    await one.cut("node-1", CLIENTS)
    await one.shape("node-1", "node-2", SLOW)
    await two.cut("node-1", CLIENTS)
    whole.told.clear()
    await one.heal()
    assert whole.told == ["mend a.node-1 clients"] * 2 + ["unshape a.node-1 a.node-2"]
    await one.heal()
    await one.mend("node-1", CLIENTS)
    await one.unshape("node-1", "node-2", SLOW)
    assert len(whole.told) == 3, "nothing is taken back twice"
