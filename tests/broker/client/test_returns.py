"""Giving messages back that have no room for what is added then."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from broker.client.message import MessageView
from broker.client.returns import Returns
from remoting.bodies.consumers import MessageQueue
from remoting.record import PROPERTIES_BYTES_MAX, Message, Record
from tests.broker.client.cluster import cluster


async def test_a_message_with_full_properties_is_not_given_back_and_raises_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture,
) -> None:
    """``retry_later`` promises to raise nothing. A warning is logged, and the user is given the message again."""
    full = b"a\x01" + b"x" * (PROPERTIES_BYTES_MAX - 3) + b"\x02"
    async with cluster("a") as made, made.client() as client:
        message = MessageView(Record(Message(b"T", b"b", 0, full), 0, 0, 0, 0, 0), MessageQueue("T", "a", 0), 1 << 20)
        returns = Returns(client._session, client._producer, "G", 16)
        assert not await returns.send_again(message)
        assert "32767 are allowed" in caplog.text
