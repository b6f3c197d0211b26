"""The machine stops before any one operation on its disk: what was flushed is there, at its queue offset, and found."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import attrs
import pytest

from broker.store.files import Files, Hook, MemoryFiles, Survivors
from broker.store.flush import Flush
from broker.store.scattered import LogFolder, ScatteredFiles
from broker.store.store import MessageStore, StoreConfig
from broker.store.writing import Put
from remoting.errors import DamagedRecord
from remoting.record import Message, decode, encode_properties
from tests.broker.store.small import delete_before

SMALL = StoreConfig(log_file_bytes=2048, queue_file_bytes=20 * 8, index_slots=11, index_entries=16)
TOPICS = (b"t", b"u")


class Stopped(Exception):
    """The machine stops."""


class Fuse:
    """A ``Hook`` that stops the machine at one operation."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.count = 0

    def __call__(self, what: str) -> None:
        self.count += 1
        self.left -= 1
        if self.left < 0:
            raise Stopped(what)


class Broker:
    """A store and what it has promised."""

    def __init__(self, files: Files, rng: Random, config: StoreConfig = SMALL) -> None:
        self.files, self.rng, self.config = files, rng, config
        self.put: list[tuple[Put, bytes, int, bytes]] = []
        """Where, topic, queue id, body."""
        self.sure = 0
        """So many of them were flushed."""
        self.torn: set[int] = set()
        self.number = 0
        self.store = MessageStore(files, config)
        self.flushing: tuple[Flush, Iterator[None]] | None = None

    def start(self) -> None:
        self.store = MessageStore(self.files, self.config)
        self.flushing = None
        self.store.open()

    def check(self) -> None:
        """After a start: everything promised is there, and nothing that was never put."""
        store, log = self.store, self.store.log
        there = []
        for put, topic, queue_id, body in self.put:
            if put.offset < log.min_offset:
                continue
            if put.offset >= log.max_offset:
                break
            assert log.record(put.offset).message.body == body
            there.append((put, topic, queue_id, body))
        sure = sum(put.offset >= log.min_offset for put, *_ in self.put[: self.sure])
        assert len(there) >= sure
        end = there[-1][0].offset + there[-1][0].size if there else log.min_offset
        assert log.max_offset in (end, log.next_offset(end)), "nothing else is there"
        store.visible.advance()
        for key in sorted({(topic, queue_id) for _, topic, queue_id, _ in there}):
            wanted = [(put.queue_offset, body) for put, *of, body in there if (*of,) == key]
            found, at = [], store.messages.min_offset(*key)
            while records := store.messages.get(*key, at):
                for record in map(decode, records):
                    found.append((record.queue_offset, record.message.body))
                at = found[-1][0] + 1
            assert found == wanted, key
        for number, (put, topic, _, body) in enumerate(there):
            if log.record(put.offset).message.properties.endswith(b"\0"):
                # Torn, where no checksum looks, in front of a write that was not: it was promised to nobody.
                assert number >= sure or put.offset in self.torn
                self.torn.add(put.offset)
                continue
            assert put.offset in [found.offset for found in store.messages.get_by_key(topic, body.decode())]
        self.put, self.sure = there, len(there)

    def step(self) -> None:
        rng, store = self.rng, self.store
        what = rng.random()
        if what < 0.5:
            self.append()
        elif what < 0.6:
            store.log.write()
        elif what < 0.7:
            store.log.flush()
            self.sure = len(self.put)
        elif what < 0.8:
            store.visible.advance(rng.choice((None, rng.randrange(store.log.max_offset + 1))))
        elif what < 0.9:
            self.flush_some()
        elif what < 0.93 and self.put:
            self.truncate()
        elif what < 0.95:
            delete_before(store, rng.randrange(store.log.max_offset + 1))
        elif self.flushing is None:
            store.flush()
            self.sure = len(self.put)

    def append(self) -> None:
        messages = []
        for _ in range(self.rng.choice((1, 1, 3))):
            self.number += 1
            body = b"m%d" % self.number
            messages.append(Message(self.rng.choice(TOPICS), body, self.rng.randrange(2),
                                    encode_properties({"KEYS": body.decode(), "TAGS": "T" * self.rng.randrange(40)})))
        if not self.store.writer.is_numbered:
            self.store.take_over()
        puts = self.store.writer.put_all(messages, self.number)
        self.put += [(put, message.topic, message.queue_id, message.body)
                     for put, message in zip(puts, messages, strict=True)]

    def flush_some(self) -> None:
        """Steps of a flush in the background."""
        if self.flushing is None:
            flush = self.store.flusher.begin()
            self.flushing = flush, flush.steps()
        flush, steps = self.flushing
        for _ in range(self.rng.randrange(8)):
            if next(steps, True):
                self.store.flusher.end(flush)
                self.flushing = None
                return

    def truncate(self) -> None:
        keep = self.rng.randrange(len(self.put))
        offset = self.put[keep][0].offset
        if offset < self.store.log.min_offset:
            return
        kept = self.put[:keep]
        if self.flushing is not None:
            self.store.flusher.cancel()
            _, steps = self.flushing
            assert self.rng.random() < 0.5 or next(steps, True), "it leaves off"
        self.sure, before = min(self.sure, keep), self.sure
        self.put, was = kept, self.put
        try:
            self.store.truncate(offset)
        except Stopped:
            self.put, self.sure = was, min(before, keep)  # cut or not
            raise
        if self.flushing is not None:
            self.store.flusher.end(self.flushing[0])
            self.flushing = None
        self.sure = len(kept)  # cutting syncs


