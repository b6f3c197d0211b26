"""Queues that are damaged while they are in use: what a reader meets, and what they say when they are mended."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest

from broker.pulling.reading import ReadConfig, Status, read
from broker.store.consumequeue import ENTRY_BYTES
from broker.store.directory import DirectoryFiles
from broker.store.files import Files, MemoryFiles
from broker.store.mending import Mender
from broker.store.store import MessageStore, StoreConfig
from remoting.errors import DamagedRecord
from remoting.hashing import java_hash
from remoting.record import Message, decode_all, encode_properties
from tests.broker.store.small import delete_before

CONFIG = StoreConfig(log_file_bytes=2_048, queue_file_bytes=20 * 16, index_slots=8, index_entries=64)
TIME_MS = 1_700_000_000_000
IN_FILE = 16


def opened(files: Files) -> MessageStore:
    store = MessageStore(files, CONFIG)
    store.open()
    store.visible.advance()
    return store


def put(store: MessageStore, *bodies: str, topic: bytes = b"t", queue_id: int = 0) -> None:
    if not store.writer.is_numbered:
        store.take_over()
    for body in bodies:
        store.writer.put(Message(topic, body.encode(), queue_id, encode_properties({"TAGS": "a"})), TIME_MS)
    store.log.write()
    store.visible.advance()


def numbered(first: int, end: int) -> list[str]:
    return [f"m{number}" for number in range(first, end)]


def seen(store: MessageStore, topic: bytes = b"t", queue_id: int = 0, *, begin: int = 0,
         codes: frozenset[int] | None = None) -> list[str]:
    """Bodies that a consumer gets from ``begin`` on, each of them of its place."""
    found: list[str] = []
    queue = store.messages.queue(topic, queue_id)
    at = max(begin, queue.min_offset) if queue is not None else 0
    while queue is not None and at < queue.max_offset:
        got = read(store.messages, topic, queue_id, at, config=ReadConfig(), codes=codes)
        for record in decode_all(got.data):
            assert (record.message.topic, record.message.queue_id) == (topic, queue_id)
            assert at <= record.queue_offset < got.next_offset
            found.append(record.message.body.decode())
        assert got.next_offset > at
        at = got.next_offset
    return found


def file_of(files: MemoryFiles, place: int, queue: str = "t/0") -> tuple[bytearray, int]:
    """The file with that entry, and where in it."""
    begin = place - place % IN_FILE
    return files.content[f"consumequeue/{queue}/{begin * ENTRY_BYTES:020d}"].data, (place - begin) * ENTRY_BYTES


def zeroed(files: MemoryFiles, *places: int, queue: str = "t/0") -> None:
    for place in places:
        data, at = file_of(files, place, queue)
        data[at : at + ENTRY_BYTES] = bytes(ENTRY_BYTES)


def mended(store: MessageStore, most: int = 7) -> list[str]:
    """What the operator is told."""
    told: list[str] = []
    store.on_trouble.call = told.append
    while store.mender.is_busy:
        store.mender.step(most)
    return told


def store_of(count: int = 40) -> tuple[MemoryFiles, MessageStore]:
    """Messages of two queues, all written."""
    files = MemoryFiles()
    store = opened(files)
    for body in numbered(0, count):
        put(store, body)
        put(store, f"other {body}", queue_id=1)
    store.flush()
    return files, store


# --- what a reader meets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codes", [None, frozenset({java_hash("a")})], ids=["all", "by tag"])
@pytest.mark.parametrize("entry", [
    bytes(20), b"\xff" * 20, struct.pack(">qiq", 7, 120, 0), struct.pack(">qiq", 1 << 40, 90, java_hash("a"))])
def test_no_entry_is_passed_over_silently(entry: bytes, codes: frozenset[int] | None) -> None:
    if codes is not None and struct.unpack(">qiq", entry)[2] not in (*codes, 0, -1):
        return
    files, store = store_of()
    data, at = file_of(files, 5)
    if codes is not None and struct.unpack(">qiq", entry)[1] > 0:
        entry = entry[:12] + struct.pack(">q", java_hash("a"))
    data[at : at + ENTRY_BYTES] = entry
    with pytest.raises(DamagedRecord, match="queue 0 of t is damaged at place"):
        seen(store, codes=codes)
    assert store.mender.ask(b"t", 0) == "it is built again from the log; ask again"
    assert mended(store) == ["queue 0 of t: it was built again from the log"]
    assert seen(store, codes=codes) == numbered(0, 40)


def test_what_stands_in_front_of_the_damage_is_given() -> None:
    files, store = store_of()
    zeroed(files, 5)
    got = read(store.messages, b"t", 0, 0, config=ReadConfig(), codes=frozenset({java_hash("a")}))
    assert (got.status, got.count, got.next_offset) == (Status.FOUND, 5, 5)


def test_an_entry_that_is_gone_does_not_take_those_in_front_of_it_along() -> None:
    """The least offset is searched for by halves: zeros in the middle would be below every log."""
    files, store = store_of(90)
    zeroed(files, *range(30, 70))
    delete_before(store, 2 * CONFIG.log_file_bytes)
    whole = store_of(90)[1]
    delete_before(whole, 2 * CONFIG.log_file_bytes)
    assert store.mender.is_busy, "found by cleaning"
    mended(store)
    assert seen(store) == seen(whole) != numbered(0, 90)
    assert store.messages.min_offset(b"t", 0) == whole.messages.min_offset(b"t", 0) > 0


# --- what is mended --------------------------------------------------------------------------------------------------


def test_a_real_file_that_is_written_over_under_an_open_store(tmp_path: Path) -> None:
    store = opened(DirectoryFiles(str(tmp_path)))
    put(store, *numbered(0, 40))
    store.flush()
    first = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
    with first.open("r+b") as file:
        file.seek(3 * ENTRY_BYTES)
        file.write(b"\x5a" * 200)
    with pytest.raises(DamagedRecord):
        seen(store)
    store.mender.ask(b"t", 0)
    put(store, *numbered(40, 50))
    mended(store)
    assert seen(store) == numbered(0, 50)
    store.close()
    store = opened(DirectoryFiles(str(tmp_path)))
    assert seen(store) == numbered(0, 50)
    store.close()


@pytest.mark.parametrize("remembered_max", [1, 3, 1_000])
def test_little_is_remembered_at_a_time(remembered_max: int) -> None:
    files, store = store_of()
    zeroed(files, *range(2, 30))
    store.mender = Mender(store.log, store._queues, store.visible, remembered_max=remembered_max)
    store.mender.ask(b"t", 0)
    mended(store)
    assert seen(store) == numbered(0, 40)


@pytest.mark.parametrize("remembered_max", [3, 1_000])
def test_readers_see_the_old_entry_or_the_right_one(remembered_max: int) -> None:
    """Also of a topic that was deleted and made anew, whose older messages have the same places."""
    files, store = store_of()
    store.delete_topics([b"t"])
    put(store, *numbered(100, 130))
    store.flush()
    zeroed(files, *range(4, 9))
    store.mender = Mender(store.log, store._queues, store.visible, remembered_max=remembered_max)
    store.mender.ask(b"t", 0)
    for _ in range(250):
        if store.mender.is_busy:
            store.mender.step(3)
        for place in range(30):
            try:
                assert seen(store, begin=place)[:1] == [f"m{100 + place}"]
            except DamagedRecord:
                assert store.mender.is_busy and place < 9
    assert seen(store) == numbered(100, 130) and not store.mender.is_busy


def test_entries_without_a_message_point_nowhere() -> None:
    """Their messages are no longer in the log, or never were."""
    files, store = store_of()
    data, at = file_of(files, 6)
    wanted = numbered(0, 40)
    store.writer.forget_numbers()
    queue = store.messages.queue(b"t", 0)
    assert queue is not None
    queue.append(44, store.log.min_offset, 91, 0)  # as if places 40 to 43 had been lost
    data[at : at + ENTRY_BYTES] = bytes(ENTRY_BYTES)
    store.mender.ask(b"t", 0)
    mended(store)
    got = read(store.messages, b"t", 0, 40, config=ReadConfig())
    assert (got.status, got.next_offset) == (Status.MESSAGE_WAS_REMOVING, 45)
    assert seen(store) == wanted


def test_a_damaged_log_is_said_and_what_stands_in_front_is_mended() -> None:
    files, store = store_of()
    zeroed(files, 5, 30)
    where = store.messages.queue(b"t", 0)
    assert where is not None
    offset = where.entry(20)[0]
    log = files.content[f"commitlog/{offset - offset % CONFIG.log_file_bytes:020d}"].data
    log[offset % CONFIG.log_file_bytes] ^= 0x55
    store.mender.ask(b"t", 0)
    [words] = mended(store, most=1)
    assert "the log is damaged" in words and str(offset) in words
    assert store.mender.ask(b"t", 0) in words and not store.mender.is_busy, "once"
    assert [read(store.messages, b"t", 0, place, config=ReadConfig(), count=1).count for place in (5, 19)] == [1, 1]


def test_a_queue_is_mended_once_in_the_life_of_a_process() -> None:
    files, store = store_of()
    store.mender.ask(b"t", 0)
    mended(store)
    zeroed(files, 5)
    assert store.mender.ask(b"t", 0) == "it was built again from the log" and not store.mender.is_busy
    store.close()
    store = opened(files)
    store.mender.ask(b"t", 0)
    mended(store)
    assert seen(store) == numbered(0, 40)


def test_a_topic_that_is_deleted_meanwhile_is_left_alone() -> None:
    files, store = store_of()
    zeroed(files, 5)
    store.mender.ask(b"t", 0)
    store.mender.step(1)
    store.delete_topics([b"t"])
    assert mended(store) == ["queue 0 of t: its topic was deleted"]
    put(store, "anew")
    store.mender.ask(b"t", 0)
    mended(store)
    assert seen(store) == ["anew"]


def test_a_topic_that_is_deleted_and_made_anew_meanwhile_is_looked_at_from_the_start() -> None:
    """What was remembered is of messages that are no longer the queue's."""
    files, store = store_of()
    zeroed(files, 0)
    store.mender.ask(b"t", 0)
    store.mender.step(1)
    store.delete_topics([b"t"])
    put(store, *numbered(100, 103))
    mended(store)
    assert seen(store) == numbered(100, 103)


