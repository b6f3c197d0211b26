"""Records of transactions: the half, what a decision makes of it, and the marks in the op queue.

A half keeps its topic and queue in its properties. A commit is a final record, which names the half by its prepared
offset, and a mark; a rollback is a mark alone. A half that is put back to the end of its queue, or given up, names the
first half of its transaction. Pure values. Source: ``TransactionalMessageBridge``, ``EndTransactionProcessor`` and
``TransactionalMessageServiceImpl`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from broker.properties import REAL_QID, REAL_TOPIC, TRAN_MSG, UNIQ_KEY, write
from broker.topics.names import CHECK_MAX_TIME, HALF, OP_HALF
from remoting.fields import decimal
from remoting.record import COMMIT, ROLLBACK, Message, Record, decode_properties, elsewhere, value_behind

GROUP: Final = "PGROUP"
"""The producers that may be asked."""
TRANSACTION_ID: Final = "__transactionId__"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""Of a half that Java put back because it was too young to be asked for: its first place in the queue."""
FIRST: Final = "__QUORATE_HALF"
"""Ours: the offset in the log of the transaction's first half."""
EPOCH: Final = "__QUORATE_EPOCH"
"""Ours: of the master that decided."""
ENDED: Final = "__QUORATE_END"
"""Ours, of marks: why, one of ``REASONS``."""
RESUMED: Final = "__QUORATE_RESUMED"
"""Ours: when a half that was given up was brought back, ms."""
OWN: Final = (FIRST, EPOCH, ENDED, RESUMED)
"""No sender may say these."""

COMMITTED: Final = "commit"
ROLLED_BACK: Final = "rollback"
PUT_BACK: Final = "put back"
"""The transaction goes on with a half further behind."""
GIVEN_UP: Final = "given up"
ENDED_BEFORE: Final = "ended before"
"""The mark was missing."""
UNKNOWN: Final = "unknown"
"""Java's marks do not say."""
REASONS: Final = frozenset({COMMITTED, ROLLED_BACK, PUT_BACK, GIVEN_UP, ENDED_BEFORE})

HALF_TOPIC: Final = HALF.encode()
OP_TOPIC: Final = OP_HALF.encode()
GIVEN_UP_TOPIC: Final = CHECK_MAX_TIME.encode()
QUEUE: Final = 0
"""Of each of them."""
MARK_TAG: Final = "d"
_ENDED: Final = f"{ENDED}\x01".encode()
_QUEUE_ID_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_NUMBERS_MAX: Final = 1 << 20
"""Of one mark."""


@attrs.frozen
class Half:
    """What a half record says."""

    offset: int
    """In the log."""
    size: int
    queue_offset: int
    unique: str
    group: str
    """"" if nobody can be asked."""
    topic: str
    """Where it is meant for."""
    queue_id: int
    born_ms: int
    stored_ms: int
    checks: int
    immunity_ms: int | None
    """For so long nobody asks, and a producer may decide unasked; -1: it says something else; None: nothing."""
    first: int | None
    """The transaction's first half, if it says so."""
    since_ms: int
    """Its birth, or when it was brought back."""


def read_half(record: Record) -> Half | str:
    """The half in ``record``; why it is none, in words."""
    message = record.message
    if message.topic != HALF_TOPIC or message.sys_flag & ROLLBACK:
        return "it is no half"
    values = decode_properties(message.properties)
    topic, queue_id = values.get(REAL_TOPIC), decimal(values.get(REAL_QID, ""))
    if not topic or topic == HALF or queue_id is None or not 0 <= queue_id <= _QUEUE_ID_MAX:
        return f"it has no topic and queue to go to: REAL_TOPIC {topic!r}, REAL_QID {values.get(REAL_QID)!r}"
    immunity = values.get(IMMUNITY)
    return Half(
        record.offset, record.size, record.queue_offset, values.get(UNIQ_KEY, ""), values.get(GROUP, ""), topic,
        queue_id, message.born_time_ms, record.store_time_ms, _number(values.get(CHECK_TIMES)),
        _immunity_ms(immunity) if immunity else None, _offset(values.get(FIRST)),
        _offset(values.get(RESUMED)) or message.born_time_ms)


