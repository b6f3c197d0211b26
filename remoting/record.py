"""One message in the commit log: its bytes, as they are on disk, in answers to pulls and in the replication stream.

    0  total size 4      8  body CRC 4    16  flag 4            28  physical offset 8   40  born time 8
    4  magic 4          12  queue id 4    20  queue offset 8    36  system flag 4       48  born host 8 or 20

then store time 8, store host 8 or 20, reconsume times 4, prepared transaction offset 8, body size 4 and body, topic
size 1 (2 under the second magic) and topic, properties size 2 and properties. Big-endian. Offsets above are those of
every record; the rest moves when a host is IPv6. A blank (size, magic) ends a file without room for the next record.

It knows one record, and neither files nor queues. Source: ``MessageExtEncoder``, ``MessageDecoder`` and
``CommitLog.checkMessageAndReturnSize`` of RocketMQ 5.5.0.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Any, Final
from zlib import crc32

import attrs

from remoting.errors import DamagedRecord, MessageIllegal

MAGIC: Final = 0xDAA320A7 - (1 << 32)
MAGIC_LONG_TOPIC: Final = 0xDAA320AB - (1 << 32)
"""Two bytes for the size of the topic. C++ and node clients cannot read these."""
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)
BLANK_BYTES_MIN: Final = 8
"""Every file keeps this much behind its last record."""

TOPIC_BYTES_MAX: Final = 127
"""Longest topic under the first magic: readers take its size for a signed byte."""
PROPERTIES_BYTES_MAX: Final = 32_767
BODY_BYTES_MAX: Final = 4 << 20
"""Largest body of a sent message, unless another limit is configured."""
BODY_BYTES_MOST: Final = 64 << 20
"""The highest limit that can be configured. Whoever reads a record does not know which one it was written under."""
RECORD_BYTES_MAX: Final = BODY_BYTES_MOST + (128 << 10)

TAGS: Final = b"TAGS\x01"
KEYS: Final = b"KEYS\x01"
UNIQ_KEY: Final = b"UNIQ_KEY\x01"
"""Markers that ``value_behind`` looks for."""

COMPRESSED: Final = 1
MULTI_TAGS: Final = 2
PREPARED: Final = 4
COMMIT: Final = 8
ROLLBACK: Final = 12
"""The mask of the transaction's state as well."""
BORN_HOST_V6: Final = 16
STORE_HOST_V6: Final = 32
INNER_BATCH: Final = 128
COMPRESSION_SHIFT: Final = 8
"""Three bits: 0 and 3 zlib, 1 LZ4, 2 zstd."""
NOTED: Final = 1 << 20
"""Ours: parts of every replica hear of the message once it is confirmed (``broker.noted``).

RocketMQ ignores the bit and copies it, and any sender may set it: only the properties say whether it means anything.
"""

_HEAD: Final = "iiiiiqqiq"
_FIXED: Final = {  # the two flags for IPv6 choose the layout
    flags: Struct(f">{_HEAD}{20 if flags & BORN_HOST_V6 else 8}sq{20 if flags & STORE_HOST_V6 else 8}siqi")
    for flags in (0, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6)
}
_V4: Final = _FIXED[0]
V6_FLAGS: Final = BORN_HOST_V6 | STORE_HOST_V6
_CRC_MASK: Final = 0x7FFFFFFF
_OFFSET_BITS: Final = (1 << 64) - 1
_SHORT: Final = Struct(">H")
_BYTES: Final = tuple(bytes([size]) for size in range(256))
_BLANK: Final = Struct(">ii")
_SCANNED: Final = Struct(">iiii4xqqi16xq20xi")
"""Fields of an outline where both hosts are IPv4."""
MIDDLE: Final = Struct(">ii28xi44xi")
"""Size, magic, system flag and size of the body, where both hosts are IPv4."""
_FRONT: Final = Struct(">ii12xqqi")  # size, magic, queue offset, physical offset, system flag: past crc, id and flag
_BORN: Final = Struct(">40xq")
RECORD_BYTES_MIN: Final = _V4.size + 3
_INNER: Final = Struct(">iiiii")
_UNSAFE: Final = frozenset(b'/\\\0:*?"<>')


@attrs.define(eq=True)
class Message:
    """A message to store. Times are milliseconds of the wall clock; ``packed_host`` makes the hosts."""

    topic: bytes
    body: bytes
    queue_id: int = 0
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    """Bits for IPv6 are set from the hosts."""
    born_time_ms: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    reconsume_times: int = 0
    prepared_offset: int = 0


