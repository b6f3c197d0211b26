"""Producers and consumers of the demo, and a ledger of the messages that they sent and got.

A message's body has its producer and number, so that every acknowledged message can be found at the end. It knows the
client, and no fault.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence

import attrs
import trio

from broker.client import Client, ClientError, Message, MessageQueue, SendUnknown, Start, connect

SEND_TIMEOUT_MS = 10_000
PAUSE_S = 0.004


@attrs.define
class Ledger:
    """The outcome of each message; times by the monotonic clock, in seconds."""

    sent: int = 0
    acknowledged: dict[bytes, float] = attrs.field(factory=dict)
    """Body -> time of the acknowledgement."""
    unknown: set[bytes] = attrs.field(factory=set)
    failed: set[bytes] = attrs.field(factory=set)
    """Bodies that are not stored, as the client says."""
    got: Counter[bytes] = attrs.field(factory=Counter)
    last_ack: dict[str, float] = attrs.field(factory=dict)
    """Broker group -> time of its last acknowledgement."""
    gaps_s: dict[str, list[float]] = attrs.field(factory=dict)
    """Broker group -> the intervals between its acknowledgements."""

    def acknowledge(self, body: bytes, group: str, now: float) -> None:
        self.acknowledged[body] = now
        last = self.last_ack.get(group)
        if last is not None:
            self.gaps_s.setdefault(group, []).append(now - last)
        self.last_ack[group] = now

    @property
    def lost(self) -> set[bytes]:
        """Messages that were acknowledged and never delivered."""
        return self.acknowledged.keys() - self.got.keys()

    @property
    def duplicated(self) -> int:
        """Number of deliveries that repeated a message."""
        return sum(self.got.values()) - len(self.got)

    @property
    def false_failures(self) -> set[bytes]:
        """Messages that were delivered although their send failed for certain."""
        return self.failed & self.got.keys()

    def rates(self, over_s: float = 1.0) -> dict[str, float]:
        """Acknowledged messages per second of each group, over the last ``over_s``."""
        since = time.monotonic() - over_s
        return {group: sum(1 for _ in _lately(gaps, self.last_ack[group], since)) / over_s
                for group, gaps in self.gaps_s.items()}


def _lately(gaps: Sequence[float], last: float, since: float) -> list[float]:
    found, at = [], last
    for gap in reversed(gaps):
        if at < since:
            break
        found.append(at)
        at -= gap
    return found


async def produce(name_server: str, queue: MessageQueue, name: str, ledger: Ledger, stop: trio.Event,
                  pause_s: float = PAUSE_S) -> None:
    """Send messages to one queue, one after the other, each until its outcome is known or stays unknown."""
    async with connect([name_server], producer_group=f"demo-{name}") as client:
        number = 0
        while not stop.is_set():
            number += 1
            body = f"{name}/{number}".encode()
            ledger.sent += 1
            try:
                await client.send(Message(queue.topic, body, keys=[body.decode()]), queue=queue,
                                  timeout_ms=SEND_TIMEOUT_MS)
            except SendUnknown:
                ledger.unknown.add(body)
            except ClientError:
                ledger.failed.add(body)
            else:
                ledger.acknowledge(body, queue.broker_name, time.monotonic())
            await trio.sleep(pause_s)


async def consume(name_server: str, topic: str, group: str, ledger: Ledger) -> None:
    """Consume as one member of a group, until cancelled."""
    async with connect([name_server]) as client, client.consume(group, topic, start=Start.FIRST) as messages:
        async for message in messages:
            ledger.got[message.body] += 1
            message.ack()


async def read_all(name_server: str, queues: Sequence[MessageQueue]) -> set[bytes]:
    """Read every message that the queues hold."""
    found: set[bytes] = set()
    async with connect([name_server]) as client, client.pull("demo-reader", start=Start.FIRST) as puller:
        await puller.assign(queues)
        ends = {queue: await client.max_offset(queue) for queue in queues}
        while any(puller.position(queue) < end for queue, end in ends.items()):
            found.update(message.body for message in await puller.poll(timeout_ms=1_000))
    return found


async def queues_of(client: Client, topic: str, groups: Sequence[str]) -> list[MessageQueue]:
    """One queue on each broker group, once the topic is known on all of them."""
    while True:
        try:
            found = {queue.broker_name: queue for queue in await client.queues(topic)}
        except ClientError:
            found = {}
        if found.keys() >= set(groups):
            return [found[group] for group in groups]
        await trio.sleep(0.1)


def described(gaps_s: Sequence[float]) -> str:
    """Median and maximum, in words."""
    if not gaps_s:
        return "none"
    return f"median {statistics.median(gaps_s) * 1e3:.0f} ms, most {max(gaps_s) * 1e3:.0f} ms"
