"""Checks the messages that consumers could see and their order, queue by queue: INV_B5, INV_B18 and INV_B19."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.simulation.brokers.client import TOPIC
from raft.invariants import require
from remoting.record import Record

if TYPE_CHECKING:
    from harness.simulation.brokers.process import BrokerProcess
    from harness.simulation.brokers.watch import BrokerWatch


class ConsumerHistory:
    """The history of one scene. ``void``: an allowed loss happened, and offsets begin again."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch = watch
        self.void = False
        self.in_doubt: set[tuple[int, int]] = set()
        """Pairs of producer and sequence whose outcome was unknown at least once."""
        self._seen: dict[tuple[bytes, int, int], bytes] = {}
        """(topic, queue, queue offset) -> the message seen there first."""
        self._last: dict[int, int] = {}
        """The greatest sequence number seen of each producer."""
        self._next: dict[tuple[BrokerProcess, bytes, int], int] = {}

    def forget(self, process: BrokerProcess) -> None:
        """Forget the queues of a run that ended or whose log was cut."""
        for key in [key for key in self._next if key[0] is process]:
            del self._next[key]

    def arrived(self, process: BrokerProcess, topic: bytes, queue: int, queue_offset: int, offset: int,
                size: int) -> None:
        """Check a message that a broker shows to consumers."""
        counts = self._watch.counts
        counts["INV_B18"] += 1
        due = self._next.get((process, topic, queue))
        require(due in (None, queue_offset), "INV_B18", "a gap in a queue", process.host.name, queue, due, queue_offset)
        self._next[process, topic, queue] = queue_offset + 1
        if self.void or not self._watch.lossless:
            return
        body = process.journal.log.record(offset, size).message.body
        known = self._seen.get((topic, queue, queue_offset))
        if known is None:
            self._seen[topic, queue, queue_offset] = body
            if topic == TOPIC:
                self._in_order(body)
        else:
            require(known == body, "INV_B18", "two messages at one offset of a queue", process.host.name, queue,
                    queue_offset, known[:20], body[:20])

    def _in_order(self, body: bytes) -> None:
        """Check INV_B19: each producer's messages are in order."""
        producer, sequence = (int(part) for part in body.split(b".")[:2])
        self._watch.counts["INV_B19"] += 1
        last = self._last.get(producer, -1)
        if sequence <= last:
            require((producer, sequence) in self.in_doubt, "INV_B19", "twice, though its outcome was known", producer,
                    sequence)
        else:
            require(sequence == last + 1, "INV_B19", "out of order", producer, last, sequence)
            self._last[producer] = sequence

    def consumed(self, process: BrokerProcess, queue: int, record: Record) -> None:
        """Check a message that a consumer read from a master."""
        if self.void or not self._watch.lossless:
            return
        self._watch.counts["INV_B5"] += 1
        known = self._seen.get((TOPIC, queue, record.queue_offset))
        require(known == record.message.body, "INV_B5", "something else than was seen there before",
                process.host.name, queue, record.queue_offset, known and known[:20], record.message.body[:20])