@attrs.define(eq=True)
class Record:
    """A message as it is stored. ``size`` counts all of its bytes."""

    message: Message
    queue_offset: int
    offset: int
    """Offset of the record in the commit log."""
    store_time_ms: int
    size: int
    body_crc: int

    @property
    def message_id(self) -> str:
        """The one of the store, not the client's."""
        return message_id(self.message.store_host, self.offset)


def elsewhere(message: Message, *, topic: bytes, queue_id: int, properties: bytes, sys_flag: int, store_host: bytes,
              prepared_offset: int) -> Message:
    """The same message, to be put elsewhere: a tenth of the time of ``attrs.evolve``."""
    return Message(topic, message.body, queue_id, properties, message.flag, sys_flag, message.born_time_ms,
                   message.born_host, store_host, message.reconsume_times, prepared_offset)


# --- hosts, ids, properties ----------------------------------------------------------------------------------


def packed_host(host: str, port: int) -> bytes:
    """8 bytes for an IPv4 address and port, 20 for IPv6. Raises ``MessageIllegal`` for anything else."""
    try:
        return ipaddress.ip_address(host).packed + port.to_bytes(4, "big")
    except (ValueError, OverflowError):
        raise MessageIllegal(f"host {host!r} port {port!r} is no IP address with a port") from None


def unpacked_host(packed: bytes) -> tuple[str, int]:
    """The address and the port."""
    return str(ipaddress.ip_address(packed[:-4])), int.from_bytes(packed[-4:], "big", signed=True)


def message_id(store_host: bytes, offset: int) -> str:
    """32 or 56 hexadecimal digits: the broker's host and port, and the offset in its log."""
    return message_ids(store_host, (offset,))[0]


def message_ids(store_host: bytes, offsets: Iterable[int]) -> list[str]:
    """``message_id`` for each of the offsets at one broker."""
    host = store_host.hex().upper()
    return [f"{host}{offset & _OFFSET_BITS:016X}" for offset in offsets]


def parse_message_id(text: str) -> tuple[bytes, int]:
    """The host and the offset. Raises ``MessageIllegal``."""
    if len(text) in (32, 56) and text.isascii() and text.isalnum():
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            pass
        else:
            return raw[:-8], int.from_bytes(raw[-8:], "big", signed=True)
    raise MessageIllegal(f"{text[:60]!r} is no message id of a store: 32 or 56 hexadecimal digits")


def encode_properties(values: Mapping[str, str]) -> bytes:
    """``key`` 1 ``value`` 2 and so on. Raises ``MessageIllegal`` for 1 or 2 within a key or value, or an empty key."""
    parts = []
    for key, value in values.items():
        part = f"{key}\x01{value}\x02"
        if not key or part.count("\x01") != 1 or part.count("\x02") != 1:
            raise MessageIllegal(f"property {key[:40]!r} is empty or holds the characters 1 or 2, which separate them")
        parts.append(part)
    try:
        raw = "".join(parts).encode()
    except UnicodeEncodeError:
        raise MessageIllegal("a property holds half of a surrogate pair") from None
    if len(raw) > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(f"properties of {len(raw)} bytes; {PROPERTIES_BYTES_MAX} are allowed")
    return raw


def decode_properties(raw: bytes) -> dict[str, str]:
    """Return properties as Java reads them (``read_properties``). Bytes that are not UTF-8 are read too."""
    return read_properties(raw.decode(errors="replace"))


def read_properties(text: str) -> dict[str, str]:
    """Return properties as Java reads them.

    A pair without a 1, a key or a value is passed over. The last value of a repeated key counts. The last 2 may be
    missing.

    Source: ``MessageDecoder.string2messageProperties`` of RocketMQ 5.5.0."""
    try:
        values = dict([pair.split("\x01", 1) for pair in text.split("\x02") if pair])
    except ValueError:
        pass  # a pair has no 1
    else:
        if "" not in values and "" not in values.values():
            return values
    values = {}
    for pair in text.split("\x02"):
        key, _, value = pair.partition("\x01")
        if key and value:
            values[key] = value
    return values


def property_of(raw: bytes, key: bytes) -> bytes | None:
    """The value of one key, without reading the others."""
    return value_behind(raw, key + b"\x01")


def value_behind(raw: bytes, marker: bytes) -> bytes | None:
    """``property_of`` for paths that are hot: ``marker`` is the key and the 1 behind it."""
    at = raw.find(marker)
    while at > 0 and raw[at - 1] != 2:  # the match ends a longer key
        at = raw.find(marker, at + 1)
    if at < 0:
        return None
    at += len(marker)
    end = raw.find(b"\x02", at)
    return raw[at:] if end < 0 else raw[at:end]


