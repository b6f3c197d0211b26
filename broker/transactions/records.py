"""Records of transactions: halves, final records, and marks in the op queue.

A half keeps its topic and queue in its properties. A commit writes a final record, whose prepared offset names the
half, and a mark; a rollback writes only a mark. A half that is put back to the end of its queue, or given up, names the
first half of its transaction. Pure values. Source: ``TransactionalMessageBridge``, ``EndTransactionProcessor`` and
``TransactionalMessageServiceImpl`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import attrs

from broker.properties import REAL_QID, REAL_TOPIC, TRAN_MSG, UNIQ_KEY, write
from broker.topics.names import CHECK_MAX_TIME, HALF, OP_HALF
from remoting.fields import decimal
from remoting.record import (
    COMMIT,
    KEYS,
    ROLLBACK,
    Message,
    Outline,
    Record,
    decode_properties,
    elsewhere,
    value_behind,
)

GROUP: Final = "PGROUP"
"""Property with the group of producers that may be asked."""
TRANSACTION_ID: Final = "__transactionId__"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
FIRST: Final = "__QUORATE_HALF"
"""Property of ours: offset in the log of the transaction's first half."""
EPOCH: Final = "__QUORATE_EPOCH"
"""Property of ours: epoch of the master that decided."""
ENDED: Final = "__QUORATE_END"
"""Property of our marks: their reason, one of ``REASONS``."""
RESUMED: Final = "__QUORATE_RESUMED"
"""Property of ours: when a given-up half was resumed, ms."""
OWN: Final = (FIRST, EPOCH, ENDED, RESUMED)
"""Properties that no sender may set."""

COMMITTED: Final = "commit"
ROLLED_BACK: Final = "rollback"
PUT_BACK: Final = "put back"
"""Reason of a mark: the transaction goes on with a later half."""
GIVEN_UP: Final = "given up"
ENDED_BEFORE: Final = "ended before"
"""Reason of a mark: the half ended earlier, without a mark."""
UNKNOWN: Final = "unknown"
"""The reason is missing, as in RocketMQ's marks."""
REASONS: Final = frozenset({COMMITTED, ROLLED_BACK, PUT_BACK, GIVEN_UP, ENDED_BEFORE})

HALF_TOPIC: Final = HALF.encode()
OP_TOPIC: Final = OP_HALF.encode()
GIVEN_UP_TOPIC: Final = CHECK_MAX_TIME.encode()
QUEUE: Final = 0
"""The only queue of each of these topics."""
MARK_TAG: Final = "d"
_FIRST: Final = f"{FIRST}\x01".encode()
_CHECK_TIMES: Final = f"{CHECK_TIMES}\x01".encode()
_ENDED: Final = f"{ENDED}\x01".encode()
_EPOCH: Final = f"{EPOCH}\x01".encode()
_OF_HALVES: Final = (*(f"{name}\x01".encode() for name in (TRAN_MSG, REAL_TOPIC, REAL_QID)), _EPOCH)
"""Beginnings of the properties of a half that its final record has not, or has anew."""
_MARKED: Final = f"TAGS\x01{MARK_TAG}\x02WAIT\x01true\x02{UNIQ_KEY}\x01"
"""Beginning of the properties of a mark; its unique id follows."""
_QUEUE_ID_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_NUMBERS_MAX: Final = 1 << 20
"""Places that are read of one mark."""


class Half(NamedTuple):
    """The fields of a half record."""

    offset: int
    """Offset of the record in the log."""
    size: int
    queue_offset: int
    unique: str
    group: str
    """The producers' group; "": none can be asked."""
    topic: str
    """The topic that the message is meant for."""
    queue_id: int
    born_ms: int
    stored_ms: int
    checks: int
    immunity_ms: int | None
    """Time during which no producer is asked, and one may decide unasked; -1: illegal value; None: not set."""
    first: int | None
    """Offset of the transaction's first half; None: it does not say."""
    since_ms: int
    """Time when it was born, or resumed."""


def read_half(record: Record) -> Half | str:
    """The half in ``record``, or why it is none."""
    message = record.message
    return outlined_half((record.offset, record.size, message.queue_id, record.queue_offset, message.sys_flag,
                          record.store_time_ms, message.topic, message.properties), message.born_time_ms)


def outlined_half(found: Outline, born_ms: int) -> Half | str:
    """The half with this outline, or why it is none."""
    offset, size, _, queue_offset, sys_flag, stored_ms, in_topic, properties = found
    if in_topic != HALF_TOPIC or sys_flag & ROLLBACK:
        return "it is no half"
    values = decode_properties(properties)
    topic, queue_id = values.get(REAL_TOPIC), decimal(values.get(REAL_QID, ""))
    if not topic or topic == HALF or queue_id is None or not 0 <= queue_id <= _QUEUE_ID_MAX:
        return f"it has no topic and queue to go to: REAL_TOPIC {topic!r}, REAL_QID {values.get(REAL_QID)!r}"
    immunity = values.get(IMMUNITY)
    return Half(
        offset, size, queue_offset, values.get(UNIQ_KEY, ""), values.get(GROUP, ""), topic, queue_id, born_ms,
        stored_ms, _number(text) if (text := values.get(CHECK_TIMES)) else 0,
        _immunity_ms(immunity) if immunity else None, _offset(text) if (text := values.get(FIRST)) else None,
        (_offset(text) if (text := values.get(RESUMED)) else None) or born_ms)


