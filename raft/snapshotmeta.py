"""The description of a snapshot as bytes: on the wire in every chunk, on disk beside the state.

It is a canonical CBOR list: only bytes that ``encode_meta`` would write are accepted, so two copies of one meta have
equal bytes. Layout: [1 (format), index, term, mark, membership (bytes), membership_index, size, crc, wall_ms].
This module does no I/O and does not know where a snapshot's state lives.
"""

from __future__ import annotations

from typing import Final

import cbor2

from raft.errors import MalformedMessage
from raft.membership import Membership
from raft.messages import SnapshotMeta

META_BYTES_MAX: Final = 64 << 10
"""Largest meta in bytes: more than a membership of five hundred nodes needs."""
_FORMAT: Final = 1
_BITS: Final = (63, 63, 32, 63, 63, 32, 64)
"""Widths in bits of index, term, mark, membership_index, size, crc, wall_ms."""


def encode_meta(meta: SnapshotMeta) -> bytes:
    """Return the bytes of ``meta``; the same meta always gives the same bytes."""
    return cbor2.dumps([
        _FORMAT, meta.index, meta.term, meta.mark, meta.membership.encode(), meta.membership_index, meta.size, meta.crc,
        meta.wall_ms,
    ])


def decode_meta(data: bytes) -> SnapshotMeta:
    """Decode a meta. Raises ``MalformedMessage`` unless it is canonical, with index and term of 1 or more."""
    if len(data) > META_BYTES_MAX:
        raise MalformedMessage(f"a snapshot meta of {len(data)} bytes; at most {META_BYTES_MAX} are read")
    try:
        version, index, term, mark, membership, membership_index, size, crc, wall_ms = cbor2.loads(data)
        if version != _FORMAT:
            raise ValueError(f"format {str(version)[:40]}, this build reads {_FORMAT}")
        for value, bits in zip((index, term, mark, membership_index, size, crc, wall_ms), _BITS, strict=True):
            if type(value) is not int or value < 0 or value >> bits:
                raise ValueError(f"{str(value)[:40]} where a number below 2**{bits} is due")
        if not index or not term or membership_index > index or type(membership) is not bytes:
            raise ValueError(f"{index=} {term=} {membership_index=}")
        meta = SnapshotMeta(index, term, mark, Membership.decode(membership), membership_index, size, crc, wall_ms)
        if encode_meta(meta) != data:
            raise ValueError("not in canonical form")
    except (ValueError, TypeError, cbor2.CBORError, RecursionError, OverflowError, MemoryError) as error:
        raise MalformedMessage(f"not a snapshot meta: {error}") from error
    return meta