def is_folder_name(topic: bytes) -> bool:
    """Return whether a folder can have the topic's name on every system."""
    try:
        topic.decode()
    except UnicodeDecodeError:
        return False
    return bool(topic) and topic not in (b".", b"..") and _UNSAFE.isdisjoint(topic)


# --- records -------------------------------------------------------------------------------------------------


def encode(message: Message, queue_offset: int, offset: int, store_time_ms: int) -> bytes:
    """The bytes of ``message`` at ``offset`` of the log.

    Raises:
        MessageIllegal: a part has no room.
    """
    topic, body, properties = message.topic, message.body, message.properties
    if len(message.born_host) == 8 == len(message.store_host) and 0 < len(topic) <= TOPIC_BYTES_MAX and (
            len(body) <= BODY_BYTES_MOST and len(properties) <= PROPERTIES_BYTES_MAX):  # as mostly
        size = RECORD_BYTES_MIN + len(body) + len(topic) + len(properties)
        fixed, magic, sys_flag, topic_size = _V4, MAGIC, message.sys_flag & ~V6_FLAGS, _BYTES[len(topic)]
    else:
        size = size_of(message)
        fixed, magic, sys_flag, topic_size = _layout(message)
    return b"".join((
        fixed.pack(
            size, magic, crc32(body) & _CRC_MASK, message.queue_id, message.flag, queue_offset, offset, sys_flag,
            message.born_time_ms, message.born_host, store_time_ms, message.store_host, message.reconsume_times,
            message.prepared_offset, len(body)),
        body, topic_size, topic, _SHORT.pack(len(properties)), properties,
    ))


def _layout(message: Message) -> tuple[Struct, int, int, bytes]:
    """The fixed fields, the magic, the system flag and the size of the topic, as hosts and topic want them."""
    sys_flag, born_size, topic_size = message.sys_flag & ~V6_FLAGS, len(message.born_host), len(message.topic)
    fixed = _V4
    if not born_size == 8 == len(message.store_host):
        sys_flag |= BORN_HOST_V6 * (born_size == 20) | STORE_HOST_V6 * (len(message.store_host) == 20)
        fixed = _FIXED[sys_flag & V6_FLAGS]
    if topic_size <= TOPIC_BYTES_MAX:
        return fixed, MAGIC, sys_flag, topic_size.to_bytes(1, "big")
    return fixed, MAGIC_LONG_TOPIC, sys_flag, _SHORT.pack(topic_size)


def encode_parts(common: Message, parts: Iterable[Part], sizes: Iterable[int], queue_offset: int, offset: int,
                 store_time_ms: int) -> bytes:
    """Encode consecutive messages that differ from ``common`` only in these parts, as ``encode`` would.

    They follow one another in the log and in the queue. ``sizes`` are their sizes by ``size_of``.
    """
    fixed, magic, sys_flag, topic_size = _layout(common)
    head, topic, short = fixed.pack, topic_size + common.topic, _SHORT.pack
    queue_id, born_time_ms, born_host = common.queue_id, common.born_time_ms, common.born_host
    store_host, reconsume_times, prepared_offset = common.store_host, common.reconsume_times, common.prepared_offset
    found: list[bytes] = []
    for (flag, body, properties), size in zip(parts, sizes, strict=True):
        found += (
            head(size, magic, crc32(body) & _CRC_MASK, queue_id, flag, queue_offset, offset, sys_flag, born_time_ms,
                 born_host, store_time_ms, store_host, reconsume_times, prepared_offset, len(body)),
            body, topic, short(len(properties)), properties)
        offset += size
        queue_offset += 1
    return b"".join(found)


def size_of(message: Message) -> int:
    """Return the size of what ``encode`` makes. Raises ``MessageIllegal`` as ``encode`` does."""
    topic_size, body_size, properties_size = len(message.topic), len(message.body), len(message.properties)
    if not 0 < topic_size <= PROPERTIES_BYTES_MAX:
        raise MessageIllegal(f"topic of {topic_size} bytes; 1 to {PROPERTIES_BYTES_MAX} are allowed")
    if body_size > BODY_BYTES_MOST:
        raise MessageIllegal(f"body of {body_size} bytes; {BODY_BYTES_MOST} are possible")
    if properties_size > PROPERTIES_BYTES_MAX:
        raise MessageIllegal(f"properties of {properties_size} bytes; {PROPERTIES_BYTES_MAX} are allowed")
    hosts = len(message.born_host) + len(message.store_host)
    return (_V4.size - 16 + hosts + body_size + (1 if topic_size <= TOPIC_BYTES_MAX else 2) + topic_size + 2
            + properties_size)


