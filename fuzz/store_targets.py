"""Fuzz targets of the broker's store: records, batches, properties, ledgers, and whole directories that are damaged.

The promises are those of ``fuzz.targets``. Of a directory: it opens, or ``WrongStore`` says what to do; what it gives
are messages that were stored; it takes new ones, and gives back all of it after it was closed and opened again.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from typing import Final
from zlib import crc32

from google_crc32c import value as crc32c

from broker.abroad.tickets import Acked
from broker.ha.epochfile import EpochFile
from broker.ha.epochs import EpochError, EpochFileError, EpochList, from_text, to_text
from broker.ledger.entries import Ledger, Subject, Thing, decode
from broker.pulling import reading
from broker.pulling.reading import ReadConfig
from broker.replicas import identity
from broker.replicas.identity import Application, Identity, IdentityError
from broker.store import tables
from broker.store.checkpoint import Checkpoint
from broker.store.errors import OffsetGone, WrongStore
from broker.store.files import MemoryFile, MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from fuzz.target import Target
from remoting import record
from remoting.errors import DamagedRecord, MessageIllegal
from remoting.record import Message

_IPV6: Final = bytes(range(16)) + b"\0\0\x2a\x9f"
_PROPERTIES: Final = record.encode_properties({"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "7F0000010000"})
_MESSAGES: Final = [
    Message(b"T", b"m0", 0, _PROPERTIES, born_time_ms=5), Message(b"T", b"m1" * 40, 1, b"", 7),
    Message(b"topic", b"", 0, b"", born_host=_IPV6), Message(b"T", b"m3", 0, _PROPERTIES, sys_flag=record.PREPARED),
    Message(b"SCHEDULE_TOPIC_XXXX", b"later", 2, record.encode_properties({"DELAY": "3"})),
    Message(b"T", b"m5", 0, b"", store_host=_IPV6), Message(b"x" * 200, b"long", 0),
]

# --- records -------------------------------------------------------------------------------------------------


def sealed(data: bytes, base: int = 0) -> bytes:
    """Records with true magics, sizes, offsets and CRCs; everything else is the fuzzer's. Ten bytes before each give
    the lengths of its parts."""
    out, at = bytearray(), 0
    while at + 4 <= len(data):
        body, topic, properties, flags = data[at : at + 4]
        flags &= 0x30
        at += 4
        layout = record._FIXED[flags]
        fixed = bytearray(data[at : at + layout.size].ljust(layout.size, b"\0"))
        at += layout.size
        parts = []
        for length in (body, topic & 0x7F or 1, properties):
            parts.append(data[at : at + length])
            at += len(parts[-1])
        size = layout.size + sum(map(len, parts)) + 3
        struct.pack_into(">iii", fixed, 0, size, record.MAGIC, crc32(parts[0]) & 0x7FFFFFFF)
        struct.pack_into(">q", fixed, 28, base + len(out))
        sys_flag = struct.unpack_from(">i", fixed, 36)[0] & ~0x30 | flags
        struct.pack_into(">i", fixed, 36, sys_flag)
        struct.pack_into(">i", fixed, layout.size - 4, len(parts[0]))
        out += fixed + parts[0] + bytes([len(parts[1])]) + parts[1] + struct.pack(">H", len(parts[2])) + parts[2]
    return bytes(out)


def check_store_records(data: bytes) -> None:
    raw = sealed(data[1:]) if data[:1] >= b"\x80" else data[1:]
    outlines, end = record.outlines(raw, 0, check_crc=True)
    at = 0
    for outline in outlines:
        found = record.decode(raw, at)
        message = found.message
        assert (found.offset, found.size, message.topic, message.properties) == (
            outline[0], outline[1], outline[6], outline[7])
        assert record.outline(raw, at) == outline
        (magic,) = struct.unpack_from(">i", raw, at + 4)
        if message.topic and (magic == record.MAGIC) == (len(message.topic) <= record.TOPIC_BYTES_MAX):
            again = record.encode(message, found.queue_offset, found.offset, found.store_time_ms)
            assert again == raw[at : at + found.size]
        values = record.decode_properties(message.properties)
        for key in list(values)[:4]:
            if key and "\ufffd" not in key:
                assert record.property_of(message.properties, key.encode()) is not None
        at += found.size
    assert at == end
    try:
        record.decode_all(raw)
    except DamagedRecord as damage:
        said = str(damage)
        assert len(said) < 300


def _record_seeds() -> list[bytes]:
    whole, at = b"", 0
    for number, message in enumerate(_MESSAGES):
        whole += record.encode(message, number, at, 1_700_000_000_000)
        at = len(whole)
    return [b"\0" + whole, b"\x80" + bytes([3, 2, 9, 0]) * 60, b"\x80" + bytes([0, 1, 0, 0x30]) + bytes(200),
            *(b"\0" + record.encode(message, 1, 0, 2) for message in _MESSAGES)]


def check_store_batch(data: bytes) -> None:
    """A client's batch, properties, and an id."""
    try:
        found = record.decode_batch(data, count_max=50)
    except MessageIllegal as error:
        said = str(error)
        assert len(said) < 300
    else:
        again = record.decode_batch(record.encode_batch(found))
        assert again == found
    values = record.decode_properties(data)
    try:
        raw = record.encode_properties(values)
    except MessageIllegal:
        assert "" in values or any("\x01" in text for pair in values.items() for text in pair)
    else:
        assert record.decode_properties(raw) == values
    try:
        host, offset = record.parse_message_id(data.decode(errors="replace"))
    except MessageIllegal as error:
        said = str(error)
        assert len(said) < 300
    else:
        assert record.message_id(host, offset) == data.decode().upper()
        record.unpacked_host(host)


