"""Turns peer messages into bytes and back, and checks limits of bytes from outside. No I/O.

Every message starts with a header of 88 bytes, little-endian, whatever its type; ``docs/reference/wire-format.md`` has
the table. The payload is raw: an Append's frames exactly as the leader built them, a chunk's meta and state.
A decoded message is well formed: known type and codes, and frames that are whole, undamaged, of the message's group and
consecutive. The replica decides whether it makes sense in the present term.

``encode`` never copies a frame. ``Decoder`` copies each payload once, checks a length before it keeps a byte of
what follows, and raises only ``MalformedMessage``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from google_crc32c import value as crc32c

from raft.errors import MalformedMessage, UsageError
from raft.frame import Frame, parse
from raft.messages import (
    Append,
    AppendReply,
    Code,
    PeerMessage,
    ReadReply,
    ReadRequest,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    Vote,
    VoteReply,
    VoteResult,
)
from raft.snapshotmeta import decode_meta

MAGIC: Final = 0xA7
"""First byte of everything this library sends: no RocketMQ length (0x00, 0x01) and no TLS record (0x16) starts so."""
VERSION: Final = 1
HEADER_BYTES: Final = 88
PAYLOAD_BYTES_MAX: Final = (1 << 31) - 1

# Terms, indices and counters have 63 bits, so that a peer cannot raise ours beyond what we can send or store.
_HEADER: Final = struct.Struct("<BBBBIQqQQqqqqqI")
_CRC: Final = struct.Struct("<I")
_WHOLE: Final = struct.Struct("<BBBBIQqQQqqqqqII")
_CHECKED: Final = HEADER_BYTES - _CRC.size
assert _HEADER.size + _CRC.size == _WHOLE.size == HEADER_BYTES

_APPEND, _APPEND_REPLY, _VOTE, _VOTE_REPLY, _TIMEOUT_NOW, _CHUNK, _CHUNK_REPLY, _READ, _READ_REPLY = range(1, 10)
_PROBE: Final = 1
_TRANSFER: Final = 2
_DONE: Final = 1
_CODES: Final = frozenset(map(int, Code))
_RESULTS: Final = frozenset(map(int, VoteResult))


# --- out -----------------------------------------------------------------------------------------------------


def _head(
    kind: int, flags: int, code: int, group: int, term: int, session: int, sequence: int,
    a: int, b: int = 0, c: int = 0, d: int = 0, e: int = 0, payload_bytes: int = 0,
) -> bytes:
    try:
        if term | a | b | c | d | e < 0:
            raise struct.error("a negative number")
        head = _HEADER.pack(
            MAGIC, VERSION, kind, flags, code, group, term, session, sequence, a, b, c, d, e, payload_bytes
        )
    except struct.error as error:
        raise UsageError(f"a field of the message does not fit its place: {error}") from error
    return head + _CRC.pack(crc32c(head))


def _append(m: Append) -> list[bytes]:
    out = [b""]
    size = 0
    for frame in m.frames:
        data = frame.data
        size += len(data)
        out.append(data)
    _check_payload(size)
    out[0] = _head(
        _APPEND, 0, 0, m.group, m.term, m.session, m.sequence,
        m.prev_index, m.prev_term, m.commit, m.read_round, 0, size,
    )
    return out


def _append_reply(m: AppendReply) -> list[bytes]:
    return [_head(
        _APPEND_REPLY, 0, m.code, m.group, m.term, m.session, m.sequence,
        m.match, m.last_index, m.hint_index, m.hint_term, m.read_round,
    )]


def _vote(m: Vote) -> list[bytes]:
    flags = (_PROBE if m.probe else 0) | (_TRANSFER if m.transfer else 0)
    return [_head(_VOTE, flags, 0, m.group, m.term, 0, 0, m.round, m.last_index, m.last_term)]


def _vote_reply(m: VoteReply) -> list[bytes]:
    return [_head(_VOTE_REPLY, _PROBE if m.probe else 0, m.result, m.group, m.term, 0, 0, m.round)]


def _timeout_now(m: TimeoutNow) -> list[bytes]:
    return [_head(_TIMEOUT_NOW, 0, 0, m.group, m.term, 0, 0, m.last_index, m.last_term)]


def _chunk(m: SnapshotChunk) -> list[bytes]:
    size = len(m.meta) + len(m.data)
    _check_payload(size)
    head = _head(_CHUNK, 0, 0, m.group, m.term, m.session, m.sequence, m.offset, len(m.meta), 0, 0, 0, size)
    return [head, m.meta, m.data]


def _chunk_reply(m: SnapshotReply) -> list[bytes]:
    flags = _DONE if m.done else 0
    return [_head(_CHUNK_REPLY, flags, m.code, m.group, m.term, m.session, m.sequence, m.index, m.offset)]


def _read(m: ReadRequest) -> list[bytes]:
    return [_head(_READ, 0, 0, m.group, m.term, 0, 0, m.ticket)]


def _read_reply(m: ReadReply) -> list[bytes]:
    return [_head(_READ_REPLY, 0, m.code, m.group, m.term, 0, 0, m.ticket, m.index)]


def _check_payload(size: int) -> None:
    if size > PAYLOAD_BYTES_MAX:
        raise UsageError(f"a payload of {size} bytes; a message carries at most {PAYLOAD_BYTES_MAX}")


_ENCODERS: Final[dict[type, Callable[[Any], list[bytes]]]] = {
    Append: _append, AppendReply: _append_reply, Vote: _vote, VoteReply: _vote_reply, TimeoutNow: _timeout_now,
    SnapshotChunk: _chunk, SnapshotReply: _chunk_reply, ReadRequest: _read, ReadReply: _read_reply,
}


def encode(message: PeerMessage) -> list[bytes]:
    """Return buffers to send one after the other: the header, then the payload's own objects, not copies of them.

    More than one buffer means frames or state, which belong to the bulk lane, as they must not delay small messages.

    Raises ``UsageError`` for a message that the format cannot carry (a number too wide, 2 GiB of payload).
    """
    return _ENCODERS[type(message)](message)


# --- in ------------------------------------------------------------------------------------------------------


def _rule(broken: str, *values: object) -> MalformedMessage:
    return MalformedMessage(f"message breaks a rule: {broken} {values}")


def _take_frames(payload: bytes, group: int, term: int, prev_index: int, prev_term: int) -> list[Frame]:
    frames = []
    offset, end, due = 0, len(payload), prev_index + 1
    while offset < end:
        frame = parse(payload, offset, end=end)
        if frame.first != due or frame.group != group or not prev_term <= frame.term <= term:
            raise _rule("frames follow each other", frame, group, term, due)
        frames.append(frame)
        offset += len(frame.data)
        due += frame.count
        prev_term = frame.term
    return frames


class Decoder:
    """Turns the bytes of one connection into peer messages. After it raised, the connection must be closed.

    Holds at most one unfinished message, which is at most ``payload_bytes_max`` + 88 bytes.
    """

    __slots__ = ("_buffer", "_due", "payload_bytes_max")

    _due: int
    """Bytes that the buffer must hold before the next step of decoding; has no meaning while the buffer is empty."""

    def __init__(self, payload_bytes_max: int) -> None:
        self.payload_bytes_max = payload_bytes_max
        self._buffer = bytearray()

    @property
    def unfinished_bytes(self) -> int:
        """Return the bytes kept of a message whose rest has not come."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[PeerMessage]:
        """Return every message that ``data`` completes, in order.

        Raises ``MalformedMessage``; messages before the bad one in ``data`` are then lost, as on a broken connection.
        """
        buffer = self._buffer
        if not buffer:
            view = memoryview(data)
            messages, taken = self._take(view)
            if taken < len(view):
                buffer += view[taken:]
            return messages
        buffer += data
        if len(buffer) < self._due:
            return []
        with memoryview(buffer) as view:
            messages, taken = self._take(view)
        del buffer[:taken]
        return messages

    def _take(self, view: memoryview) -> tuple[list[PeerMessage], int]:
        messages: list[PeerMessage] = []
        offset, end = 0, len(view)
        while offset + HEADER_BYTES <= end:
            fields = _WHOLE.unpack_from(view, offset)
            start = offset + HEADER_BYTES
            if fields[0] != MAGIC or fields[1] != VERSION:
                start_hex = bytes(view[offset : offset + 4]).hex()
                raise MalformedMessage(f"not a message of version {VERSION}: it starts with {start_hex}")
            if crc32c(bytes(view[offset : offset + _CHECKED])) != fields[15]:
                raise MalformedMessage("message header fails its CRC")
            size = fields[14]
            if size:
                if size > self.payload_bytes_max:
                    raise MalformedMessage(f"a payload of {size} bytes; at most {self.payload_bytes_max} are taken")
                stop = start + size
                if stop > end:
                    self._due = HEADER_BYTES + size
                    assert self._due > end - offset, "the rest has not come"
                    return messages, offset
                messages.append(_decode(fields, bytes(view[start:stop])))
                offset = stop
            else:
                messages.append(_decode(fields, b""))
                offset = start
        self._due = HEADER_BYTES
        return messages, offset


