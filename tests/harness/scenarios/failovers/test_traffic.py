"""The traffic of a campaign: what it cannot read it writes down as failed, and a reader goes on."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from broker.client import ClientError, MessageQueue, Puller
from harness.checkers.queues import READ_ALL
from harness.histories.reading import open_history
from harness.scenarios.failovers import traffic
from harness.scenarios.failovers.recording import JudgedHistory
from harness.scenarios.failovers.traffic import Traffic, key_of

QUEUE = MessageQueue("orders", "broker-a", 2)


class Nowhere:
    """A client whose brokers are all gone; it counts who asked."""

    def __init__(self) -> None:
        self.asked = 0

    @asynccontextmanager
    async def connect(self, *_: object) -> AsyncIterator[Nowhere]:
        yield self

    @asynccontextmanager
    async def pull(self, *_: object, **__: object) -> AsyncIterator[Nowhere]:
        yield self

    async def assign(self, queues: list[MessageQueue]) -> None:
        assert queues == [QUEUE]
        self.asked += 1

    async def max_offset(self, queue: MessageQueue) -> int:
        raise ClientError(f"{queue} has no master")

    async def poll(self, timeout_ms: int) -> list[object]:
        raise ClientError("nobody answers")


def written(path: Path, data: io.BytesIO) -> list[tuple[str, str, str]]:
    path.write_bytes(data.getvalue())
    return [(event.type, event.f, event.key) for event in open_history(path).events]


async def test_a_reader_begins_again_and_each_failure_is_in_the_history(
        monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, tmp_path: Path) -> None:
    nowhere, data = Nowhere(), io.BytesIO()
    monkeypatch.setattr(traffic, "connect", nowhere.connect)
    with trio.move_on_after(0.9):
        await Traffic("ns:1", JudgedHistory(data)).read(QUEUE, "reader")
    assert nowhere.asked == 5, "one each 0.2 s"
    assert written(tmp_path / "history.jsonl", data) == 5 * [
        ("invoke", "receive", "broker-a/2"), ("fail", "receive", "broker-a/2")]


async def test_what_cannot_be_read_at_the_end_is_raised(
        monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, tmp_path: Path) -> None:
    data = io.BytesIO()
    monkeypatch.setattr(traffic, "connect", Nowhere().connect)
    with pytest.raises(ClientError, match="has no master"):
        await Traffic("ns:1", JudgedHistory(data)).read_all(QUEUE)
    assert written(tmp_path / "history.jsonl", data) == [
        ("invoke", READ_ALL, key_of(QUEUE)), ("fail", READ_ALL, key_of(QUEUE))]


async def test_a_reader_reads_the_last_messages_again_after_a_while(
        monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    class Reads(Nowhere):
        """One message each 0.4 s."""

        at, sought = 1_000, list[int]()

        async def poll(self, timeout_ms: int) -> list[object]:
            await trio.sleep(0.4)
            self.at += 1
            return []

        def position(self, queue: MessageQueue) -> int:
            return self.at

        def seek(self, queue: MessageQueue, offset: int) -> None:
            self.sought.append(offset)

    reads = Reads()
    with trio.move_on_after(2.5):
        await Traffic("ns:1", JudgedHistory(io.BytesIO()))._follow(cast(Puller, reads), QUEUE, "reader")
    assert reads.sought == [1_003 - traffic.LOOK_BACK, 1_006 - traffic.LOOK_BACK], "after 1.2 s and after 2.4 s"
