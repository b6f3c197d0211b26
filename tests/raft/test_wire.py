"""Every peer message survives the wire; nothing else gets through, and nothing but ``MalformedMessage`` comes out."""

from __future__ import annotations

import contextlib
import struct
from random import Random
from typing import Any

import attrs
import pytest
from google_crc32c import value as crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raft import frame, wire
from raft.errors import MalformedMessage, UsageError
from raft.frame import Frame, Kind
from raft.membership import Member, Membership
from raft.messages import (
    Append,
    AppendReply,
    Code,
    PeerMessage,
    ReadReply,
    ReadRequest,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
    VoteResult,
)
from raft.snapshotmeta import META_BYTES_MAX, decode_meta, encode_meta

LIMIT = 1 << 20
U63 = st.integers(0, (1 << 63) - 1) | st.sampled_from([0, 1, (1 << 31) - 1, 1 << 32, (1 << 63) - 1])
U64 = st.integers(0, (1 << 64) - 1) | st.just((1 << 64) - 1)
TERM = st.integers(1, (1 << 63) - 1)
CODE = st.sampled_from(sorted(Code))
IDS = st.sampled_from(["n0", "n1", "n2", "ü", "n" * 40])


@st.composite
def frames_after(draw: st.DrawFn, group: int, prev_index: int, prev_term: int, term: int) -> list[Frame]:
    out: list[Frame] = []
    chain = draw(st.integers(0, (1 << 32) - 1))
    for payloads in draw(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=6), max_size=4)):
        kind = draw(st.sampled_from(sorted(Kind))) if len(payloads) == 1 else Kind.COMMANDS
        prev_term = draw(st.integers(max(prev_term, 1), term))
        made = frame.build(
            kind=kind, group=group, term=prev_term, first=prev_index + 1, payloads=payloads,
            wall_ms=draw(U64), chain=chain,
        )
        out.append(made)
        prev_index, chain = made.last, made.mark
    return out


@st.composite
def appends(draw: st.DrawFn) -> Append:
    term, group = draw(TERM), draw(U64)
    prev_index, prev_term = draw(st.just((0, 0)) | st.tuples(st.integers(1, 1 << 62), st.integers(1, term)))
    return Append(
        group, term, draw(U64), draw(U64), prev_index, prev_term, draw(U63), draw(U63),
        draw(frames_after(group, prev_index, prev_term, term)),
    )


MEMBERSHIPS = st.builds(
    Membership,
    voters=st.sets(IDS), outgoing=st.sets(IDS), learners=st.sets(IDS),
    members=st.dictionaries(
        IDS,
        st.builds(
            Member, address=st.text(max_size=20), incarnation=st.binary(max_size=16), priority=st.integers(-9, 1 << 70)
        ),
    ),
)


@st.composite
def metas(draw: st.DrawFn) -> SnapshotMeta:
    index = draw(TERM)
    return SnapshotMeta(
        index, draw(TERM), draw(st.integers(0, (1 << 32) - 1)), draw(MEMBERSHIPS), draw(st.integers(0, index)),
        draw(st.integers(0, 1 << 40)), draw(st.integers(0, (1 << 32) - 1)), draw(U64),
    )


@st.composite
def chunks(draw: st.DrawFn) -> SnapshotChunk:
    data = draw(st.binary(max_size=200))
    offset = draw(st.integers(0, 1 << 40))
    meta = attrs.evolve(draw(metas()), size=offset + len(data) + draw(st.integers(0, 10)))
    return SnapshotChunk(draw(U64), draw(TERM), draw(U64), draw(U64), encode_meta(meta), offset, data)


MESSAGES: st.SearchStrategy[PeerMessage] = st.one_of(
    appends(),
    st.builds(AppendReply, U64, U63, U64, U64, CODE, U63, U63, U63, U63, U63),
    st.builds(Vote, U64, U63, U63, U63, U63, st.booleans(), st.booleans()),
    st.builds(VoteReply, U64, U63, U63, st.sampled_from(sorted(VoteResult)), st.booleans()),
    st.builds(TimeoutNow, U64, U63, U63, U63),
    chunks(),
    st.builds(SnapshotReply, U64, U63, U64, U64, CODE, U63, U63, st.booleans()),
    st.builds(ReadRequest, U64, U63, U63),
    st.builds(ReadReply, U64, U63, U63, CODE, U63),
)