def decode(data: bytes | memoryview, at: int = 0, *, check_crc: bool = True,
           size_max: int = RECORD_BYTES_MAX) -> Record:
    """The record that begins at ``at`` of ``data``. Its own offset is what it says.

    Raises:
        DamagedRecord: it is none, is cut off, or its sizes or its CRC do not fit.
    """
    fixed, body_at, topic_at, properties_at, end = _parts(data, at, check_crc, size_max)
    (size, _, body_crc, queue_id, flag, queue_offset, offset, sys_flag, born_time_ms, born_host, store_time_ms,
     store_host, reconsume_times, prepared_offset, body_size) = fixed
    return Record(
        Message(bytes(data[topic_at : properties_at - 2]), bytes(data[body_at : body_at + body_size]), queue_id,
                bytes(data[properties_at:end]), flag, sys_flag, born_time_ms, born_host, store_host, reconsume_times,
                prepared_offset),
        queue_offset, offset, store_time_ms, size, body_crc)


Outline = tuple[int, int, int, int, int, int, bytes, bytes]
"""Offset, size, queue id, queue offset, system flag, store time, topic, properties."""


def outline(data: bytes | memoryview, at: int = 0, *, check_crc: bool = True,
            size_max: int = RECORD_BYTES_MAX) -> Outline:
    """Return the fields of a record that queues and index need, cheaply. Raises ``DamagedRecord`` as ``decode``."""
    fixed, _, topic_at, properties_at, end = _parts(data, at, check_crc, size_max)
    return (fixed[6], fixed[0], fixed[3], fixed[5], fixed[7], fixed[10], bytes(data[topic_at : properties_at - 2]),
            bytes(data[properties_at:end]))


def outlines(data: bytes, base: int, at: int = 0, most: int = 1 << 62, *,
             check_crc: bool = False) -> tuple[list[Outline], int]:
    """Return outlines of consecutive records in ``data``, and the place behind the last of them.

    The first byte of ``data`` is at ``base`` of the log. Behind the place comes part of a record or something else;
    ``outline`` says what.
    """
    found: list[Outline] = []
    unpack, add, length = _SCANNED.unpack_from, found.append, len(data)
    last = length - RECORD_BYTES_MIN
    while at <= last and len(found) < most:
        size, magic, body_crc, queue_id, queue_offset, offset, sys_flag, time_ms, body_size = unpack(data, at)
        if magic == MAGIC and not sys_flag & V6_FLAGS:
            end, topic_at = at + size, at + 89 + body_size
            if end > length or body_size < 0 or topic_at + 2 > end or offset != base + at:
                break
            properties_at = topic_at + data[topic_at - 1] + 2
            if properties_at > end or data[properties_at - 2] << 8 | data[properties_at - 1] != end - properties_at:
                break
            if check_crc and crc32(data[at + 88 : topic_at - 1]) & _CRC_MASK != body_crc:
                break
            add((offset, size, queue_id, queue_offset, sys_flag, time_ms, data[topic_at : properties_at - 2],
                 data[properties_at:end]))
        else:
            try:
                slow = outline(data, at, check_crc=check_crc)
            except DamagedRecord:
                break
            if slow[0] != base + at:
                break
            add(slow)
            end = at + slow[1]
        at = end
    return found, at


def properties_begin(data: bytes, at: int, size: int) -> int:
    """Where the properties begin of the record of this size at ``at``; they end with it. Raises ``DamagedRecord``: none
    stands there."""
    if len(data) - at >= RECORD_BYTES_MIN:
        found, magic, sys_flag, body_size = MIDDLE.unpack_from(data, at)
        if found == size and magic == MAGIC and not sys_flag & V6_FLAGS and (
                0 <= body_size < size - 90 <= len(data) - at - 90):
            end, topic_at = at + size, at + 89 + body_size
            begin: int = topic_at + data[topic_at - 1] + 2
            if begin <= end and data[begin - 2] << 8 | data[begin - 1] == end - begin:
                return begin
    outlined = outline(data, at, check_crc=False)
    if outlined[1] != size:
        raise DamagedRecord(at, f"{outlined[1]} bytes instead of {size}")
    return at + size - len(outlined[7])


def stored_born_ms(data: bytes, at: int = 0) -> int:
    """Birth time of the record that stands at ``at``, and was looked at before."""
    born_ms: int = _BORN.unpack_from(data, at)[0]
    return born_ms