class Folders(ScatteredFiles):
    """Log and epoch file have disks of their own, which lose power together."""

    def crash(self, survivors: Survivors) -> None:
        for disk in self._all():
            assert isinstance(disk, MemoryFiles)
            disk.crash(survivors)

    def hooked(self, hook: Hook) -> None:
        for disk in self._all():
            assert isinstance(disk, MemoryFiles)
            disk.hook = hook


def scattered() -> Folders:
    return Folders(MemoryFiles(), [LogFolder(path, MemoryFiles()) for path in ("/a", "/b")], file_bytes=2048)


def life(seed: int, stop: int, *, apart: bool = False) -> int:
    """Some runs of a broker, of which the first ends at operation ``stop``; how many there were."""
    rng = Random(seed)
    chances = Random(f"{seed}:{stop}")
    fuse = Fuse(stop)
    files = scattered() if apart else Folders(MemoryFiles())
    files.hooked(fuse)
    broker = Broker(files, rng, attrs.evolve(SMALL, log_apart=apart))
    try:
        broker.start()
        for _ in range(40):
            broker.step()
    except Stopped:
        pass
    else:
        return fuse.count
    for _ in range(3):
        files.hooked(Fuse(chances.randrange(120)))
        files.crash(lambda size: chances.choice((0, size, chances.randrange(size + 1))))
        try:
            broker.start()
            files.hooked(lambda what: None)
            broker.check()
            for _ in range(10):
                broker.step()
        except Stopped:
            pass
    return -1


@pytest.mark.parametrize("seed", range(6))
def test_the_machine_stops_before_any_operation(seed: int) -> None:
    for stop in range(life(seed, 1 << 30)):
        life(seed, stop)


@pytest.mark.parametrize("seed", range(3))
def test_a_log_in_folders_of_its_own_survives_as_well(seed: int) -> None:
    for stop in range(0, life(seed, 1 << 30, apart=True), 2):
        life(seed, stop, apart=True)


def test_a_damaged_record_is_no_partial_one() -> None:
    store = MessageStore(MemoryFiles(), SMALL)
    store.open()
    put = store.writer.put(Message(b"t", b"body"), 1)
    store.log.write()
    raw = store.log.read(0, put.size)
    copy = MessageStore(MemoryFiles(), SMALL)
    copy.open()
    for at in range(1, put.size + 1):
        copy.writer.append_raw(raw[at - 1 : at], at - 1)
        assert copy.visible.advance() == (at == put.size), "a part waits for the rest"
    copy.writer.append_raw(b"\0" * 100, put.size)
    with pytest.raises(DamagedRecord):
        copy.visible.advance()
