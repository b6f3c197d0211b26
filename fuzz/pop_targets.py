"""Fuzz targets of POP: receipts and the texts of its headers, records of the revive topic, requests for many.

The promises are those of ``fuzz.targets``.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.pop import records
from fuzz.target import Target
from remoting import receipts
from remoting.bodies.popping import AckMessage, BatchAck, BatchAckMessage, BatchAckRequest, CheckPoint, bits_of
from remoting.errors import BodyError, HeaderError
from remoting.receipts import Receipt
from remoting.record import Message

_CHECKPOINT: Final = CheckPoint(100, 1_700_000_000_000, 60_000, 3, 2, "T1", "G1", diffs=[0, 1, 5], broker_name="brk")
_ACK: Final = AckMessage(101, 100, "G1", "T1", 2, 1_700_000_000_000, "brk")
_BATCH: Final = BatchAckMessage([101, 105], 100, "G1", "T1", 2, 1_700_000_000_000, "brk")
_MANY: Final = BatchAckRequest("brk", [BatchAck("G1", "T1", 100, 2, 3, 1, 2, bits_of([0, 9]))])
_TAGS: Final = (records.CHECKPOINT, records.ACK, records.BATCH_ACK, "x")


def check_pop_receipts(data: bytes) -> None:
    text = data.decode(errors="replace")
    refusals = [words for words in (_receipt(text), _places(text), _counts(text)) if words]
    assert all(len(words) < 300 for words in refusals)


def _receipt(text: str) -> str:
    try:
        found = Receipt.decode(text)
    except HeaderError as error:
        return str(error)
    assert Receipt.decode(found.encode()) == found
    return ""


def _places(text: str) -> str:
    try:
        starts = receipts.read_starts(text)
        assert receipts.read_starts(receipts.starts(starts.items())) == starts
        offsets = receipts.read_offsets(text)
        assert receipts.read_offsets(receipts.offsets(offsets.items())) == offsets
    except HeaderError as error:
        return str(error)
    return ""


def _counts(text: str) -> str:
    try:
        counts = receipts.read_order_counts(text)
    except HeaderError as error:
        return str(error)
    assert all(counts.of(*place) == count for place, count in counts.by_offset.items())
    return ""


def check_pop_records(data: bytes) -> None:
    """The first byte says which tag the message has."""
    tag = _TAGS[(data[0] if data else 0) % len(_TAGS)]
    message = Message(b"t", data[1:], 0, f"TAGS\x01{tag}\x02".encode())
    try:
        found = records.read(message)
    except BodyError:
        return
    assert records.read(attrs.evolve(message, body=found.to_json())) == found
    if isinstance(found, CheckPoint):
        offsets = found.offsets
        assert len(offsets) == found.count
        assert all(found.start_offset <= offset < found.end for offset in offsets)


def check_pop_batches(data: bytes) -> None:
    try:
        found = BatchAckRequest.from_json(data)
    except BodyError:
        return
    assert BatchAckRequest.from_json(found.to_json()) == found
    for each in found.acks:
        try:
            offsets = each.offsets
        except BodyError:
            continue
        assert attrs.evolve(each, bits=bits_of(offset - each.start_offset for offset in offsets)).offsets == offsets


def _texts() -> list[bytes]:
    return [b"100 1700000000000 60000 3 1 brk 0 105", b"1 2 3 999 0 b 0", b"0 0 10;1 0 7", b"0 0 10,12;2 1 3",
            b"0 qo0%11 1;0 qo0%13 1;0 0 0"]


def _records() -> list[bytes]:
    return [bytes([number]) + each.to_json() for number, each in enumerate((_CHECKPOINT, _ACK, _BATCH))]


POP_TARGETS: Final = {
    "pop-receipts": Target("remoting.receipts", check_pop_receipts, _texts, 256),
    "pop-records": Target("broker.pop.records.read", check_pop_records, _records, 512),
    "pop-batches": Target("BatchAckRequest.from_json, BatchAck.offsets", check_pop_batches, lambda: [_MANY.to_json()],
                          512),
}
