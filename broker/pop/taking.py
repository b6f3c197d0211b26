"""Chooses the queues that one POP looks at and their order, and describes the messages in its answer.

A queue id of -1 means all queues of the topic. Revived messages are in the group's retry topic, under an old (v1) or a
new (v2) kind of name. One POP reads only one of the two, since the client tells their queues apart by ids alone.
A core: it knows records as bytes, neither queues nor offsets.
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
"""Messages of one POP: a checkpoint has a bit for each."""
_PLACE: Final = Struct(">i16xq")
"""Size and queue offset of a record."""
_POP_CK: Final = f"{POP_CK}\x01".encode()


@attrs.frozen
class Visit:
    """One queue that a POP looks at."""

    topic: str
    flag: int
    queue_id: int


@attrs.frozen
class RetryNames:
    """Names of retry topics: whether v2 is written, and whether v1 is read besides."""

    v2: bool = False
    v1_too: bool = True

    def readable(self, topic: str, group: str) -> list[tuple[str, int]]:
        """Names to read and their flags; the name that is written comes first."""
        new, old = (pop_retry_topic(topic, group, v2=True), RETRY_V2), (pop_retry_topic(topic, group), RETRY_V1)
        if not self.v2:
            return [old]
        return [new, old] if self.v1_too else [new]


def visits(topic: str, queues: int, queue_id: int, retry: tuple[str, int, int] | None, chance: int, *,
           retry_first: bool, last_first: bool = True) -> list[Visit]:
    """The visits of one POP in order. ``retry``: name, flag and number of queues of the retry topic. ``chance``, 0 or
    more, chooses the first queue; with 0 it is the last one, or without ``last_first`` queue 0."""
    wanted = (queue_id,) if queue_id >= 0 else _around(queues, chance, last_first)
    found = [Visit(topic, NORMAL, each) for each in wanted]
    if retry is None:
        return found
    name, flag, count = retry
    again = [Visit(name, flag, each) for each in _around(count, chance, last_first)]
    return again + found if retry_first else found + again


def _around(queues: int, chance: int, last_first: bool) -> Iterable[int]:
    """All queue ids once, descending or ascending from one chosen by ``chance``."""
    return [((queues - 1 - number if last_first else number) + chance) % queues for number in range(queues)]


@attrs.frozen
class Haul:
    """Messages of one queue. ``looked``: the end of what was read for them."""

    visit: Visit
    begin: int
    """Begin of the stretch; messages from here on that are missing were filtered out."""
    offsets: list[int]
    looked: int
    data: bytes

    @property
    def place(self) -> receipts.Place:
        """The key that the answer's fields give to this queue."""
        return self.visit.flag, self.visit.queue_id

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.offsets[-1] + 1


def queue_offsets(data: bytes) -> list[int]:
    """Queue offsets of consecutive records, from their bytes."""
    found, at, end, unpack = [], 0, len(data), _PLACE.unpack_from
    while at < end:
        size, queue_offset = unpack(data, at)
        found.append(queue_offset)
        at += size
    return found


def records_of(data: bytes) -> Iterator[bytes]:
    """The bytes of each of several consecutive records."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        yield data[at : at + size]
        at += size


def told(hauls: Sequence[Haul]) -> tuple[str, str]:
    """The fields ``startOffsetInfo`` and ``msgOffsetInfo`` of an answer."""
    return (receipts.starts((haul.place, haul.offsets[0]) for haul in hauls),
            receipts.offsets((haul.place, haul.offsets) for haul in hauls))


def given(haul: Haul, topic: str, receipt: Receipt) -> bytes:
    """The records of an answer as bytes. Records of a retry topic get the ``topic`` that the client asked for, and a
    receipt each, made of the haul's ``receipt``; others stay as they are in the log."""
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
    except MessageIllegal:  # no room for a receipt: the client makes one by the record's topic
        return raw
