"""All groups as bytes and back, in blocks, so that neither side holds more than one block of bytes beside the groups.

    block     u32 big-endian length, then that many bytes of CBOR
    first     ["quorate-metadata", layout, command format in use, number of groups]
    others    up to 256 groups, fewer of many brokers: [cluster, name, next id, SyncStateSet, its epoch, master, master
              epoch, eligible, [[id, address, check code, learner], ...]], in the order of their keys, sets and
              replicas in that of ids; since format 2 a replica has a life, and behind the replicas stands whether the
              master's place is vacant

Where a block ends follows from the groups alone, and so that even brokers with the longest names fill none beyond what
is read.

What format N adds stands after that of format N - 1, as ``controller.metadata.codec`` says; ``_pack`` and ``_unpack``
are given the format in use, which the first block names.

The same groups always give the same bytes, so their hash is the state's hash. Removed groups are written too.
This module does no I/O; whoever stores a snapshot guards it against damage.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import cbor2

from controller.metadata.codec import DAMAGED, FORMAT, check_reads, pack_replicas, replicas_of
from controller.metadata.fields import flag, ids, integer, items, optional, text
from controller.metadata.groups import FIRST_BROKER_ID, BrokerGroup, GroupKey

LAYOUT: Final = 1
BLOCK_GROUPS: Final = 256
BLOCK_REPLICAS: Final = 4_096
"""A block with so many takes no further group."""
BLOCK_BYTES_MAX: Final = 64 << 20
"""Largest block that groups can need; a greater length is damage."""
_MAGIC: Final = "quorate-metadata"
_LENGTH: Final = struct.Struct(">I")


class UnreadableSnapshot(ValueError):
    """These bytes are no snapshot that this version reads. The message says why."""


class Sink(Protocol):
    """Takes the bytes, in pieces of any size."""

    def write(self, data: bytes) -> None: ...


def write(groups: Mapping[GroupKey, BrokerGroup], format_in_use: int, sink: Sink) -> None:
    """Writes all groups to the sink."""
    def block(content: list[Any]) -> None:
        data = cbor2.dumps(content)
        assert len(data) <= BLOCK_BYTES_MAX, "no block is larger than what is read"
        sink.write(_LENGTH.pack(len(data)) + data)

    block([_MAGIC, LAYOUT, format_in_use, len(groups)])
    records: list[Any] = []
    replicas = 0
    for key in sorted(groups):
        records.append(_pack(key, groups[key], format_in_use))
        replicas += len(groups[key].replicas)
        if len(records) == BLOCK_GROUPS or replicas >= BLOCK_REPLICAS:
            block(records)
            records, replicas = [], 0
    if records:
        block(records)


def read(chunks: Iterable[bytes], reads: int = FORMAT) -> tuple[dict[GroupKey, BrokerGroup], int]:
    """The groups, and the command format in use.

    Raises ``UnreadableSnapshot``, and ``FormatTooNew`` for a format above ``reads``.
    """
    try:
        blocks = _blocks(chunks)
        magic, layout, format_in_use, count = items(next(blocks, None), 4)
        if magic != _MAGIC or layout != LAYOUT:
            raise ValueError(f"it begins {str(magic)[:40]}, {str(layout)[:40]}; due are {_MAGIC}, layout {LAYOUT}")
        in_use = integer(format_in_use, 1)
        check_reads(reads, in_use)
        groups: dict[GroupKey, BrokerGroup] = {}
        records = 0
        for block in blocks:
            groups.update(_unpack(record, in_use) for record in items(block))
            records += len(block)
        if not records == len(groups) == integer(count):
            raise ValueError(f"it announces {count} groups and holds {records}, of which {len(groups)} differ")
        return groups, in_use
    except DAMAGED as error:
        raise UnreadableSnapshot(f"not a snapshot of broker groups: {error}") from error


def digest(groups: Mapping[GroupKey, BrokerGroup], format_in_use: int) -> bytes:
    """32 bytes (SHA-256) that are the same exactly where the state is."""
    hashed = hashlib.sha256()

    class Hashing:
        def write(self, data: bytes) -> None:
            hashed.update(data)

    write(groups, format_in_use, Hashing())
    return hashed.digest()


def _blocks(chunks: Iterable[bytes]) -> Iterator[Any]:
    """The content of each block, from bytes cut anywhere."""
    take = _taker(iter(chunks))
    while head := take(_LENGTH.size, True):
        [length] = _LENGTH.unpack(head)
        if length > BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {length} bytes; at most {BLOCK_BYTES_MAX} are read")
        yield cbor2.loads(take(length, False))


def _taker(chunks: Iterator[bytes]) -> Callable[[int, bool], bytes]:
    buffer = bytearray()

    def take(size: int, may_end: bool) -> bytes:
        """The next ``size`` bytes; or none where ``may_end`` and nothing is left."""
        while len(buffer) < size:
            chunk = next(chunks, None)
            if chunk is None:
                if may_end and not buffer:
                    return b""
                raise ValueError(f"it ends {size - len(buffer)} bytes early")
            buffer.extend(chunk)
        taken = bytes(memoryview(buffer)[:size])
        del buffer[:size]
        return taken

    return take


def _pack(key: GroupKey, group: BrokerGroup, in_format: int) -> list[Any]:
    assert in_format >= 2 or not group.vacant, "format 1 has no place for it, and no rule that makes it"
    assert in_format >= 2 or all(each.life is None for each in group.replicas.values()), "nor for lives"
    return [
        *key, group.next_broker_id, sorted(group.sync_state_set), group.sync_state_set_epoch, group.master,
        group.master_epoch, sorted(group.eligible), pack_replicas(group.replicas, in_format),
        *([group.vacant] if in_format >= 2 else []),
    ]


def _unpack(record: Any, in_format: int) -> tuple[GroupKey, BrokerGroup]:
    cluster, name, following, members, epoch, master, master_epoch, eligible, replicas, *vacant = items(
        record, 9 if in_format < 2 else 10)
    return GroupKey(text(cluster), text(name)), BrokerGroup(
        replicas=replicas_of(replicas, in_format), next_broker_id=integer(following, FIRST_BROKER_ID),
        sync_state_set=ids(members), sync_state_set_epoch=integer(epoch, 0),
        master=optional(master, integer), master_epoch=integer(master_epoch, 0),
        eligible=ids(eligible),
        vacant=any(flag(each) for each in vacant),
    )
