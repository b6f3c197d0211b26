"""What a decision writes, and what is read of halves and marks, whatever stands in them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transactions import records
from broker.transactions.records import Half, read_half
from remoting.record import COMMIT, PREPARED, Message, Record, decode, decode_properties, encode, encode_properties

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
PROPERTIES = {"UNIQ_KEY": "U", "TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "T", "REAL_QID": "3", "TAGS": "a"}


def stored(properties: dict[str, str] | bytes, **changes: Any) -> Record:
    raw = properties if isinstance(properties, bytes) else encode_properties(properties)
    message = attrs.evolve(Message(b"RMQ_SYS_TRANS_HALF_TOPIC", b"paid", 0, raw, 7, 1, 1_000, HOST, HOST), **changes)
    return decode(encode(message, 5, 900, 2_000))


def half_of(record: Record) -> Half:
    half = read_half(record)
    assert isinstance(half, Half)
    return half


def test_a_half_is_read() -> None:
    assert half_of(stored(PROPERTIES)) == Half(
        900, half_of(stored(PROPERTIES)).size, 5, "U", "g", "T", 3, 1_000, 2_000, 0, None, None, 1_000)
    more = half_of(stored({**PROPERTIES, "TRANSACTION_CHECK_TIMES": "4", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60",
                           "__QUORATE_HALF": "300", "__QUORATE_RESUMED": "1500"}))
    assert (more.checks, more.immunity_ms, more.first, more.since_ms) == (4, 60_000, 300, 1_500)


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "-7"])
def test_an_immunity_that_is_no_time_is_one_all_the_same(text: str) -> None:
    assert half_of(stored({**PROPERTIES, "CHECK_IMMUNITY_TIME_IN_SECONDS": text})).immunity_ms == -1


@pytest.mark.parametrize("change", [
    {"REAL_TOPIC": ""}, {"REAL_QID": "x"}, {"REAL_QID": "-1"}, {"REAL_QID": str(1 << 31)},
    {"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC"}])
def test_a_half_that_could_go_nowhere_is_none(change: dict[str, str]) -> None:
    assert "no topic and queue to go to" in str(read_half(stored({**PROPERTIES, **change})))


@pytest.mark.parametrize("changes", [{"topic": b"T"}, {"sys_flag": COMMIT}, {"sys_flag": PREPARED}])
def test_other_records_are_no_halves(changes: dict[str, object]) -> None:
    assert read_half(stored(PROPERTIES, **changes)) == "it is no half"


@given(st.binary(max_size=400))
def test_any_properties_are_read_without_a_crash(raw: bytes) -> None:
    read_half(stored(raw))
    read_half(stored(encode_properties(PROPERTIES) + raw))


@given(st.binary(max_size=200))
def test_any_mark_is_read(body: bytes) -> None:
    assert all(0 <= place < 1 << 63 for place in records.marked(body))


def test_javas_marks_are_read() -> None:
    assert list(records.marked(b"12,15,19,")) == [12, 15, 19]
    assert list(records.marked(b",,x,-3,7,\xff," + b"9" * 40)) == [7]
    assert records.reason(encode_properties({"TAGS": "d"})) == records.UNKNOWN
    assert records.reason(encode_properties({"__QUORATE_END": "nonsense"})) == records.UNKNOWN


def test_a_final_record_is_the_message_with_what_java_leaves_on_it() -> None:
    record = stored({**PROPERTIES, "__transactionId__": "U", "TRANSACTION_CHECK_TIMES": "1"})
    final = records.final(record, half_of(record), b"h" * 8, 9)
    assert (final.topic, final.queue_id, final.sys_flag, final.prepared_offset) == (b"T", 3, COMMIT | 1, 900)
    assert (final.body, final.flag, final.born_time_ms, final.store_host) == (b"paid", 7, 1_000, b"h" * 8)
    assert decode_properties(final.properties) == {
        "UNIQ_KEY": "U", "PGROUP": "g", "TAGS": "a", "__transactionId__": "U", "TRANSACTION_CHECK_TIMES": "1",
        "__QUORATE_EPOCH": "9"}


def test_a_mark_is_javas_with_more_properties() -> None:
    made = records.mark([12, 15], records.COMMITTED, "X", 77, HOST, 3)
    assert (made.topic, made.queue_id, made.body, made.born_time_ms) == (
        b"RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, b"12,15,", 77)
    assert decode_properties(made.properties) == {
        "TAGS": "d", "WAIT": "true", "UNIQ_KEY": "X", "__QUORATE_END": "commit", "__QUORATE_EPOCH": "3"}


def test_put_back_given_up_and_brought_back_name_their_transaction() -> None:
    record = stored(PROPERTIES)
    back = records.put_back(record, half_of(record), 100, HOST, checks=3)
    lying = records.given_up(record, 100, HOST)
    again = records.resumed(record, 100, HOST, 5_000)
    assert [each.topic for each in (back, lying, again)] == [
        b"RMQ_SYS_TRANS_HALF_TOPIC", b"TRANS_CHECK_MAX_TIME_TOPIC", b"RMQ_SYS_TRANS_HALF_TOPIC"]
    for each, checks in ((back, "3"), (lying, None), (again, "0")):
        values = decode_properties(each.properties)
        assert (values["__QUORATE_HALF"], values.get("TRANSACTION_CHECK_TIMES")) == ("100", checks)
        assert PROPERTIES.items() <= values.items()
    assert "__QUORATE_HALF" not in decode_properties(records.resumed(record, None, HOST, 5).properties)
