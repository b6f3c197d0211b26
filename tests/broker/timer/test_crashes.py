"""The machine stops before any one operation on its disk: what waits is in its slot once, and nothing else is."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from broker.store.files import MemoryFiles
from broker.timer.flush import TimerFlush
from broker.timer.store import TimerStore
from broker.timer.units import Unit
from tests.broker.timer.small import LOG_FILE_BYTES, SLOTS, T0

SIZE = 100


class Stopped(Exception):
    """The machine stops."""


class Fuse:
    """A ``Hook`` that stops the machine at one operation."""

    def __init__(self, left: int) -> None:
        self.left, self.count = left, 0

    def __call__(self, what: str) -> None:
        self.count += 1
        self.left -= 1
        if self.left < 0:
            raise Stopped(what)


@attrs.define
class Message:
    offset: int
    slot: int
    """When it is due, in slots."""
    waits_in: int = -1
    """Where it was put; -1: it was not yet."""
    moved: bool = False
    done: bool = False


class Replica:
    """A timer store, the queue that it is fed from, and what it must hold. The commit log loses nothing by a crash but
    what the test cuts: a log that lost its end is a log that was cut."""

    def __init__(self, files: MemoryFiles, rng: Random) -> None:
        self.files, self.rng = files, rng
        self.queue: list[Message] = []
        self.end = 1_000
        """Of the commit log."""
        self.begin = T0 // 1_000
        """Slots before are done."""
        self.store = self.made()
        self.flushing: tuple[TimerFlush, object] | None = None
        self.words: list[str] = []

    def made(self) -> TimerStore:
        return TimerStore(self.files, slots=SLOTS, log_file_bytes=LOG_FILE_BYTES)

    def place_of(self, offset: int) -> int | None:
        return next((place for place, message in enumerate(self.queue) if message.offset == offset), None)

    def start(self) -> None:
        self.store, self.flushing = self.made(), None
        wrong = self.store.recover(self.end, queue_end=len(self.queue), place_of=self.place_of)
        if wrong:
            self.words.append(wrong)
        if not self.store.read_time_ms:
            self.store.done_before(T0)

    def enqueue(self) -> None:
        store = self.store
        while store.queue_offset < len(self.queue):
            message = self.queue[store.queue_offset]
            if not message.moved and not store.is_done(store.queue_offset, message.slot * 1_000):
                slot = max(message.slot, store.read_time_ms // 1_000)
                if store.insert(slot * 1_000, Unit(message.offset, SIZE), T0) or message.waits_in < 0:
                    message.waits_in = slot
            store.queue_offset += 1

    def check(self) -> None:
        """After a start: all that waited does, once, and what is done on disk at most."""
        store = self.store
        begin = store.read_time_ms // 1_000
        assert begin <= self.begin, "it never claims more than was done"
        self.enqueue()
        found: dict[int, int] = {}
        for slot in store._wheel.all_pending():
            units = list(store.slot(slot * 1_000))
            assert [unit.offset for unit in units] == sorted(unit.offset for unit in units)
            for unit in units:
                assert unit.offset not in found, "once"
                found[unit.offset] = slot
        known = {message.offset: message for message in self.queue}
        assert found.keys() <= known.keys(), "nothing that the log does not hold"
        for message in self.queue:
            if message.waits_in >= 0 and not message.moved and not message.done:
                assert message.offset in found, message
            if message.offset in found and message.slot >= self.begin:
                assert found[message.offset] == message.slot
        assert sum(store._wheel.get(slot).count for slot in store._wheel.all_pending()) == store.pending
        if not any(message.moved for message in self.queue):
            assert store.pending == len(found)
        for message in self.queue:
            message.waits_in = found.get(message.offset, message.waits_in)

    def step(self) -> None:
        rng, store, what = self.rng, self.store, self.rng.random()
        if what < 0.5:
            for _ in range(rng.choice((1, 1, 4))):
                self.queue.append(Message(self.end, self.begin + rng.choice((-3, 0, 1, 2, 2, 2, 40, SLOTS - 100))))
                self.end += SIZE
            if rng.random() < 0.8:
                self.enqueue()
        elif what < 0.6:
            store._log.write()
        elif what < 0.75:
            self.flush_some()
        elif what < 0.8 and self.flushing is None:
            store.flush()
        elif what < 0.9:
            self.enqueue()
            self.begin += rng.choice((0, 1, 1, 3))
            store.done_before(self.begin * 1_000)
            for message in self.queue:
                message.done |= 0 <= message.waits_in < self.begin
        elif what < 0.93 and self.queue:
            self.cut()
        elif what < 0.96:
            self.release()

    def flush_some(self) -> None:
        if self.flushing is None:
            flush = self.store.begin_flush()
            self.flushing = flush, flush.steps()
        flush, steps = self.flushing
        for _ in range(self.rng.randrange(1, 5)):
            if next(steps, "ended") == "ended":  # type: ignore[call-overload]
                self.store.end_flush(flush)
                self.flushing = None
                return

    def cut(self) -> None:
        place = self.rng.randrange(max(0, len(self.queue) - 12), len(self.queue))
        end = self.queue[place].offset
        if self.rng.random() < 0.05:
            place, end = 0, 0
        try:
            self.store.cut(end, self.place_of)
        except Stopped:
            if self.rng.random() < 0.5:  # the log was cut first, or was not cut at all
                self.forget(place, end)
            raise
        self.forget(place, end)
        self.store.queue_offset = min(self.store.queue_offset, len(self.queue))
        if self.flushing is not None and self.flushing[0].cancelled:
            self.flushing = None

    def forget(self, place: int, end: int) -> None:
        del self.queue[place:]
        self.end = max(end, 1_000) if not place else self.queue[-1].offset + SIZE

    def release(self) -> None:
        """Files of the commit log go: what waits in them moves forward before."""
        self.enqueue()
        below = self.end - self.rng.randrange(1, 3_000)
        for unit in self.store.pending_below(below, 0, 1_000_000)[0]:
            place = self.place_of(unit.offset)
            assert place is not None
            self.queue.append(Message(self.end, self.queue[place].slot))
            self.end += SIZE
            self.enqueue()
            self.queue[place].moved = True
            self.store.moved(unit)
        kept = self.store.oldest_offset()
        assert kept is None or kept >= below
        self.store.drop_before(below)


@pytest.mark.parametrize("seed", range(40))
def test_what_waits_survives_a_stop_before_any_operation(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles()
    fuse = Fuse(1 << 60)
    files.hook = fuse
    replica = Replica(files, rng)
    replica.start()
    stops = 0
    for _ in range(12):
        fuse.left = rng.randrange(1, 120)
        try:
            for _ in range(200):
                replica.step()
        except Stopped:
            stops += 1
        fuse.left = 1 << 60
        moved = {message.offset for message in replica.queue if message.moved}
        if rng.random() < 0.7:
            files.crash(rng.choice((lambda size: 0, lambda size: rng.randint(0, size), lambda size: size)))
            for file in files.content.values():
                file.hook = fuse
            for message in replica.queue:  # the mark of one that moved may be lost
                message.moved = False
        replica.start()
        if moved:
            again = {unit.offset for slot in replica.store._wheel.all_pending()
                     for unit in replica.store.slot(slot * 1_000)} & moved
            for message in replica.queue:
                message.moved = message.offset in moved - again
        replica.check()
    assert stops > 3
    assert not replica.words, replica.words[0]
