"""Bodies of POP: checkpoints and acknowledgements as they stand in the revive topic, and what 200151 brings.

Java writes the keys in the order of the alphabet, as this does, and reads them in any.
Source: ``PopCheckPoint``, ``AckMsg``, ``BatchAckMsg``, ``BatchAck`` and ``BatchAckMessageRequestBody`` of RocketMQ
5.5.0.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any, Final, Self

import attrs

from remoting.body import Body, body
from remoting.errors import BodyError
from remoting.fields import Int32, Int64, shown, wire_name

COUNT_MAX: Final = 127
"""Messages of a checkpoint: Java keeps the number in a signed byte, and an acknowledged one in a bit of 32."""
BITS_BYTES_MAX: Final = 1 << 16
"""Ours: of a set of bits, before base64."""
BITS_MAX: Final = 4_096
"""Ours: of them that are set, in one entry."""
NAME_MAX: Final = 255
"""Characters of the longest topic: no retry topic can have a longer name of a topic or group in it."""
CheckpointKey = tuple[str, str, int, int, int, str]
"""Topic, group, queue id, start offset, pop time, broker name: what an acknowledgement finds its checkpoint by."""


def _key(of: CheckPoint | AckMessage | BatchAckMessage) -> CheckpointKey:
    return (of.topic, of.group, of.queue_id, of.start_offset, of.pop_time_ms, of.broker_name or "")


@body
class CheckPoint(Body):
    """Messages that one POP gave to ``group`` from one queue. Bit i of ``bits`` stands for ``offsets[i]``."""

    start_offset: Int64 = wire_name("so")
    pop_time_ms: Int64 = wire_name("pt")
    invisible_ms: Int64 = wire_name("it")
    count: Int32 = wire_name("n")
    queue_id: Int32 = wire_name("q")
    topic: str = wire_name("t")
    """The one that the messages stand in: a retry topic perhaps."""
    group: str = wire_name("c")
    bits: Int32 = wire_name("bm", default=0)
    """Bits of the acknowledged messages."""
    revive_offset: Int64 = wire_name("ro", default=0)
    """Its offset in the revive topic; 0 when it is written."""
    diffs: list[Int32] | None = wire_name("d", default=None)
    """Offsets of the messages, from ``start_offset`` on; None, as of old: one behind the other."""
    broker_name: str | None = wire_name("bn", default=None)
    re_puts: str | None = wire_name("rp", default=None)
    """Number of times that it was put again, in digits."""
    suspend: bool = wire_name("sp", default=False)
    """Its messages come back without having failed once more."""

    @property
    def revive_time_ms(self) -> int:
        """From then on what was not acknowledged comes back."""
        return self.pop_time_ms + self.invisible_ms

    @property
    def offsets(self) -> list[int]:
        """Offsets of its messages in their queue."""
        start = self.start_offset
        return list(range(start, start + self.count)) if self.diffs is None else [start + diff for diff in self.diffs]

    @property
    def end(self) -> int:
        """Behind the last of its messages."""
        return max(self.offsets, default=self.start_offset - 1) + 1

    @property
    def key(self) -> CheckpointKey:
        """Key by which its acknowledgements find it."""
        return _key(self)

    def to_plain(self) -> dict[str, Any]:
        """With what Java writes besides, and does not read."""
        return {**super().to_plain(), "reviveTime": self.revive_time_ms}

    def check(self) -> None:
        """Raises ``BodyError``: no POP gives such a checkpoint."""
        for name in (self.topic, self.group, self.broker_name or ""):
            if len(name) > NAME_MAX or "\x01" in name or "\x02" in name:
                raise BodyError(f"a checkpoint with the name {shown(name)}, of {len(name)} characters: it holds the "
                                f"characters 1 or 2, or more than {NAME_MAX}")
        if min(self.start_offset, self.pop_time_ms, self.invisible_ms, self.queue_id, self.revive_offset) < 0:
            raise BodyError(f"a checkpoint with a number below 0: {shown(str(self))}")
        if not 0 <= self.count <= COUNT_MAX:
            raise BodyError(f"a checkpoint of {self.count} messages; 0 to {COUNT_MAX} are possible")
        if self.diffs is not None and (len(self.diffs) != self.count or min(self.diffs, default=0) < 0 or any(
                one >= two for one, two in zip(self.diffs, self.diffs[1:], strict=False))):
            raise BodyError(f"a checkpoint of {self.count} messages whose offsets are not as many, or do not rise")


@body
class AckMessage(Body):
    """One message of a checkpoint is done with."""

    ack_offset: Int64 = wire_name("ao")
    start_offset: Int64 = wire_name("so")
    group: str = wire_name("c")
    topic: str = wire_name("t")
    queue_id: Int32 = wire_name("q")
    pop_time_ms: Int64 = wire_name("pt")
    broker_name: str | None = wire_name("bn", default=None)

    @property
    def key(self) -> CheckpointKey:
        """Key of the checkpoint that it belongs to."""
        return _key(self)

    @property
    def acked(self) -> list[int]:
        """The offsets of its messages in their queue."""
        return [self.ack_offset]


@body
class BatchAckMessage(Body):
    """Several of them are. ``ack_offset`` says nothing."""

    offsets: list[Int64] = wire_name("aol")
    start_offset: Int64 = wire_name("so")
    group: str = wire_name("c")
    topic: str = wire_name("t")
    queue_id: Int32 = wire_name("q")
    pop_time_ms: Int64 = wire_name("pt")
    broker_name: str | None = wire_name("bn", default=None)
    ack_offset: Int64 = wire_name("ao", default=-1)

    @property
    def key(self) -> CheckpointKey:
        return _key(self)

    @property
    def acked(self) -> list[int]:
        return self.offsets


_ALIASES: Final = {
    "consumerGroup": "c", "topic": "t", "retry": "r", "startOffset": "so", "queueId": "q", "reviveQueueId": "rq",
    "popTime": "pt", "invisibleTime": "it", "bitSet": "b"}


@body
class BatchAck(Body):
    """Part of a 200151: messages of one checkpoint. Bit i of ``bits`` stands for offset ``start_offset + i``."""

    group: str = wire_name("c")
    topic: str = wire_name("t")
    """The one that was asked for; ``retry`` says in which of its retry topics the messages stand."""
    start_offset: Int64 = wire_name("so")
    queue_id: Int32 = wire_name("q")
    revive_queue_id: Int32 = wire_name("rq")
    pop_time_ms: Int64 = wire_name("pt")
    invisible_ms: Int64 = wire_name("it")
    bits: str = wire_name("b")
    """Base64 of bytes, the lowest bit first."""
    retry: str = wire_name("r", default="0")

    @classmethod
    def _read(cls, value: Any) -> Self:
        if type(value) is dict and not _ALIASES.keys().isdisjoint(value):
            value = {**{_ALIASES.get(name, name): each for name, each in value.items()}, **value}
        return super()._read(value)

    @property
    def offsets(self) -> list[int]:
        """Offsets of the messages in their queue, rising. Raises ``BodyError``."""
        return [self.start_offset + bit for bit in _bits(self.bits)]


@body
class BatchAckRequest(Body):
    """200151: messages of several checkpoints are done with."""

    broker_name: str | None = None
    acks: list[BatchAck] = attrs.field(factory=list)


def bits_of(numbers: Iterable[int]) -> str:
    """Base64 of a set of small numbers, as Java's ``BitSet`` gives it."""
    whole = sum(1 << number for number in set(numbers))
    return base64.b64encode(whole.to_bytes((whole.bit_length() + 7) // 8, "little")).decode()


def _bits(text: str) -> Iterator[int]:
    if len(text) > BITS_BYTES_MAX // 3 * 4 + 4:
        raise BodyError(f"a set of bits of {len(text)} characters; {BITS_BYTES_MAX} bytes are allowed")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BodyError(f"{shown(text)} is no set of bits in base64") from None
    count = int.from_bytes(raw, "little").bit_count()
    if count > BITS_MAX:
        raise BodyError(f"a set of {count} bits; a POP gives fewer messages")
    for at, byte in enumerate(raw):
        while byte:
            low = byte & -byte
            yield 8 * at + low.bit_length() - 1
            byte ^= low
