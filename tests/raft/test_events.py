"""What subscribers hear of a node, and when they have left."""

from __future__ import annotations

import trio
import trio.testing

from harness.simulation.worlds.nodes import network, one
from raft.events import QUEUE_EVENTS, Lagged, NodeFaulted


async def test_a_slow_subscriber_is_told_what_it_missed(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        events = leader.events()
        for number in range(QUEUE_EVENTS + 10):
            leader._driver.events_hub.put(NodeFaulted(str(number)))
        first = await anext(events)
        assert first == Lagged(11)
        assert await anext(events) == NodeFaulted("10")
        events.close()
        leader._driver.events_hub.put(NodeFaulted("late"))
        assert len(events.pending()) == QUEUE_EVENTS - 1


async def test_who_drops_a_subscription_has_left(autojump_clock: trio.testing.MockClock) -> None:
    async with network() as net:
        leader = await one(net)
        hub, kept = leader._driver.events_hub, leader.events()
        before = len(hub._subscribers)
        for _ in range(3):
            async for _ in leader.events():
                break
        assert len(hub._subscribers) == before
        hub.put(NodeFaulted("told"))
        assert kept.pending()[-1] == NodeFaulted("told")
