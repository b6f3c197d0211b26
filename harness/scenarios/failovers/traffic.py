"""Producers and readers that write a history. They know the client, and no fault."""

from __future__ import annotations

import time

import attrs
import trio

from broker.client import (
    ClientError,
    ClientSettings,
    ConsumerSettings,
    Message,
    MessageQueue,
    Puller,
    SendUnknown,
    Start,
    connect,
)
from harness.checkers.queues import READ_ALL
from harness.histories.events import FAIL, INFO, OK
from harness.scenarios.failovers.recording import JudgedHistory

SEND_TIMEOUT_MS = 3_000
LOOK_BACK = 256
"""Messages that a reader reads again."""
LOOK_BACK_S = 1.0
_SETTINGS = ClientSettings(resend_unknown=False)
"""Each send is one attempt, so that a producer knows the outcome of each."""
_READING = ConsumerSettings(suspend_ms=1_000, pull_timeout_ms=3_000)
Seen = dict[str, str | int]
"""A message and its place."""


@attrs.define
class Traffic:
    """Producers and consumers of one run."""

    name_server: str
    recording: JudgedHistory
    acked_at: dict[str, float] = attrs.field(factory=dict)
    """Group -> time of its last acknowledgement."""
    longest_s: dict[str, float] = attrs.field(factory=dict)
    """Group -> longest time without an acknowledgement since this was last cleared."""
    stop: trio.Event = attrs.field(factory=trio.Event)

    async def produce(self, queue: MessageQueue, name: str, pause_s: float) -> None:
        """Send messages one after the other, each until its outcome is known or stays unknown.

        After an unknown one it goes on as another process, as the send may still happen.
        """
        number = life = 0
        key = key_of(queue)
        async with connect([self.name_server], producer_group=f"failovers-{name}", settings=_SETTINGS) as client:
            while not self.stop.is_set():
                number += 1
                body, process = f"{name}/{number}", f"{name}#{life}"
                self.recording.begin(process, "send", key, body)
                try:
                    sent = await client.send(Message(queue.topic, body.encode()), queue=queue,
                                             timeout_ms=SEND_TIMEOUT_MS)
                except SendUnknown:
                    self.recording.add(INFO, process, "send", key)
                    life += 1
                except ClientError:
                    self.recording.add(FAIL, process, "send", key)
                else:
                    self.recording.add(OK, process, "send", key, {"body": body, "offset": sent.queue_offset})
                    self._acked(queue.broker_name, time.monotonic())
                await trio.sleep(pause_s)

    def _acked(self, group: str, now: float) -> None:
        gap = now - self.acked_at.get(group, now)
        self.longest_s[group] = max(self.longest_s.get(group, 0.0), gap)
        self.acked_at[group] = now

    async def read(self, queue: MessageQueue, group: str) -> None:
        """Read new messages, and now and then the last ones again, until cancelled."""
        while True:
            try:
                async with connect([self.name_server]) as client, client.pull(
                        group, start=Start.FIRST, settings=_READING) as puller:
                    await puller.assign([queue])
                    await self._follow(puller, queue, group)
            except ClientError:
                await trio.sleep(0.2)

    async def _follow(self, puller: Puller, queue: MessageQueue, process: str) -> None:
        looked, key = trio.current_time(), key_of(queue)
        while True:
            self.recording.begin(process, "receive", key)
            try:
                seen = await _poll(puller)
            except ClientError:
                self.recording.add(FAIL, process, "receive", key)
                raise
            self.recording.add(OK, process, "receive", key, seen)
            if trio.current_time() - looked >= LOOK_BACK_S:
                looked = trio.current_time()
                puller.seek(queue, max(0, puller.position(queue) - LOOK_BACK))

    async def read_all(self, queue: MessageQueue) -> None:
        """Read all messages of a queue at the end. Raises ``ClientError``."""
        process = key = key_of(queue)
        self.recording.begin(process, READ_ALL, key)
        found: list[Seen] = []
        try:
            async with connect([self.name_server]) as client, client.pull(
                    "failovers-last", start=Start.FIRST) as puller:
                await puller.assign([queue])
                end = await client.max_offset(queue)
                while puller.position(queue) < end:
                    found += await _poll(puller)
        except ClientError:
            self.recording.add(FAIL, process, READ_ALL, key)
            raise
        self.recording.add(OK, process, READ_ALL, key, found)


def key_of(queue: MessageQueue) -> str:
    """A queue's name in a history."""
    return f"{queue.broker_name}/{queue.queue_id}"


async def _poll(puller: Puller) -> list[Seen]:
    return [{"body": each.body.decode(), "offset": each.queue_offset} for each in await puller.poll(timeout_ms=500)]