def test_a_disk_that_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    files, store = store_of()
    zeroed(files, 5)
    queue = store.messages.queue(b"t", 0)

    def refuses(place: int, entries: bytes) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(queue, "mend", refuses)
    store.mender.ask(b"t", 0)
    [words] = mended(store)
    assert "it cannot be built again" in words and "no" in words


# --- everything at once ----------------------------------------------------------------------------------------------


class Scene:
    """A store under seeded chance, and what its two queues should hold: queue 0 is damaged again and again."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.files = rng, MemoryFiles()
        self.store = opened(self.files)
        self.log: list[tuple[int, int, str]] = []
        """Offset, queue id, body."""
        self.number = self.damages = self.mended = 0
        self.is_whole = True

    def wanted(self, queue_id: int = 0) -> list[str]:
        return [body for _, of_queue, body in self.log if of_queue == queue_id]

    def bounds(self) -> tuple[int, int]:
        queue = self.store.messages.queue(b"t", 0)
        return (queue.min_offset, queue.max_offset) if queue is not None else (0, 0)

    def put(self) -> None:
        queue_id = self.rng.randrange(2)
        for _ in range(self.rng.randint(1, 12)):
            body, self.number = f"m{self.number}", self.number + 1
            put(self.store, body, queue_id=queue_id)
            offset = next(found[0] for found in self.store.log.scan(self.log[-1][0] if self.log else 0)
                          if found[0] > (self.log[-1][0] if self.log else -1))
            self.log.append((offset, queue_id, body))

    def damage(self) -> None:
        """But for the last entry: of zeros at the end nobody can tell that they were more."""
        self.store.flush()
        least, end = self.bounds()
        if end - least > 2:
            first = self.rng.randrange(least, end - 1)
            for place in range(first, min(end - 1, first + self.rng.randint(1, 30))):
                data, at = file_of(self.files, place)
                data[at : at + ENTRY_BYTES] = self.rng.choice((bytes(ENTRY_BYTES), b"\xff" * ENTRY_BYTES))
            for file in self.files.content.values():
                file.sync()
            self.is_whole, self.damages = False, self.damages + 1

    def read(self) -> None:
        least, end = self.bounds()
        if least == end:
            return
        begin = self.rng.randrange(least, end)
        try:
            got = seen(self.store, begin=begin, codes=self.rng.choice((None, frozenset({java_hash("a")}))))
        except DamagedRecord:
            self.store.mender.ask(b"t", 0)
        else:
            assert got == self.wanted()[len(self.wanted()) - len(got) :]
            assert len(got) == len(self.wanted()) - begin or not self.is_whole

    def step(self) -> None:
        was_busy = self.store.mender.is_busy
        if was_busy:
            self.store.mender.step(self.rng.randint(1, 50))
        self.mended += was_busy > self.store.mender.is_busy

    def clean(self) -> None:
        self.store.flush()
        delete_before(self.store, self.store.log.min_offset + CONFIG.log_file_bytes)

    def anew(self) -> None:
        self.store.delete_topics([b"t"])
        self.store.flush()
        self.log, self.is_whole = self.log[-1:], True
        self.put()
        del self.log[0:1]

    def crash(self) -> None:
        self.store.flush()
        self.store.abandon()
        self.files.crash()
        self.store = opened(self.files)

    def cut(self) -> None:
        """A slave's log. Where the damaged part of a queue is cut nothing is promised."""
        if self.is_whole and len(self.log) > 3:
            at = self.rng.randrange(len(self.log) - 3, len(self.log))
            if self.log[at][0] > self.store.log.min_offset:
                self.store.truncate(self.log[at][0])
                del self.log[at:]

    def end(self) -> None:
        """In the next life of the process it is asked for once more."""
        self.store.close()
        self.store = opened(self.files)
        self.store.mender.ask(b"t", 0)
        mended(self.store)
        assert self.bounds()[1] == len(self.wanted())
        assert seen(self.store) == self.wanted()[self.bounds()[0] :]


def test_whatever_happens_meanwhile_the_queue_says_what_the_log_holds() -> None:
    """Sends, reads, cuts, old files that go, topics made anew, crashes: nobody gets a message of another place, nobody
    passes one over, and in the end all are found."""
    damages = finished = 0
    for seed in range(80):
        scene = Scene(Random(seed))
        scene.put()
        for _ in range(120):
            scene.rng.choices((scene.put, scene.damage, scene.read, scene.step, scene.clean, scene.anew, scene.crash,
                               scene.cut), (30, 8, 30, 30, 2, 1, 2, 4))[0]()
        scene.end()
        damages, finished = damages + scene.damages, finished + scene.mended
    assert damages > 300 and finished > 50