def plain(message: PeerMessage) -> tuple[object, ...]:
    """A message as values that compare; a frame is its fields."""
    fields = []
    for field in attrs.fields(type(message)):
        value = getattr(message, field.name)
        if field.name == "frames":
            value = [[getattr(f, a.name) for a in attrs.fields(Frame)] for f in value]
        fields.append(value)
    return (type(message), *fields)


def in_pieces(data: bytes, rng: Random, longest: int) -> list[bytes]:
    out, at = [], 0
    while at < len(data):
        step = rng.randint(1, longest)
        out.append(data[at : at + step])
        at += step
    return out


def sealed(fields: dict[str, int], payload: bytes = b"") -> bytes:
    """A message with a correct header CRC and whatever fields, to get past the first line of checks."""
    names = [
        "magic", "version", "kind", "flags", "code", "group", "term", "session", "sequence",
        "a", "b", "c", "d", "e", "size",
    ]
    values = {"magic": wire.MAGIC, "version": wire.VERSION, "size": len(payload), **fields}
    head = struct.pack("<BBBBIQQQQQQQQQI", *(values.get(name, 0) for name in names))
    return head + struct.pack("<I", crc32c(head)) + payload


def header_field(data: bytes, offset: int, new: bytes) -> bytes:
    """``data`` with bytes of its header replaced and the header CRC made right again."""
    head = bytearray(data[: wire.HEADER_BYTES - 4])
    head[offset : offset + len(new)] = new
    return bytes(head) + struct.pack("<I", crc32c(bytes(head))) + data[wire.HEADER_BYTES :]


# --- there and back ------------------------------------------------------------------------------------------


@given(st.lists(MESSAGES, max_size=6), st.randoms(use_true_random=False), st.sampled_from([1, 7, 100, 5000]))
def test_every_message_survives_in_any_pieces(messages: list[PeerMessage], rng: Random, longest: int) -> None:
    data = b"".join(b"".join(wire.encode(m)) for m in messages)
    decoder = wire.Decoder(LIMIT)
    got: list[PeerMessage] = []
    for piece in in_pieces(data, rng, longest):
        got += decoder.feed(piece)
        assert decoder.unfinished_bytes < LIMIT + wire.HEADER_BYTES
    assert [plain(m) for m in got] == [plain(m) for m in messages]
    assert decoder.unfinished_bytes == 0
    whole = wire.Decoder(LIMIT).feed(memoryview(data))
    assert b"".join(b"".join(wire.encode(m)) for m in whole) == data


def test_frames_are_sent_as_the_objects_they_are() -> None:
    one = frame.build(kind=1, group=1, term=1, first=1, payloads=[b"x"], wall_ms=0, chain=0)
    buffers = wire.encode(Append(1, 1, 0, 0, 0, 0, 0, 0, (one,)))
    assert buffers[1] is one.data
    state = bytes(1000)
    meta = encode_meta(SnapshotMeta(1, 1, 0, Membership(), 0, 1000))
    assert wire.encode(SnapshotChunk(1, 1, 0, 0, meta, 0, state))[2] is state


def test_more_than_one_buffer_means_frames_or_state() -> None:
    one = frame.build(kind=1, group=1, term=1, first=1, payloads=[b"x"], wall_ms=0, chain=0)
    assert len(wire.encode(Append(1, 1, 0, 0, 0, 0, 0, 0, [one]))) > 1
    assert len(wire.encode(SnapshotChunk(1, 1, 0, 0, b"", 0, b""))) > 1
    assert len(wire.encode(Append(1, 1, 0, 0, 0, 0, 0, 0))) == 1
    assert len(wire.encode(AppendReply(1, 1, 0, 0, 200, 0, 0, 0, 0, 0))) == 1


@given(MESSAGES)
def test_first_byte_tells_raft_from_rocketmq_and_tls(message: PeerMessage) -> None:
    first = wire.encode(message)[0][0]
    assert first >= 0x80 and first not in (0x00, 0x01, 0x16)