def _immunity_ms(text: str) -> int:
    seconds = decimal(text)
    return -1 if seconds is None or seconds < 0 else seconds * 1_000


def _number(text: str | None) -> int:
    number = decimal(text or "")
    return number if number is not None and 0 <= number <= _QUEUE_ID_MAX else 0


def _offset(text: str | None) -> int | None:
    number = decimal(text or "")
    return number if number is not None and 0 <= number <= _LONG_MAX else None


def as_half(values: dict[str, str]) -> None:
    """Make these the properties of a half. Where it goes to is noted by who diverts it."""
    for name in OWN:
        values.pop(name, None)
    values[TRANSACTION_ID] = values[UNIQ_KEY]


# --- what a decision writes ----------------------------------------------------------------------------------


def final(record: Record, half: Half, store_host: bytes, epoch: int) -> Message:
    """The message as it goes to where it was meant for."""
    values = decode_properties(record.message.properties)
    for name in (TRAN_MSG, REAL_TOPIC, REAL_QID):
        values.pop(name, None)
    values[EPOCH] = str(epoch)
    return elsewhere(
        record.message, topic=half.topic.encode(), queue_id=half.queue_id, properties=write(values),
        sys_flag=record.message.sys_flag & ~ROLLBACK | COMMIT, store_host=store_host, prepared_offset=record.offset)


def mark(queue_offsets: Iterable[int], why: str, unique: str, now_ms: int, store_host: bytes, epoch: int, *,
         first: int | None = None) -> Message:
    """The halves at these places of their queue are done with. ``unique`` is the mark's own id. ``first``: the first
    half's offset in the log, by which the mark of a transaction that ended is found again."""
    values = {"TAGS": MARK_TAG, "WAIT": "true", UNIQ_KEY: unique, ENDED: why, EPOCH: str(epoch)}
    if first is not None:
        values["KEYS"] = str(first)
    body = "".join(f"{offset}," for offset in queue_offsets).encode()
    return Message(OP_TOPIC, body, QUEUE, write(values), born_time_ms=now_ms, born_host=store_host,
                   store_host=store_host)


def put_back(record: Record, half: Half, first: int, store_host: bytes, *, checks: int) -> Message:
    """The half at the end of its queue, with so many checks counted."""
    values = decode_properties(record.message.properties) | {CHECK_TIMES: str(checks), FIRST: str(first)}
    return attrs.evolve(record.message, topic=HALF_TOPIC, queue_id=QUEUE, properties=write(values),
                        sys_flag=record.message.sys_flag & ~ROLLBACK, store_host=store_host, prepared_offset=0)


def resumed(record: Record, first: int | None, store_host: bytes, now_ms: int) -> Message:
    """The half that was given up, to be asked for anew. ``first`` None: its transaction begins anew, too."""
    values = decode_properties(record.message.properties) | {CHECK_TIMES: "0", RESUMED: str(now_ms)}
    if first is not None:
        values[FIRST] = str(first)
    return attrs.evolve(record.message, topic=HALF_TOPIC, queue_id=QUEUE, properties=write(values),
                        sys_flag=record.message.sys_flag & ~ROLLBACK, store_host=store_host, prepared_offset=0)


def given_up(record: Record, first: int, store_host: bytes) -> Message:
    """The half as it lies where nobody asks any more."""
    values = decode_properties(record.message.properties) | {FIRST: str(first)}
    return attrs.evolve(record.message, topic=GIVEN_UP_TOPIC, queue_id=QUEUE, properties=write(values),
                        store_host=store_host, prepared_offset=0)


def asked(message: Message, half: Half) -> Message:
    """The half as a producer is shown it."""
    return attrs.evolve(message, topic=half.topic.encode(), queue_id=half.queue_id)


# --- what is read of them ------------------------------------------------------------------------------------


def marked(body: bytes) -> Iterator[int]:
    """Places in the half queue that a mark names; what is no number is passed over."""
    for count, text in enumerate(body.split(b",")):
        if count >= _NUMBERS_MAX:
            return
        if text.isdigit() and len(text) < 19:
            yield int(text)


def reason(properties: bytes) -> str:
    """Why a mark with these was made."""
    said = (value_behind(properties, _ENDED) or b"").decode(errors="replace")
    return said if said in REASONS else UNKNOWN
