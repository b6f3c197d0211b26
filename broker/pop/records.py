"""Records of POP: encode checkpoints and acknowledgements as messages of the revive topic, and decode them.

A checkpoint is due in the revive topic a second before its messages come back, an acknowledgement when they do. Until
then each waits as a timer, on every replica; one that is due already goes to the revive topic at once. Pure values.
Source: ``PopMessageProcessor.buildCkMsg``, ``AckMessageProcessor`` and ``PopMessageProcessor.genCkUniqueId`` of
RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import attrs

from broker import properties as props
from broker.rules import Chain, Draft, Refusal
from broker.timer.admission import DELIVER_MS
from broker.topics.names import revive_topic
from remoting.bodies.popping import AckMessage, BatchAckMessage, CheckPoint
from remoting.codes import ResponseCode
from remoting.errors import BodyError, MessageIllegal
from remoting.fields import shown
from remoting.record import NOTED, TAGS, Message, encode_properties, value_behind

CHECKPOINT: Final = "ck"
ACK: Final = "ack"
BATCH_ACK: Final = "bAck"
"""The last of the three tags of records."""
AHEAD_MS: Final = 1_000
"""A checkpoint is due this long before its acknowledgements."""
BODY_BYTES_MAX: Final = 1 << 20
"""Largest body of a record that is read (a limit of ours)."""
LABELS_MAX: Final = 10_000
"""Label sets of a counter by group and topic; beyond them both are ""."""
Ack = AckMessage | BatchAckMessage
PopRecord = CheckPoint | Ack


def as_one(acks: Sequence[AckMessage]) -> Ack:
    """Acknowledgements of one checkpoint, the same ones perhaps, as one.

    Source: ``BatchAckMsg`` of RocketMQ 5.5.0, which its brokers write for a request of many acknowledgements."""
    first, offsets = acks[0], list(dict.fromkeys(each.ack_offset for each in acks))
    if len(offsets) == 1:
        return first
    return BatchAckMessage(offsets, first.start_offset, first.group, first.topic, first.queue_id, first.pop_time_ms,
                           first.broker_name)


class PutCounts:
    """Records that were put since this process began, by group, topic, kind (CK or ACK) and status of the put."""

    def __init__(self) -> None:
        self.puts: Counter[tuple[str, str, str, str]] = Counter()

    def count(self, records: Iterable[PopRecord], status: str) -> None:
        """Count one put of these records; without names once there are ``LABELS_MAX`` label sets."""
        for each in records:
            kind = "CK" if isinstance(each, CheckPoint) else "ACK"
            one = each.group, each.topic, kind, status
            self.puts[one if one in self.puts or len(self.puts) < LABELS_MAX else ("", "", kind, status)] += 1


@attrs.frozen
class Records:
    """Makes the records of one broker. ``rules`` of timers send a record that is not due to a timer."""

    cluster_name: str
    store_host: bytes
    wall_ms: Callable[[], int]
    rules: Chain
    counts: PutCounts = attrs.field(factory=PutCounts)
    """Whoever puts records counts them here."""

    @property
    def topic(self) -> str:
        """The revive topic of this cluster."""
        return revive_topic(self.cluster_name)

    def checkpoint(self, found: CheckPoint, revive_qid: int, progress: str = "") -> Message | Refusal:
        """A checkpoint as a message. ``progress``: its stretch as text. It is noted on every replica, since the log
        must keep its messages."""
        message = self._message(CHECKPOINT, f"{_unique(found, found.start_offset)}@{CHECKPOINT}", found.to_json(),
                                revive_qid, found.revive_time_ms - AHEAD_MS, progress)
        if isinstance(message, Message):
            message.sys_flag |= NOTED
        return message

    def ack(self, found: Ack, revive_qid: int, invisible_ms: int) -> Message | Refusal:
        """An acknowledgement as a message. ``invisible_ms``: the invisible time of its checkpoint."""
        tag = ACK if isinstance(found, AckMessage) else BATCH_ACK
        return self._message(tag, f"{_unique(found, found.ack_offset)}@{ACK}", found.to_json(), revive_qid,
                             found.pop_time_ms + invisible_ms)

    def _message(self, tag: str, unique: str, body: bytes, revive_qid: int, due_ms: int,
                 progress: str = "") -> Message | Refusal:
        values = {"TAGS": tag, props.UNIQ_KEY: unique, DELIVER_MS: str(due_ms)}
        if progress:
            values[props.POP_PROGRESS] = progress
        draft = Draft(self.topic, revive_qid, values)
        stop = self.rules.stops(draft)
        if stop is not None:
            return stop if isinstance(stop, Refusal) else Refusal(1, "timers are not ready")
        try:
            properties = encode_properties(draft.properties)
        except MessageIllegal as error:  # a name of a client's holds what separates properties
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error))
        return Message(draft.topic.encode(), body, draft.queue_id, properties, born_time_ms=self.wall_ms(),
                       born_host=self.store_host, store_host=self.store_host)


def _unique(found: PopRecord, offset: int) -> str:
    return (f"{found.topic}@{found.queue_id}@{offset}@{found.group}@{found.pop_time_ms}@"
            f"{found.broker_name or ''}")


class Named(NamedTuple):
    """The fields of a checkpoint's unique id that say whose it is."""

    topic: str
    queue_id: str
    start_offset: str
    group: str
    broker_name: str


def named(unique: str) -> Named | None:
    """Read a checkpoint's unique id; None: it is none. Of its names that of the broker alone may hold an ``@``."""
    fields = unique.split("@", 5)
    if len(fields) != 6 or not fields[5].endswith(f"@{CHECKPOINT}"):
        return None
    topic, queue_id, start_offset, group, _, rest = fields
    return Named(topic, queue_id, start_offset, group, rest.removesuffix(f"@{CHECKPOINT}"))


def read(message: Message, latest_ms: int | None = None) -> PopRecord:
    """Decode a message of the revive topic. Raises ``BodyError`` if it is no valid record, or a checkpoint that is due
    after ``latest_ms``."""
    tag = (value_behind(message.properties, TAGS) or b"").decode(errors="replace")
    if tag == CHECKPOINT:
        checkpoint = CheckPoint.from_json(message.body, BODY_BYTES_MAX)
        checkpoint.check()
        if latest_ms is not None and checkpoint.revive_time_ms > latest_ms:
            raise BodyError(f"a checkpoint of {shown(checkpoint.group)} that is due at {checkpoint.revive_time_ms}: no "
                            "timer waits for so long, and this one has not waited")
        return checkpoint
    if tag == ACK:
        return AckMessage.from_json(message.body, BODY_BYTES_MAX)
    if tag == BATCH_ACK:
        return BatchAckMessage.from_json(message.body, BODY_BYTES_MAX)
    raise BodyError(f"a message of the tag {shown(tag)}, which is no record of POP")
