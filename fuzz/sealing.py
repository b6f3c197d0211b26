"""Makes bytes pass the checks that guessing cannot: magics, lengths and CRCs. What they say is left as it is.

A fuzzer that must guess a CRC-32C tests the CRC and nothing behind it. Each function takes whatever bytes and
returns bytes of the same format whose checksums are right, with fields still chosen by the fuzzer.
Knows the layouts; nothing of what a decoder should answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cbor2
from google_crc32c import value as crc32c

from raft import frame, hello, wire
from raft.storage import blocks

_U32 = struct.Struct("<I")


def _crc(data: bytes | bytearray) -> bytes:
    return _U32.pack(crc32c(bytes(data)))


def frames(data: bytes) -> bytes:
    """Frames with true lengths and CRCs, as many as ``data`` has room for; a rest too short for one stays as it is."""
    out, at = bytearray(), 0
    while len(data) - at >= frame.HEADER_BYTES:
        head = bytearray(data[at : at + frame.HEADER_BYTES])
        at += frame.HEADER_BYTES
        count = head[32] % 8
        body = bytearray(data[at : at + head[36] + 4 * count])
        at += len(body)
        if head[5] & 1 == 0 and count and len(body) >= 4 * count:
            room = len(body) - 4 * count
            for number in range(count):
                length = min(body[4 * number], room) if number < count - 1 else room
                body[4 * number : 4 * number + 4] = _U32.pack(length)
                room -= length
        head[:4], head[5:8] = frame.MAGIC, bytes([head[5] >> 7]) + b"\x01\x00"
        head[4] = head[4] % 6
        struct.pack_into("<II", head, 32, count, len(body))
        head[48:52] = _crc(body)
        if head[56] < 250:
            head[56:60] = bytes(4)
        head[60:64] = _crc(head[:60])
        out += head + body
    return bytes(out + data[at:])


def messages(data: bytes) -> bytes:
    """Peer messages with true header CRCs; payloads of appends are sealed frames."""
    out, at = bytearray(), 0
    while len(data) - at >= wire.HEADER_BYTES:
        head = bytearray(data[at : at + wire.HEADER_BYTES])
        at += wire.HEADER_BYTES
        head[0], head[1], head[2] = wire.MAGIC, wire.VERSION, head[2] % 11
        payload = data[at : at + int.from_bytes(head[80:82], "little")]
        at += len(payload)
        if head[2] == 1:
            payload = frames(payload)
        head[80:84] = _U32.pack(len(payload))
        head[84:88] = _crc(head[:84])
        out += head + payload
    return bytes(out + data[at:])


def greeting(data: bytes) -> bytes:
    """A greeting with its magic, a true length and CRC."""
    head, payload = bytearray(data[: hello.HEADER_BYTES].ljust(hello.HEADER_BYTES, b"\0")), data[hello.HEADER_BYTES :]
    head[:4], head[4] = hello.MAGIC, head[4] % 5
    head[16:20] = _U32.pack(len(payload))
    head[20:24] = _crc(head[:20] + payload)
    return bytes(head) + payload


def file_with_crc(magic: bytes, data: bytes) -> bytes:
    """A small file: magic, CRC, CBOR."""
    return magic + _crc(data) + data


_ODD: Final[tuple[object, ...]] = (
    0, 1, -1, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63), 1.5, float("nan"),
    None, True, False, "", "n0", "x" * 300, b"", b"x", bytes(8), bytes(16), [], [1, 2, 3], {}, {"a": 1}, {1: "a"}, [[]],
    cbor2.CBORTag(1, 5), cbor2.CBORTag(4, [1, 2]), cbor2.undefined, cbor2.CBORSimpleValue(99),
)


def shaped(data: bytes, template: object) -> bytes:
    """CBOR much like ``template``: one byte of ``data`` per node keeps it, replaces, repeats or drops it.

    The CBOR reader is compiled code that the fuzzer cannot see into; this leads it to what stands behind.
    """
    return cbor2.dumps(_reshape(iter(data), template))


def _reshape(choices: Iterator[int], value: object) -> object:
    choice = next(choices, 0)
    if choice >= 224:
        return _ODD[choice % len(_ODD)]
    if isinstance(value, int) and not isinstance(value, bool) and choice >= 160:
        return value + choice - 192
    if isinstance(value, list):
        made = []
        for each in value:
            fate = next(choices, 0)
            made += [_reshape(choices, each)] * (1 if fate < 224 else fate % 3)
        return made
    if isinstance(value, dict):
        return {_hashable(_reshape(choices, key)): _reshape(choices, each) for key, each in value.items()}
    return value


def _hashable(key: object) -> object:
    return key if isinstance(key, str | bytes | int | float | None) else str(key)


def records(data: bytes) -> tuple[bytes, list[int]]:
    """Records of a block, local ones and frames, with their marks. First byte of each: kind; second: length."""
    out, marks, at = bytearray(), [], 0
    while at + 2 <= len(data):
        kind, length = data[at], data[at + 1]
        at += 2
        if kind >= 128:
            made = frames(data[at : at + frame.HEADER_BYTES + length])
            at += frame.HEADER_BYTES + length
            if len(made) < frame.HEADER_BYTES:
                break
            marks.append(crc32c(made[: frame.HEADER_BYTES]))
        else:
            body = data[at : at + length]
            at += length
            made, mark = blocks.encode_local(blocks.LocalKind(1 + kind % 4), kind >> 4, body)
            marks.append(mark)
        out += made
    return bytes(out), marks


def segment(data: bytes, owner: int, sequence: int) -> bytes:
    """A segment of blocks that follow each other; two bytes before each give its length."""
    out, at, chain, write = bytearray(), 0, 0, 1
    while at + 2 <= len(data) or not out:
        length = int.from_bytes(data[at : at + 2], "little")
        body, marks = records(data[at + 2 : at + 2 + length])
        head, chain = blocks.encode_block(
            first=not out, owner=owner, segment=sequence, sequence=write, synced=write - 1, life=1,
            length=len(body), marks=marks, chain=chain,
        )
        out += head + body
        at += 2 + length
        write += 1
    return bytes(out)


def sealed_segment(data: bytes, owner: int, sequence: int, footer: bytes) -> bytes:
    """A segment that ends with this footer and its trailer."""
    body = segment(data, owner, sequence)
    return body + footer + blocks.encode_trailer(owner, sequence, len(body), footer)


def snapshot(data: bytes) -> bytes:
    """A snapshot file: two bytes give the meta's length, two the chunk size, the rest is the state."""
    if len(data) < 4:
        return data
    meta_bytes, chunk_bytes = struct.unpack_from("<HH", data)
    meta, state = data[4 : 4 + meta_bytes], data[4 + meta_bytes :]
    head = struct.pack("<4sHHQIII", b"QRs1", 1, 0, 7, chunk_bytes, len(meta), crc32c(meta))
    out = bytearray(head + _crc(head) + meta)
    step = max(chunk_bytes, 1)
    pieces = [state[at : at + step] for at in range(0, len(state), step)]
    for number, piece in enumerate(pieces):
        out += struct.pack("<QII", number * step, len(piece), crc32c(piece)) + piece
    end = struct.pack("<4sIQQI", b"QRe1", crc32c(state), len(state), len(pieces), 0)
    return bytes(out + end) + _crc(end)
