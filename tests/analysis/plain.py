"""A log read plainly: frame by frame with struct, no Spark, no reader of ours. What answers are held against."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import attrs
import cbor2


@attrs.frozen
class Plain:
    """One frame as it lies in a file."""

    node: str
    file: str
    offset: int
    kind: int
    term: int
    first: int
    payloads: tuple[bytes, ...]
    wall_ms: int
    chain: int
    mark: int
    size: int

    @property
    def last(self) -> int:
        return self.first + len(self.payloads) - 1


def frames(node_directory: Path) -> Iterator[Plain]:
    """Every frame of a sound log, in the order of writing."""
    identity = cbor2.loads((node_directory / "identity").read_bytes()[8:])
    due = None
    for path in sorted((node_directory / "log").glob("*.seg")):
        data, at = path.read_bytes(), 0
        while data[at : at + 4] == b"QRb1":
            (sequence,) = struct.unpack_from("<Q", data, at + 24)
            if due is not None and sequence != due:
                break  # left over from an earlier use of the file
            due = sequence + 1
            end = at + 64 + struct.unpack_from("<I", data, at + 44)[0]
            at += 64
            while at < end:
                if data[at : at + 4] == b"QRl1":
                    at += 32 + struct.unpack_from("<I", data, at + 16)[0]
                    continue
                kind = data[at + 4]
                term, first, count, body, wall_ms = struct.unpack_from("<QQIIQ", data, at + 16)
                chain, _, mark = struct.unpack_from("<III", data, at + 52)
                lengths = struct.unpack_from(f"<{count}I", data, at + 64)
                payloads, start = [], at + 64 + 4 * count
                for length in lengths:
                    payloads.append(data[start : start + length])
                    start += length
                yield Plain(identity["node"], str(path), at, kind, term, first, tuple(payloads), wall_ms, chain, mark,
                            64 + body)
                at += 64 + body