def test_BUG_A5_numbers_at_the_edge_of_63_bits_pass_and_wider_ones_are_refused_where_they_are_made() -> None:
    top = (1 << 63) - 1
    reply = AppendReply((1 << 64) - 1, top, (1 << 64) - 1, (1 << 64) - 1, 200, top, top, top, top, top)
    assert wire.Decoder(0).feed(b"".join(wire.encode(reply))) == [reply]
    for field in ("term", "match", "last_index", "hint_index", "hint_term", "read_round"):
        with pytest.raises(UsageError):
            wire.encode(attrs.evolve(reply, **{field: top + 1}))
        with pytest.raises(UsageError):
            wire.encode(attrs.evolve(reply, **{field: -1}))


def test_a_message_may_be_all_zeros() -> None:
    reply = AppendReply(0, 0, 0, 0, 200, 0, 0, 0, 0, 0)
    assert wire.Decoder(0).feed(wire.encode(reply)[0]) == [reply]


def test_an_append_may_follow_the_very_first_entry() -> None:
    first = Append(1, 1, 0, 0, 1, 1, 0, 0, [])
    assert [plain(m) for m in wire.Decoder(0).feed(wire.encode(first)[0])] == [plain(first)]


class HugeBytes(bytes):
    """Claims 2 GiB, or so many bytes less, without holding them."""

    less = 0

    def __len__(self) -> int:
        return (1 << 31) - self.less


def test_BUG_A6_a_payload_beyond_the_length_field_is_refused_where_it_is_made() -> None:
    with pytest.raises(UsageError, match="at most 2147483647"):
        wire.encode(SnapshotChunk(1, 1, 0, 0, b"m", 0, HugeBytes()))
    one = frame.build(kind=1, group=1, term=1, first=1, payloads=[b"x"], wall_ms=0, chain=0)
    one.data = HugeBytes()
    with pytest.raises(UsageError, match="at most 2147483647"):
        wire.encode(Append(1, 1, 0, 0, 0, 0, 0, 0, [one]))
    one.data = largest = HugeBytes()
    largest.less = 1
    assert len(wire.encode(Append(1, 1, 0, 0, 0, 0, 0, 0, [one]))) == 2, "so much is taken"


# --- limits --------------------------------------------------------------------------------------------------


def test_a_length_beyond_the_limit_is_refused_before_anything_of_it_is_kept() -> None:
    decoder = wire.Decoder(1000)
    with pytest.raises(MalformedMessage, match="1001 bytes; at most 1000"):
        decoder.feed(sealed({"kind": 1, "term": 1, "size": 1001}))
    assert decoder.unfinished_bytes == 0
    exact = wire.Decoder(1000)
    assert exact.feed(sealed({"kind": 1, "term": 1, "size": 1000})) == []
    exact.feed(bytes(999))
    assert exact.unfinished_bytes == 1000 + wire.HEADER_BYTES - 1


