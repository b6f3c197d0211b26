"""Producers and readers that write a history. They know the client, and nothing of what is done to the servers."""

from __future__ import annotations

import time
from collections.abc import Sequence

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
from harness.scenarios.failovers.history import History, Op, Place

SEND_TIMEOUT_MS = 3_000
LOOK_BACK = 256
"""Messages that a reader reads again."""
LOOK_BACK_S = 1.0
_SETTINGS = ClientSettings(resend_unknown=False)
"""Each send is one attempt that may have stored it: what a producer is told is the outcome of that one."""
_READING = ConsumerSettings(suspend_ms=1_000, pull_timeout_ms=3_000)


@attrs.define
class Traffic:
    """Producers and consumers of one run."""

    name_server: str
    history: History
    began: float = attrs.field(factory=time.monotonic)
    acked_at: dict[str, float] = attrs.field(factory=dict)
    """By group: when it acknowledged last."""
    longest_s: dict[str, float] = attrs.field(factory=dict)
    """By group: the longest time without an acknowledgement since that was last set to nothing."""
    stop: trio.Event = attrs.field(factory=trio.Event)

    async def produce(self, queue: MessageQueue, name: str, pause_s: float) -> None:
        """One after the other, each until its outcome is known, or surely unknown."""
        number = 0
        async with connect([self.name_server], producer_group=f"failovers-{name}", settings=_SETTINGS) as client:
            while not self.stop.is_set():
                number += 1
                body = f"{name}/{number}"
                try:
                    sent = await client.send(Message(queue.topic, body.encode()), queue=queue,
                                             timeout_ms=SEND_TIMEOUT_MS)
                except SendUnknown:
                    self._add(Op.UNKNOWN, body)
                except ClientError:
                    self._add(Op.FAILED, body)
                else:
                    self._add(Op.ACKED, body, Place(queue.broker_name, queue.queue_id, sent.queue_offset))
                    self._acked(queue.broker_name, time.monotonic())
                await trio.sleep(pause_s)

    def _acked(self, group: str, now: float) -> None:
        gap = now - self.acked_at.get(group, now)
        self.longest_s[group] = max(self.longest_s.get(group, 0.0), gap)
        self.acked_at[group] = now

    async def read(self, queue: MessageQueue, group: str) -> None:
        """Read what comes, and again and again the last of it; until cancelled."""
        while True:
            try:
                async with connect([self.name_server]) as client, client.pull(
                        group, start=Start.FIRST, settings=_READING) as puller:
                    await puller.assign([queue])
                    await self._follow(puller, queue)
            except ClientError:
                await trio.sleep(0.2)

    async def _follow(self, puller: Puller, queue: MessageQueue) -> None:
        looked = trio.current_time()
        while True:
            await self._poll(puller, Op.SAW)
            if trio.current_time() - looked >= LOOK_BACK_S:
                looked = trio.current_time()
                puller.seek(queue, max(0, puller.position(queue) - LOOK_BACK))

    async def read_all(self, queues: Sequence[MessageQueue]) -> None:
        """The last reading: all that the queues hold. Raises ``ClientError``."""
        async with connect([self.name_server]) as client, client.pull("failovers-last", start=Start.FIRST) as puller:
            await puller.assign(queues)
            ends = {queue: await client.max_offset(queue) for queue in queues}
            while any(puller.position(queue) < end for queue, end in ends.items()):
                await self._poll(puller, Op.LAST)

    async def _poll(self, puller: Puller, op: Op) -> None:
        for message in await puller.poll(timeout_ms=500):
            queue = message.queue
            self._add(op, message.body.decode(), Place(queue.broker_name, queue.queue_id, message.queue_offset))

    def _add(self, op: Op, body: str, place: Place | None = None) -> None:
        self.history.add(round((time.monotonic() - self.began) * 1e3), op, body, place)