def is_first(properties: bytes) -> bool:
    """Return whether a half with these properties begins its transaction: it was not put back, nor resumed."""
    return properties.find(_FIRST) < 0 and properties.find(_CHECK_TIMES) < 0  # quicker than ``in``


def _immunity_ms(text: str) -> int:
    seconds = decimal(text)
    return -1 if seconds is None or seconds < 0 else seconds * 1_000


def _number(text: str) -> int:
    number = decimal(text)
    return number if number is not None and 0 <= number <= _QUEUE_ID_MAX else 0


def _offset(text: str) -> int | None:
    number = decimal(text)
    return number if number is not None and 0 <= number <= _LONG_MAX else None


def as_half(values: dict[str, str]) -> None:
    """Make these the properties of a half. Its real topic and queue are added by the diversion."""
    for name in OWN:
        values.pop(name, None)
    values[TRANSACTION_ID] = values[UNIQ_KEY]


# --- records that are written --------------------------------------------------------------------------------


def final(record: Record, half: Half, store_host: bytes, epoch: int) -> Message:
    """The final record: the message for its own topic and queue."""
    kept = [pair for pair in record.message.properties.split(b"\x02") if pair and not pair.startswith(_OF_HALVES)]
    properties = b"\x02".join([*kept, b"%b%d\x02" % (_EPOCH, epoch)])
    return elsewhere(
        record.message, topic=half.topic.encode(), queue_id=half.queue_id, properties=properties,
        sys_flag=record.message.sys_flag & ~ROLLBACK | COMMIT, store_host=store_host, prepared_offset=record.offset)


def mark(queue_offsets: Iterable[int], why: str, unique: str, now_ms: int, store_host: bytes, epoch: int, *,
         firsts: Iterable[int] = ()) -> Message:
    """A mark: the halves at these places of their queue are done with. ``unique`` is the mark's own id. ``firsts``,
    offsets of their transactions' first halves, become its keys, by which the index finds it."""
    keys = " ".join(map(str, firsts))
    key = f"KEYS\x01{keys}\x02" if keys else ""
    properties = f"{_MARKED}{unique}\x02{ENDED}\x01{why}\x02{EPOCH}\x01{epoch}\x02{key}".encode()
    body = "".join([f"{offset}," for offset in queue_offsets]).encode()
    return Message(OP_TOPIC, body, QUEUE, properties, 0, 0, now_ms, store_host, store_host)


def put_back(record: Record, half: Half, first: int, store_host: bytes, *, checks: int) -> Message:
    """A copy of the half for the end of its queue, with ``checks`` as its number of checks."""
    values = decode_properties(record.message.properties) | {CHECK_TIMES: str(checks), FIRST: str(first)}
    return attrs.evolve(record.message, topic=HALF_TOPIC, queue_id=QUEUE, properties=write(values),
                        sys_flag=record.message.sys_flag & ~ROLLBACK, store_host=store_host, prepared_offset=0)


def resumed(record: Record, first: int | None, store_host: bytes, now_ms: int) -> Message:
    """A copy of a given-up half for the half queue, with no checks counted. ``first`` None: it begins a new
    transaction."""
    values = decode_properties(record.message.properties) | {CHECK_TIMES: "0", RESUMED: str(now_ms)}
    if first is not None:
        values[FIRST] = str(first)
    return attrs.evolve(record.message, topic=HALF_TOPIC, queue_id=QUEUE, properties=write(values),
                        sys_flag=record.message.sys_flag & ~ROLLBACK, store_host=store_host, prepared_offset=0)


def given_up(record: Record, first: int, store_host: bytes) -> Message:
    """A copy of the half for the topic of given-up ones."""
    values = decode_properties(record.message.properties) | {FIRST: str(first)}
    return attrs.evolve(record.message, topic=GIVEN_UP_TOPIC, queue_id=QUEUE, properties=write(values),
                        store_host=store_host, prepared_offset=0)


def asked(message: Message, half: Half) -> Message:
    """The message that a producer is sent with a check."""
    return attrs.evolve(message, topic=half.topic.encode(), queue_id=half.queue_id)


# --- marks that are read -------------------------------------------------------------------------------------


def marked(body: bytes) -> Iterator[int]:
    """Places in the half queue that a mark names; text that is no number is skipped."""
    return _numbers(body.split(b","))


def firsts(properties: bytes) -> Iterator[int]:
    """Offsets of the first halves of the transactions that a mark of ours ends, by its properties."""
    return _numbers((value_behind(properties, KEYS) or b"").split())


def _numbers(texts: list[bytes]) -> Iterator[int]:
    return (int(text) for text in islice(texts, _NUMBERS_MAX) if text.isdigit() and len(text) < 19)


def reason(properties: bytes) -> str:
    """The reason of a mark, by its properties."""
    said = (value_behind(properties, _ENDED) or b"").decode(errors="replace")
    return said if said in REASONS else UNKNOWN
