"""Clients that pop beside whole brokers in virtual time."""

from __future__ import annotations

from typing import Any

import attrs

from harness.simulation.worlds.brokers import Cluster, Node, wall_ms
from remoting import receipts
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command
from remoting.headers.popping import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PeekMessageRequest,
    PopMessageRequest,
    PopMessageResponse,
)
from remoting.receipts import NORMAL, Receipt
from remoting.record import Record, decode, decode_properties

ALL_ACK = {"allAckInSyncStateSet": "true", "minInSyncReplicas": "2"}


@attrs.frozen
class Popped:
    """One message, as a client knows it."""

    record: Record
    topic: str
    receipt: Receipt

    @property
    def body(self) -> bytes:
        return self.record.message.body

    @property
    def offset(self) -> int:
        return self.record.queue_offset

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.record.message.properties)


def popped(answer: Command, topic: str, group: str, broker: str = "a") -> list[Popped]:
    """The messages of an answer, with the receipts that a Java client makes."""
    header = PopMessageResponse.from_ext(answer.ext)
    starts = receipts.read_starts(header.start_offset_info or "")
    offsets = receipts.read_offsets(header.msg_offset_info or "")
    found: list[Popped] = []
    at = 0
    while at < len(answer.body):
        record = decode(answer.body, at)
        at += record.size
        text = decode_properties(record.message.properties).get("POP_CK")
        if text is None:
            place = NORMAL, record.message.queue_id
            assert record.queue_offset in offsets[place]
            receipt = Receipt(starts[place], header.pop_time, header.invisible_time, header.revive_qid, NORMAL, broker,
                              record.message.queue_id, record.queue_offset)
        else:
            receipt = Receipt.decode(text)
            assert receipt.offset in offsets[receipt.retry_flag, receipt.queue_id]
        real = topic if receipt.retry_flag == NORMAL else f"%RETRY%{group}{'_+'[receipt.retry_flag - 1]}{topic}"
        found.append(Popped(record, real, receipt))
    assert sorted((each.receipt.retry_flag, each.receipt.queue_id, each.offset) for each in found) == sorted(
        (*place, offset) for place, each in offsets.items() for offset in each)
    assert starts.keys() == offsets.keys()
    return found


@attrs.frozen
class Popper:
    """A member of ``group``. ``node`` may be another one each time."""

    made: Cluster
    group: str = "G"
    topic: str = "T"

    async def ask(self, node: Node, *, queue: int = -1, count: int = 32, invisible_ms: int = 60_000, poll_ms: int = 0,
                  **more: Any) -> Command:
        header = PopMessageRequest(self.group, self.topic, queue, count, invisible_ms, poll_ms, wall_ms(), **more)
        return await self.made.ask(node.address, RequestCode.POP_MESSAGE, header)

    async def pop(self, node: Node, **asked: Any) -> list[Popped]:
        """[] where there is nothing."""
        answer = await self.ask(node, **asked)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            assert not answer.body
            return []
        assert answer.code == ResponseCode.SUCCESS, answer
        return popped(answer, self.topic, self.group)

    async def ack(self, node: Node, message: Popped, **change: Any) -> Command:
        header = AckMessageRequest(self.group, message.topic, message.receipt.queue_id, message.receipt.encode(),
                                   message.offset)
        return await self.made.ask(node.address, RequestCode.ACK_MESSAGE, attrs.evolve(header, **change))

    async def change(self, node: Node, message: Popped, invisible_ms: int, **change: Any) -> Command:
        header = ChangeInvisibleTimeRequest(
            self.group, message.topic, message.receipt.queue_id, message.receipt.encode(), message.offset, invisible_ms)
        return await self.made.ask(
            node.address, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, attrs.evolve(header, **change))

    async def changed(self, node: Node, message: Popped, invisible_ms: int) -> Popped:
        """With its new receipt."""
        answer = await self.change(node, message, invisible_ms)
        assert answer.code == ResponseCode.SUCCESS, answer
        told = ChangeInvisibleTimeResponse.from_ext(answer.ext)
        return attrs.evolve(message, receipt=attrs.evolve(
            message.receipt, start_offset=message.offset, pop_time_ms=told.pop_time, invisible_ms=told.invisible_time,
            revive_qid=told.revive_qid))

    async def peek(self, node: Node, queue: int = -1, count: int = 32) -> Command:
        return await self.made.ask(node.address, RequestCode.PEEK_MESSAGE, PeekMessageRequest(
            self.group, self.topic, queue, count))


def pop_records(node: Node, topic: str = "rmq_sys_wheel_timer", queue: int = 0) -> list[Record]:
    """What stands in the timers' queue, or in another."""
    messages, found = node.broker.journal.messages, list[Record]()
    at = messages.min_offset(topic.encode(), queue)
    while raw := messages.get(topic.encode(), queue, at):
        found += [decode(each) for each in raw]
        at = found[-1].queue_offset + 1
    return found


def offset(node: Node, group: str = "G", topic: str = "T", queue: int = 0) -> int | None:
    return node.offsets.query(group, topic, queue)
