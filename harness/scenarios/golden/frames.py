"""Golden frames: a few of each kind of recorded frame, written as test data.

Headers are decoded here in a simple way, not by ``remoting``, since these frames test ``remoting``. It starts no
process; ``harness.scenarios.golden.scenes`` does.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from attrs import evolve, frozen

from harness.scenarios.golden.record import Recorded
from remoting.codes import RequestCode

Encoding = Literal["json", "rocketmq"]

KINDS_MAX: Final = 8
"""Exchanges kept of one request code in one encoding, each of another shape."""
FRAME_KEPT_BYTES_MAX: Final = 24 << 10
RESPONSE: Final = 1
ONEWAY: Final = 2
KEPT: Final = frozenset({
    *range(100, 107), 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 901, *range(904, 908),
    *range(1001, 1014),
})
"""Codes that name servers and controllers serve or send, or that their admin tools send to brokers."""


@frozen
class Peeked:
    """The parts of a header that sort frames. ``ext`` has the names of fields, of booleans with the value."""

    code: int
    opaque: int
    flag: int
    encoding: Encoding
    ext: frozenset[str]
    has_body: bool


def peek(frame: bytes) -> Peeked:
    """Decode as much of a frame as sorting needs.

    Raises:
        ValueError: it is no RocketMQ frame.
    """
    if len(frame) < 8:
        raise ValueError(f"a frame of {len(frame)} bytes")
    word = int.from_bytes(frame[4:8], "big")
    kind, size = word >> 24, word & 0xFFFFFF
    header, has_body = frame[8:8 + size], len(frame) > 8 + size
    if kind == 0:
        read: dict[str, Any] = json.loads(header)
        ext = _names((read.get("extFields") or {}).items())
        return Peeked(read["code"], read["opaque"], read["flag"], "json", ext, has_body)
    if kind != 1:
        raise ValueError(f"serialize type {kind}")
    code, _, _, opaque, flag, remark = struct.unpack_from(">hbhiii", header)
    return Peeked(code, opaque, flag, "rocketmq", _names(_pairs(header[21 + remark:])), has_body)


def _pairs(ext: bytes) -> Iterator[tuple[str, str]]:
    """Fields and values of a binary header, from after the four bytes that give their length."""
    at = 0
    while at < len(ext):
        pair = []
        for width in (2, 4):
            length = int.from_bytes(ext[at:at + width], "big")
            pair.append(ext[at + width:at + width + length].decode())
            at += width + length
        yield pair[0], pair[1]


def _names(fields: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(f"{name}={value}" if value in ("true", "false") else name for name, value in fields)


@frozen
class Exchange:
    """A request and its response, if it had one."""

    request: bytes
    response: bytes | None

    @property
    def code(self) -> int:
        return peek(self.request).code

    @property
    def shape(self) -> tuple[object, ...]:
        """The shape of an exchange: exchanges of one shape test the same code of a codec."""
        parts: list[object] = []
        for frame in (self.request, self.response):
            if frame is not None:
                seen = peek(frame)
                parts += [seen.encoding, seen.ext, seen.has_body, seen.flag]
        if self.response is not None:
            parts.append(peek(self.response).code)
        return tuple(parts)


def exchanges(recorded: Iterable[Recorded]) -> list[Exchange]:
    """Pair requests with their responses, by connection and opaque, in the order of requests."""
    waiting: dict[tuple[int, str, int], int] = {}
    found: list[Exchange] = []
    for one in recorded:
        seen = peek(one.frame)
        if seen.flag & RESPONSE:
            other = "to_server" if one.direction == "to_client" else "to_client"
            asked = waiting.pop((one.connection, other, seen.opaque), None)
            if asked is not None:
                found[asked] = evolve(found[asked], response=one.frame)
        else:
            if not seen.flag & ONEWAY:
                waiting[one.connection, one.direction, seen.opaque] = len(found)
            found.append(Exchange(one.frame, None))
    return [one for one in found if one.response is not None or peek(one.request).flag & ONEWAY]


def pick(found: Iterable[Exchange]) -> dict[RequestCode, list[Exchange]]:
    """Choose the first exchange of each shape, for each code in ``KEPT``."""
    kept: dict[RequestCode, dict[tuple[object, ...], Exchange]] = {}
    for one in found:
        if one.code not in KEPT or max(len(one.request), len(one.response or b"")) > FRAME_KEPT_BYTES_MAX:
            continue
        shapes = kept.setdefault(RequestCode(one.code), {})
        encoding = peek(one.request).encoding
        if one.shape not in shapes and sum(shape[0] == encoding for shape in shapes) < KINDS_MAX:
            shapes[one.shape] = one
    return {code: list(shapes.values()) for code, shapes in sorted(kept.items())}


def golden_lines(code: RequestCode, kept: Sequence[Exchange], version: str) -> str:
    """The content of one golden file: a line for each frame, a response right after its request."""
    lines = []
    for one in kept:
        for direction, frame in (("request", one.request), ("response", one.response)):
            if frame is not None:
                lines.append(json.dumps({
                    "code": int(code), "name": code.name, "direction": direction, "version": version,
                    "frame": frame.hex(),
                }) + "\n")
    return "".join(lines)


def file_name(code: RequestCode) -> str:
    return f"{int(code)}-{code.name.lower().replace('_', '-')}.ndjson"


def write(kept: dict[RequestCode, list[Exchange]], folder: Path, version: str) -> None:
    """Write a file for each request code in ``folder/version``; files of other codes stay."""
    (folder / version).mkdir(parents=True, exist_ok=True)
    for code, some in kept.items():
        (folder / version / file_name(code)).write_text(golden_lines(code, some, version))