def stored_body(data: bytes, at: int = 0) -> bytes:
    """Body of the record that stands at ``at``. Raises ``DamagedRecord``."""
    fixed, body_at, _, _, _ = _parts(data, at, False, RECORD_BYTES_MAX)
    return data[body_at : body_at + fixed[14]]


def _parts(data: bytes | memoryview, at: int, check_crc: bool,
           size_max: int) -> tuple[tuple[Any, ...], int, int, int, int]:
    """The fixed fields, and where body, topic and properties begin and the record ends; all checked."""
    left = len(data) - at
    if left < RECORD_BYTES_MIN:
        raise DamagedRecord(at, f"{left} bytes; a record has {RECORD_BYTES_MIN} or more")
    size, magic, _, _, sys_flag = _FRONT.unpack_from(data, at)
    if magic not in (MAGIC, MAGIC_LONG_TOPIC):
        raise DamagedRecord(at, f"magic {magic & 0xFFFFFFFF:#010x}")
    if not RECORD_BYTES_MIN <= size <= size_max or size > left:
        raise DamagedRecord(at, f"size {size}, where {left} bytes are here and {size_max} allowed")
    layout = _FIXED[sys_flag & V6_FLAGS]
    end = at + size
    if layout.size + 3 > size:
        raise DamagedRecord(at, f"size {size} is too small for its hosts")
    fixed = layout.unpack_from(data, at)
    body_at = at + layout.size
    body_size = fixed[14]
    topic_at = body_at + body_size + (1 if magic == MAGIC else 2)
    if body_size < 0 or topic_at + 2 > end:
        raise DamagedRecord(at, f"body of {body_size} bytes in a record of {size}")
    properties_at = topic_at + (data[topic_at - 1] if magic == MAGIC else _SHORT.unpack_from(data, topic_at - 2)[0]) + 2
    if properties_at > end or properties_at + _SHORT.unpack_from(data, properties_at - 2)[0] != end:
        raise DamagedRecord(at, f"the sizes of its parts do not add up to {size}")
    if check_crc and crc32(data[body_at : body_at + body_size]) & _CRC_MASK != fixed[2]:
        raise DamagedRecord(at, f"CRC {fixed[2]:#010x} is not that of its body")
    return fixed, body_at, topic_at, properties_at, end


def decode_all(data: bytes | memoryview) -> list[Record]:
    """Records one behind the other, as a pull brings them. Raises ``DamagedRecord``."""
    records, at = [], 0
    while at < len(data):
        record = decode(data, at)
        records.append(record)
        at += record.size
    return records


def blank(size: int) -> bytes:
    """The end of a file with ``size`` bytes left; only its first eight have a meaning."""
    return _BLANK.pack(size, MAGIC_BLANK)


def blank_size(data: bytes | memoryview, at: int = 0) -> int | None:
    """Return the size that a blank at ``at`` gives; None where there is no blank."""
    size, magic = _BLANK.unpack_from(data, at)
    return size if magic == MAGIC_BLANK else None


# --- batches -------------------------------------------------------------------------------------------------

Part = tuple[int, bytes, bytes]
"""Flag, body and properties of one message."""


def encode_batch(messages: list[Part]) -> bytes:
    """The body of a batch that a client sends: (flag, body, properties) of each."""
    return b"".join(
        part for flag, body, properties in messages
        for part in (_INNER.pack(_INNER.size + len(body) + 2 + len(properties), 0, 0, flag, len(body)), body,
                     _SHORT.pack(len(properties)), properties))


def decode_batch(raw: bytes, count_max: int = 1 << 16) -> list[Part]:
    """(flag, body, properties) of each message of a client's batch. Raises ``MessageIllegal``, naming that one."""
    found: list[Part] = []
    at, length, unpack, head = 0, len(raw), _INNER.unpack_from, _INNER.size
    while at < length:
        if length - at < head + 2:
            raise MessageIllegal(f"message {len(found)} of the batch is cut off")
        if len(found) == count_max:
            raise MessageIllegal(f"a batch of more than {count_max} messages")
        size, _, _, flag, body_size = unpack(raw, at)
        end, properties_at = at + size, at + head + body_size + 2
        if body_size < 0 or not properties_at <= end <= length or (
                raw[properties_at - 2] << 8 | raw[properties_at - 1] != end - properties_at):
            raise MessageIllegal(f"the sizes of message {len(found)} of the batch do not fit")
        found.append((flag, raw[at + head : properties_at - 2], raw[properties_at:end]))
        at = end
    return found
