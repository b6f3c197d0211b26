"""Requests 200051, 200151 and 200053: acknowledge popped messages, or change their invisible time.

An acknowledgement is a record in the revive topic. The client hears of success only when the record is stored as the
group's mode demands. A changed time is a new checkpoint for that message and an acknowledgement of its old checkpoint;
one put stores both or none.
Source: ``AckMessageProcessor`` and ``ChangeInvisibleTimeProcessor`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs

from broker.abroad.tickets import Ticket
from broker.gathering import Gathering
from broker.ha.acks import PutStatus
from broker.journal import Journal
from broker.offsets.inflight import Inflight
from broker.pop.checks import Checks
from broker.pop.lending import NOT_IN_ORDER, Lending
from broker.pop.ordered import Answer, InOrder
from broker.pop.records import Ack, PopRecord, Records, as_one
from broker.puts import PutResult, Puts
from broker.rules import Refusal
from broker.standing import REJECTED, Standing
from broker.topics.names import pop_retry_topic
from broker.veil import Veil
from remoting.bodies.popping import (
    COUNT_MAX,
    AckMessage,
    BatchAck,
    BatchAckMessage,
    BatchAckRequest,
    CheckPoint,
    CheckpointKey,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.command import Command, response
from remoting.connection import Connection
from remoting.endpoint import Handler
from remoting.header import Header
from remoting.headers.popping import AckMessageRequest, ChangeInvisibleTimeRequest, ChangeInvisibleTimeResponse
from remoting.receipts import NORMAL, ORDERED, RETRY_V2, Receipt
from remoting.record import Message

TOGETHER_MAX: Final = 1_024
"""Checkpoints that one 200151 may acknowledge (a limit of ours)."""
_LONG_MAX: Final = 2**63 - 1
_OfCheckpoint = tuple[CheckpointKey, int, int]
"""A checkpoint, its revive queue and its invisible time."""


@attrs.define
class AckCounters:
    """Sums since this process began; they only ever rise."""

    acked: int = 0
    """Messages whose acknowledgement was stored."""
    changed: int = 0
    """Messages whose invisible time was changed."""
    failed: int = 0
    """Requests whose records were not stored, or not in time."""
    out: Inflight = attrs.field(factory=Inflight)


class Acking:
    """Handles acknowledgements and changes of the invisible time. ``checks`` may be replaced at any time."""

    def __init__(self, checks: Checks, records: Records, in_order: InOrder, lending: Lending, puts: Puts,
                 journal: Journal, standing: Standing) -> None:
        self.checks, self.counters = checks, AckCounters()
        self._in_order, self._lending = in_order, lending
        self._records, self._puts, self._messages, self._standing = records, puts, journal.messages, standing
        self._gathering = Gathering[_OfCheckpoint, tuple[AckMessage, Answer]](
            journal.before_write, self._put_gathered, count_max=COUNT_MAX)

    def handlers(self, veil: Veil) -> dict[int, Handler]:
        """Handlers by code. A young master answers once its veil is lifted: its queues look too short before."""
        return {RequestCode.ACK_MESSAGE: veil.behind(self.ack),
                RequestCode.BATCH_ACK_MESSAGE: veil.behind(self.ack_many),
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME: veil.behind(self.change)}

    def ack(self, connection: Connection, request: Command) -> Command | None:
        """Acknowledge one message (200051). None: the answer follows when it is stored."""
        if not self._standing.role.takes_puts and not self._lending.is_open:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = AckMessageRequest.from_ext(request.ext)
        refusal = self.checks.queue(asked.topic, asked.queue_id)
        if refusal is not None:
            return refusal.answer(request)
        least, most = self._bounds(asked.topic, asked.queue_id)
        if not least <= asked.offset <= most:
            return _nowhere(request, asked, least, most)
        receipt = self._receipt(asked)
        if isinstance(receipt, Refusal):
            return receipt.answer(request)
        answer = partial(self._answer, connection, request, 1, 0, None)
        if receipt.ordered:
            refusal = self._in_order.ack((asked.topic, asked.consumer_group, asked.queue_id), [asked.offset],
                                         receipt.pop_time_ms, answer)
            return None if refusal is None else refusal.answer(request)
        ack = _ack(asked, receipt)
        if self._lend(ack, receipt.revive_qid, receipt.invisible_ms, answer):
            return None
        self._gathering.add((ack.key, receipt.revive_qid, receipt.invisible_ms), (ack, answer))
        return None

    def _put_gathered(self, of: _OfCheckpoint, gathered: Sequence[tuple[AckMessage, Answer]]) -> None:
        """Put acknowledgements of one checkpoint as one record."""
        _, revive_qid, invisible_ms = of
        ack = as_one([each for each, _ in gathered])

        def answer(why_not: str) -> None:
            for _, tell in gathered:
                tell(why_not)

        message = self._records.ack(ack, revive_qid, invisible_ms)
        if isinstance(message, Refusal):
            answer(message.remark)
        else:
            counts = [(ack.group, ack.topic, len(ack.acked))]
            self._puts.put([message], partial(self._told, [ack], partial(self._done, counts, answer)))

    def _done(self, counts: Sequence[tuple[str, str, int]], answer: Answer, why_not: str) -> None:
        """Take stored acknowledgements off the messages in flight: ``counts`` has group, topic and how many."""
        for group, topic, count in counts if not why_not else ():
            self.counters.out.done(group, topic, count)
        answer(why_not)

    def _lend(self, ack: Ack, revive_qid: int, invisible_ms: int, answer: Answer) -> bool:
        """Acknowledge outside this log, and return True, if another group's master holds the checkpoint or if this
        broker is an acting slave; else return False."""
        ticket = Ticket.read(revive_qid)
        if ticket is not None:
            self._lending.ack(ticket, [(ack, invisible_ms)], answer)
        elif self._lending.is_open:
            self._lending.note([(ack, invisible_ms)], revive_qid, answer)
        return ticket is not None or self._lending.is_open

    def ack_many(self, connection: Connection, request: Command) -> Command | None:
        """Acknowledge messages of several checkpoints (200151), all or none. Offsets outside the queue are skipped."""
        if not self._standing.role.takes_puts and not self._lending.is_open:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = BatchAckRequest.from_json(request.body) if request.body else BatchAckRequest()
        if not asked.acks:
            return response(request, ResponseCode.NO_MESSAGE, remark="the request acknowledges nothing")
        if len(asked.acks) > TOGETHER_MAX:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"acknowledgements of {len(asked.acks)} checkpoints; {TOGETHER_MAX} are allowed"))
        messages: list[Message | Refusal] = []
        acks: list[Ack] = []
        in_order: list[tuple[BatchAck, BatchAckMessage]] = []
        lent: list[tuple[BatchAck, BatchAckMessage]] = []
        done: list[tuple[str, str, int]] = []
        count = 0
        for each in asked.acks:
            found = self._of(each, asked.broker_name or "")
            if isinstance(found, BatchAckMessage):
                count += len(found.offsets)
                if each.revive_queue_id == ORDERED:
                    in_order.append((each, found))
                elif self._lending.is_open or Ticket.read(each.revive_queue_id) is not None:
                    lent.append((each, found))
                else:
                    done.append((found.group, found.topic, len(found.offsets)))
                    acks.append(found)
                    messages.append(self._records.ack(found, each.revive_queue_id, each.invisible_ms))
            elif found is not None:
                messages.append(found)
        joined = _Joined(1 + len(in_order) + len(lent), partial(self._answer, connection, request, count, 0, None))
        for each, found in lent:
            self._lend(found, each.revive_queue_id, each.invisible_ms, joined.part)
        for each, found in in_order:
            refusal = self._in_order.ack((found.topic, each.group, each.queue_id), found.offsets, each.pop_time_ms,
                                         joined.part)
            if refusal is not None:  # as in Java, an offset that was never given is skipped
                joined.part("" if refusal.code == ResponseCode.MESSAGE_ILLEGAL else refusal.remark)
        if not messages:
            joined.part("")
            return None
        return self._put(request, acks, messages, partial(self._done, done, joined.part))

    def _of(self, each: BatchAck, broker_name: str) -> BatchAckMessage | Refusal | None:
        """The record for one entry of the request; None: the queue has none of its messages."""
        topic = each.topic
        if each.retry != str(NORMAL):
            topic = pop_retry_topic(each.topic, each.group, v2=each.retry == str(RETRY_V2))
        queue = self._messages.queue(topic.encode(errors="replace"), each.queue_id)
        if queue is None and each.revive_queue_id == ORDERED:
            return None
        wrong = self.checks.names(each.group, each.topic) or self._wrong(
            each.revive_queue_id, each.start_offset, each.pop_time_ms, each.invisible_ms, broker_name)
        if wrong is not None:
            return wrong
        there = [offset for offset in each.offsets if queue is None or offset >= queue.min_offset]
        # A replaced master may lack the queue, or a part. It must not answer success without a put, which would fail.
        offsets = [offset for offset in there if queue is not None and offset <= queue.max_offset] or there
        if not offsets:
            return None
        return BatchAckMessage(offsets, each.start_offset, each.group, topic, each.queue_id, each.pop_time_ms,
                               broker_name)

    def change(self, connection: Connection, request: Command) -> Command | None:
        """Change when a message comes back (200053). None: the answer follows when it is stored."""
        if not self._standing.role.takes_puts and not self._lending.is_open:
            return response(request, ResponseCode.SYSTEM_BUSY, remark=REJECTED)
        asked = ChangeInvisibleTimeRequest.from_ext(request.ext)
        refusal = self.checks.queue(asked.topic, asked.queue_id)
        if refusal is not None:
            return refusal.answer(request)
        least, most = self._bounds(asked.topic, asked.queue_id)
        if not least <= asked.offset < most:
            return _nowhere(request, asked, least, most)
        receipt = self._receipt(asked)
        if isinstance(receipt, Refusal):
            return receipt.answer(request)
        if asked.invisible_time < 0:
            return response(request, ResponseCode.INVALID_PARAMETER, remark=(
                f"invisibleTime is {asked.invisible_time}; it must be 0 or more"))
        if receipt.ordered:
            return self._change_in_order(connection, request, asked, receipt)
        # A later pop time: the acknowledgement of the old checkpoint must not match the new one.
        now_ms = max(self._records.wall_ms(), receipt.pop_time_ms + 1)
        checkpoint = CheckPoint(
            asked.offset, now_ms, asked.invisible_time, 1, asked.queue_id, asked.topic, asked.consumer_group, diffs=[0],
            broker_name=receipt.broker_name, suspend=bool(asked.suspend))
        if self._lending.is_open or Ticket.read(receipt.revive_qid) is not None:
            self._lending.change(checkpoint, _ack(asked, receipt), receipt.revive_qid, receipt.invisible_ms, partial(
                self._changed, connection, request, now_ms, asked.invisible_time))
            return None
        header = ChangeInvisibleTimeResponse(now_ms, asked.invisible_time, receipt.revive_qid)
        ack = _ack(asked, receipt)
        return self._put(request, [checkpoint, ack], [
            self._records.checkpoint(checkpoint, receipt.revive_qid),
            self._records.ack(ack, receipt.revive_qid, receipt.invisible_ms)],
            partial(self._answer, connection, request, 0, 1, header))

    def _changed(self, connection: Connection, request: Command, now_ms: int, invisible_ms: int,
                 outcome: int | str) -> None:
        """Answer a change on an acting slave. ``outcome``: number of the revive queue, or why nothing is stored."""
        if isinstance(outcome, str):
            self._answer(connection, request, 0, 1, None, outcome)
        else:
            header = ChangeInvisibleTimeResponse(now_ms, invisible_ms, outcome)
            self._answer(connection, request, 0, 1, header, "")

    def _change_in_order(self, connection: Connection, request: Command, asked: ChangeInvisibleTimeRequest,
                         receipt: Receipt) -> Command | None:
        """Change the time of a message that was popped in order: its receipt keeps the pop time."""
        visible_ms = min(self._records.wall_ms() + asked.invisible_time, _LONG_MAX)
        header = ChangeInvisibleTimeResponse(receipt.pop_time_ms, visible_ms - receipt.pop_time_ms, ORDERED)
        refusal = self._in_order.change(
            (asked.topic, asked.consumer_group, asked.queue_id), asked.offset, receipt.pop_time_ms, visible_ms,
            partial(self._answer, connection, request, 0, 1, header),
            partial(self._answer, connection, request, 0, 0, ChangeInvisibleTimeResponse()))
        return None if refusal is None else refusal.answer(request)

    # --- shared by the three requests ------------------------------------------------------------------------

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self._messages.queue(topic.encode(errors="replace"), queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def _receipt(self, asked: AckMessageRequest | ChangeInvisibleTimeRequest) -> Receipt | Refusal:
        receipt = Receipt.decode_front(asked.extra_info)
        wrong = self.checks.names(asked.consumer_group, asked.topic) or self._wrong(
            receipt.revive_qid, receipt.start_offset, receipt.pop_time_ms, receipt.invisible_ms, receipt.broker_name)
        return receipt if wrong is None else wrong

    def _wrong(self, revive_qid: int, start_offset: int, pop_time_ms: int, invisible_ms: int,
               broker_name: str) -> Refusal | None:
        """Refuse numbers that no receipt of this broker can contain."""
        if broker_name != self._standing.broker_name:
            return Refusal(ResponseCode.SYSTEM_ERROR, (
                f"the receipt is of broker {broker_name[:60]}; this is {self._standing.broker_name}"))
        topic = self.checks.topics.get(self._records.topic)
        queues = topic.write_queue_nums if topic is not None else 0
        if revive_qid != ORDERED and not 0 <= revive_qid < queues and Ticket.read(revive_qid) is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, (
                f"the receipt names revive queue {revive_qid}; {self._records.topic} has {queues}"))
        if min(start_offset, pop_time_ms, invisible_ms) < 0:
            return Refusal(ResponseCode.SYSTEM_ERROR, "the receipt has a number below 0")
        if revive_qid == ORDERED and self._lending.is_open:
            return NOT_IN_ORDER
        return None

    def _put(self, request: Command, records: Sequence[PopRecord], messages: Sequence[Message | Refusal],
             answer: Answer) -> Command | None:
        """Put all messages, which hold the records, or none, then call ``answer`` with "" or the reason."""
        made: list[Message] = []
        for each in messages:
            if isinstance(each, Refusal):
                self.counters.failed += 1
                return response(request, ResponseCode.SYSTEM_ERROR, remark=each.remark)
            made.append(each)

        self._puts.put(made, partial(self._told, records, answer))
        return None

    def _told(self, records: Sequence[PopRecord], answer: Answer, result: PutResult) -> None:
        """Call ``answer`` with "" or the reason why the put failed."""
        self._records.counts.count(records, result.status.name)
        answer("" if result.status is PutStatus.PUT_OK else result.words)

    def _answer(self, connection: Connection, request: Command, acked: int, changed: int, header: Header | None,
                why_not: str) -> None:
        if why_not:
            self.counters.failed += 1
            answer = response(request, ResponseCode.SYSTEM_ERROR, remark=f"not stored: {why_not}")
        else:
            self.counters.acked += acked
            self.counters.changed += changed
            answer = response(request, header=header)
        connection.reply(request, answer)


class _Joined:
    """Answers once, when each of several puts has ended."""

    def __init__(self, parts: int, answer: Answer) -> None:
        self._left, self._answer, self._why = parts, answer, ""

    def part(self, why_not: str) -> None:
        """One put has ended: ``why_not`` is "" if it is stored."""
        self._left -= 1
        self._why = self._why or why_not
        if not self._left:
            self._answer(self._why)


def _ack(asked: AckMessageRequest | ChangeInvisibleTimeRequest, receipt: Receipt) -> AckMessage:
    return AckMessage(asked.offset, receipt.start_offset, asked.consumer_group, asked.topic, asked.queue_id,
                      receipt.pop_time_ms, receipt.broker_name)


def _nowhere(request: Command, asked: AckMessageRequest | ChangeInvisibleTimeRequest, least: int, most: int) -> Command:
    """Answer an offset that the queue does not have."""
    return response(request, ResponseCode.NO_MESSAGE, remark=(
        f"offset is illegal, key:{asked.topic}@{asked.queue_id}, commit:{asked.offset}, store:{least}~{most}"))