def _batches() -> list[bytes]:
    batch = record.encode_batch([(1, b"a", _PROPERTIES), (0, b"", b""), (-1, b"bc", b"k\1v")])
    return [batch, _PROPERTIES, record.message_id(b"\x7f\0\0\1\0\0\x2a\x9f", 7).encode(),
            record.message_id(_IPV6, 1 << 40).encode()]


# --- a directory ---------------------------------------------------------------------------------------------

_CONFIG: Final = StoreConfig(log_file_bytes=1_024, queue_file_bytes=20 * 8, index_slots=8, index_entries=32)
_READ: Final = ReadConfig()
_Content = dict[str, bytes]


@cache
def _directory(orderly: bool) -> _Content:
    """Of a store with two files of the log; its last messages not flushed unless it was closed in order."""
    files = MemoryFiles()
    store = MessageStore(files, _CONFIG)
    store.open()
    for number in range(3):
        for message in _MESSAGES[: 7 - number]:
            store.writer.put(message, 1_700_000_000_000 + number)
        store.log.write()
        store.visible.advance()
        if not number:
            store.flush()
    if orderly:
        store.close()
    else:
        store.abandon()
    return {name: bytes(file.data) for name, file in files.content.items()}


def _opened(files: MemoryFiles) -> MessageStore | None:
    store = MessageStore(files, _CONFIG)
    try:
        store.open()
    except WrongStore as error:
        said = str(error)
        assert 10 < len(said) < 600
        store.abandon()
        return None
    return store