def _decode(fields: tuple[int, ...], payload: bytes) -> PeerMessage:
    _, _, kind, flags, code, group, term, session, sequence, a, b, c, d, e, size, _ = fields
    if term | a | b | c | d | e < 0:
        raise _rule("numbers of at most 63 bits", kind, term, a, b, c, d, e)
    if kind == _APPEND:
        if flags or code or e or not term or (a == 0) != (b == 0) or b > term:
            raise _rule("Append", flags, code, e, term, a, b)
        frames = _take_frames(payload, group, term, a, b) if size else []
        return Append(group, term, session, sequence, a, b, c, d, frames)
    if kind == _APPEND_REPLY:
        if flags or size or code not in _CODES:
            raise _rule("AppendReply", flags, size, code)
        return AppendReply(group, term, session, sequence, code, a, b, c, d, e)
    if kind == _CHUNK:
        return _decode_chunk(fields, payload)
    return _decode_rare(fields)


def _decode_chunk(fields: tuple[int, ...], payload: bytes) -> SnapshotChunk:
    _, _, _, flags, code, group, term, session, sequence, offset, meta_bytes, c, d, e, size, _ = fields
    if flags or code or c or d or e or not term or not 0 < meta_bytes <= size:
        raise _rule("SnapshotChunk", flags, code, c, d, e, term, meta_bytes, size)
    encoded = payload[:meta_bytes]
    meta = decode_meta(encoded)
    if offset + size - meta_bytes > meta.size:
        raise _rule("a chunk ends within its snapshot", offset, size - meta_bytes, meta.size)
    return SnapshotChunk(group, term, session, sequence, encoded, offset, payload[meta_bytes:])


