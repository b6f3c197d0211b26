"""Store files that were damaged while nobody looked: what can be built again is, all else is said, nothing is lost."""

from __future__ import annotations

import struct

import pytest

from broker.pulling.reading import ReadConfig, Status, read
from broker.store.consumequeue import ENTRY_BYTES
from broker.store.errors import WrongStore
from broker.store.files import MemoryFile, MemoryFiles
from broker.store.store import MessageStore, StoreConfig
from remoting.errors import DamagedRecord
from remoting.record import Message, decode_all, encode

CONFIG = StoreConfig(log_file_bytes=2_048, queue_file_bytes=20 * 16, index_slots=8, index_entries=64)
LOG, QUEUE = f"commitlog/{0:020d}", f"consumequeue/T/0/{0:020d}"
TIME_MS = 1_700_000_000_000


def opened(files: MemoryFiles, told: list[str] | None = None) -> MessageStore:
    store = MessageStore(files, CONFIG)
    if told is not None:
        store.on_trouble.call = told.append
    store.open()
    store.visible.advance()
    return store


def written(count: int = 10) -> MemoryFiles:
    """Of a store that was closed in order."""
    files = MemoryFiles()
    store = opened(files)
    for number in range(count):
        store.writer.put(Message(b"T", b"m%d" % number), TIME_MS)
    store.visible.advance()
    store.close()
    return files


def bodies(store: MessageStore, topic: bytes = b"T") -> list[bytes]:
    queue, found = store.messages.queue(topic, 0), list[bytes]()
    assert queue is not None
    at = queue.min_offset
    while at < queue.max_offset:
        got = read(store.messages, topic, 0, at, config=ReadConfig())
        assert got.status is Status.FOUND and got.next_offset > at
        found += [each.message.body for each in decode_all(got.data)]
        at = got.next_offset
    return found


ALL = [b"m%d" % number for number in range(10)]


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_flushed_end_that_is_gone_is_said() -> None:
    files, told = written(), list[str]()
    log = files.content[LOG].data
    whole = opened(files).log.max_offset
    at = log.index(b"m7")
    log[at:] = bytes(len(log) - at)
    assert bodies(opened(files, told)) == ALL[:7]
    [words] = told
    assert f"the checkpoint says that {whole} was flushed" in words and "alone has lost them" in words


def test_damage_of_what_was_flushed_is_no_end_of_the_log() -> None:
    files = written()
    log = files.content[LOG].data
    at = log.index(b"m4")
    log[at] ^= 1
    before = bytes(log)
    with pytest.raises(WrongStore, match=r"damaged at offset \d+ \(CRC .* remove the file checkpoint, to go on"):
        opened(files)
    assert bytes(files.content[LOG].data) == before, "nothing was cut"
    log[at] ^= 1
    assert bodies(opened(files)) == ALL
    log[at] ^= 1
    files.remove("checkpoint")  # as the words say
    assert bodies(opened(files)) == ALL[:4]


def test_damage_at_the_very_end_is_a_torn_write() -> None:
    files = written()
    files.remove("checkpoint")
    log = files.content[LOG].data
    log[log.index(b"m9")] ^= 1
    assert bodies(opened(files)) == ALL[:9]


def one_record(**changed: int | bytes) -> MemoryFiles:
    """A log of a good message, one whose header says something else, and a good one."""
    first = encode(Message(b"T", b"m0"), 0, 0, TIME_MS)
    raw = bytearray(encode(Message(b"T", b"odd"), 1, len(first), TIME_MS))
    for name, value in changed.items():
        match name, value:
            case "topic", bytes():
                raw[-2 - len(value) : -2] = value
            case "queue_id", int():
                struct.pack_into(">i", raw, 12, value)
            case "queue_offset", int():
                struct.pack_into(">q", raw, 20, value)
            case "time_ms", int():
                struct.pack_into(">q", raw, 56, value)
    last = encode(Message(b"T", b"m2"), 2, len(first) + len(raw), TIME_MS)
    return MemoryFiles({LOG: MemoryFile(bytearray((first + bytes(raw) + last).ljust(2_048, b"\0")))})