def _content(store: MessageStore) -> dict[tuple[bytes, int, int], bytes]:
    """All that consumers get, by queue and queue offset."""
    found: dict[tuple[bytes, int, int], bytes] = {}
    for topic, queue_id in store.messages.queues():
        queue = store.messages.queue(topic, queue_id)
        assert queue is not None
        at, turns = queue.min_offset, 0
        while at < queue.max_offset and turns < 200:
            turns += 1
            try:
                got = reading.read(store.messages, topic, queue_id, at, config=_READ)
            except DamagedRecord as damage:
                said = str(damage)
                assert f"queue {queue_id} of " in said and "is damaged at place" in said
                found[topic, queue_id, -1] = b"damaged"
                break
            try:
                for each in record.decode_all(got.data) if got.status is reading.Status.FOUND else ():
                    found[topic, queue_id, each.queue_offset] = each.message.body
            except DamagedRecord:  # what the log lost behind its own back, the reader sees
                found[topic, queue_id, -1] = got.data
            assert got.next_offset > at
            at = got.next_offset
        with suppress(DamagedRecord, OffsetGone):
            store.messages.offset_by_time(topic, queue_id, 1_700_000_000_001)
        store.messages.store_time_ms(topic, queue_id, queue.min_offset)
    for key in ("k1", "7F0000010000"):
        store.messages.get_by_key(b"T", key)
    store.log.newest_ms()
    return found


def _lives(files: MemoryFiles) -> MessageStore | None:
    """Opens, gives, takes, closes, opens, and gives the same."""
    store = _opened(files)
    if store is None:
        return None
    store.visible.advance()
    _content(store)
    put = store.writer.put(Message(b"T", b"new", 0, _PROPERTIES), 1_700_000_000_009)
    store.log.write()
    store.visible.advance()
    after = _content(store)
    assert after.get((b"T", 0, put.queue_offset), b"new") == b"new"
    assert (b"T", 0, put.queue_offset) in after or (b"T", 0, -1) in after
    store.close()
    again = _opened(files)
    assert again is not None
    again.visible.advance()
    assert _content(again) == after
    return again


def _files(content: _Content) -> MemoryFiles:
    return MemoryFiles({name: MemoryFile(bytearray(data), bytes(data)) for name, data in content.items()})


@cache
def _stored(orderly: bool) -> dict[tuple[bytes, int, int], bytes]:
    store = _opened(_files(_directory(orderly)))
    assert store is not None
    store.visible.advance()
    return _content(store)


def check_store_directory(data: bytes) -> None:
    """Five bytes each: which file, what to do, where, and with what. A clean directory loses nothing but by its log."""
    content, touched = dict(_directory(bool(data[:1] >= b"\x80"))), set[str]()
    names = sorted(content)
    for at in range(1, min(len(data), 1 + 5 * 12) - 4, 5):
        which, what, high, low, value = data[at : at + 5]
        name = names[which % len(names)]
        raw = bytearray(content.get(name, b""))
        where = min((high << 8 | low), len(raw))
        match what % 8:
            case 0 | 1 | 2 | 3:
                if where < len(raw):
                    raw[where] ^= value or 1
            case 4:
                del raw[max(where, 1) :]
            case 5:
                raw[where : where + value % 21] = bytes(min(value % 21, len(raw) - where))
            case 6:
                number = struct.pack(">q", (1 << (value % 62)) - (value >> 6 & 1))  # never that of an entry to nowhere
                raw[where : where + 8] = number[: len(raw) - where]
            case _:
                if value & 1:
                    content.pop(name, None)
                    continue
                content[f"{name[:-1]}{value % 10}"] = bytes(raw)
        content[name] = bytes(raw)
        touched.add(name)
    clean = _directory(bool(data[:1] >= b"\x80"))
    store = _lives(_files(content))
    if store is None or content.keys() != clean.keys() or len(touched) != 1 or len(data) > 10 or any(
            name.startswith("commitlog") for name in touched):
        return
    found, stored = _content(store), _stored(bool(data[:1] >= b"\x80"))
    for key, body in stored.items():  # that the last one is gone from its queue nothing there can tell
        if (*key[:2], key[2] + 1) in stored:
            assert (*key[:2], -1) in found or found.get(key) == body, f"{key} is lost"


