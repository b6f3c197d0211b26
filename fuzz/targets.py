"""What is fuzzed: one function per decoder. Each takes any bytes and raises only when the decoder broke a promise.

The promises: only the package's own error comes out; what is accepted encodes to the same bytes again (or, where the
format allows several spellings, to a value that is equal); pieces give what the whole gives.
The first byte of an input says whether its checksums are made right first (``sealing``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import attrs
import cbor2

from fuzz import sealing
from fuzz.analysis_targets import ANALYSIS_TARGETS
from fuzz.broker_targets import BROKER_TARGETS
from fuzz.controller_targets import CONTROLLER_TARGETS
from fuzz.filter_targets import FILTER_TARGETS
from fuzz.held import HeldFile, HeldFiles
from fuzz.pop_targets import POP_TARGETS
from fuzz.remoting_targets import REMOTING_TARGETS
from fuzz.store_targets import STORE_TARGETS
from fuzz.target import Target
from fuzz.timer_targets import TIMER_TARGETS
from fuzz.transaction_targets import TRANSACTION_TARGETS
from raft import clientwire, frame, groups, hello, wire
from raft.config import Read
from raft.errors import MalformedMessage, StorageError
from raft.membership import Member, Membership
from raft.messages import (
    Append,
    AppendReply,
    HardState,
    PeerMessage,
    ReadReply,
    ReadRequest,
    SnapshotChunk,
    SnapshotMeta,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from raft.snapshotmeta import decode_meta, encode_meta
from raft.status import RefusalKind
from raft.storage import blocks, catalog, identity, recovery, snapshots

LIMIT: Final = 1 << 16
OWNER: Final = 0x0102030405060708


# --- values to start from ------------------------------------------------------------------------------------

_FRAME: Final = frame.build(kind=1, group=1, term=2, first=5, payloads=[b"abc", b"", b"de"], wall_ms=9, chain=3)
_NOOP: Final = frame.build(kind=2, group=1, term=3, first=8, payloads=[b"x"], wall_ms=9, chain=_FRAME.mark)
_MEMBERS: Final = {"n0": Member("h:1", b"i" * 16, 3), "n3": Member("h:2")}
_MEMBERSHIP: Final = Membership(("n0", "n1"), ("n2",), ("n3",), _MEMBERS)
_META: Final = SnapshotMeta(7, 2, 5, _MEMBERSHIP, 3, 100, 6, 1_700_000_000_000)
_MESSAGES: Final[list[PeerMessage]] = [
    Append(1, 3, 4, 5, 4, 1, 4, 0, [_FRAME, _NOOP]), Append(1, 3, 4, 6, 8, 3, 8, 1),
    AppendReply(1, 3, 4, 5, 406, 1, 9, 4, 2, 1), Vote(1, 3, 1, 9, 2, True, True), VoteReply(1, 3, 1, 1, True),
    TimeoutNow(1, 3, 9, 2), SnapshotChunk(1, 3, 4, 7, encode_meta(_META), 90, b"0123456789"),
    SnapshotReply(1, 3, 4, 7, 200, 7, 100, True), ReadRequest(1, 3, 77), ReadReply(1, 3, 77, 200, 9),
]


_HELLO: Final[list[object]] = ["c", "n1", b"i" * 16, 9, "strict", "h:1", "n2"]
_IDENTITY: Final = {"format": 1, "cluster": "c", "node": "n1", "incarnation": b"i" * 16}
_ORIGIN: Final = ["default", _MEMBERSHIP.encode()]
_FIELDS: Final[list[object]] = [
    {"a": [1, None]}, ["n1", "h:1"], ["BUSY", ""], ["TRANSFERRING", "x"], [1, 2, "why"], ["why"], [None, None],
]


def _shape(data: bytes, encoded: bytes) -> bytes:
    """As it is behind a 0; else ``encoded`` with nodes changed."""
    return sealing.shaped(data[1:], cbor2.loads(encoded)) if data[:1] >= b"\x01" else data[1:]


def _both(*raws: bytes) -> list[bytes]:
    """Each as it is, and with its checksums made right."""
    return [bytes([mode]) + raw for raw in raws for mode in (0, 1)]


# --- frames and peer messages --------------------------------------------------------------------------------


def check_frame(data: bytes) -> None:
    raw = sealing.frames(data[1:]) if data[:1] >= b"\x01" else data[1:]
    found, end = list[frame.Frame](), 0
    try:
        while end < len(raw):
            found.append(frame.parse(raw, end))
            end += len(found[-1].data)
    except MalformedMessage:
        return
    assert b"".join(one.data for one in found) == raw
    for one in found:
        again = frame.build(
            kind=one.kind, group=one.group, term=one.term, first=one.first, payloads=one.payloads(),
            wall_ms=one.wall_ms, chain=one.chain,
        )
        assert (again.data, again.mark) == (one.data, one.mark)
        assert frame.peek_size(one.data[: frame.HEADER_BYTES]) == one.size


def check_wire(data: bytes) -> None:
    raw = sealing.messages(data[1:]) if data[:1] >= b"\x01" else data[1:]
    decoder = wire.Decoder(LIMIT)
    try:
        found = decoder.feed(raw)
    except MalformedMessage:
        return
    taken = b"".join(b"".join(wire.encode(message)) for message in found)
    assert raw.startswith(taken) and decoder.unfinished_bytes == len(raw) - len(taken)
    cut = len(raw) * data[0] >> 8 if data else 0
    pieces = wire.Decoder(LIMIT)
    again = pieces.feed(raw[:cut]) + pieces.feed(memoryview(raw)[cut:])
    assert b"".join(b"".join(wire.encode(message)) for message in again) == taken


def check_greeting(data: bytes) -> None:
    raw = data[1:]
    if data[:1] >= b"\x80":
        raw = sealing.greeting(raw[: hello.HEADER_BYTES] + sealing.shaped(raw[hello.HEADER_BYTES :], _HELLO))
    elif data[:1] >= b"\x01":
        raw = sealing.greeting(raw)
    try:
        found = hello.decode_greeting(raw)
    except MalformedMessage:
        return
    if found is None:
        assert len(raw) < hello.GREETING_BYTES_MAX
        return
    greeting, size = found
    assert 0 < size <= min(len(raw), hello.GREETING_BYTES_MAX)
    assert hello.decode_greeting(raw[:size]) == found
    # A refusal's text is cut to its limit, so only the second round must be exact.
    for _ in range(2):
        sent = hello.encode_greeting(greeting)
        again = hello.decode_greeting(sent)
        assert again is not None and again[1] == len(sent)
        assert again[0] == greeting or isinstance(greeting, hello.HelloRefusal)
        greeting = again[0]


def check_membership(data: bytes) -> None:
    try:
        found = Membership.decode(_shape(data, _MEMBERSHIP.encode()))
    except MalformedMessage:
        return
    assert Membership.decode(found.encode()) == found
    for name in found.everyone:
        assert type(name) is str and name
    found.agree(found.voters)


def check_snapshot_meta(data: bytes) -> None:
    raw = _shape(data, encode_meta(_META))
    try:
        found = decode_meta(raw)
    except MalformedMessage:
        return
    assert encode_meta(found) == raw


# --- the client's protocol -----------------------------------------------------------------------------------


def check_client_request(data: bytes) -> None:
    if data[:1] >= b"\x80":  # a RECONFIGURE in a block of its own
        plan = cbor2.loads(_requests()[5][4 + 24 :])
        block = struct.pack("<QQBBHI", 1, 1, 7, data[0] % 5, 0, 5) + sealing.shaped(data[1:], plan)
        data = struct.pack("<I", len(block)) + block
    assembly = clientwire.Blocks(LIMIT)
    cut = data[0] % (len(data) + 1) if data else 0
    try:
        whole = clientwire.Blocks(LIMIT).feed(data)
    except MalformedMessage:
        whole = []
    try:
        pieces = assembly.feed(data[:cut]) + assembly.feed(data[cut:])
    except MalformedMessage:
        pieces = []
    assert whole == pieces
    for block in whole or [data]:
        try:
            found = clientwire.decode_request(block, 100)
        except MalformedMessage:
            continue
        (sent,) = clientwire.Blocks(LIMIT).feed(clientwire.encode_request(found))
        assert clientwire.decode_request(sent, 100) == found


def check_client_answer(data: bytes) -> None:
    if data[:1] >= b"\x80":
        fields = _FIELDS[data[0] % len(_FIELDS)]
        data = struct.pack("<QBBH", 1, data[0] % 8, 0, 0) + sealing.shaped(data[1:], fields)
    try:
        found = clientwire.decode_answer(data)
    except MalformedMessage:
        return
    if found.result is not clientwire.ResultCode.OK:
        error = clientwire.to_error(found)
        assert str(error) is not None
        return
    (sent,) = clientwire.Blocks(clientwire.ANSWER_BYTES_MAX).feed(clientwire.encode_answer(found))
    clientwire.decode_answer(sent)


# --- what is on disk -----------------------------------------------------------------------------------------


def check_records(data: bytes) -> None:
    """The bodies of local records, each by itself."""
    raw = data[1:]
    for decode, encode in _BODIES[: 1 + (data[0] if data else 0) % len(_BODIES)][-1:]:
        try:
            found = decode(raw)
        except MalformedMessage:
            return
        assert decode(encode(found)) == found


def _check_local(raw: bytes) -> tuple[blocks.LocalKind, int, bytes]:
    kind, group, body, _ = blocks.parse_local(raw, 0, len(raw))
    return kind, group, body


_BODIES: Final[list[tuple[Callable[[bytes], object], Callable[..., bytes]]]] = [
    (blocks.decode_hard_state, blocks.encode_hard_state),
    (blocks.decode_position, blocks.encode_position),
    (blocks.decode_state, blocks.encode_state),
    (_check_local, lambda found: blocks.encode_local(*found)[0]),
]


def check_segment(data: bytes) -> None:
    """A segment as recovery finds it: damaged anyhow, or whole blocks with any records in any order."""
    raw = sealing.segment(data[1:], OWNER, 1) if data[:1] >= b"\x01" else data[1:]
    try:
        recovery.recover(HeldFiles({recovery.segment_path(1): raw}), OWNER)
    except StorageError:
        return


def check_sealed_segments(data: bytes) -> None:
    """Two segments, the first with a footer, as recovery finds them."""
    cut = min(int.from_bytes(data[1:3], "little"), len(data))
    footer, rest = data[3:cut], data[max(cut, 3) :]
    if data[:1] >= b"\x80":
        # A footer that fits its segment, so that what it says is looked at.
        found = blocks.check_block(sealing.segment(rest, OWNER, 1), 0)
        assert not isinstance(found, str)
        footer = cbor2.dumps([1, 1, found.crc, 64, [[1, None, 1, [1, 1, 1], footer[:8], footer[8:16], [[1, 1]], []]]])
    held = {
        recovery.segment_path(1): sealing.sealed_segment(rest, OWNER, 1, footer),
        recovery.segment_path(2): _FOLLOWING,
    }
    try:
        recovery.recover(HeldFiles(held), OWNER, trust_footers=data[:1] < b"\xf0")
    except StorageError:
        return


_FOLLOWING: Final = blocks.encode_block(
    first=True, owner=OWNER, segment=2, sequence=2, synced=1, life=1, length=0, marks=[], chain=0
)[0]


def check_footer(data: bytes) -> None:
    try:
        found = catalog.decode_footer(_shape(data, _footer()))
    except MalformedMessage:
        return
    segment = catalog.Segment(1, "", 1 << 20, found.first_write, {})
    segment.spans, segment.end = found.spans, found.end
    catalog.decode_footer(catalog.encode_footer(segment, found.last_write, found.last_crc))


def check_snapshot_file(data: bytes) -> None:
    file = HeldFile(sealing.snapshot(data[1:]) if data[:1] >= b"\x01" else data[1:])
    try:
        found = snapshots.read_stored(file, "a.snap")
        for _ in snapshots.verify(file, found):
            pass
    except StorageError:
        return
    assert found.meta.size <= file.size()


_ORIGIN_MAGIC: Final = b"QRg1"
_ORIGIN_PATH: Final = "group-0000000000000001"


def check_small_files(data: bytes) -> None:
    """The files ``identity`` and ``group-…`` of a directory."""
    mode, raw = data[:1], data[1:]
    if mode >= b"\x80":
        raw = sealing.shaped(raw, _IDENTITY if mode >= b"\xc0" else _ORIGIN)
    first = sealing.file_with_crc(b"QRi1", raw) if mode >= b"\x01" else raw
    try:
        found = identity.read_identity(HeldFiles({identity.NAME: first}))
    except StorageError:
        found = None
    if found is not None:
        assert type(found.cluster) is str and type(found.node_id) is str and len(found.incarnation) == 16
    second = sealing.file_with_crc(_ORIGIN_MAGIC, raw) if mode >= b"\x01" else raw
    try:
        origin = groups.read_origin(HeldFiles({_ORIGIN_PATH: second}), 1)
    except StorageError:
        return
    assert origin is not None and type(origin.name) is str


# --- seeds ---------------------------------------------------------------------------------------------------


def _local_bodies() -> list[bytes]:
    state = blocks.GroupState(HardState(4, "n1"), blocks.Position(3, 2, 1))
    bodies = [
        blocks.encode_hard_state(state.hard_state), blocks.encode_position(state.last), blocks.encode_state(state),
        blocks.encode_local(blocks.LocalKind.STATE, 1, blocks.encode_state(state))[0],
    ]
    return [bytes([number]) + body for number, body in enumerate(bodies)]


def _segments() -> list[bytes]:
    """For ``sealing.segment``: a block of one state, a block of a hard state and two frames."""
    state = blocks.encode_state(blocks.GroupState(HardState(2, "n1"), blocks.Position(4, 2, 3)))
    hard = blocks.encode_hard_state(HardState(3, None))
    first = bytes([16 + 3, len(state)]) + state
    second = bytes([16, len(hard)]) + hard
    for one in (_FRAME, _NOOP):
        second += bytes([128, one.size - frame.HEADER_BYTES]) + one.data
    blocks_in = b"".join(len(block).to_bytes(2, "little") + block for block in (first, second))
    return [b"\x01" + blocks_in, b"\x00" + sealing.segment(blocks_in, OWNER, 1)]


def _footer() -> bytes:
    spans = [[1, [0, 0, 0, 0], 1, [9, 2, 5], bytes(8), bytes(8), [[1, 2]], [[3, 64]]]]
    return cbor2.dumps([1, 1, 5, 64, spans])


def _requests() -> list[bytes]:
    op = clientwire.Op
    plan = clientwire.MembershipPlan({"n0": "h:1"}, {"n1": "h:2"}, {"n0": 1})
    requests = [
        clientwire.Request(1, op.PROPOSE, commands=[b"abc"]), clientwire.Request(2, op.QUERY, commands=[b"q"]),
        clientwire.Request(3, op.PROPOSE_MANY, commands=[b"a", b"", b"bc"], timeout_ms=9),
        clientwire.Request(4, op.STATUS, level=Read.LEASE), clientwire.Request(5, op.TRANSFER, target="n1"),
        clientwire.Request(6, op.RECONFIGURE, plan=plan),
    ]
    made = [clientwire.encode_request(request) for request in requests]
    return [*made, b"".join(made), *(one[4:] for one in made), b"\x80" + bytes(20)]


def _answers() -> list[bytes]:
    result = clientwire.ResultCode
    answers = [
        (result.OK, {"a": [1, None, b"x", 1.5]}), (result.NOT_LEADER, ["n1", "h:1"]), (result.REJECTED, ["BUSY", ""]),
        (result.UNKNOWN, [1, 2, "why"]), (result.FAULTED, ["why"]), (result.USAGE, ["why"]),
        (result.MALFORMED, ["why"]),
    ]
    made = [clientwire.encode_answer(clientwire.Answer(1, one, value))[4:] for one, value in answers]
    return [*made, *(bytes([128 + number]) + bytes(9) for number in range(8))]


def _greetings() -> list[bytes]:
    node = hello.Hello(
        cluster="c", node="n1", incarnation=b"i" * 16, lane=hello.Lane.BULK, boot=9, rules="strict", address="h:1",
        lease_ms=400, request_bytes_max=1 << 23,
    )
    client = hello.Hello(cluster="", node="", incarnation=b"", lane=hello.Lane.CLIENT)
    refusal = hello.HelloRefusal(RefusalKind.CLUSTER, "because")
    made = [hello.encode_greeting(one) for one in (node, client, refusal, hello.Ping())]
    return [*_both(*made), b"\xff" + made[0][: hello.HEADER_BYTES] + bytes(16)]


def _small_files() -> list[bytes]:
    return [*_both(cbor2.dumps(_IDENTITY), cbor2.dumps(_ORIGIN)), b"\x80", b"\xff"]


def _snapshot_files() -> list[bytes]:
    meta = encode_meta(attrs.evolve(_META, size=5, crc=0))
    raw = len(meta).to_bytes(2, "little") + (2).to_bytes(2, "little") + meta + b"state"
    return [b"\x01" + raw, b"\x00" + sealing.snapshot(raw)]


_SEGMENT_BYTES: Final = 512
"""Room for several blocks; longer ones say nothing new and take longer."""

TARGETS: Final[dict[str, Target]] = {
    "frame": Target(
        "frame.parse, peek_size", check_frame, lambda: _both(_FRAME.data, _FRAME.data + _NOOP.data)
    ),
    "wire": Target(
        "wire.Decoder", check_wire, lambda: _both(*(b"".join(wire.encode(message)) for message in _MESSAGES))
    ),
    "greeting": Target("hello.decode_greeting", check_greeting, _greetings),
    "membership": Target(
        "Membership.decode", check_membership, lambda: _both(_MEMBERSHIP.encode(), bytes(40))
    ),
    "snapshot-meta": Target(
        "snapshotmeta.decode_meta", check_snapshot_meta, lambda: _both(encode_meta(_META), bytes(20))
    ),
    "client-request": Target("clientwire.Blocks, decode_request", check_client_request, _requests),
    "client-answer": Target("clientwire.decode_answer, to_error", check_client_answer, _answers),
    "records": Target("storage.blocks: parse_local, decode_*", check_records, _local_bodies),
    "segment": Target(
        "storage.recovery.recover, check_block, read_block", check_segment, _segments, max_bytes=_SEGMENT_BYTES),
    "sealed-segments": Target(
        "storage.recovery.recover with footers, check_trailer", check_sealed_segments,
        lambda: [mode + (3 + len(_footer())).to_bytes(2, "little") + _footer() + _segments()[0][1:]
                 for mode in (b"\x01", b"\x80", b"\xff")],
        max_bytes=_SEGMENT_BYTES,
    ),
    "footer": Target("storage.catalog.decode_footer", check_footer, lambda: _both(_footer(), bytes(40))),
    "snapshot-file": Target("storage.snapshots: read_stored, verify", check_snapshot_file, _snapshot_files),
    "small-files": Target("storage.identity.read_identity, groups.read_origin", check_small_files, _small_files),
    **REMOTING_TARGETS,
    **CONTROLLER_TARGETS,
    **STORE_TARGETS,
    **TIMER_TARGETS,
    **TRANSACTION_TARGETS,
    **POP_TARGETS,
    **BROKER_TARGETS,
    **FILTER_TARGETS,
    **ANALYSIS_TARGETS,
}
