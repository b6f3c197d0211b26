"""The client protocol as bytes: round trips, limits before allocation, only ``MalformedMessage`` on rubbish."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.clientwire import (
    ANSWER_BYTES_MAX,
    Answer,
    Blocks,
    MembershipPlan,
    Op,
    Request,
    ResultCode,
    TooManyCommands,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    failure,
    to_error,
)
from raft.config import Read
from raft.errors import (
    Busy,
    Faulted,
    MalformedMessage,
    NotLeader,
    RaftError,
    Rejected,
    RejectReason,
    Unknown,
    UsageError,
    WriteFailed,
)

u64 = st.integers(0, (1 << 64) - 1)
names = st.text(min_size=1, max_size=8)
books = st.dictionaries(names, st.text(max_size=8), max_size=4)
plans = st.builds(MembershipPlan, books, books, st.none() | st.dictionaries(names, st.integers(-5, 5), max_size=4))
commands = st.binary(max_size=40)


def requests() -> st.SearchStrategy[Request]:
    def of(op: Op, **fields: Any) -> st.SearchStrategy[Request]:
        return st.builds(Request, id=u64, op=st.just(op), group=u64, timeout_ms=st.integers(0, (1 << 32) - 1),
                         level=st.sampled_from(Read), **fields)

    one, many = st.tuples(commands), st.lists(commands, min_size=1, max_size=20)
    return st.one_of(
        of(Op.PROPOSE, commands=one), of(Op.QUERY, commands=one), of(Op.PROPOSE_MANY, commands=many), of(Op.STATUS),
        of(Op.EXPLAIN), of(Op.SNAPSHOT), of(Op.ACCEPT_LOSS), of(Op.TRANSFER, target=st.none() | st.text(max_size=8)),
        of(Op.RECONFIGURE, plan=plans))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4), max_leaves=10)


@given(requests())
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    (block,) = Blocks(1 << 20).feed(encode_request(request))
    assert decode_request(block, 20) == request


@pytest.mark.parametrize(("block", "request_"), [
    ("05000000000000000200000000000000 01000000e8030000 78", Request(5, Op.PROPOSE, 2, 1_000, commands=(b"x",))),
    ("05000000000000000100000000000000 0200000000000000 020000000100000002000000 78797a",
     Request(5, Op.PROPOSE_MANY, commands=[b"x", b"yz"])),
    ("05000000000000000100000000000000 0300000000000000 71", Request(5, Op.QUERY, commands=(b"q",))),
    ("05000000000000000100000000000000 0301000000000000 71", Request(5, Op.QUERY, level=Read.LEASE, commands=(b"q",))),
    ("05000000000000000100000000000000 0302000000000000 71", Request(5, Op.QUERY, level=Read.LOG, commands=(b"q",))),
    ("05000000000000000100000000000000 0303000000000000 71", Request(5, Op.QUERY, level=Read.UNSAFE, commands=(b"q",))),
    ("05000000000000000100000000000000 0400000000000000", Request(5, Op.STATUS)),
    ("05000000000000000100000000000000 0500000000000000", Request(5, Op.EXPLAIN)),
    ("05000000000000000100000000000000 0600000000000000 626e31", Request(5, Op.TRANSFER, target="n1")),
    ("05000000000000000100000000000000 0700000000000000 83a1626e3163613a31a0f6",
     Request(5, Op.RECONFIGURE, plan=MembershipPlan({"n1": "a:1"}, {}))),
    ("05000000000000000100000000000000 0800000000000000", Request(5, Op.SNAPSHOT)),
    ("05000000000000000100000000000000 0900000000000000", Request(5, Op.ACCEPT_LOSS)),
], ids=lambda value: value.op.name if isinstance(value, Request) else "")
def test_bytes_of_requests_stay_as_they_are(block: str, request_: Request) -> None:
    """Clients of earlier releases send them; never edit a line."""
    data = bytes.fromhex(block)
    assert encode_request(request_) == struct.pack("<I", len(data)) + data
    assert decode_request(data, 20) == request_


def test_bytes_of_answers_stay_as_they_are() -> None:
    codes = ["OK", "NOT_LEADER", "REJECTED", "UNKNOWN", "FAULTED", "USAGE", "MALFORMED"]
    for number, name in enumerate(codes):
        data = struct.pack("<IQBBH", 13, 5, number, 0, 0) + b"\xf6"
        assert encode_answer(Answer(5, ResultCode[name])) == data
    assert len(ResultCode) == len(codes)


@given(u64, values)
def test_a_value_comes_back_as_it_was(number: int, value: object) -> None:
    (block,) = Blocks(1 << 20).feed(encode_answer(Answer(number, ResultCode.OK, value)))
    assert decode_answer(block) == Answer(number, ResultCode.OK, value)


@pytest.mark.parametrize("error", [
    NotLeader("n1", "h1:7000"), NotLeader(None, None), Rejected(RejectReason.TRANSFERRING), Busy("100 pending"),
    Rejected(RejectReason.TOO_LARGE, "2 MiB"), Unknown(3, 9, "leadership was lost"), Unknown(), Faulted("it raised"),
    UsageError("no query"),
], ids=str)
def test_an_error_comes_back_as_it_was(error: RaftError) -> None:
    (block,) = Blocks(1 << 20).feed(encode_answer(failure(5, error)))
    back = to_error(decode_answer(block))
    assert type(back) is type(error)
    assert vars(back) == vars(error)
    assert str(back) == str(error)


def test_a_storage_error_reaches_the_client_as_a_faulted_node() -> None:
    back = to_error(failure(5, WriteFailed("EIO")))
    assert isinstance(back, Faulted)
    assert "EIO" in str(back)


class Odd:
    """Nothing CBOR knows."""


class Lazy(list[int]):
    """Fails like any code of a user."""

    def __iter__(self) -> Iterator[int]:
        raise LookupError("gone \ud800")

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(("value", "why"), [
    (Odd(), "Odd, cannot be CBOR"), (Lazy(), "Lazy, cannot be CBOR (LookupError: gone \\ud800)"),
    (b"x" * ANSWER_BYTES_MAX, "bytes, is too large")])
def test_a_result_that_cannot_travel_says_that_the_request_took_effect(value: object, why: str) -> None:
    (block,) = Blocks(ANSWER_BYTES_MAX).feed(encode_answer(Answer(8, ResultCode.OK, value)))
    answer = decode_answer(block)
    assert (answer.id, answer.result) == (8, ResultCode.USAGE)
    assert "was carried out" in answer.value[0]
    assert why in answer.value[0]


@given(st.lists(requests(), max_size=5), st.data())
def test_blocks_come_out_whole_however_the_bytes_are_cut(sent: list[Request], data: st.DataObject) -> None:
    stream = b"".join(map(encode_request, sent))
    blocks, out, at = Blocks(1 << 20), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        out += blocks.feed(stream[at : at + step])
        at += step
    assert [decode_request(block, 20) for block in out] == sent


def test_a_length_beyond_the_limit_is_refused_before_anything_of_it_came() -> None:
    blocks = Blocks(1_000)
    blocks.feed(struct.pack("<I", 1_000))
    with pytest.raises(MalformedMessage, match="1001 bytes; at most 1000"):
        Blocks(1_000).feed(struct.pack("<I", 1_001))


def test_more_commands_than_allowed_are_refused_before_their_table_is_read() -> None:
    block = encode_request(Request(1, Op.PROPOSE_MANY, commands=[b""] * 21))[4:]
    with pytest.raises(TooManyCommands, match="of 21 commands; at most 20") as caught:
        decode_request(block, 20)
    assert caught.value.id == 1  # so it can be answered
    assert len(decode_request(block, 21).commands) == 21


def test_a_request_that_does_not_fit_is_the_callers_fault() -> None:
    with pytest.raises(UsageError, match="timeout_ms"):
        encode_request(Request(1, Op.STATUS, timeout_ms=1 << 32))


def _body(op: int, body: bytes, level: int = 0, zero: int = 0) -> bytes:
    return struct.pack("<QQBBHI", 1, 1, op, level, zero, 0) + body


@pytest.mark.parametrize("block", [
    b"", b"\0" * 23, _body(0, b""), _body(10, b""), _body(1, b"", level=4), _body(1, b"", zero=1), _body(4, b"x"),
    _body(2, b""), _body(2, struct.pack("<I", 0)), _body(2, struct.pack("<II", 1, 5) + b"four"),
    _body(2, struct.pack("<II", 1, 3) + b"four"), _body(6, b"\xff"), _body(6, cbor2.dumps(1)), _body(7,
                                                                                                     cbor2.dumps([])),
    _body(7, cbor2.dumps([{"": "a"}, {}, None])), _body(7, cbor2.dumps([{"n": 1}, {}, None])),
    _body(7, cbor2.dumps([{}, {}, {"n": True}])), _body(7, b"\x81" * 1_000), _body(6, b"\0" * 70_000),
])
def test_a_request_that_breaks_a_rule_is_malformed(block: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_request(block, 10)


@pytest.mark.parametrize("answer", [
    Answer(1, ResultCode.NOT_LEADER, []), Answer(1, ResultCode.NOT_LEADER, [1, None]),
    Answer(1, ResultCode.REJECTED, ["NO", ""]),
    Answer(1, ResultCode.UNKNOWN, [True, 1, ""]), Answer(1, ResultCode.FAULTED, "x"), Answer(1, ResultCode.USAGE, None),
])
def test_an_answer_with_wrong_fields_is_malformed(answer: Answer) -> None:
    with pytest.raises(MalformedMessage):
        decode_answer(encode_answer(answer)[4:])


@given(st.binary(max_size=200))
def test_rubbish_raises_nothing_else(data: bytes) -> None:
    for op in range(10):
        with contextlib.suppress(MalformedMessage):
            decode_request(_body(op, data), 10)
    for result in range(8):
        with contextlib.suppress(MalformedMessage):
            decode_answer(struct.pack("<QBBH", 1, result, 0, 0) + data)
    try:
        for block in Blocks(64).feed(data):
            assert len(block) <= 64
    except MalformedMessage:
        pass