def check_store_log(data: bytes) -> None:
    """A log of records that say whatever the fuzzer likes, with and without what was built of it."""
    kept = {name: raw for name, raw in _directory(True).items()
            if not name.startswith("commitlog")} if data[:1] >= b"\x80" else {}
    raw = sealed(data[1:])[: _CONFIG.log_file_bytes]
    _lives(_files({**kept, f"commitlog/{0:020d}": raw.ljust(_CONFIG.log_file_bytes, b"\0")}))


def _log_seeds() -> list[bytes]:
    out = []
    for message in _MESSAGES[:3]:
        whole = record.encode(message, 0, 0, 1_700_000_000_000)
        topic, properties = message.topic, message.properties
        flags = 0x10 if len(message.born_host) == 20 else 0
        fixed = whole[: record._FIXED[flags].size]
        out.append(bytes([len(message.body), len(topic), len(properties), flags]) + fixed + message.body + topic
                   + properties)
    return [b"\0" + b"".join(out), b"\x80" + b"".join(out), *(b"\0" + one + one for one in out)]


def _directory_seeds() -> list[bytes]:
    count = len(_directory(True))
    return [bytes([mode, which, what, where, 30, 7]) for mode in (0, 0x80) for which in range(count)
            for what in (0, 4, 6) for where in (0,)]


# --- small files ---------------------------------------------------------------------------------------------

_EPOCHS: Final = EpochList([(1, 0), (3, 500), (7, 1 << 40)])
_TABLES: Final = list(tables.PATHS)


def check_store_small_files(data: bytes) -> None:
    """Checkpoint, epoch file, identity, tables of JSON."""
    kind, raw = data[0] if data else 0, data[1:]
    match kind % 4:
        case 0:
            found = Checkpoint.decode(raw)
            assert Checkpoint.decode(found.encode()) == found
        case 1:
            _check_epochs(raw)
        case 2:
            _check_identity(raw.decode(errors="replace"))
        case _:
            _check_tables(kind >> 2, raw)


def _check_epochs(raw: bytes) -> None:
    text = raw.decode(errors="replace")
    try:
        found = from_text(text)
    except EpochFileError as error:
        said = str(error)
        assert len(said) < 400
        lines = text.splitlines()[2:]
        pairs = [line.split("-") for line in lines]
        try:  # what has no CRC that fits may still have entries
            made = EpochList([(int(pair[0][:12]), int(pair[1][:24])) for pair in pairs if len(pair) == 2 and all(
                part[:24].isdecimal() for part in pair)])
        except EpochError:
            return
        if all(entry.epoch < 1 << 31 and entry.start < 1 << 63 for entry in made):
            assert from_text(to_text(made)) == made
        return
    assert from_text(to_text(found)) == found
    found.within(500)
    files = MemoryFiles({"epochFileCheckpoint": MemoryFile(bytearray(raw))})
    assert EpochFile(files).read().epochs == found
    EpochFile(files).write(found)
    assert EpochFile(files).read().epochs == found


def _check_identity(text: str) -> None:
    cut = text.find("\0")
    one, other = (text, None) if cut < 0 else (text[:cut] or None, text[cut + 1 :])
    try:
        found = identity.load("c", "b", one, other)
    except IdentityError as error:
        said = str(error)
        assert len(said) < 1_200
        return
    if isinstance(found, Identity):
        assert identity.load("c", "b", found.to_text(), None) == found
    elif isinstance(found, Application):
        assert identity.load("c", "b", None, found.to_text()) == found


def _check_tables(number: int, raw: bytes) -> None:
    kind = _TABLES[number % len(_TABLES)]
    cut = raw.find(b"\0")
    files = MemoryFiles({tables.PATHS[kind]: MemoryFile(bytearray(raw if cut < 0 else raw[:cut]))})
    if cut >= 0:
        files.content[f"{tables.PATHS[kind]}.bak"] = MemoryFile(bytearray(raw[cut + 1 :]))
    try:
        found = tables.load(files, kind)
    except WrongStore as error:
        said = str(error)
        assert "repair" in said
        return
    tables.save(files, found)
    assert tables.load(files, kind).to_json() == found.to_json()


