"""Texts in POP's headers: the receipt of a message, and what an answer says of where its messages stand.

A receipt (``extraInfo``, the property ``POP_CK``) has eight fields with a blank between them; the other texts have
items with a semicolon between them. Readers go by the place of a field and pass over further ones, as Java does.
Pure text, bounded; what is none raises ``HeaderError``. Source: ``ExtraInfoUtil`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs

from remoting.errors import HeaderError
from remoting.fields import decimal, shown

ORDERED: Final = 999
"""The revive queue of receipts whose messages are consumed in order: there is no such queue."""
NORMAL: Final = 0
RETRY_V1: Final = 1
RETRY_V2: Final = 2
"""Which topic a message stands in: the one that was asked for, or a retry topic by its old or its new kind of name."""
LENGTH_MAX: Final = 4_096
"""Ours: characters of a receipt."""
ITEMS_MAX: Final = 4_096
"""Ours: queues, or offsets, of one text."""
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
Place = tuple[int, int]
"""Retry flag and queue id."""


@attrs.frozen
class Receipt:
    """With it a message that was popped is acknowledged, or its time is changed. Times in milliseconds."""

    start_offset: int
    """First offset of the checkpoint."""
    pop_time_ms: int
    invisible_ms: int
    revive_qid: int
    retry_flag: int
    broker_name: str
    queue_id: int
    offset: int | None = None
    """Offset of the message in its queue; None where the text names many."""

    @property
    def ordered(self) -> bool:
        return self.revive_qid == ORDERED

    def encode(self) -> str:
        text = (f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_qid} {self.retry_flag} "
                f"{self.broker_name} {self.queue_id}")
        return text if self.offset is None else f"{text} {self.offset}"

    @classmethod
    def decode(cls, text: str) -> Receipt:
        """A receipt as anybody may send it. Raises ``HeaderError``."""
        if len(text) > LENGTH_MAX:
            raise _no_receipt(text, f"has {len(text)} characters; {LENGTH_MAX} are allowed")
        fields = text.split(" ")
        if len(fields) < 7:
            raise _no_receipt(text, f"has {len(fields)} fields; at least 7 are needed, with a blank between them")
        numbers = [_number(each) for each in (*fields[:5], fields[6])]
        offset = _number(fields[7]) if len(fields) > 7 else None
        start, pop_time_ms, invisible_ms, revive_qid, flag, queue_id = numbers
        if start is None or pop_time_ms is None or invisible_ms is None or revive_qid is None or queue_id is None or (
                revive_qid > _INT_MAX or queue_id > _INT_MAX or (offset is None and len(fields) > 7)):
            raise _no_receipt(text, "has a field that is no number, or is beyond its bounds")
        if flag not in (NORMAL, RETRY_V1, RETRY_V2):
            raise _no_receipt(text, f"has the retry flag {shown(fields[4])}; 0, 1 and 2 are possible")
        if not fields[5]:
            raise _no_receipt(text, "names no broker")
        return cls(start, pop_time_ms, invisible_ms, revive_qid, flag, fields[5], queue_id, offset)

    @classmethod
    def decode_front(cls, text: str) -> Receipt:
        """As ``decode``, without the offset. Receipts of one POP differ in nothing else, so it is soon remembered."""
        front, _, offset = text.rpartition(" ")
        if front.count(" ") == 6 and len(offset) < 19 and offset.isdecimal():
            return _decoded(front)
        return cls.decode(text)


_decoded: Final = lru_cache(256)(Receipt.decode)


def retry_flag(topic: str) -> int:
    """Return the retry flag of messages in this topic."""
    if not topic.startswith("%RETRY%"):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


# --- what an answer says -------------------------------------------------------------------------------------


def starts(found: Iterable[tuple[Place, int]]) -> str:
    """``startOffsetInfo``: of each queue the start of its checkpoint."""
    return ";".join([f"{flag} {queue_id} {start}" for (flag, queue_id), start in found])


def read_starts(text: str) -> dict[Place, int]:
    """Read what ``starts`` wrote, by queue. Raises ``HeaderError``."""
    found = {}
    for item in _items("startOffsetInfo", text):
        flag, queue_id, rest = _split("startOffsetInfo", item)
        found[flag, queue_id] = _needed("startOffsetInfo", item, rest)
    return found


def offsets(found: Iterable[tuple[Place, Sequence[int]]]) -> str:
    """``msgOffsetInfo``: of each queue the offsets of its messages."""
    return ";".join([f"{flag} {queue_id} {','.join(map(str, each))}" for (flag, queue_id), each in found])


def read_offsets(text: str) -> dict[Place, list[int]]:
    """Read what ``offsets`` wrote, by queue. Raises ``HeaderError``."""
    found = {}
    for item in _items("msgOffsetInfo", text):
        flag, queue_id, rest = _split("msgOffsetInfo", item)
        numbers = rest.split(",", ITEMS_MAX)
        found[flag, queue_id] = [_needed("msgOffsetInfo", item, number) for number in numbers]
    return found


@attrs.frozen
class OrderCounts:
    """Counts of earlier deliveries: of single messages, and the least of each queue."""

    by_offset: Mapping[tuple[int, int, int], int]
    """Counts by retry flag, queue id and offset."""
    by_queue: Mapping[Place, int]

    def of(self, flag: int, queue_id: int, offset: int) -> int:
        """Return the count of one message; 0 if it was not given before."""
        found = self.by_offset.get((flag, queue_id, offset))
        return self.by_queue.get((flag, queue_id), 0) if found is None else found


def order_counts(found: Iterable[tuple[Place, Mapping[int, int], int]]) -> str:
    """``orderCountInfo``: of each queue the counts by offset, and the least of all its messages."""
    items = []
    for (flag, queue_id), counts, least in found:
        items += [f"{flag} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
        items.append(f"{flag} {queue_id} {least}")
    return ";".join(items)


def read_order_counts(text: str) -> OrderCounts:
    """Read the counts that ``order_counts`` wrote. Raises ``HeaderError``."""
    by_offset: dict[tuple[int, int, int], int] = {}
    by_queue: dict[Place, int] = {}
    for item in _items("orderCountInfo", text):
        fields = item.split(" ")
        if len(fields) == 3 and fields[1].startswith("qo"):
            queue_id, _, offset = fields[1][2:].partition("%")
            by_offset[_needed("orderCountInfo", item, fields[0]), _needed("orderCountInfo", item, queue_id), _needed(
                "orderCountInfo", item, offset)] = _needed("orderCountInfo", item, fields[2])
        else:
            flag, queue, rest = _split("orderCountInfo", item)
            by_queue[flag, queue] = _needed("orderCountInfo", item, rest)
    return OrderCounts(by_offset, by_queue)


# --- pieces of text ------------------------------------------------------------------------------------------


def _items(field: str, text: str) -> list[str]:
    if not text:
        return []
    found = text.split(";", ITEMS_MAX)
    if len(found) > ITEMS_MAX:
        raise HeaderError("POP", field, f"has more than {ITEMS_MAX} items")
    return found


def _split(field: str, item: str) -> tuple[int, int, str]:
    """Retry flag, queue id and the rest."""
    fields = item.split(" ")
    if len(fields) != 3:
        raise HeaderError("POP", field, f"has the item {shown(item)}; three fields are needed")
    return _needed(field, item, fields[0]), _needed(field, item, fields[1]), fields[2]


def _needed(field: str, item: str, text: str) -> int:
    number = _number(text)
    if number is None:
        raise HeaderError("POP", field, f"has the item {shown(item)}, where {shown(text)} is no number")
    return number


def _number(text: str) -> int | None:
    number = decimal(text)
    return number if number is not None and 0 <= number <= _LONG_MAX else None


def _no_receipt(text: str, why: str) -> HeaderError:
    return HeaderError("POP", "extraInfo", f"= {shown(text)} {why}")