def test_many_small_pieces_of_a_large_message_cost_one_copy_not_many() -> None:
    payload = frame.build(kind=1, group=1, term=1, first=1, payloads=[bytes(LIMIT // 2)], wall_ms=0, chain=0)
    data = b"".join(wire.encode(Append(1, 1, 0, 0, 0, 0, 0, 0, [payload])))
    looks = []

    class Counting(wire.Decoder):
        def _take(self, view: memoryview) -> tuple[list[PeerMessage], int]:
            looks.append(len(view))
            return super()._take(view)

    decoder = Counting(LIMIT)
    got: list[PeerMessage] = []
    for at in range(0, len(data), 64):
        got += decoder.feed(data[at : at + 64])
    assert len(got) == 1
    assert len(looks) == 3, "when it began, when the header was whole, and when the message was"


# --- what must not get through -------------------------------------------------------------------------------


@given(st.binary(max_size=400), st.integers(0, 300))
@example(b"\xa7", 0)
def test_random_bytes_give_nothing_but_malformed_message(data: bytes, limit: int) -> None:
    with contextlib.suppress(MalformedMessage):
        wire.Decoder(limit).feed(data)


@given(MESSAGES, st.data())
@settings(max_examples=300)
def test_one_changed_byte_never_passes(message: PeerMessage, data: st.DataObject) -> None:
    sent = bytearray(b"".join(wire.encode(message)))
    covered = wire.HEADER_BYTES if isinstance(message, SnapshotChunk) else len(sent)  # the meta holds a state's CRC
    at = data.draw(st.integers(0, covered - 1))
    sent[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedMessage):
        wire.Decoder(LIMIT).feed(bytes(sent))


@given(
    st.fixed_dictionaries(
        {"kind": st.integers(0, 12)},
        optional=dict.fromkeys(("group", "term", "session", "sequence", "a", "b", "c", "d", "e"), U64)
        | {"flags": st.integers(0, 255), "code": st.integers(0, 600)},
    ),
    st.binary(max_size=60) | metas().map(encode_meta),
)
def test_what_passes_with_a_true_crc_is_what_encode_would_have_made(fields: dict[str, int], payload: bytes) -> None:
    data = sealed(fields, payload)
    try:
        messages = wire.Decoder(LIMIT).feed(data)
    except MalformedMessage:
        return
    assert b"".join(b"".join(wire.encode(m)) for m in messages) == data


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": 0}, {"kind": 10}, {"kind": 255},
        {"kind": 1, "term": 0}, {"kind": 1, "term": 1, "flags": 1}, {"kind": 1, "term": 1, "code": 1},
        {"kind": 1, "term": 1, "e": 1},
        {"kind": 1, "term": 1, "a": 1}, {"kind": 1, "term": 1, "b": 1}, {"kind": 1, "term": 1, "a": 1, "b": 2},
        {"kind": 1, "term": 1 << 63}, {"kind": 1, "term": 1, "c": 1 << 63},
        {"kind": 2, "code": 0}, {"kind": 2, "code": 999}, {"kind": 2, "code": 200, "flags": 1},
        {"kind": 2, "code": 200, "size": 1},
        {"kind": 3, "flags": 4}, {"kind": 3, "code": 1}, {"kind": 3, "d": 1}, {"kind": 3, "session": 1},
        {"kind": 3, "sequence": 1},
        {"kind": 4, "code": 12}, {"kind": 4, "flags": 2}, {"kind": 4, "b": 1}, {"kind": 4, "c": 1},
        {"kind": 5, "c": 1}, {"kind": 5, "code": 1}, {"kind": 5, "flags": 1},
        {"kind": 6, "term": 1}, {"kind": 6, "term": 1, "b": 1},
        {"kind": 7, "code": 1}, {"kind": 7, "code": 200, "flags": 2}, {"kind": 7, "code": 200, "c": 1},
        {"kind": 7, "code": 200, "e": 1},
        {"kind": 8, "b": 1}, {"kind": 8, "code": 200}, {"kind": 8, "flags": 1},
        {"kind": 9, "code": 1}, {"kind": 9, "code": 200, "flags": 1}, {"kind": 9, "code": 200, "sequence": 1},
        {"kind": 3, "magic": 0xA6}, {"kind": 3, "version": 2}, {"kind": 8, "size": 1},
        *({"kind": 2, "code": 200, field: wide} for field in ("term", *"abcde") for wide in (1 << 63, (1 << 64) - 1)),
    ],
    ids=str,
)
def test_BUG_R10_a_field_that_breaks_its_rule_is_refused(fields: dict[str, int]) -> None:
    data = sealed(fields) + bytes(fields.get("size", 0))
    with pytest.raises(MalformedMessage):
        wire.Decoder(LIMIT).feed(data)


def frames_of(group: int, term: int, first: int) -> Frame:
    return frame.build(kind=1, group=group, term=term, first=first, payloads=[b"x", b"y"], wall_ms=0, chain=0)


@pytest.mark.parametrize(
    "frames",
    [
        [frames_of(2, 5, 11)],
        [frames_of(1, 5, 12)],
        [frames_of(1, 5, 10)],
        [frames_of(1, 6, 11)],
        [frames_of(1, 3, 11)],
        [frames_of(1, 5, 11), frames_of(1, 5, 12)],
        [frames_of(1, 5, 11), frames_of(1, 5, 14)],
        [frames_of(1, 5, 11), frames_of(1, 4, 13)],
    ],
    ids=["group", "gap", "overlap", "future term", "term below prev", "overlap inside", "gap inside", "falling term"],
)
def test_frames_that_do_not_follow_are_refused(frames: list[Frame]) -> None:
    message = Append(1, 5, 0, 0, 10, 4, 0, 0, frames)
    with pytest.raises(MalformedMessage, match="follow"):
        wire.Decoder(LIMIT).feed(b"".join(wire.encode(message)))


def test_a_chunk_outside_its_snapshot_is_refused() -> None:
    meta = SnapshotMeta(9, 2, 0, Membership(("n0",)), 0, 10)
    for offset, length in [(0, 0), (0, 10), (10, 0), (5, 6), (11, 0)]:
        sent = b"".join(wire.encode(SnapshotChunk(1, 2, 0, 0, encode_meta(meta), offset, bytes(length))))
        if offset + length <= 10:
            assert len(wire.Decoder(LIMIT).feed(sent)) == 1
        else:
            with pytest.raises(MalformedMessage, match=rf"within its snapshot \({offset}, {length}, 10\)"):
                wire.Decoder(LIMIT).feed(sent)


@pytest.mark.parametrize("fields", [
    {"flags": 1}, {"code": 1}, {"c": 1}, {"d": 1}, {"e": 1}, {"term": 0}, {"b": 0}, {"b": 1 << 40},
], ids=str)
def test_a_chunk_whose_meta_is_right_is_refused_for_each_other_field(fields: dict[str, int]) -> None:
    meta = encode_meta(SnapshotMeta(9, 2, 0, Membership(("n0",)), 0, 10))
    right = {"kind": 6, "term": 2, "b": len(meta)}
    assert len(wire.Decoder(LIMIT).feed(sealed(right, meta))) == 1
    with pytest.raises(MalformedMessage, match="breaks a rule: SnapshotChunk"):
        wire.Decoder(LIMIT).feed(sealed(right | fields, meta))


def test_a_chunk_of_one_byte_of_meta_is_read_as_one() -> None:
    with pytest.raises(MalformedMessage, match="meta"):
        wire.Decoder(LIMIT).feed(sealed({"kind": 6, "term": 2, "b": 1}, b"x"))


def test_a_decoder_takes_messages_of_one_version_only_and_says_what_it_saw() -> None:
    data = header_field(wire.encode(Vote(1, 1, 1, 0, 0))[0], 1, b"\x07")
    for before in (b"", wire.encode(Vote(1, 1, 1, 0, 0))[0]):
        with pytest.raises(MalformedMessage, match=r"version 1.*starts with a7070300$"):
            wire.Decoder(LIMIT).feed(before + data)


# --- snapshot meta -------------------------------------------------------------------------------------------


@given(metas())
def test_a_snapshot_meta_survives(meta: SnapshotMeta) -> None:
    data = encode_meta(meta)
    assert decode_meta(data) == meta
    assert len(data) <= META_BYTES_MAX


@given(st.binary(max_size=200) | st.tuples(metas(), st.data()).map(lambda pair: mutated(*pair)))
def test_bytes_that_are_no_snapshot_meta_give_nothing_but_malformed_message(data: bytes) -> None:
    try:
        meta = decode_meta(data)
    except MalformedMessage:
        return
    assert encode_meta(meta) == data


def mutated(meta: SnapshotMeta, data: st.DataObject) -> bytes:
    sent = bytearray(encode_meta(meta))
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    return bytes(sent)


def test_a_snapshot_meta_has_one_spelling() -> None:
    data = encode_meta(SnapshotMeta(7, 2, 3, Membership(("n0",)), 7, 10, 5, 6))
    assert data[:2] == b"\x89\x01"
    other_spellings = [data + b"\x00", b"\x9f" + data[1:] + b"\xff", b"\x89\x18\x01" + data[2:]]
    for other in other_spellings:
        with pytest.raises(MalformedMessage, match="canonical"):
            decode_meta(other)


def test_a_snapshot_meta_beyond_the_limit_is_refused_unread() -> None:
    with pytest.raises(MalformedMessage, match="at most 65536"):
        decode_meta(bytes(META_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "change",
    [
        {"index": 0}, {"term": 0}, {"membership_index": 8}, {"mark": 1 << 32}, {"size": -1}, {"crc": 1 << 32},
        {"index": 1 << 63}, {"wall_ms": 1 << 64},
    ],
    ids=str,
)
def test_a_snapshot_meta_out_of_range_is_refused(change: dict[str, Any]) -> None:
    meta = SnapshotMeta(7, 2, 3, Membership(("n0",)), 7, 10, 5, 6)
    assert decode_meta(encode_meta(meta)) == meta
    with pytest.raises(MalformedMessage):
        decode_meta(encode_meta(attrs.evolve(meta, **change)))
