"""Bytes of a Java DLedger store, big-endian, and columns out of them. No I/O.

Data files have a name of 20 digits, the byte offset of the log at which they begin, and one size. An entry:

    0   i32 magic: 1 normal, 2 no-op, 3 config change, -1 filler to the end of the file
    4   i32 bytes of the entry, 48 + body (of a filler: what is left of the file)
    8   i64 index, from 0            32  i32 channel
    16  i64 term, from 0             36  i32 chain CRC, always 0
    24  i64 position in the          40  i32 body CRC, always 0
        leader's log                 44  i32 bytes of body

Index files hold 32 bytes for each entry at 32 times its index: i32 magic, i64 position, i32 size, i64 index, i64 term.
No checksum is ever written, so a flipped bit in a body cannot be seen; one in a header mostly can.
Source: ``DLedgerEntry``, ``DLedgerEntryCoder``, ``DLedgerIndexEntry`` and ``DLedgerMmapFileStore`` of DLedger 0.3.2.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

ENTRY_BYTES: Final = 48
INDEX_BYTES: Final = 32
FILLER: Final = -1
MAGIC_MAX: Final = 3
ENTRY: Final = np.dtype([
    ("magic", ">i4"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8"), ("position", ">i8"), ("channel", ">i4"),
    ("chain", ">i4"), ("body_crc", ">i4"), ("body", ">i4"),
])
INDEX: Final = np.dtype([("magic", ">i4"), ("position", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")])
assert ENTRY.itemsize == ENTRY_BYTES and INDEX.itemsize == INDEX_BYTES
_START: Final = struct.Struct(">iiqq20xi")


def header(data: bytes, at: int) -> tuple[int, int, int, int] | None:
    """(magic, size, index, term) of the record at ``at``, filler among them; None if no good record begins there."""
    if at + 8 <= len(data):
        magic, size = struct.unpack_from(">ii", data, at)
        if magic == FILLER and size >= 8:
            return magic, size, -1, -1
    if at + ENTRY_BYTES > len(data):
        return None
    magic, size, index, term, body = _START.unpack_from(data, at)
    if 1 <= magic <= MAGIC_MAX and body >= 0 and size == ENTRY_BYTES + body and index >= 0 and term >= 0:
        return magic, size, index, term
    return None


def gather(data: bytes, at: np.ndarray) -> np.ndarray:
    """The headers at these places, of which each has 48 bytes behind it."""
    whole = np.frombuffer(data, np.uint8)
    rows: np.ndarray = whole[at[:, None] + np.arange(ENTRY_BYTES)].reshape(-1).view(ENTRY)
    return rows


def good(heads: np.ndarray) -> np.ndarray:
    """Which of these headers an entry can have."""
    mask: np.ndarray = (
        (heads["magic"] >= 1) & (heads["magic"] <= MAGIC_MAX) & (heads["body"] >= 0)
        & (heads["size"] == heads["body"].astype(np.int64) + ENTRY_BYTES) & (heads["index"] >= 0) & (heads["term"] >= 0)
    )
    return mask


def chase(data: bytes, at: int, limit: int) -> tuple[np.ndarray, int]:
    """Follow sizes from ``at`` without an index, one step of Python for each entry.

    Returns the places of entries that end at or below ``limit``, and the place where it stopped.
    """
    found = []
    while at < limit:
        record = header(data, at)
        if record is None or at + record[1] > limit or record[0] == FILLER:
            break
        found.append(at)
        at += record[1]
    return np.array(found, np.int64), at


def parse_properties(data: bytes) -> dict[str, str]:
    """A Java properties file, as far as DLedger writes one: ``key=value`` lines and comments."""
    out = {}
    for line in data.decode("latin-1").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            key, _, value = text.partition("=")
            out[key.strip()] = value.strip()
    return out