def _decode_rare(fields: tuple[int, ...]) -> PeerMessage:
    """Decode a message without payload that is not on the hot path. A field without a meaning is 0."""
    _, _, kind, flags, code, group, term, session, sequence, a, b, c, d, e, size, _ = fields
    if size or d or e:
        raise _rule("no payload and no more fields in this type", kind, size, d, e)
    if kind == _CHUNK_REPLY:
        if flags & ~_DONE or c or code not in _CODES:
            raise _rule("SnapshotReply", flags, c, code)
        return SnapshotReply(group, term, session, sequence, code, a, b, flags == _DONE)
    if session or sequence:
        raise _rule("no session in this type", kind)
    if kind == _VOTE:
        if code or flags & ~(_PROBE | _TRANSFER):
            raise _rule("Vote", code, flags)
        return Vote(group, term, a, b, c, flags & _PROBE != 0, flags & _TRANSFER != 0)
    if c:
        raise _rule("no third field in this type", kind)
    if kind == _VOTE_REPLY:
        if b or flags & ~_PROBE or code not in _RESULTS:
            raise _rule("VoteReply", b, flags, code)
        return VoteReply(group, term, a, code, flags == _PROBE)
    if flags:
        raise _rule("no flags in this type", kind)
    if kind == _READ_REPLY:
        if code not in _CODES:
            raise _rule("ReadReply", code)
        return ReadReply(group, term, a, code, b)
    if code:
        raise _rule("no code in this type", kind)
    if kind == _TIMEOUT_NOW:
        return TimeoutNow(group, term, a, b)
    if kind == _READ and not b:
        return ReadRequest(group, term, a)
    raise _rule("a known type", kind)
