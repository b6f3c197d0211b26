"""What is meant is told at INFO: the ordinary life of a cluster warns of nothing."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from broker.client import Message, Start
from harness.simulation.worlds.brokers import cluster, three


async def test_an_ordinary_life_warns_of_nothing(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    """Starts, a first election, roles, a format raised, messages, and an idle minute."""
    with caplog.at_level(logging.INFO):
        async with cluster(controllers=3) as made, made.connect() as client:
            await three(made, allAckInSyncStateSet="true", minInSyncReplicas="2")
            await client.send(Message("orders", b"1"))
            async with client.consume("bar", "orders", start=Start.FIRST) as messages:
                (await anext(messages)).ack()
            await trio.sleep(60)
            told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert not [words for level, words in told if level >= logging.WARNING]
    assert {"this is the active controller", "master elected", "taking a role", "writes are open"} <= {
        words for _, words in told}


async def test_a_broker_that_stops_in_order_warns_of_nothing_itself(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """What its peers make of the end of a connection is their affair: they cannot tell it from a crash."""
    with caplog.at_level(logging.INFO):
        async with cluster(controllers=3) as made, made.connect() as client:
            await three(made)
            await client.send(Message("orders", b"1"))
            await trio.sleep(10)
            caplog.clear()
            for node in list(made.nodes):
                await node.stop()
            told = [(record.levelno, f"{record.getMessage()}: {getattr(record, 'why', '')}")
                    for record in caplog.records]
    own = [(level, words) for level, words in told
           if "about to end" in words or "this end is shutting down" in words]
    assert own and not [words for level, words in own if level >= logging.WARNING]
