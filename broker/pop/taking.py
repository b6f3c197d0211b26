"""What one POP takes: which queues it looks at, in which order, and what of them its answer says.

A queue id of -1 stands for all queues of the topic. Messages that come back stand in a retry topic of topic and group,
under an old or a new kind of name; one POP reads one of them, as the client tells them apart by queue ids alone.
It knows records as bytes, and neither queues nor offsets of groups.
Source: ``PopMessageProcessor.processRequest`` and ``popMsgFromQueue`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

import attrs

from broker.properties import POP_CK
from broker.topics.names import pop_retry_topic
from remoting import receipts
from remoting.errors import MessageIllegal
from remoting.receipts import NORMAL, RETRY_V1, RETRY_V2, Receipt
from remoting.record import decode, encode, value_behind

MESSAGES_MAX: Final = 32
"""Of one POP: a checkpoint has a bit for each."""
_PLACE: Final = Struct(">i16xq")
"""Size and queue offset of a record."""
_POP_CK: Final = f"{POP_CK}\x01".encode()


@attrs.frozen
class Visit:
    """A queue to look at."""

    topic: str
    flag: int
    queue_id: int


@attrs.frozen
class RetryNames:
    """Where messages come back: which kind of name is written, and whether the old one is read besides."""

    v2: bool = False
    v1_too: bool = True

    def readable(self, topic: str, group: str) -> list[tuple[str, int]]:
        """Names and their flags, the one that is written first."""
        new, old = (pop_retry_topic(topic, group, v2=True), RETRY_V2), (pop_retry_topic(topic, group), RETRY_V1)
        if not self.v2:
            return [old]
        return [new, old] if self.v1_too else [new]


def visits(topic: str, queues: int, queue_id: int, retry: tuple[str, int, int] | None, chance: int, *,
           retry_first: bool) -> list[Visit]:
    """In their order. ``retry``: name, flag and number of queues; ``chance``, from 0 on, says with which one begins."""
    wanted = (queue_id,) if queue_id >= 0 else _around(queues, chance)
    found = [Visit(topic, NORMAL, each) for each in wanted]
    if retry is None:
        return found
    name, flag, count = retry
    again = [Visit(name, flag, each) for each in _around(count, chance)]
    return again + found if retry_first else found + again


def _around(queues: int, chance: int) -> Iterable[int]:
    """All of them, from a queue on; higher ones first."""
    return [(queues - 1 - number + chance) % queues for number in range(queues)]


@attrs.frozen
class Haul:
    """Messages of one queue. ``looked``: behind what was looked at for them."""

    visit: Visit
    begin: int
    """Everything from here on that is not among them was left out by the filter."""
    offsets: list[int]
    looked: int
    data: bytes

    @property
    def place(self) -> receipts.Place:
        """By which the client finds what an answer says of it."""
        return self.visit.flag, self.visit.queue_id

    @property
    def end(self) -> int:
        """Behind the last of its messages."""
        return self.offsets[-1] + 1


def queue_offsets(data: bytes) -> list[int]:
    """Of records that stand one behind the other."""
    found, at, end, unpack = [], 0, len(data), _PLACE.unpack_from
    while at < end:
        size, queue_offset = unpack(data, at)
        found.append(queue_offset)
        at += size
    return found


def records_of(data: bytes) -> Iterator[bytes]:
    """Each of the records that stand one behind the other."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at : at + size]
        at += size


def told(hauls: Sequence[Haul]) -> tuple[str, str]:
    """``startOffsetInfo`` and ``msgOffsetInfo`` of an answer."""
    return (receipts.starts((haul.place, haul.offsets[0]) for haul in hauls),
            receipts.offsets((haul.place, haul.offsets) for haul in hauls))


def given(haul: Haul, topic: str, receipt: Receipt) -> bytes:
    """The records of an answer: as they stand in the log, but that those of a retry topic are of ``topic``, where the
    group wants them from, and bear their receipts. ``receipt`` is that of the whole haul."""
    if haul.visit.flag == NORMAL:
        return haul.data
    name = topic.encode()
    return b"".join([_as_of(raw, name, receipt) for raw in records_of(haul.data)])


def _as_of(raw: bytes, topic: bytes, receipt: Receipt) -> bytes:
    record = decode(raw, check_crc=False)
    properties = record.message.properties
    if value_behind(properties, _POP_CK) is None:
        text = attrs.evolve(receipt, offset=record.queue_offset).encode()
        between = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
        properties = b"".join((properties, between, _POP_CK, text.encode(), b"\x02"))
    message = attrs.evolve(record.message, topic=topic, properties=properties)
    try:
        return encode(message, record.queue_offset, record.offset, record.store_time_ms)
    except MessageIllegal:  # no room for a receipt: the client finds it by the topic that the record names
        return raw
