"""Codes 200051, 200151 and 200053: a message is done with, or its time is another one.

An acknowledgement is a record; the answer is 0 when it is stored as the group's mode demands, and not before. Another
time is a checkpoint of its own for the one message and an acknowledgement of the old one, both or none.
Source: ``AckMessageProcessor`` and ``ChangeInvisibleTimeProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs

from broker.ha.acks import PutStatus
from broker.pop.checks import Checks
from broker.pop.records import Records
from broker.puts import PutResult, Puts
from broker.rules import Refusal
from broker.standing import REJECTED, Standing
from broker.store.messages import StoredMessages
from broker.topics.names import pop_retry_topic
from broker.veil import Veil
from remoting.bodies.popping import AckMessage, BatchAck, BatchAckMessage, BatchAckRequest, CheckPoint
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.header import Header
from remoting.headers.popping import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from remoting.receipts import NORMAL, ORDERED, RETRY_V2, Receipt
from remoting.record import Message

TOGETHER_MAX: Final = 1_024
"""Ours: checkpoints of one 200151."""


@attrs.define
class AckCounters:
    """Sums since this process began; they only ever rise."""

    records: int = 0
    """That were stored."""
    acked: int = 0
    """Messages."""
    changed: int = 0
    """Whose time was changed."""
    failed: int = 0
    """Requests whose records were not stored, or not in time."""


class Acking:
    """``checks`` may be replaced at any time."""

    def __init__(self, checks: Checks, records: Records, puts: Puts, messages: StoredMessages,
                 standing: Standing) -> None:
        self.checks, self.counters = checks, AckCounters()
        self._records, self._puts, self._messages, self._standing = records, puts, messages, standing

    def handlers(self, veil: Veil) -> dict[int, Handler]:
        """A young master, whose queues look shorter than they are, answers when its veil is lifted."""
        return {RequestCode.ACK_MESSAGE: veil.behind(self.ack),
                RequestCode.BATCH_ACK_MESSAGE: veil.behind(self.ack_many),
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME: veil.behind(self.change)}

    def ack(self, connection: Connection, request: Command) -> Command | None:
        """One message. None: it is under way."""
        if not self._standing.role.takes_puts:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = AckMessageRequest.from_ext(request.ext)
        refusal = self.checks.queue(asked.topic, asked.queue_id)
        if refusal is not None:
            return _refused(request, refusal)
        least, most = self._bounds(asked.topic, asked.queue_id)
        if not least <= asked.offset <= most:
            return response(request, ResponseCode.NO_MESSAGE, remark=(
                f"offset is illegal, key:{asked.topic}@{asked.queue_id}, commit:{asked.offset}, store:{least}~{most}"))
        receipt = self._receipt(asked.extra_info)
        if isinstance(receipt, Refusal):
            return _refused(request, receipt)
        message = self._records.ack(_ack(asked, receipt), receipt.revive_qid, receipt.invisible_ms)
        return self._put(connection, request, [message], 1, 0)

    def ack_many(self, connection: Connection, request: Command) -> Command | None:
        """Messages of several checkpoints, all or none; what cannot be one of the queue's messages is passed over."""
        if not self._standing.role.takes_puts:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = BatchAckRequest.from_json(request.body) if request.body else BatchAckRequest()
        if not asked.acks:
            return response(request, ResponseCode.NO_MESSAGE)
        if len(asked.acks) > TOGETHER_MAX:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"acknowledgements of {len(asked.acks)} checkpoints; {TOGETHER_MAX} are allowed"))
        messages: list[Message | Refusal] = []
        count = 0
        for each in asked.acks:
            found = self._of(each, asked.broker_name or "")
            if isinstance(found, BatchAckMessage):
                messages.append(self._records.batch_ack(found, each.revive_queue_id, each.invisible_ms))
                count += len(found.offsets)
            elif found is not None:
                messages.append(found)
        if not messages:
            return response(request)
        return self._put(connection, request, messages, count, 0)

    def _of(self, each: BatchAck, broker_name: str) -> BatchAckMessage | Refusal | None:
        """None: there is nothing to acknowledge."""
        topic = each.topic
        if each.retry != str(NORMAL):
            topic = pop_retry_topic(each.topic, each.group, v2=each.retry == str(RETRY_V2))
        queue = self._messages.queue(topic.encode(errors="replace"), each.queue_id)
        if queue is None:
            return None
        wrong = self._wrong(each.revive_queue_id, each.start_offset, each.pop_time_ms, each.invisible_ms, broker_name)
        if wrong is not None:
            return wrong
        offsets = [offset for offset in each.offsets if queue.min_offset <= offset <= queue.max_offset]
        if not offsets:
            return None
        return BatchAckMessage(offsets, each.start_offset, each.group, topic, each.queue_id, each.pop_time_ms,
                               broker_name)

    def change(self, connection: Connection, request: Command) -> Command | None:
        """The message comes back at another time. None: it is under way."""
        if not self._standing.role.takes_puts:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = ChangeInvisibleTimeRequest.from_ext(request.ext)
        refusal = self.checks.queue(asked.topic, asked.queue_id)
        if refusal is not None:
            return _refused(request, refusal)
        least, most = self._bounds(asked.topic, asked.queue_id)
        if not least <= asked.offset < most:
            return response(request, ResponseCode.NO_MESSAGE)
        receipt = self._receipt(asked.extra_info)
        if isinstance(receipt, Refusal):
            return _refused(request, receipt)
        if asked.invisible_time < 0:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"invisibleTime is {asked.invisible_time}; it must be 0 or more"))
        now_ms = max(self._records.wall_ms(), receipt.pop_time_ms + 1)
        """The acknowledgement of the old checkpoint must not fit the new one."""
        checkpoint = CheckPoint(
            asked.offset, now_ms, asked.invisible_time, 1, asked.queue_id, asked.topic, asked.consumer_group, diffs=[0],
            broker_name=receipt.broker_name, suspend=bool(asked.suspend))
        header = ChangeInvisibleTimeResponse(now_ms, asked.invisible_time, receipt.revive_qid)
        return self._put(connection, request, [
            self._records.checkpoint(checkpoint, receipt.revive_qid),
            self._records.ack(_ack(asked, receipt), receipt.revive_qid, receipt.invisible_ms)], 0, 1, header)

    # --- what they have in common ----------------------------------------------------------------------------

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        raw = topic.encode(errors="replace")
        return self._messages.min_offset(raw, queue_id), self._messages.max_offset(raw, queue_id)

    def _receipt(self, text: str) -> Receipt | Refusal:
        receipt = Receipt.decode(text)
        wrong = self._wrong(receipt.revive_qid, receipt.start_offset, receipt.pop_time_ms, receipt.invisible_ms,
                            receipt.broker_name)
        return receipt if wrong is None else wrong

    def _wrong(self, revive_qid: int, start_offset: int, pop_time_ms: int, invisible_ms: int,
               broker_name: str) -> Refusal | None:
        """What no receipt of this broker says."""
        if broker_name != self._standing.broker_name:
            return Refusal(ResponseCode.SYSTEM_ERROR, (
                f"the receipt is of broker {broker_name[:60]}; this is {self._standing.broker_name}"))
        topic = self.checks.topics.get(self._records.topic)
        queues = topic.write_queue_nums if topic is not None else 0
        if revive_qid != ORDERED and not 0 <= revive_qid < queues:
            return Refusal(ResponseCode.SYSTEM_ERROR, (
                f"the receipt names revive queue {revive_qid}; {self._records.topic} has {queues}"))
        if min(start_offset, pop_time_ms, invisible_ms) < 0:
            return Refusal(ResponseCode.SYSTEM_ERROR, "the receipt has a number below 0")
        return None

    def _put(self, connection: Connection, request: Command, messages: Sequence[Message | Refusal], acked: int,
             changed: int, header: Header | None = None) -> Command | None:
        """All or none of them."""
        made: list[Message] = []
        for each in messages:
            if isinstance(each, Refusal):
                self.counters.failed += 1
                return response(request, ResponseCode.SYSTEM_ERROR, remark=each.remark)
            made.append(each)
        self._puts.put(made, partial(self._stored, connection, request, acked, changed, header))
        return None

    def _stored(self, connection: Connection, request: Command, acked: int, changed: int, header: Header | None,
                result: PutResult) -> None:
        if result.status is PutStatus.PUT_OK:
            self.counters.records += len(result.puts) - changed
            self.counters.acked += acked
            self.counters.changed += changed
            answer = response(request, header=header)
        else:
            self.counters.failed += 1
            answer = response(request, ResponseCode.SYSTEM_ERROR, remark=" ".join(
                filter(None, (f"not stored: {result.status.name}", result.remark))))
        connection.reply(request, answer)


def _ack(asked: AckMessageRequest | ChangeInvisibleTimeRequest, receipt: Receipt) -> AckMessage:
    return AckMessage(asked.offset, receipt.start_offset, asked.consumer_group, asked.topic, asked.queue_id,
                      receipt.pop_time_ms, receipt.broker_name)


def _refused(request: Command, refusal: Refusal) -> Command:
    return response(request, refusal.code, remark=refusal.remark)