@pytest.mark.parametrize("changed", [
    {"topic": b"\xff"}, {"topic": b"/"}, {"topic": b"\0"}, {"queue_id": -1}, {"queue_offset": -1},
    {"queue_offset": 1 << 40}, {"queue_offset": (1 << 63) - 1}, {"queue_id": 5, "queue_offset": 1 << 62},
])
def test_a_message_whose_place_no_writer_gave_is_in_no_queue(changed: dict[str, int | bytes]) -> None:
    """No checksum covers these fields. It stays in the log, and costs neither the others nor the disk's room."""
    files = one_record(**changed)
    told: list[str] = []
    store = opened(files, told)
    assert len(told) == 1 and "is in no queue" in told[0]
    assert bodies(store)[0] == b"m0" and bodies(store)[-1] == b"m2"
    assert all(name.startswith(("consumequeue/T/", "commitlog", "index", "abort", "spare")) for name in files.content)
    put = store.writer.put(Message(b"T", b"new"), TIME_MS)
    assert put.queue_offset == 3
    assert sum(len(file.data) for file in files.content.values()) < 10_000


@pytest.mark.parametrize("time_ms", [-(1 << 63), -1, (1 << 63) - 1])
def test_a_time_beyond_the_calendar_stops_nothing(time_ms: int) -> None:
    files = one_record(time_ms=time_ms)
    store = opened(files)
    assert bodies(store) == [b"m0", b"odd", b"m2"]
    store.writer.put(Message(b"SCHEDULE_TOPIC_XXXX", b"later", 0, b"DELAY\x013\x02"), time_ms)
    store.log.write()
    store.visible.advance()
    store.close()
    opened(files)


def test_a_queue_that_a_message_far_ahead_begins_goes_on_where_the_others_are() -> None:
    """The next message gets the place that its consumers look at."""
    first = encode(Message(b"T", b"odd"), 1 << 40, 0, TIME_MS)
    rest = encode(Message(b"T", b"m0"), 0, len(first), TIME_MS)
    store = opened(MemoryFiles({LOG: MemoryFile(bytearray((first + rest).ljust(2_048, b"\0")))}))
    assert store.writer.put(Message(b"T", b"m1"), TIME_MS).queue_offset == 1
    store.log.write()
    store.visible.advance()
    assert bodies(store) == [b"m0", b"m1"]


# --- queues ----------------------------------------------------------------------------------------------------------


def test_an_entry_that_was_lost_is_built_again() -> None:
    files = written()
    files.content[QUEUE].data[8 * ENTRY_BYTES : 9 * ENTRY_BYTES] = bytes(ENTRY_BYTES)
    told: list[str] = []
    assert bodies(opened(files, told)) == ALL
    assert told == ["queue 0 of T was damaged after it was flushed: it is built again from the log"]


def test_a_queue_that_was_cut_is_built_again() -> None:
    files = written()
    del files.content[QUEUE].data[5 * ENTRY_BYTES :]
    assert bodies(opened(files)) == ALL


@pytest.mark.parametrize(("part", "value", "where"), [
    *((">q", value, place * ENTRY_BYTES) for value in (7, 1 << 40, -1) for place in (0, 9)),
    *((">8xi", value, place * ENTRY_BYTES) for value in (0, 91, 1 << 30, -5) for place in (0, 4, 9)),
])
def test_an_entry_that_points_elsewhere_gives_no_garbage(part: str, value: int, where: int) -> None:
    files = written()
    store = opened(files)
    struct.pack_into(part, files.content[QUEUE].data, where, value)
    with pytest.raises(DamagedRecord, match="queue 0 of T is damaged at place"):
        bodies(store)
    store.abandon()
    for name in list(files.content):
        if name.startswith("consumequeue"):
            files.remove(name)
    assert bodies(opened(files)) == ALL


# --- index and checkpoint --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["index", "checkpoint"])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "zeros"])
def test_no_message_depends_on_index_or_checkpoint(prefix: str, how: str) -> None:
    files = written()
    for name in [name for name in files.content if name.startswith(prefix)]:
        data = files.content[name].data
        match how:
            case "flipped":
                data[:48] = bytes(byte ^ 0xFF for byte in data[:48])
            case "cut":
                del data[10:]
            case "gone":
                files.remove(name)
            case _:
                data[:] = bytes(len(data))
    store = opened(files)
    assert bodies(store) == ALL
    assert store.writer.put(Message(b"T", b"new"), TIME_MS).queue_offset == 10
    store.messages.get_by_key(b"T", "k")
    store.close()
    assert bodies(opened(files)) == [*ALL, b"new"]
