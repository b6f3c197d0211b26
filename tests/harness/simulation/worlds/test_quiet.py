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