def _small_files() -> list[bytes]:
    return [
        b"\0" + Checkpoint(1, 2, 3, 4, 5, 6).encode()[:48], b"\1" + to_text(_EPOCHS).encode(),
        b"\1" + to_text(EpochList()).encode(), b"\2c#b#3", b"\2\0c#b#3#h:1;5", b"\2c#b#x\0c#b#3#h:1;5",
        b'\3{"topicConfigTable":{"T":{"topicName":"T","order":false}},"dataVersion":{"counter":1}}',
        b'\7{"subscriptionGroupTable":{"G":{"groupName":"G"}}}',
        b'\x0b{"offsetTable":{"T@G":{0:5,1:7}},"dataVersion":{}}', b'\x0f{"offsetTable":{1:5}}\0{}',
    ]


# --- the ledger of a slave that acts ---------------------------------------------------------------------------------


def check_store_ledger(data: bytes) -> None:
    """A file, or what another member answers; the first byte says whether sizes and checksums are made right. What is
    whole encodes to the same bytes again, and what counts of it outlives a file that is written anew."""
    raw = _entries(data[1:]) if data[:1] == b"\1" else data[1:]
    found, end = decode(raw)
    assert b"".join(entry.to_bytes() for entry in found) == raw[:end]
    ledger = Ledger(found)
    anew, _ = decode(b"".join(entry.to_bytes() for entry in ledger.whole()))
    again = Ledger(anew)
    assert again.end == ledger.end and len(again) == len(ledger)
    assert list(again.after()) == list(ledger.after())
    for entry in ledger.of(Subject.ACKED):
        acked = Acked.read(entry.thing.name, entry.thing.queue, "b")
        assert acked is None or Acked.read(*acked.thing, "b") == acked


def _entries(data: bytes) -> bytes:
    """A byte for the length of each name, a byte whether the kind is one that is known, and 29 bytes of an entry."""
    out = bytearray()
    while len(data) >= 2:
        length, known = data[:2]
        fixed, name = data[2:31].ljust(29, b"\0"), data[31:31 + length % 64]
        if known:
            fixed = fixed[:16] + bytes((known % len(Subject),)) + fixed[17:]
        raw = struct.pack(">I", 37 + len(name)) + fixed + name
        out += struct.pack(">I", crc32c(raw)) + raw
        data = data[31 + length % 64:]
    return bytes(out)


def _ledgers() -> list[bytes]:
    ledger = Ledger()
    for number, thing in enumerate((Thing(Subject.OFFSET, "T@G", 1), Thing(Subject.LEVEL, "", 3),
                                    Thing(Subject.DECIDED, "77", 0), Thing(Subject.ACKED, "0 5 9 3 4 G T", 1))):
        ledger.note(thing, number)
    whole = b"".join(entry.to_bytes() for entry in ledger.whole())
    return [b"\0" + whole, b"\0" + whole[:-5], b"\1" + bytes((3, 1)) + whole[8:40] + bytes((0, 2)) + whole[8:37]]


STORE_TARGETS: Final[dict[str, Target]] = {
    "store-records": Target("remoting.record: outlines, decode", check_store_records, _record_seeds),
    "store-batch": Target("record: decode_batch, properties, parse_message_id", check_store_batch, _batches, 512),
    "store-directory": Target("MessageStore on a damaged directory", check_store_directory, _directory_seeds, 64),
    "store-log": Target("MessageStore on records of any content", check_store_log, _log_seeds, 1_100),
    "store-ledger": Target("ledger.entries: decode, Ledger", check_store_ledger, _ledgers, 512),
    "store-small-files": Target(
        "Checkpoint, EpochFile, identity.load, tables.load", check_store_small_files, _small_files, 512),
}
