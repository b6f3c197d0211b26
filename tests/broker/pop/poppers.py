"""Checkpoints and acknowledgements as POP stores them, for brokers in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from broker.ha.acks import PutStatus
from broker.pop.records import Records
from broker.pop.reviving import RevivePart, Reviving
from broker.puts import PutResult
from broker.rules import Chain
from broker.timer.part import TimersPart
from harness.simulation.worlds.brokers import CLUSTER, Cluster, Node, until, wall_ms
from remoting.bodies.popping import AckMessage, BatchAckMessage, CheckPoint
from remoting.record import Message, Record, decode, decode_properties

GROUP = "G"
RETRY = f"%RETRY%{GROUP}_T"


def reviving(node: Node) -> Reviving:
    return node.broker.parts[RevivePart].reviving


def records_of(node: Node) -> Records:
    return Records(CLUSTER, node.broker.config.store_host, wall_ms, Chain(*node.broker.parts[TimersPart].rules()))


async def put(node: Node, message: object) -> PutResult:
    assert isinstance(message, Message), message
    done = list[PutResult]()
    node.broker.puts.put([message], done.append)
    await until(lambda: done)
    return done[0]


async def stored(node: Node, message: object) -> None:
    result = await put(node, message)
    assert result.status is PutStatus.PUT_OK, result


@attrs.define
class Popped:
    """What one POP gave."""

    found: CheckPoint
    revive_qid: int

    async def ack(self, node: Node, *offsets: int) -> None:
        ck, made = self.found, records_of(node)
        if len(offsets) == 1:
            one = AckMessage(offsets[0], ck.start_offset, ck.group, ck.topic, ck.queue_id, ck.pop_time_ms,
                             ck.broker_name)
            await stored(node, made.ack(one, self.revive_qid, ck.invisible_ms))
        else:
            many = BatchAckMessage(list(offsets), ck.start_offset, ck.group, ck.topic, ck.queue_id, ck.pop_time_ms,
                                   ck.broker_name)
            await stored(node, made.ack(many, self.revive_qid, ck.invisible_ms))


async def pop(node: Node, offsets: Sequence[int], hold_ms: int = 10_000, *, topic: str = "T", revive_qid: int = 0,
              group: str = GROUP, suspend: bool = False) -> Popped:
    """The group must be known, or be made by itself."""
    first = offsets[0]
    found = CheckPoint(first, wall_ms(), hold_ms, len(offsets), 0, topic, group,
                       diffs=[offset - first for offset in offsets], broker_name="a", suspend=suspend)
    await stored(node, records_of(node).checkpoint(found, revive_qid))
    return Popped(found, revive_qid)


async def sent(made: Cluster, node: Node, count: int = 5, *, topic: str = "T") -> None:
    for number in range(count):
        answer = await made.send(node.address, b"%d" % number, topic=topic,
                                 properties=f"UNIQ_KEY\x01U{number}\x02TAGS\x01a\x02")
        assert answer.code == 0, answer


def back(node: Node, topic: str = RETRY) -> list[Record]:
    """What stands in a retry topic."""
    messages = node.broker.journal.messages
    queue = messages.queue(topic.encode(), 0)
    if queue is None:
        return []
    return [decode(raw) for raw in messages.get(topic.encode(), 0, queue.min_offset, count=1_000, bytes_max=1 << 30)]


def bodies(node: Node, topic: str = RETRY) -> list[bytes]:
    return [record.message.body for record in back(node, topic)]


def values(record: Record) -> dict[str, str]:
    return decode_properties(record.message.properties)


def processed(node: Node, number: int = 0) -> tuple[int, int]:
    """The group's offset of a revive queue, and the last record of it."""
    its = reviving(node)
    return its.processed(number), node.broker.journal.messages.max_offset(its.topic.encode(), number) - 1
