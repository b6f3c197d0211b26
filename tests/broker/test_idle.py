"""A broker in which nothing is due sleeps, however much waits in it; and wakes in time for what is."""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from broker.moments import WATCH
from harness.simulation.worlds.brokers import Cluster, Node, cluster, until
from tests.broker.pop.poppers import bodies, pop, sent

ALL_SERVICES = {
    "brokerRole": "ASYNC_MASTER", "enableSlaveActingMaster": "true", "enableRemoteEscape": "true", "totalReplicas": "2",
    "skipPreOnline": "true"}
LATER_S = 600
MINUTES = 3
LOOKS_MOST = 125
"""In a minute: each second one for the room on the disk and the rates, one for the wheel of timers; and some for what
comes every ten seconds or more. A broker that is busy looks 600 times."""
TURNS_MOST = 1_400
"""Of the loop, in a minute, with those of the name server: it hears and answers each broker twice a second, and looks
for pauses of its own before a deadline."""


@attrs.define(eq=False)
class Turns(trio.abc.Instrument):
    """Counts how often the loop woke."""

    count: int = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def looks(node: Node, seconds: float) -> int:
    """How often the broker looks for what is due."""
    found = [0]

    def look(_: int) -> None:
        found[0] += 1

    ticks = node.broker.journal.ticks
    ticks.join(WATCH, look)
    await trio.sleep(seconds)
    ticks.leave(WATCH, look)
    return found[0]


async def waits_long(made: Cluster, node: Node) -> None:
    """Something waits in each service, for ten minutes or more."""
    await until(lambda: node.serves)
    await sent(made, node)
    await pop(node, [0, 1, 2], LATER_S * 1_000)
    for properties in ("DELAY\x0118\x02", f"TIMER_DELAY_SEC\x01{LATER_S}\x02UNIQ_KEY\x01t\x02"):
        assert (await made.send(node.address, b"later", properties=properties)).code == 0


@pytest.mark.parametrize("stopped", [{}, {"timerStopDequeue": "true"}, {"timerStopEnqueue": "true"}], ids=",".join)
async def test_a_broker_with_all_services_sleeps_while_nothing_is_due(
        autojump_clock: MockClock, stopped: dict[str, str]) -> None:
    async with cluster() as made:
        node = await made.node(**ALL_SERVICES, **stopped)
        await waits_long(made, node)
        await trio.sleep(60)
        assert node.broker.parts.runtime_info()["deliveryWaitsFor"] == "", "it delivers what is due"
        turns = Turns()
        trio.lowlevel.add_instrument(turns)
        count = await looks(node, 60 * MINUTES)
        trio.lowlevel.remove_instrument(turns)
        assert 60 * MINUTES <= count <= LOOKS_MOST * MINUTES
        assert turns.count <= TURNS_MOST * MINUTES


async def test_what_waited_long_comes_in_time(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**ALL_SERVICES)
        await waits_long(made, node)
        began = trio.current_time()
        await trio.sleep(LATER_S - 10)
        assert bodies(node) == []
        await until(lambda: b"later" in bodies(node, "T"), within_s=15)
        assert trio.current_time() - began <= LATER_S + 1.5
        await until(lambda: len(bodies(node)) == 3, within_s=15)
        assert trio.current_time() - began <= LATER_S + 7


async def test_it_looks_soon_when_something_comes(autojump_clock: MockClock) -> None:
    async with cluster() as made:
        node = await made.node(**ALL_SERVICES)
        await until(lambda: node.serves)
        await trio.sleep(60.3 - trio.current_time() % 1)
        assert await looks(node, 0.15) == 0
        assert (await made.send(node.address, b"m")).code == 0
        assert await looks(node, 0.15) == 1
