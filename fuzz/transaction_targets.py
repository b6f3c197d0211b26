"""Fuzz targets of transactions: halves and marks of any content, and a damaged file of open ones.

The promises are those of ``fuzz.targets``. What is read names places that are numbers of 64 bits at most; what is taken
of a file is given back as it was.
"""

from __future__ import annotations

from typing import Final

import attrs

from broker.topics.names import HALF
from broker.transactions import records
from broker.transactions.feeding import KeptTransactions, Marks
from broker.transactions.halves import Halves
from broker.transactions.records import Half, read_half
from fuzz.target import Target
from remoting.errors import BodyError
from remoting.record import Message, Record, decode_properties, encode_properties

_LONG_MAX: Final = (1 << 63) - 1
_HOST: Final = b"\x0a\x00\x00\x01\x00\x00\x2a\x9f"


def _record(properties: bytes, sys_flag: int = 0, body: bytes = b"x") -> Record:
    message = Message(HALF.encode(), body, 0, properties, sys_flag=sys_flag, born_host=_HOST, store_host=_HOST)
    return Record(message, 7, 4_096, 9, 200, 0)


def check_halves(data: bytes) -> None:
    """What a half says, and what a decision, a check and the end of checks make of it."""
    record = _record(data[1:], data[0] & 0xFF if data else 0)
    half = read_half(record)
    if isinstance(half, str):
        assert half
        return
    assert half.topic and half.topic != HALF and 0 <= half.queue_id < 1 << 31
    assert half.first is None or 0 <= half.first <= _LONG_MAX
    assert 0 <= half.checks < 1 << 31 and (half.immunity_ms is None or half.immunity_ms >= -1)
    table = Halves()
    assert table.half(half) is not None or half.first is not None
    made = records.final(record, half, _HOST, 3)
    assert made.topic == half.topic.encode() and made.prepared_offset == record.offset
    assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & decode_properties(made.properties).keys()
    again = read_half(attrs.evolve(record, message=records.put_back(record, half, 11, _HOST, checks=half.checks)))
    assert isinstance(again, Half) and (again.first, again.checks, again.topic) == (11, half.checks, half.topic)


def check_marks(data: bytes) -> None:
    """Places that a mark names, and why it was made."""
    places = list(records.marked(data))
    assert all(0 <= place <= _LONG_MAX for place in places) and len(places) <= len(data) + 1
    assert list(records.marked(",".join(map(str, places)).encode())) == places
    assert records.reason(data) in (*records.REASONS, records.UNKNOWN)


def check_open_transactions(data: bytes) -> None:
    """``config/openTransactions.json``."""
    try:
        kept = KeptTransactions.from_json(data)
    except BodyError:
        return
    assert KeptTransactions.from_json(kept.to_json()) == kept
    marks = Marks(kept.marks)
    marks.needed_from(5, 9)
    marks.add(9, 5)
    assert marks.groups


def _half_seeds() -> list[bytes]:
    values = {"UNIQ_KEY": "U", "PGROUP": "G", "REAL_TOPIC": "T", "REAL_QID": "3", "TRAN_MSG": "true",
              "CHECK_IMMUNITY_TIME_IN_SECONDS": "5", "TRANSACTION_CHECK_TIMES": "2", records.FIRST: "100",
              records.RESUMED: "1700000000000"}
    return [b"\0" + encode_properties(values), b"\4" + encode_properties({"REAL_TOPIC": "T", "REAL_QID": "0"})]


def _open_seeds() -> list[bytes]:
    kept = KeptTransactions(9_000, 0, 8_000, 12, 7, 1, [[100, 300, 250, 0, 100, 2]], [4], [[3, 5]])
    return [kept.to_json(), KeptTransactions().to_json()]


TRANSACTION_TARGETS: Final = {
    "halves": Target("broker.transactions.records.read_half", check_halves, _half_seeds),
    "marks": Target("broker.transactions.records.marked", check_marks, lambda: [
        b"12,15,", records.mark([1], records.COMMITTED, "U", 1, _HOST, 2).properties]),
    "open-transactions": Target("broker.transactions.feeding.KeptTransactions", check_open_transactions, _open_seeds),
}
